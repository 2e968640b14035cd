"""What messages cost a rank that waits, found again from runs that are made of known figures."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.zoo import cached
from model.cluster import coefficients
from model.cluster.coefficients import Coefficients, UnitCost
from model.cluster.platform import Platform
from model.cost.case import Case
from model.cost.held_weights import Weights
from model.cost.ledger import ACTIVATIONS, BUFFERS, COMPUTE, MEMORY, OPENING, PASSED, WEIGHTS
from model.cost.priced import priced
from model.cost.rest import WARM_S
from model.cost.samples import Arrival, Footing, PartOf, Run, Sample
from model.cost.segment_time import Clock, Network
from model.cost.spending import spend
from model.fit.links import fit as fit_links
from model.fit.memory import fit_memory, memory_error, peak_bytes
from model.fit.sharing import Wires
from model.fit.stream import fit_stream
from model.fit.waiting import Waiting, fit_waiting, idle_s
from model.mappings.mapping import Mapping, extent
from model.mappings.planning import plan
from model.network.boxes import CHANNELS
from model.network.graph import Graph, Tensor
from model.network.load import load
from model.simulator.bounds import COMPUTE as COMPUTES
from model.simulator.bounds import REST, held, shares
from model.simulator.panels import busy
from model.simulator.predicted import traces
from model.simulator.script import Script
from model.simulator.simulated import simulated
from runtime.trace import Memory
from tests.model.fit.test_links import TYPES, Truth
from tests.tiny_cnn import graph_of, network, node, random_mapping, six_layers

NAMES = [*TYPES][:2]
KNOWN = Waiting(late_s=40e-6, late_s_per_byte=20e-12, wake_s=15e-6, wake_s_per_byte=50e-12, attend_s_per_byte=2e-9)
UNATTENDED = replace(KNOWN, attend_s_per_byte=0.0)
UNIT = coefficients.load("generic").unit("cpu")
MB = 10**6
ALIKE: dict[str, float] = {}
MEMORIES = {name: number for number, name in enumerate(TYPES)}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load(cached("squeezenet"))


def made_up(
    graph: Graph,
    waiting: Waiting,
    waited: float = 1.0,
    noise: float = 0.0,
    outliers: float = 0.0,
    slow: Sequence[float] = (1.0, 1.0),
) -> Run:
    """A layer a segment, on two devices in turn; a message before each, half of which leave while their sender is at
    its next one. waited: part of the messages that are; slow: how many times as long computing takes as is known of it,
    on each device
    """
    clock, rng, truth = Clock(Network(graph), UNIT), np.random.default_rng(5), Truth()
    samples, arrivals, leaving = [], [], 0
    for layer in graph.layers:
        device, size = NAMES[layer.index % 2], int(rng.integers(1000, 2_000_000))
        parts = (PartOf(layer.index, 1, 0, extent(graph, layer, 1)),)
        late, wake = (a + b * size for a, b in ((waiting.late_s, waiting.late_s_per_byte),
                                                (waiting.wake_s, waiting.wake_s_per_byte)))  # fmt: skip
        off = float(rng.normal()) * noise + (rng.random() < outliers) * 2e-3
        time_s = slow[layer.index % 2] * clock.seconds(parts)
        time_s += wake - min(waiting.rested_part * time_s, waiting.rested_s)
        time_s = min(time_s + waiting.attend_s_per_byte * leaving, time_s / (1 - waiting.attend_s_per_byte * 118e6))
        samples.append(Sample("segment", device, graph.name, parts, (time_s + off,) * 5, layer.index))
        after, leaving = (1.0, size) if rng.random() < 0.5 else (0.5, 0)
        took = truth.whole(size) + late + off if rng.random() < waited else None
        arrivals.append(Arrival(NAMES[(layer.index + 1) % 2], device, size, layer.index, took, layer.index + after))
    times = (sum(s.time_s for s in samples),)
    return Run(
        "k", "d", graph.name, "python", "", "together", "", "h", "", {}, times, (), tuple(samples), tuple(arrivals)
    )


def found(
    graph: Graph,
    *runs: Run,
    unit: UnitCost = UNIT,
    memories: dict[str, int] = MEMORIES,
    slowdowns: dict[str, float] = ALIKE,
) -> Waiting:
    wires = Wires(fit_links(Truth().samples(), TYPES), hosts={name: name for name in TYPES}, memories=memories)
    units = dict.fromkeys(NAMES, unit)
    networks = {graph.name: Network(graph)}
    waiting = fit_waiting(runs, networks, units, wires, TYPES, slowdowns)
    return fit_stream(runs, networks, waiting, units, wires, TYPES)["small"]


def test_what_messages_cost_comes_back(graph: Graph) -> None:
    seen = [*vars(found(graph, made_up(graph, UNATTENDED))).values()]
    assert seen[2:] == pytest.approx([KNOWN.wake_s, KNOWN.wake_s_per_byte, *[0] * 10], rel=1e-3)
    assert seen[:2] == pytest.approx(
        [KNOWN.late_s, KNOWN.late_s_per_byte], rel=0.2
    )  # what the link takes is fitted, too


def test_what_leaving_messages_cost_comes_back(graph: Graph) -> None:
    """Within what is known of the link's rate, by which it is told how much leaves meanwhile."""
    seen = [*vars(found(graph, made_up(graph, KNOWN))).values()]
    assert seen[2:6] == pytest.approx([KNOWN.wake_s, KNOWN.wake_s_per_byte, KNOWN.attend_s_per_byte, 0], rel=1e-2)
    assert max(seen[6:]) < 1e-2


