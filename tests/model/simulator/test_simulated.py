"""Simulated mappings, to look at: critical paths without a gap, spans that are those of the plan, memory over time."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster.platform import Platform
from model.cost.costs import whole_s
from model.cost.ledger import ACTIVATIONS
from model.cost.ledger import COMPUTE as COMPUTE_S
from model.cost.priced import priced
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from model.simulator import bounds
from model.simulator.alive import levels
from model.simulator.bounds import (
    BANDWIDTH,
    COMPUTE,
    HAND_OVER,
    LATENCY,
    MORE,
    RECEIVE,
    SPEED,
    TRANSFER,
    TURN,
    gains,
    held,
    shares,
)
from model.simulator.critical import Causes
from model.simulator.predicted import traces
from model.simulator.script import Script
from model.simulator.simulated import simulated
from model.simulator.ticks import TICK_S
from runtime.bench import Bench
from runtime.errors import CleaveError
from runtime.plan import Recv, Run, Send
from runtime.trace import COMPUTE as COMPUTE_SPAN
from runtime.trace import REST, SEND, WAIT, Trace
from tests.model.simulator.test_events import Case, cases, fast
from tests.tiny_cnn import branches, examples, graph_of, random_mapping, six_layers
from tests.tiny_cnn import platform as tiny_platform

FRAMES, WARMUP = 5, 2
KINDS = {Run: COMPUTE_SPAN, Send: SEND, Recv: WAIT}


@given(cases())
@examples(200)
def test_a_critical_path_has_no_gap_and_is_as_long_as_the_simulation(case: Case) -> None:
    n = len(case.duration)
    tasks, (ended, work) = case.tasks(np.int64), fast(case)
    if ended < n * case.frames:
        return  # they wait for one another
    path = Causes(tasks, n, case.frames, work).path()
    assert sum(part.stop - part.start for part in path) == work.stop[: n * case.frames].max()
    assert all(part.stop == following.start for part, following in pairwise(path))
    for part in path:
        task = part.row % n
        assert part.start == work.start[part.row]
        assert part.stop - part.start == (tasks.lag[task] if part.lag else tasks.duration[task])


@given(cases(), st.integers(0, 10))
@examples(100)
def test_a_path_since_a_time_is_what_is_left_of_the_whole(case: Case, since: int) -> None:
    n = len(case.duration)
    tasks, (ended, work) = case.tasks(np.int64), fast(case)
    if ended < n * case.frames:
        return  # they wait for one another
    causes = Causes(tasks, n, case.frames, work)
    whole = [part._replace(start=max(part.start, since)) for part in causes.path() if part.stop > since]
    assert causes.path(since) == whole


SEND_S, RECEIVE_S, GAP_S, ATTEND_S, TURN_S, RESTED_S = 1e-4, 2e-4, 5e-5, 2e-7, 3e-5, 1e-4


def cluster(devices: int) -> Platform:
    """Hosts with slow links; two devices a host."""
    fields = "bandwidth=1MB/s, latency=1ms, copy_bandwidth=4MB/s"
    lines = [f"h{i}, slots={k}, {fields}\n" for i in range(devices // 2) for k in range(2)]
    return Platform.parse("".join(lines), "slow.txt")


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Coefficients by which messages take the devices time, and the links some besides their bytes."""
    body = json.loads((files("platforms") / "coefficients" / "generic.json").read_text())
    for unit in body["units"].values():
        unit |= {"send_s": SEND_S, "receive_s": RECEIVE_S, "gap_s": GAP_S, "attend_s_per_byte": ATTEND_S}
        unit |= {"turn_s": TURN_S, "turn_per_message_s": TURN_S, "turn_s_per_byte": TURN_S / 1e4}
        unit |= {"rested_part": 0.5, "rested_s": RESTED_S}
    path = tmp_path_factory.mktemp("coefficients") / "talkative.json"
    path.write_text(json.dumps(body))
    return str(path)


@pytest.fixture(scope="module", params=[False, True], ids=["free", "talkative"])
def platform(request: pytest.FixtureRequest, talkative: str) -> Platform:
    """Four devices, whose messages cost them nothing or something."""
    found = cluster(4)
    named = tuple(replace(device, coefficients=talkative) for device in found.devices)
    return replace(found, devices=named) if request.param else found


def case_of(draw: random.Random, graph: Graph, platform: Platform) -> Script:
    """A random mapping, simulated; frames may come in and go out anywhere."""
    devices = len(platform.devices)
    ends = {role: draw.randrange(-1, devices) for role in ("reader", "writer")}
    mapping = replace(random_mapping(draw, graph, devices, tiles=True), **ends)
    return Script.of(simulated(graph, platform, mapping, FRAMES, WARMUP), graph, platform, mapping)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("net"), branches())


randoms = st.randoms(use_true_random=False)


