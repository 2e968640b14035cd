"""What a simulation knows besides its spans, to look at: links, each message that takes them, and memory over time."""

from __future__ import annotations

import numpy as np

from model.cluster.platform import Platform
from model.cost.costs import ACTIVE, RANK
from model.cost.links import links
from model.cost.settling import resident
from model.simulator.alive import levels
from model.simulator.script import Script
from model.simulator.simulated import Events, used
from model.simulator.ticks import TICK_S
from runtime.perfetto import Bar, Panel
from runtime.trace import PREDICTED


def panels(script: Script, platform: Platform) -> list[Panel]:
    """Of one frame alone and of the frames of the stream that count, by the clocks of ``model.simulator.predicted``."""
    found = [_panel(script, platform, PREDICTED, script.found.alone, 0)]
    if script.found.stream:
        found.append(_panel(script, platform, f"{PREDICTED} stream", script.found.stream, script.found.warmup))
    return found


def _panel(script: Script, platform: Platform, name: str, events: Events, warmup: int) -> Panel:
    of = (script, platform, events, warmup)
    return Panel(f"{name}: links and memory", busy(*of), _memory(*of))


def busy(script: Script, platform: Platform, events: Events, warmup: int) -> dict[str, list[Bar]]:
    """By link: the messages that occupied it, in the order of time. Links that none took are left out."""
    names, resource = links(platform)[2], events.stage.tasks.resource[: events.n]
    start, stop = (times - events.since(warmup) for times in (events.start, events.stop))
    found = {}
    for link in used(resource):
        tasks = np.flatnonzero(resource == link)
        rows = sorted((int(start[f, t]), f, int(t)) for f in range(warmup, events.frames) for t in tasks)
        found[names[link]] = [
            Bar(
                _name(script, events, task),
                begin * TICK_S,
                int(stop[frame, task]) * TICK_S,
                {"frame": frame - warmup, "bytes": round(script.case.ledger.size[events.message[task]])},
            )
            for begin, frame, task in rows
        ]
    return found


def _name(script: Script, events: Events, task: int) -> str:
    rank, step = script.sends[int(events.message[task])]
    return f"{step.buffer}: rank {rank} to {step.dest}"


def _memory(
    script: Script, platform: Platform, events: Events, warmup: int
) -> dict[str, list[tuple[float, dict[str, float]]]]:
    """By device: what is resident, in bytes, and of what."""
    since, found = events.since(warmup), {}
    for device, (times, alive) in levels(script.case, events, warmup).items():
        k = script.case.costs.memory[device]
        held = resident(script.found.price.account[device], k)
        always = {"buffers": round(held["buffers"]), "process": round(k[RANK]), "weights": round(held["weights"])}
        found[f"memory of {platform.devices[device].name}"] = [
            ((time - since) * TICK_S, {"activations": round(size * k[ACTIVE]), **always})
            for time, size in zip(times.tolist(), alive.tolist(), strict=True)
        ]
    return found
