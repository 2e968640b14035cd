"""A trace in the form that Perfetto and Chrome read (Trace Event Format): a track for each rank, and one for each link
with what went over it; frame after frame.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.trace import COMPUTE, WAIT, Span, Trace
from runtime.transfers import Transfer, transfers

GAP_S = 1e-3
"""Between two frames that were measured each by itself, so that a person sees where one ends."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Frame:
    """One of a trace. later_s: by how much its spans are moved"""

    number: int
    later_s: float
    spans: tuple[Span, ...]
    messages: list[Transfer]


@dataclass(frozen=True)
class Bar:
    """Something that was in use. args: what else there is to say of it"""

    name: str
    start_s: float
    stop_s: float
    args: dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """What ranks do not note, but a simulator knows: more tracks, as a process of its own.

    bars:   by the name of their track, none of which overlap
    levels: by the name of their track, times in seconds, each with values by name that hold from then on
    """

    name: str
    bars: dict[str, list[Bar]]
    levels: dict[str, list[tuple[float, dict[str, float]]]]


def to_perfetto(*traces: Trace, panels: Sequence[Panel] = ()) -> str:
    """One JSON text of traces side by side, each two processes named after its source: its ranks, and its links."""
    events: list[Event] = []
    for k, trace in enumerate(traces):
        frames, name = list(_frames(trace)), f"{trace.source}{'' if trace.barrier else ' stream'}"
        ranks, links = 2 * k + 1, 2 * k + 2
        events += _tracks(ranks, name, [f"rank {u.rank} {u.device}" for u in trace.ranks])
        for frame in frames:
            events += _spans(ranks, frame)
            events += _arrows(ranks, frame, len(events))
        events += _links(links, f"{name}: messages", frames)
    for process, panel in enumerate(panels, 2 * len(traces) + 1):
        events += _panel(process, panel)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _frames(trace: Trace) -> Iterator[Frame]:
    """Frames that begin together at 0 each are put one after the other."""
    end_s = 0.0
    for number, spans in enumerate(trace.frames):
        first_s = min((span.start_s for span in spans), default=0.0)
        later_s = end_s - first_s if trace.barrier else 0.0
        yield Frame(number, later_s, spans, transfers(spans))
        end_s = later_s + max((span.stop_s for span in spans), default=0.0) + GAP_S


def _tracks(process: int, name: str, threads: Sequence[str]) -> Iterator[Event]:
    """Names of a process and of its threads, which are numbered from 1: 0 is nobody to Perfetto."""
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    for thread, title in enumerate(threads, 1):
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": title}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}


def _spans(process: int, frame: Frame) -> Iterator[Event]:
    """What each rank did. A wait says what for."""
    wire_s = {id(message.wait): message.wire_s for message in frame.messages}
    for span in frame.spans:
        more: dict[str, Any] = {}
        if span.peer is not None:
            more = {"from" if span.kind == WAIT else "to": f"rank {span.peer}", "bytes": span.size_bytes}
        if id(span) in wire_s:
            wire = wire_s[id(span)]
            more |= {"for the wire, us": _micro(wire), "for the sender, us": _micro(span.time_s - wire)}
        name = span.name if span.kind == COMPUTE else f"{span.kind} {span.name}"
        yield _event(process, span.rank + 1, span.kind, name, span, frame, more)


def _arrows(process: int, frame: Frame, first: int) -> Iterator[Event]:
    """From a send to the wait that it ends."""
    for number, message in enumerate(frame.messages, first):
        common = {"cat": "message", "name": "message", "pid": process, "id": number}
        start, stop = (_micro(frame.later_s + t) for t in (message.start_s, message.stop_s))
        yield {"ph": "s", **common, "tid": message.send.rank + 1, "ts": start}
        yield {"ph": "f", "bp": "e", **common, "tid": message.wait.rank + 1, "ts": max(start, round(stop - 0.001, 3))}


def _links(process: int, name: str, frames: Iterable[Frame]) -> Iterator[Event]:
    """What was under way from one rank to another; a link has as many tracks as messages at a time."""
    links: dict[tuple[int, int], list[list[tuple[Frame, Transfer]]]] = defaultdict(list)
    for frame, message in sorted(_messages(frames), key=lambda pair: pair[0].later_s + pair[1].start_s):
        tracks = links[message.link]
        free = (t for t in tracks if t[-1][0].later_s + t[-1][1].stop_s <= frame.later_s + message.start_s)
        track = next(free, None)
        if track is None:
            tracks.append([(frame, message)])
        else:
            track.append((frame, message))
    named = [(f"rank {a} to {b}", track) for (a, b), tracks in sorted(links.items()) for track in tracks]
    if named:
        yield from _tracks(process, name, [title for title, _ in named])
    for thread, (_, track) in enumerate(named, 1):
        for frame, message in track:
            name = message.send.name + ("" if message.seen else " (was there when the receiver looked)")
            yield _event(process, thread, "transfer", name, message, frame, _amount(message))


def _messages(frames: Iterable[Frame]) -> Iterator[tuple[Frame, Transfer]]:
    return ((frame, message) for frame in frames for message in frame.messages)


def _amount(message: Transfer) -> dict[str, Any]:
    """Bytes, and how many a second, if that can be told."""
    time_s, size_bytes = message.stop_s - message.start_s, message.send.size_bytes
    return {"bytes": size_bytes} | ({"MB/s": round(size_bytes / 1e6 / time_s, 3)} if message.seen and time_s else {})


def _panel(process: int, panel: Panel) -> Iterator[Event]:
    """Complete events, and counters, in microseconds."""
    yield from _tracks(process, panel.name, list(panel.bars))
    for thread, bars in enumerate(panel.bars.values(), 1):
        for bar in bars:
            start, stop = _micro(bar.start_s), _micro(bar.stop_s)
            place = {"pid": process, "tid": thread, "ts": start, "dur": round(stop - start, 3)}
            yield {"ph": "X", "name": bar.name, "cat": "link", **place, "args": bar.args}
    for name, changes in panel.levels.items():
        for time_s, values in changes:
            yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": _micro(time_s), "args": values}


def _event(
    process: int, thread: int, kind: str, name: str, what: Span | Transfer, frame: Frame, more: dict[str, Any]
) -> Event:
    """A complete event, in microseconds."""
    start, stop = (_micro(frame.later_s + t) for t in (what.start_s, what.stop_s))
    place = {"pid": process, "tid": thread, "ts": start, "dur": round(stop - start, 3)}
    return {"ph": "X", "name": name, "cat": kind, **place, "args": {"frame": frame.number, **more}}


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)