@given(randoms)
@examples(30)
def test_what_holds_up_latency_and_period_is_as_long_as_they_are(
    graph: Graph, platform: Platform, draw: random.Random
) -> None:
    script = case_of(draw, graph, platform)
    found = script.found
    alone = held(script, platform, found.alone, found.latency_path)
    assert sum(part.ticks for part in alone) == found.alone.stop.max()
    assert sum(part.ticks for part in alone) * TICK_S == found.price.latency_s
    assert found.stream
    stream = held(script, platform, found.stream, found.period_path)
    period = max(sum(part.time_s for part in stream) / found.counted, found.analytical.period_s)
    assert period == pytest.approx(found.price.period_s, rel=1e-12)
    costly = {RECEIVE, HAND_OVER, bounds.REST} if "talkative" in platform.devices[0].coefficients else set()
    assert {part.category for part in alone} <= {COMPUTE, TRANSFER, LATENCY} | costly
    assert {part.category for part in stream} <= {COMPUTE, TRANSFER, LATENCY, TURN} | costly - {bounds.REST}
    assert sum(ticks for *_, ticks in shares(alone)) == found.alone.stop.max()


@given(randoms)
@examples(30)
def test_spans_follow_the_plan_without_a_gap(graph: Graph, platform: Platform, draw: random.Random) -> None:
    script = case_of(draw, graph, platform)
    alone, stream = traces(script)
    for trace in (alone, stream):
        for frame in trace.frames:
            for rank in script.plan.ranks:
                mine = [span for span in frame if span.rank == rank.rank]
                assert [(s.kind, s.name) for s in mine if s.name != REST] == [
                    (KINDS[type(step)], step.file if isinstance(step, Run) else step.buffer) for step in rank.steps
                ]
                assert all(a.stop_s == b.start_s and b.stop_s >= b.start_s for a, b in pairwise(mine))
    assert (len(alone.frames), len(stream.frames)) == (1, FRAMES)


@given(randoms)
@examples(30)
def test_traces_say_the_latency_and_the_period_that_were_simulated(
    graph: Graph, platform: Platform, draw: random.Random
) -> None:
    script = case_of(draw, graph, platform)
    price, (alone, stream) = script.found.price, traces(script)
    assert alone.latencies_s == (pytest.approx(price.latency_s, rel=1e-9),)
    seen, begin = script.found.stream, (0, WARMUP)
    assert seen
    periods = [(seen.stop.max() - seen.stop[: k + 1].max()) * TICK_S / (FRAMES + WARMUP - 1 - k) for k in begin]
    assert stream.period_s == pytest.approx(periods[1], rel=1e-9)
    assert price.period_s == pytest.approx(max(*periods, script.found.analytical.period_s), rel=1e-9)
    assert [Trace.from_json(trace.to_json()) for trace in (alone, stream)]


@given(randoms)
@examples(40)
def test_no_device_or_link_is_busy_for_longer_than_a_stream_takes(graph: Graph, draw: random.Random) -> None:
    """Also where devices send ahead of others by one link, and what comes after the warm-up only drains."""
    shared = draw.choice(["", ", medium=air", ", duplex=half"])
    slow = tiny_platform(4, f", bandwidth=10Mbit/s, latency=1us{shared}")
    script = case_of(draw, graph, slow)
    rows = script.found.devices(slow) + script.found.links(bounds.links(slow)[2])
    assert max(row["busy"] for row in rows) <= 1 + 1e-9


@given(randoms)
@examples(30)
def test_a_device_computes_hands_over_or_waits(graph: Graph, platform: Platform, draw: random.Random) -> None:
    script = case_of(draw, graph, platform)
    found = script.found
    (times,) = [Bench.from_trace(traces(script)[0]).ranks]
    for row, rank in zip(found.devices(platform), times, strict=True):
        assert row["compute_s"] + row["message_s"] + row["wait_s"] == pytest.approx(found.price.latency_s)
        assert row["compute_s"] == pytest.approx(rank.compute_s)
        assert row["device"] == rank.device


@given(randoms)
@examples(30)
def test_memory_over_time_has_the_peak_of_the_account_and_ends_empty(
    graph: Graph, platform: Platform, draw: random.Random
) -> None:
    script = case_of(draw, graph, platform)
    found = script.found
    for events in (found.alone, found.stream):
        assert events
        for device, (times, held_bytes) in levels(script.case, events).items():
            assert (np.diff(times) >= 0).all()
            assert held_bytes.max() == pytest.approx(found.price.account[device, ACTIVATIONS])
            assert held_bytes[-1] == pytest.approx(0)


@given(randoms)
@examples(20)
def test_links_are_busy_with_the_bytes_of_their_messages(graph: Graph, platform: Platform, draw: random.Random) -> None:
    script = case_of(draw, graph, platform)
    rows = script.found.links(bounds.links(platform)[2])
    assert sum(row["messages"] for row in rows) == 2 * script.case.sent
    assert sum(row["bytes"] for row in rows) == 2 * int(script.case.ledger.size[: script.case.sent].sum())
    for row in rows:
        rate = 4e6 if "copy" in row["link"] else 1e6
        gap_s = GAP_S if "talkative" in platform.devices[0].coefficients else 0
        assert row["busy_s"] == pytest.approx(row["bytes"] / rate + row["messages"] * gap_s)
        assert row["queued_s"] >= 0