def test_a_few_that_are_far_off_change_little(graph: Graph) -> None:
    seen = found(graph, made_up(graph, KNOWN, noise=3e-6, outliers=0.1))
    assert [*vars(seen).values()] == pytest.approx([*vars(KNOWN).values()], rel=0.5)


def test_a_run_in_which_processors_were_slow_has_messages_that_cost_as_much(graph: Graph) -> None:
    seen = found(graph, *(made_up(graph, KNOWN, slow=(slow, slow)) for slow in (1.0, 1.08)))
    cost = [seen.wake_s, seen.wake_s_per_byte, seen.attend_s_per_byte]
    assert cost == pytest.approx([KNOWN.wake_s, KNOWN.wake_s_per_byte, KNOWN.attend_s_per_byte], rel=0.1)


def test_what_messages_cost_comes_back_where_one_of_two_that_are_alike_is_slower(graph: Graph) -> None:
    run = made_up(graph, KNOWN, slow=(1.0, 1.2))
    seen = found(graph, run, slowdowns={NAMES[1]: 1.2})
    cost = [seen.wake_s, seen.wake_s_per_byte, seen.attend_s_per_byte]
    assert cost == pytest.approx([KNOWN.wake_s, KNOWN.wake_s_per_byte, KNOWN.attend_s_per_byte], rel=1e-2)
    assert found(graph, run).wake_s != pytest.approx(KNOWN.wake_s, rel=0.1)  # where that is not known


def test_segments_that_are_held_up_now_and_then_take_as_long_in_the_sum(graph: Graph) -> None:
    """Most messages cost little, some much: what counts is what a frame takes."""
    often = [made_up(graph, Waiting(wake_s=wake_s)) for wake_s in (0.0, 0.0, 0.0, 1.6e-4)]
    seen = found(graph, *(mixed(often, turn) for turn in range(4)))
    assert seen.wake_s == pytest.approx(4e-5, rel=0.4)


def mixed(runs: list[Run], turn: int) -> Run:
    """A run with every segment from one of these, which are of the same segments."""
    samples = [of[(3 * k + turn) % len(of)] for k, of in enumerate(zip(*(run.samples for run in runs), strict=True))]
    return replace(runs[0], samples=tuple(samples))


@pytest.mark.parametrize("noise", [0.0, 3e-6])
def test_what_rest_saves_comes_back(graph: Graph, noise: float) -> None:
    rested = replace(KNOWN, rested_part=0.4, rested_s=4e-4)
    seen = found(graph, made_up(graph, rested, noise=noise))
    assert [seen.rested_part, seen.rested_s] == pytest.approx([0.4, 4e-4], rel=0.1)
    assert seen.wake_s == pytest.approx(KNOWN.wake_s, rel=0.3)
    seen = found(graph, made_up(graph, KNOWN, noise=noise))
    assert seen.rested_s < 2e-5


@pytest.mark.parametrize("noise", [0.0, 5e-6])
def test_what_devices_of_one_memory_cost_each_other_comes_back(graph: Graph, noise: float) -> None:
    """Beside what messages cost, in another run; nothing where each has a memory of its own."""
    crowded, rng, clock = 2e-10, np.random.default_rng(3), Clock(Network(graph), UNIT)
    whole = [(layer, extent(graph, layer)) for layer in graph.layers if graph.weight_bytes(layer) > 1e5]
    samples = []
    for layer, size in whole:
        cut = int(rng.integers(1, size))
        parts = [PartOf(layer.index, CHANNELS, *edge) for edge in ((0, cut), (cut, size))]
        less = min(cut, size - cut) / size * graph.weight_bytes(layer)
        for name, part in zip(NAMES, parts, strict=True):
            divided = clock.network.divided(parts)
            time_s = clock.seconds([part], divided) + crowded * less + float(rng.normal()) * noise
            samples.append(Sample("segment", name, graph.name, (part,), (time_s,) * 5, layer.index))
    apart = made_up(graph, KNOWN)
    parts_of_it = replace(apart, samples=tuple(samples), arrivals=())
    seen = found(graph, apart, parts_of_it, memories=dict.fromkeys(TYPES, 0))
    assert seen.crowded_s_per_byte == pytest.approx(crowded, rel=0.15)
    assert seen.attend_s_per_byte == pytest.approx(KNOWN.attend_s_per_byte, rel=0.05)
    assert found(graph, apart, parts_of_it).crowded_s_per_byte == 0


@pytest.mark.parametrize(("part", "slower"), [(0.25, 1), (1.0, 1), (0.25, 50), (1.0, 10)])
@pytest.mark.parametrize(("cold_s", "cold_part"), [(1e-4, 0.0), (2e-5, 3e-3), (0.0, 1e-3), (0.0, 0.0)])
def test_what_a_processor_is_at_comes_back(
    graph: Graph, part: float, slower: int, cold_s: float, cold_part: float
) -> None:
    """Whatever else holds up the segments. All wait for messages, now briefly, now long. slower: so that many segments
    take so long that caches are full"""
    unit = replace(UNIT, busy_part=part, frequency_hz=UNIT.frequency_hz / slower)
    run, clock, wake = made_up(graph, replace(KNOWN, rested_part=0.4, rested_s=4e-4)), Clock(Network(graph), unit), 4e-5
    samples, ends, rng = [], dict.fromkeys(NAMES, 0.0), np.random.default_rng(3)
    for sample in run.samples:
        begin_s = ends[sample.device] + float(rng.choice([1e-4, 1e-3, 1e-2]))
        ends[sample.device] = begin_s + sample.time_s
        samples.append(replace(sample, begin_s=begin_s))
    run = replace(run, samples=tuple(samples), latencies_s=(max(ends.values()),))
    at_it = part * np.array([clock.seconds(sample.parts) for sample in samples])
    assert (np.mean(at_it > WARM_S) > 0.1) == (slower > 1)
    busy = at_it + wake + np.sqrt(cold_s * np.minimum(at_it, WARM_S)) + cold_part * np.array(idle_s(run))
    run = replace(
        run, samples=tuple(replace(sample, busy_s=s) for sample, s in zip(samples, busy.tolist(), strict=True))
    )
    seen = found(graph, run, unit=unit)
    assert seen.wake_busy_s == pytest.approx(wake, rel=0.1)
    assert seen.cold_s == pytest.approx(cold_s, rel=0.15, abs=1e-7)
    assert seen.cold_part == pytest.approx(cold_part, rel=0.1, abs=1e-5)
    mute = tuple(replace(s, busy_s=None) if s.device == NAMES[1] else s for s in run.samples)
    seen = found(graph, replace(run, samples=mute), unit=unit)
    assert seen.wake_busy_s == pytest.approx(wake, rel=0.2)  # as the other device, which tells, has it
    assert seen.cold_s == pytest.approx(cold_s, rel=0.3, abs=1e-7)
    seen = found(graph, run)
    assert (seen.wake_busy_s, seen.cold_s, seen.cold_part) == (0, 0, 0)  # of whom nobody knows its part


def test_before_a_segment_its_device_has_not_computed_since_its_last_one_in_this_frame_or_the_one_before(
    graph: Graph,
) -> None:
    """The first device begins and ends the frame, the second computes amid it."""
    device, other = NAMES
    begun = [(device, 0.0), (device, 3e-3), (device, 9e-3), (other, 2e-3), (other, 4e-3)]
    each = made_up(graph, KNOWN).samples[0]
    samples = tuple(replace(each, device=name, begin_s=begin_s, times_s=(1e-3,)) for name, begin_s in begun)
    run = replace(made_up(graph, KNOWN), samples=samples, latencies_s=(10e-3,))
    assert idle_s(run) == pytest.approx([0, 2e-3, 5e-3, 7e-3, 1e-3])
    unknown = replace(run, samples=tuple(replace(sample, begin_s=None) for sample in samples))
    assert idle_s(unknown) == [0] * 5