def test_on_one_device_more_speed_buys_what_the_scaling_part_of_the_layers_takes(graph: Graph) -> None:
    platform = cluster(2)
    mapping = Mapping.whole(graph, [0] * len(graph.layers))
    found = simulated(graph, platform, mapping, FRAMES, WARMUP)
    (gain,) = gains(Script.of(found, graph, platform, mapping), platform)
    c = found.case.costs
    assert (gain.what, gain.where) == (SPEED, platform.devices[0].name)
    assert gain.latency_s == pytest.approx(-float(whole_s(c)[:, 0].sum()) * MORE / (1 + MORE), rel=1e-6)
    assert gain.period_s == pytest.approx(gain.latency_s, rel=1e-6)
    assert gain.amount == pytest.approx(MORE * 2 * sum(i.macs for i in graph.layers) / float(whole_s(c)[:, 0].sum()))


def test_a_message_goes_at_the_slower_of_two_rates_so_both_must_be_better(tmp_path: Path) -> None:
    graph, platform = graph_of(tmp_path, six_layers()), cluster(4)
    mapping = Mapping.whole(graph, [0, 0, 2, 2, 2, 2])
    found = simulated(graph, platform, mapping, 1)
    script = Script.of(found, graph, platform, mapping)
    gain = {(g.what, g.where): g.latency_s for g in gains(script, platform)}
    (transfer,) = [p for p in held(script, platform, found.alone, found.latency_path) if p.category == TRANSFER]
    assert gain[BANDWIDTH, "h0"] == gain[BANDWIDTH, "h1"] == 0
    assert gain[BANDWIDTH, "all"] == pytest.approx(-transfer.time_s * MORE / (1 + MORE), rel=1e-6)


@given(randoms)
@examples(20)
def test_devices_that_have_waited_compute_as_long_as_they_are_priced(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, draw: random.Random
) -> None:
    """What waking takes is computing, as ranks measure it; only receiving is not."""
    body = json.loads((files("platforms") / "coefficients" / "generic.json").read_text())
    body["units"]["cpu"] |= {"receive_s": RECEIVE_S, "wake_s": 1e-3, "wake_s_per_byte": 1e-9}
    path = tmp_path_factory.mktemp("waking") / "waking.json"
    path.write_text(json.dumps(body))
    platform = replace(plain := cluster(4), devices=tuple(replace(d, coefficients=str(path)) for d in plain.devices))
    mapping = random_mapping(draw, graph, 4)
    found = simulated(graph, platform, mapping, 1)
    s, priced_s = found.case.shards, found.analytical.account[:, COMPUTE_S]
    takes_outputs = set(s.device[s.ptr[-1 - len(graph.outputs)] :].tolist())
    for row in found.devices(platform):
        device = platform.index(row["device"])
        if device not in takes_outputs:
            assert row["compute_s"] == pytest.approx(priced_s[device], rel=1e-9)


def test_one_frame_has_no_stream_and_the_analytical_period(graph: Graph) -> None:
    platform, mapping = cluster(2), Mapping.whole(graph, [i % 2 for i in range(len(graph.layers))])
    found = simulated(graph, platform, mapping, 1)
    assert found.stream is None
    assert found.period_path == []
    assert found.price.period_s == priced(graph, platform, mapping).period_s
    assert len(traces(Script.of(found, graph, platform, mapping))) == 1
    assert found.devices(platform)[0]["busy"] is None


def test_equal_mappings_give_equal_traces_bit_for_bit(graph: Graph) -> None:
    first, again = (case_of(random.Random(3), graph, cluster(4)) for _ in range(2))
    assert traces(first) == traces(again)


def test_frames_that_no_clock_can_count_are_refused(graph: Graph) -> None:
    platform = cluster(2)
    slow = replace(platform, hosts=tuple(replace(h, copy_bandwidth_bytes_per_s=0.01) for h in platform.hosts))
    with pytest.raises(CleaveError, match="more than can be simulated"):
        simulated(graph, slow, Mapping.whole(graph, [i % 2 for i in range(len(graph.layers))]))


def test_a_message_takes_both_devices_their_time(tmp_path: Path, talkative: str) -> None:
    graph, plain = graph_of(tmp_path, six_layers()), cluster(4)
    platform = replace(plain, devices=tuple(replace(d, coefficients=talkative) for d in plain.devices))
    mapping = Mapping.whole(graph, [0, 0, 2, 2, 2, 2])
    found = simulated(graph, platform, mapping, 1)
    path = held(Script.of(found, graph, platform, mapping), platform, found.alone, found.latency_path)
    assert [(p.category, p.where) for p in path] == [
        (COMPUTE, "h0_cpu0"), (HAND_OVER, "h0_cpu0"), (LATENCY, "h0 out"), (TRANSFER, "h1 in"), (RECEIVE, "h1_cpu0"),
        (COMPUTE, "h1_cpu0"),
    ]  # fmt: skip
    assert [p.time_s for p in path if p.category in (HAND_OVER, RECEIVE)] == [SEND_S, RECEIVE_S]
    first, second = found.devices(platform)
    assert (first["message_s"], second["message_s"]) == (pytest.approx(SEND_S), pytest.approx(RECEIVE_S))