def stands_still(run: Run, seed: int, frames: int = 15) -> Run:
    """On a processor that may run a ninth of the time: 8 ms stand still now and then, what is left is quick."""
    rng = np.random.default_rng(seed)
    samples = []
    for sample in run.samples:
        often = rng.poisson(sample.time_s * 8 / 9 / 8e-3, frames)
        samples.append(replace(sample, times_s=tuple(sample.time_s / 9 + 8e-3 * often)))
    sent = [replace(message, sent_s=None) for message in run.arrivals]  # none leaves while something is computed
    return replace(run, samples=tuple(samples), arrivals=tuple(sent))


@pytest.mark.parametrize("seed", range(3))
def test_short_segments_that_are_held_up_in_few_frames_have_not_saved_anything_by_rest(graph: Graph, seed: int) -> None:
    """Most frames of most segments take a ninth of their mean."""
    runs = [stands_still(made_up(graph, Waiting()), 4 * seed + number) for number in range(4)]
    seen, clock = found(graph, *runs), Clock(Network(graph), UNIT)
    alone_s = np.array([clock.seconds(sample.parts) for sample in runs[0].samples])
    saved_s = np.minimum(seen.rested_part * alone_s, seen.rested_s)
    assert saved_s.sum() < 0.15 * alone_s.sum(), seen


def test_messages_that_nobody_waits_for_are_not_late(graph: Graph) -> None:
    seen = found(graph, made_up(graph, UNATTENDED, waited=0.0))
    assert (seen.late_s, seen.late_s_per_byte) == (0, 0)
    assert seen.wake_s == pytest.approx(KNOWN.wake_s, rel=1e-3)


def streamed(run: Run, take: float) -> Run:
    """The same run with a stream in which both ranks compute half of the time."""
    ranks = []
    for name in NAMES:
        mine = [k for k, sample in enumerate(run.samples) if sample.device == name]
        came = sum(message.size_bytes for message in run.arrivals if message.target == name)
        alone_s = sum(run.samples[k].time_s for k in mine)
        ranks.append(Footing(name, 0, 0, 0, 0, 0, 0, None, 0, stream_s=alone_s + take * came / 2))
    period_s = sum(rank.stream_s or 0.0 for rank in ranks)
    return replace(run, ranks=tuple(ranks), period_s=period_s)


@pytest.mark.parametrize("take", [0.0, 5.8e-9, 20e-9])
def test_what_coming_messages_cost_in_a_stream_comes_back(graph: Graph, take: float) -> None:
    """At most as much as what leaves."""
    run = made_up(graph, KNOWN)
    sent = [replace(message, sent_s=None) for message in run.arrivals]
    assert found(graph, run).take_s_per_byte == 0
    seen, attend = found(graph, *[streamed(run, take)] * 20).take_s_per_byte, KNOWN.attend_s_per_byte
    assert seen == pytest.approx(min(max(0.0, take - 2 * attend), attend), rel=0.05)
    assert found(graph, streamed(replace(run, arrivals=tuple(sent)), 0.0)).take_s_per_byte == 0


@pytest.mark.parametrize("part", [0.5, None])
@pytest.mark.parametrize(("more", "a_byte"), [(2e-4, 0.0), (0.0, 3e-8), (1e-4, 2e-8)])
def test_by_how_much_messages_make_the_program_of_a_frame_longer_comes_back(
    graph: Graph, more: float, a_byte: float, part: float | None
) -> None:
    """One of the two ranks looks for messages besides."""
    turn, period_s, runs = 1e-3, 1.0, []
    unit, alone = replace(UNIT, busy_part=part, turn_s=turn), made_up(graph, Waiting())
    for larger in (1, 4):
        arrivals = tuple(replace(m, size_bytes=larger * m.size_bytes, took_s=None) for m in alone.arrivals)
        run = streamed(replace(alone, arrivals=arrivals), 0.0)
        ranks = []
        for rank, look in zip(run.ranks, (0.0, 5e-3), strict=True):
            mine = [m.size_bytes for m in arrivals if rank.device in (m.source, m.target)]
            spent = turn + more * len(mine) + a_byte * sum(mine) + look
            between = None if part is None else part * spent
            ranks.append(replace(rank, between_s=between, stream_s=period_s - spent if part is None else rank.stream_s))
        runs.append(replace(run, ranks=tuple(ranks), period_s=period_s))
    told = found(graph, *runs, unit=unit)
    assert told.turn_per_message_s == pytest.approx(more, rel=1e-6, abs=1e-12)
    assert told.turn_s_per_byte == pytest.approx(a_byte, rel=1e-6, abs=1e-17)


def test_nothing_is_told_where_nothing_was_sent(graph: Graph) -> None:
    assert found(graph) == found(graph, replace(made_up(graph, KNOWN), arrivals=())) == Waiting()


def cluster(unit: UnitCost, folder: Path) -> Platform:
    (folder / "made.json").write_text(Coefficients("made", True, "", {"cpu": unit}).to_json())
    lines = [f"h{i}, slots=0, threads=1, coefficients=made.json" for i in range(2)]
    return Platform.parse("\n".join(lines), str(folder / "two.txt"))


def test_a_frame_takes_so_much_longer_a_message(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, six_layers())
    mapping = Mapping.whole(graph, [0] * 3 + [1] * (len(graph.layers) - 3))
    (tmp_path / "waiting").mkdir()
    plain, waiting = (
        simulated(graph, cluster(unit, folder), mapping, 1, 0).price
        for unit, folder in ((UNIT, tmp_path), (replace(UNIT, **vars(KNOWN)), tmp_path / "waiting"))
    )
    sent = float(plain.ledger.size[: plain.messages.out_ptr[plain.shards.ptr[-1]]].sum())
    wake = KNOWN.wake_s + KNOWN.wake_s_per_byte * sent
    late = KNOWN.late_s + KNOWN.late_s_per_byte * sent
    assert waiting.latency_s - plain.latency_s == pytest.approx(late + wake, rel=1e-6)
    assert waiting.account[1, COMPUTE] - plain.account[1, COMPUTE] == pytest.approx(wake, rel=1e-6)
    assert waiting.account[0, COMPUTE] == plain.account[0, COMPUTE]


@pytest.mark.parametrize(("first", "busy"), [(1, True), (5, False)])
def test_only_a_stream_takes_longer_where_messages_come_while_their_receiver_computes(
    tmp_path: Path, first: int, busy: bool
) -> None:
    """The more layers come first, the less the receiver has to do."""
    graph, take, slow = graph_of(tmp_path, six_layers()), 2e-11, replace(UNIT, frequency_hz=1e6)
    mapping = Mapping.whole(graph, [0] * first + [1] * (len(graph.layers) - first))
    (tmp_path / "taking").mkdir()
    plain, taking = (
        simulated(graph, cluster(unit, folder), mapping, 20, 4).price
        for unit, folder in ((slow, tmp_path), (replace(slow, take_s_per_byte=take), tmp_path / "taking"))
    )
    sent = float(plain.ledger.size[: plain.messages.out_ptr[plain.shards.ptr[-1]]].sum())
    assert sent > 0
    assert taking.latency_s == plain.latency_s
    assert taking.period_s - plain.period_s == pytest.approx(busy * take * sent, rel=1e-6, abs=1e-14)


@pytest.mark.parametrize(
    ("field", "split", "times"),
    [("turn_s", True, 1), ("turn_s", False, 1), ("turn_per_message_s", True, 1), ("turn_per_message_s", False, 0)],
)
def test_only_a_stream_takes_longer_by_what_is_between_two_frames(
    tmp_path: Path, field: str, split: bool, times: int
) -> None:
    """Split, each device has one message."""
    graph, turn = graph_of(tmp_path, six_layers()), 3e-5
    mapping = Mapping.whole(graph, [0] + [int(split)] * (len(graph.layers) - 1))
    (tmp_path / "turning").mkdir()
    platforms = (
        cluster(replace(UNIT, frequency_hz=1e6), tmp_path),
        cluster(replace(UNIT, frequency_hz=1e6, **{field: turn}), tmp_path / "turning"),
    )
    for plain, turning in (
        [simulated(graph, platform, mapping, 20, 4).price for platform in platforms],
        [priced(graph, platform, mapping) for platform in platforms],
    ):
        assert turning.latency_s == plain.latency_s
        assert turning.period_s - plain.period_s == pytest.approx(times * turn, rel=1e-6)


@pytest.mark.parametrize(("reader", "times"), [(0, 0), (1, 1)])
def test_a_stream_takes_longer_where_its_inputs_are_filled(tmp_path: Path, reader: int, times: int) -> None:
    """The second device has more to do, so that nobody waits for the first."""
    graph, fill = graph_of(tmp_path, six_layers()), 3e-5
    mapping = replace(Mapping.whole(graph, [0] + [1] * (len(graph.layers) - 1)), reader=reader)
    (tmp_path / "filling").mkdir()
    size = sum(graph.tensors[name].size_bytes for name in graph.inputs)
    platforms = (
        cluster(replace(UNIT, frequency_hz=1e6), tmp_path),
        cluster(replace(UNIT, frequency_hz=1e6, fill_s_per_byte=fill / size), tmp_path / "filling"),
    )
    for plain, filling in (
        [simulated(graph, platform, mapping, 20, 4).price for platform in platforms],
        [priced(graph, platform, mapping) for platform in platforms],
    ):
        assert filling.latency_s == plain.latency_s
        assert filling.period_s - plain.period_s == pytest.approx(times * fill, rel=1e-6, abs=1e-12)


def test_each_device_fills_the_inputs_that_it_has(tmp_path: Path) -> None:
    """A small one comes first, and the others are elsewhere."""
    nodes = [node("Relu", ["x"], ["a"]), node("Relu", ["z"], ["b"]), node("Add", ["a", "b"], ["y"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 1), "z": (1, 1000)}, ["y"]))
    (tmp_path / "filling").mkdir()
    plain, filling = (
        simulated(graph, cluster(replace(UNIT, **more), folder), Mapping.whole(graph, [0, 1, 1]), 20, 4).price
        for more, folder in (
            ({"frequency_hz": 1e6}, tmp_path),
            ({"frequency_hz": 1e6, "fill_s_per_byte": 1e-6}, tmp_path / "filling"),
        )
    )
    assert filling.period_s - plain.period_s == pytest.approx(4e-3, rel=1e-6)


def test_a_stream_is_counted_by_the_messages_that_it_has(tmp_path: Path) -> None:
    """Two devices with a message each; there is room for more."""
    graph, turn = graph_of(tmp_path, six_layers()), 50.0
    platform = cluster(replace(UNIT, turn_per_message_s=turn), tmp_path)
    found = simulated(graph, platform, Mapping.whole(graph, [0] * 3 + [1] * (len(graph.layers) - 3)), 20, 4)
    assert found.price.period_s == pytest.approx(turn, rel=1e-3)


@pytest.mark.parametrize("field", ["turn_per_message_s", "turn_s_per_byte"])
@pytest.mark.parametrize("part", [0.5, 2.0])
def test_who_waits_in_a_stream_has_time_for_what_messages_cost(tmp_path: Path, part: float, field: str) -> None:
    """Two devices wait for one another within a frame. Messages cost so many times what the busier one waits."""
    graph, slow = graph_of(tmp_path, six_layers()), replace(UNIT, frequency_hz=1e6)
    mapping = Mapping.whole(graph, [0] + [1] * (len(graph.layers) - 2) + [0])
    plain = simulated(graph, cluster(slow, tmp_path), mapping, 20, 4).price
    wait_s = plain.period_s - plain.account[:, COMPUTE].max()
    assert wait_s > 0.1 * plain.period_s
    amount = plain.ledger.messages[0] if field == "turn_per_message_s" else plain.account[0, BUFFERS]
    (tmp_path / "turning").mkdir()
    turning = cluster(replace(slow, **{field: part * wait_s / amount}), tmp_path / "turning")
    longer_s = max(part - 1, 0.0) * wait_s
    for found in (simulated(graph, turning, mapping, 20, 4).price, priced(graph, turning, mapping)):
        assert found.period_s == pytest.approx(plain.period_s + longer_s, rel=1e-6)


@pytest.mark.parametrize(("first", "busy"), [(1, True), (5, False)])
def test_rest_saves_time_in_a_frame_alone_and_in_a_stream_as_far_as_a_device_is_idle(
    tmp_path: Path, first: int, busy: bool
) -> None:
    """The fewer layers come first, the more the device has to do that waits for them; who does most cannot rest."""
    graph, slow = graph_of(tmp_path, six_layers()), replace(UNIT, frequency_hz=1e6)
    mapping = Mapping.whole(graph, [0] * first + [1] * (len(graph.layers) - first))
    (tmp_path / "rested").mkdir()
    plain, rested = (
        simulated(graph, cluster(unit, folder), mapping, 20, 4).price
        for unit, folder in ((slow, tmp_path), (replace(slow, rested_part=0.4, rested_s=1e-3), tmp_path / "rested"))
    )
    seconds = plain.account[:, COMPUTE]
    assert (seconds > 0).all()
    saved_s = np.minimum(0.4 * seconds, 1e-3).sum()
    assert rested.latency_s == pytest.approx(max(plain.latency_s - saved_s, seconds.max()), rel=1e-6)
    assert busy == (plain.latency_s - saved_s > seconds.max())
    if busy:
        assert 0 <= plain.period_s - rested.period_s < 0.2 * (plain.latency_s - rested.latency_s)
    else:
        assert rested.period_s == plain.period_s  # others are busy


def test_a_frame_begins_later_where_its_busiest_device_would_otherwise_rest_more_than_it_can(tmp_path: Path) -> None:
    """Timeline, critical path and trace of it end when the latency is over, and say who rests."""
    graph = graph_of(tmp_path, six_layers())
    limited = replace(UNIT, frequency_hz=1e6, rested_part=0.5, rested_s=1.0)
    mapping, platform = Mapping.whole(graph, [0] * 5 + [1]), cluster(limited, tmp_path)
    found = simulated(graph, platform, mapping)
    script = Script.of(found, graph, platform, mapping)
    computes_s = 2 * found.price.account[0, COMPUTE]
    assert found.price.latency_s == pytest.approx(computes_s, rel=1e-6)
    first, *others = held(script, platform, found.alone, found.latency_path)
    assert (first.category, first.where) == (REST, platform.devices[0].name)
    assert 0 < first.time_s < computes_s / 2
    assert first.ticks == others[0].start
    assert sum(part.time_s for part in (first, *others)) == pytest.approx(found.price.latency_s)
    assert traces(script)[0].latencies_s == pytest.approx([found.price.latency_s])
    bars = [bar for of in busy(script, platform, found.alone, 0).values() for bar in of]
    assert min(bar.start_s for bar in bars) > computes_s / 2
    assert found.stream
    stream = shares(held(script, platform, found.stream, found.period_path))
    assert stream[0][:2] == (COMPUTES, platform.devices[0].name)
    assert found.devices(platform)[0]["busy"] == pytest.approx(
        stream[0][2] / sum(ticks for *_, ticks in stream), rel=0.02
    )
    assert [use for use, *_ in shares([first, *others])].count(REST) == 1
    assert priced(graph, platform, mapping).latency_s == pytest.approx(computes_s, rel=1e-6)


def test_cold_caches_and_messages_take_the_processor_of_a_device_that_would_rest(tmp_path: Path) -> None:
    """Its caches are cold where it begins, and it has a message."""
    graph, turn = graph_of(tmp_path, six_layers()), 1e-3
    limited = replace(UNIT, frequency_hz=1e6, rested_part=0.5, rested_s=1.0, turn_per_message_s=turn)
    mapping = Mapping.whole(graph, [0] * 5 + [1])
    for cold_s in (0.0, 0.1):
        platform = cluster(replace(limited, busy_part=0.5, cold_s=cold_s), tmp_path)
        for found in (priced(graph, platform, mapping), simulated(graph, platform, mapping).price):
            claims_s = 2 * found.account[0, COMPUTE]
            claims_s += np.sqrt(cold_s * min(0.5 * claims_s, WARM_S)) / 0.5
            assert found.latency_s == pytest.approx(claims_s + turn, rel=1e-6)


# --- memory, by what holds it ---


def rank(draw: random.Random) -> Footing:
    """50 MB and 2.5 bytes a byte of weights of convolutions, 1.1 of others, 1.5 of activations; and while its sessions
    are opened 1.2 bytes a byte of weights that are there twice: most ranks have their peak then."""
    weights = {"conv_im2col": draw.uniform(0, 80) * MB, "fc": draw.uniform(0, 200) * MB}
    twice, activations = draw.uniform(0.3, 0.9) * weights["fc"], draw.uniform(0, 50) * MB
    held = 10 * MB + round(2.5 * weights["conv_im2col"] + 1.1 * weights["fc"])
    memory = Memory(50 * MB, 0, held, 7 * MB, round(1.5 * activations), held + round(1.2 * twice))
    total, peak = sum(weights.values()), 50 * MB + held + round(max(1.5 * activations + 7 * MB, 1.2 * twice))
    return Footing("d", total, activations, 0.0, 0.0, 1, peak, memory, 0.0, weights, twice)


def test_weights_count_as_their_kernels_keep_them_and_once_more_while_sessions_are_opened() -> None:
    draw = random.Random(1)
    ranks = [rank(draw) for _ in range(30)]
    unit = fit_memory(ranks, UNIT)
    assert unit.memory_kinds == pytest.approx({"conv_im2col": 2.5, "fc": 1.1}, rel=0.03)
    assert unit.memory_opening == pytest.approx(1.2, rel=0.01)
    assert unit.memory_activations == pytest.approx(1.5, rel=0.05)
    error = memory_error(ranks, [], UNIT)
    assert error is not None
    assert error < 0.01
    assert json.loads(Coefficients("x", True, "", {"cpu": unit}).to_json())["units"]["cpu"]["memory_kinds"]


def test_weights_are_those_of_the_account_and_of_the_plan(graph: Graph) -> None:
    platform = Platform.parse("\n".join(f"h{i}, slots=0" for i in range(3)), "three")
    draw = random.Random(2)
    for _ in range(5):
        mapping = random_mapping(draw, graph, 3)
        price, made = priced(graph, platform, mapping), plan(graph, platform, mapping).plan
        rows = {row["device"]: row for row in price.devices(platform)}
        for each in made.ranks:
            segments = [
                [PartOf(graph.by_name[p.layer].index, p.axis, p.start, p.stop) for p in run.parts] for run in each.runs
            ]
            held, device = Weights(graph).held(segments), platform.index(each.device)
            assert sum(held.by_kind.values()) == pytest.approx(rows[each.device]["weights_bytes"])
            assert held.opening_bytes == pytest.approx(price.account[device, OPENING])


MEMORY_OF = {
    "memory_bias_bytes": 7e7,
    "memory_segment_bytes": 1e5,
    "memory_layer_bytes": 1e4,
    "memory_activations": 1.4,
    "memory_buffers": 0.9,
    "memory_passed": 0.9,
    "memory_weights": 1.0,
    "memory_kinds": {"conv_im2col": 1.1, "conv_im2col in parts": 0.9, "fc": 1.05},
}


@pytest.mark.parametrize("opening", [0.0, 1.0, 30.0])
def test_the_peak_that_is_fitted_to_is_that_of_the_account(graph: Graph, tmp_path: Path, opening: float) -> None:
    """Whether frames or the opening of sessions make it."""
    unit, draw = replace(UNIT, **MEMORY_OF, memory_opening=opening), random.Random(4)
    platform = cluster(unit, tmp_path)
    for _ in range(5):
        mapping = random_mapping(draw, graph, 2)
        price, made = priced(graph, platform, mapping), plan(graph, platform, mapping).plan
        for each in made.ranks:
            segments = [
                [PartOf(graph.by_name[p.layer].index, p.axis, p.start, p.stop) for p in run.parts] for run in each.runs
            ]
            device = platform.index(each.device)
            held, a, sessions = Weights(graph).held(segments), price.account[device], len(each.runs)
            buffers, layers = a[BUFFERS] + a[PASSED], sum(map(len, segments))
            told = Footing(each.device, a[WEIGHTS], a[ACTIVATIONS], a[BUFFERS], buffers, sessions, 0, None, 0.0,
                           held.by_kind, held.opening_bytes, layers)  # fmt: skip
            assert peak_bytes(told, unit) == pytest.approx(a[MEMORY])


@pytest.mark.parametrize(("splits", "most"), [(False, 0.02), (True, 0.15)])
def test_buffers_are_those_of_the_plan(graph: Graph, splits: bool, most: float) -> None:
    """But for outputs of the network; what goes to several devices counts for each; what is joined is there twice."""
    platform = Platform.parse("\n".join(f"h{i}, slots=0" for i in range(3)), "three")
    draw = random.Random(3)
    for _ in range(5):
        whole = Mapping.whole(graph, [draw.randrange(3) for _ in graph.layers])
        mapping = random_mapping(draw, graph, 3) if splits else whole
        case, made = Case.of(graph, platform, mapping), plan(graph, platform, mapping).plan
        known = case.at(case.costs._replace(memory=np.add(case.costs.memory, [0, 0, 0, 0, 0, 1])))
        spend(known.g, known.shards, known.messages, known.costs, known.ledger)
        for each in made.ranks:
            own = sum(Tensor(b.name, b.shape, b.dtype).size_bytes for b in each.buffers if b.within is None)
            assert known.ledger.account[platform.index(each.device), [BUFFERS, PASSED]].sum() == pytest.approx(
                own, rel=most
            )


def test_who_attends_to_little_is_told_by_others_in_processor_time(graph: Graph) -> None:
    """A quarter of a processor takes twice as long as a half does; unless its own runs tell."""
    run, wires = made_up(graph, KNOWN), Wires(fit_links(Truth().samples(), TYPES), {n: n for n in TYPES}, MEMORIES)
    types = TYPES | {NAMES[1]: "slower"}
    units = dict(zip(NAMES, (replace(UNIT, busy_part=part) for part in (0.5, 0.25)), strict=True))
    at_rest = tuple(replace(m, sent_s=None) if m.source == NAMES[1] else m for m in run.arrivals)
    usual, silent = (
        fit_waiting([each], {graph.name: Network(graph)}, units, wires, types)
        for each in (run, replace(run, arrivals=at_rest))
    )
    for name in ("small", "slower"):
        assert usual[name].attend_s_per_byte == pytest.approx(KNOWN.attend_s_per_byte, rel=0.1)
    assert silent["slower"].attend_s_per_byte == pytest.approx(2 * silent["small"].attend_s_per_byte, rel=1e-3)
