"""Fitting: what a known device takes is found again from its times, whatever disturbs some of them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import astuple, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from codegen.zoo import cached
from model.cluster import coefficients
from model.cluster.coefficients import MOST_GAINED, FrameError, Kernel, UnitCost
from model.cost.samples import Footing, PartOf, Run, Sample
from model.cost.segment_time import Clock, Network
from model.fit.energy import Metered, with_power
from model.fit.fitting import fit, fit_times, predict
from model.fit.memory import fit_memory, memory_error, peak_bytes
from model.mappings.mapping import extent
from model.network.boxes import CHANNELS, ROWS
from model.network.graph import Graph
from model.network.layer_kinds import PAIRS
from model.network.load import load
from model.network.relayout import SINGLY
from model.network.signature import signatures
from runtime.errors import CleaveError
from runtime.trace import Memory
from tests.origin import ORIGIN
from tests.tiny_cnn import MORE, graph_of, network, node, weight

DECLARED = coefficients.load("generic").unit("cpu")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load(cached("squeezenet"))


def device(graph: Graph, seed: int = 1) -> UnitCost:
    """A made-up unit that the model describes exactly: kernels of 0.1 to 1 ms, and gains below them by kind of edge."""
    draw = random.Random(seed)
    kernels = {}
    for layer, name in zip(graph.layers, signatures(graph), strict=True):
        whole = draw.uniform(1e-4, 1e-3)
        splits = dict.fromkeys((CHANNELS, ROWS), (0.1 * whole, 0.9 * whole)) if layer.op == "Conv" else {}
        kernels.setdefault(name, Kernel(layer.op, whole, splits))
    pairs = {edge.pair for edges in Network(graph).edges for edge in edges}
    parts = {pair: draw.uniform(0.02, 0.2) for pair in sorted(pairs)}
    return replace(DECLARED, kernels=kernels, gain_parts=parts, joins={ROWS: 2e-10}, relayout_s_per_byte=1e-11)


def whole(graph: Graph, layer: int) -> PartOf:
    return PartOf(layer, CHANNELS, 0, extent(graph, graph.layers[layer]))


def cut(graph: Graph, layer: int, axis: int, share: float) -> list[PartOf]:
    """A layer in two parts, a share and the rest."""
    size = extent(graph, graph.layers[layer], axis)
    at = max(1, min(size - 1, round(size * share)))
    return [PartOf(layer, axis, 0, at), PartOf(layer, axis, at, size)]


def segments(graph: Graph, draw: random.Random, border: float) -> list[list[PartOf]]:
    """Whole layers, in segments that begin with this probability."""
    found: list[list[PartOf]] = []
    for layer in range(len(graph.layers)):
        if not found or draw.random() < border:
            found.append([])
        found[-1].append(whole(graph, layer))
    return found


def halves(graph: Graph, axis: int, share: float) -> list[list[PartOf]]:
    """Every part a segment, convolutions in two where they can be."""
    found = []
    for layer in graph.layers:
        split = layer.op == "Conv" and extent(graph, layer, axis) > 1
        parts = cut(graph, layer.index, axis, share) if split else [whole(graph, layer.index)]
        found += [[part] for part in parts]
    return found


def run(graph: Graph, unit: UnitCost, parts: list[list[PartOf]], noise: float = 0.0, seed: int = 0) -> Run:
    """What the unit would have measured, each frame a bit off."""
    network, rng = Network(graph), np.random.default_rng((seed, len(parts)))
    clock, divided = Clock(network, unit), network.divided(part for segment in parts for part in segment)
    samples = [
        Sample(
            "segment", "d", graph.name, tuple(s), tuple(clock.seconds(s, divided) * (1 + noise * rng.normal(size=9)))
        )
        for s in parts
    ]
    latencies = tuple(np.sum([s.times_s for s in samples], axis=0))
    return Run(f"{seed}", "d", graph.name, "python", "", "made up", "", "h", "", {}, latencies, (), tuple(samples))


def calibration(graph: Graph, unit: UnitCost, noise: float = 0.0, randoms: int = 5) -> list[Run]:
    draw = random.Random(3)
    borders = [0.0, 1.0, *[draw.uniform(0.05, 0.6) for _ in range(randoms)]]
    parts = [segments(graph, draw, border) for border in borders]
    parts += [halves(graph, axis, share) for axis in (CHANNELS, ROWS) for share in (1 / 2, 1 / 4)]
    return [run(graph, unit, each, noise, seed) for seed, each in enumerate(parts)]


def depthwise_chain() -> ModelProto:
    """Three convolutions of 96 single channels, of kernels that are not alike."""
    nodes, weights = [], {}
    for k, size in enumerate((1, 3, 5)):
        weights[f"w{k}"] = weight(96, 1, size, size)
        nodes.append(node("Conv", [f"y{k}" if k else "x", f"w{k}"], [f"y{k + 1}"], group=96))
    return network(nodes, {"x": (1, 96, 9, 9)}, ["y3"], weights)


def disturbed(runs: list[Run], every: int, by: float) -> list[Run]:
    """Each so manieth segment takes so many times longer, in all its frames."""
    return [
        replace(
            each,
            samples=tuple(
                replace(s, times_s=tuple(t * by for t in s.times_s)) if (k + number) % every == 0 else s
                for k, s in enumerate(each.samples)
            ),
        )
        for number, each in enumerate(runs)
    ]


def worst(graph: Graph, found: UnitCost, known: UnitCost, seed: int = 7) -> float:
    """Largest relative error over segments that no calibration had."""
    draw, network = random.Random(seed), Network(graph)
    clocks = [Clock(network, unit) for unit in (found, known)]
    tried = [s for border in (0.0, 0.1, 0.3, 0.7) for s in segments(graph, draw, border)]
    tried += halves(graph, CHANNELS, 1 / 3) + halves(graph, ROWS, 0.4)
    return max(abs(clocks[0].seconds(s) / clocks[1].seconds(s) - 1) for s in tried)


@pytest.mark.parametrize("vector", [1, 16])
def test_a_known_device_is_found_again(graph: Graph, vector: int) -> None:
    known = replace(device(graph), vector=vector)
    channels = {name: extent(graph, layer) for name, layer in zip(signatures(graph), graph.layers, strict=True)}
    found = fit({graph.name: graph}, calibration(graph, known), DECLARED)
    assert found.unit.vector == vector
    assert found.unit.kernels.keys() == known.kernels.keys()
    for name, kernel in known.kernels.items():
        assert found.unit.kernels[name].whole_s == pytest.approx(kernel.whole_s, rel=5e-3)
        assert found.unit.kernels[name].op == kernel.op
        for axis, split in found.unit.kernels[name].splits.items():
            assert sum(split) == pytest.approx(sum(kernel.splits[axis]), rel=2e-2)
            if axis == ROWS or channels[name] > vector:  # of a single vector all parts take as long
                assert split == pytest.approx(kernel.splits[axis], rel=2e-2)
    assert found.unit.joins == pytest.approx(known.joins, rel=1e-2)
    assert found.unit.relayout_s_per_byte == pytest.approx(known.relayout_s_per_byte, rel=5e-2)
    assert worst(graph, found.unit, known) < 1e-2
    assert astuple(found.unit.frame_errors[graph.name]) == pytest.approx((0, 0, 0), abs=5e-3)
    assert found.report.networks[graph.name].fitted < 5e-3


def test_channels_that_are_computed_singly_are_found_again(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, depthwise_chain())
    kernels = {
        name: Kernel("Conv", 5e-4, {CHANNELS: (1e-4, 4e-4), SINGLY: (1e-4, times * 4e-4)})
        for name, times in zip(signatures(graph), (2.0, 3.0, 4.0), strict=True)
    }
    known = replace(DECLARED, kernels=kernels, vector=16)
    shares = (1 / 2, 1 / 4, 19 / 96, 33 / 96)  # 48, 24 and 72 channels, then 19, 77, 33 and 63
    found = fit_times(
        {graph.name: Network(graph)}, [run(graph, known, halves(graph, CHANNELS, s)) for s in shares], DECLARED
    )
    assert found.vector == 16
    assert found.singly == pytest.approx(3.0, rel=0.05)
    for name, kernel in kernels.items():
        for split, wanted in kernel.splits.items():
            assert found.kernels[name].splits[split] == pytest.approx(wanted, rel=0.05)


def test_what_is_between_the_segments_of_a_frame_is_found(graph: Graph) -> None:
    runs = calibration(graph, device(graph), noise=0.01)
    assert fit({graph.name: graph}, runs, DECLARED).unit.step_s == pytest.approx(0, abs=1e-9)
    apart = [replace(r, latencies_s=tuple(s + 2e-6 * len(r.samples) for s in r.latencies_s)) for r in runs]
    assert fit({graph.name: graph}, apart, DECLARED).unit.step_s == pytest.approx(2e-6, rel=0.01)


def test_noise_is_averaged_out_and_told(graph: Graph) -> None:
    known = device(graph)
    found = fit({graph.name: graph}, calibration(graph, known, noise=0.05), DECLARED)
    score = found.report.networks[graph.name]
    assert worst(graph, found.unit, known) < 0.08
    assert 0.002 < score.fitted < 0.03
    assert score.held_out is not None
    assert 0.002 < score.held_out < 0.05
    assert found.unit.frame_errors == {graph.name: FrameError(*[score.frame] * 3)}
    assert found.unit.memory_error == found.report.memory
    assert all(kernel.error is not None and 0.005 < kernel.error < 0.1 for kernel in found.unit.kernels.values())


def test_segments_that_something_disturbed_move_little(graph: Graph) -> None:
    known = device(graph)
    clean = calibration(graph, known, noise=0.01)
    found = fit({graph.name: graph}, disturbed(clean, every=15, by=3.0), DECLARED).unit
    taken = Clock(Network(graph), found).seconds([whole(graph, k) for k in range(len(graph.layers))])
    assert taken == pytest.approx(predict(graph, [whole(graph, k) for k in range(len(graph.layers))], known), rel=0.02)
    errors = [abs(found.kernels[name].whole_s / kernel.whole_s - 1) for name, kernel in known.kernels.items()]
    assert np.median(errors) < 0.02
    assert max(errors) < 0.5


def limited(runs: list[Run], run_s: float, period_s: float, frames: int = 3) -> list[Run]:
    """A processor that may run so long of every period stands still for the rest of it, amid some segment."""
    found, draw = [], random.Random(5)
    for each in runs:
        alone = [s.time_s for s in each.samples]
        times: list[list[float]] = [[] for _ in alone]
        clock = 0.0
        for _ in range(frames):
            clock += draw.uniform(0, run_s)  # what comes between frames
            for row, alone_s in zip(times, alone, strict=True):
                row.append(alone_s + (period_s - run_s) * (int((clock + alone_s) // run_s) - int(clock // run_s)))
                clock += alone_s
        samples = [replace(s, times_s=tuple(row)) for s, row in zip(each.samples, times, strict=True)]
        rank = replace(footing(0, 0, 0, 1), processor_s=sum(alone))
        found.append(replace(each, ranks=(rank,), samples=tuple(samples)))
    return [replace(each, samples=each.evened) for each in found]


def test_a_processor_that_stands_still_now_and_then_is_not_told_too_fast(graph: Graph) -> None:
    """A segment takes 0.5 ms or 8.5, by chance, of few frames: what they add up to is right all the same."""
    known = device(graph)
    runs = limited(calibration(graph, known), 1e-3, 9e-3)
    unit = fit_times({graph.name: Network(graph)}, runs, DECLARED)
    network, off = Network(graph), dict[str, list[float]]()
    clock = Clock(network, unit)
    for number, each in enumerate(runs):
        divided = network.divided(part for sample in each.samples for part in sample.parts)
        told_s = sum(clock.seconds(sample.parts, divided) for sample in each.samples)
        way = "split" if number >= len(runs) - 4 else "layers"
        off.setdefault(way, []).append(told_s / sum(sample.time_s for sample in each.samples) - 1)
    assert abs(np.mean(off["layers"])) < 0.04, off
    assert abs(np.mean(off["split"])) < 0.04, off


def test_runs_that_something_disturbed_as_a_whole_count_less_and_are_named(graph: Graph) -> None:
    known, slow = device(graph), 5
    runs = calibration(graph, known, noise=0.01)
    samples = tuple(replace(s, times_s=tuple(1.4 * t for t in s.times_s)) for s in runs[slow].samples)
    runs[slow] = replace(runs[slow], samples=samples)
    found = fit({graph.name: graph}, runs, DECLARED)
    assert worst(graph, found.unit, known) < 0.06
    assert found.report.paces[str(slow)] == pytest.approx(0.4, abs=0.05)
    assert all(abs(pace) < 0.03 for key, pace in found.report.paces.items() if key != str(slow))


def test_the_same_runs_give_the_same_bytes(graph: Graph) -> None:
    runs, networks = calibration(graph, device(graph), noise=0.05, randoms=2), {graph.name: Network(graph)}
    first, second = (fit_times(networks, runs, DECLARED) for _ in range(2))
    assert first == second


def test_what_was_fitted_is_written_and_read(graph: Graph) -> None:
    found = fit({graph.name: graph}, calibration(graph, device(graph), noise=0.02, randoms=2), DECLARED)
    origin = replace(ORIGIN, residuals={"a_cpu0": found.report.to_json()})
    whole_set = coefficients.Coefficients("mine", True, "made up", {"cpu": found.unit}, origin)
    assert coefficients.parse(whole_set.to_json(), "mine") == coefficients.parse(whole_set.to_json(), "again")
    assert coefficients.parse(whole_set.to_json(), "mine").unit("cpu") == found.unit


@pytest.mark.parametrize("seed", range(8 * MORE))
def test_times_are_never_negative_and_more_of_a_layer_is_never_cheaper(graph: Graph, seed: int) -> None:
    """Even when times are nonsense."""
    rng = np.random.default_rng(seed)
    runs = calibration(graph, device(graph), randoms=1)
    nonsense = [
        replace(r, samples=tuple(replace(s, times_s=tuple(rng.exponential(1e-3, 3))) for s in r.samples)) for r in runs
    ]
    unit = fit_times({graph.name: Network(graph)}, nonsense, DECLARED)
    clock, draw = Clock(Network(graph), unit), random.Random(seed)
    assert all(clock.seconds(s) >= 0 for border in (0.0, 0.2, 1.0) for s in segments(graph, draw, border))
    assert all(min((kernel.whole_s, *sum(kernel.splits.values(), ()))) >= 0 for kernel in unit.kernels.values())
    assert min(unit.gains.values()) >= 0
    assert all(0 <= part <= MOST_GAINED for part in unit.gain_parts.values())
    for layer in (layer for layer in graph.layers if layer.op == "Conv"):
        size = extent(graph, layer)
        shares = [clock.seconds([PartOf(layer.index, CHANNELS, 0, stop)]) for stop in range(1, size)]
        assert (np.diff(shares) >= -1e-12).all()


def test_layers_that_were_not_measured_go_by_their_kind(graph: Graph) -> None:
    """A device whose kernels are just their MACs and bytes is known from two thirds of its layers."""
    layers = {k: replace(c, overhead_s=2e-5, macs_per_cycle=4.0, s_per_byte=2e-10) for k, c in DECLARED.layers.items()}
    known = replace(DECLARED, layers=layers)
    half = [[whole(graph, k)] for k in range(len(graph.layers) * 2 // 3)]
    unit = fit({graph.name: graph}, [run(graph, known, half), run(graph, known, half, seed=1)], DECLARED).unit
    rest = range(len(half), len(graph.layers))
    for k in (k for k in rest if graph.layers[k].op in ("Conv", "Relu")):  # others are all alike, which tells little
        assert predict(graph, [whole(graph, k)], unit) == pytest.approx(
            predict(graph, [whole(graph, k)], known), rel=0.1
        )
    assert unit.layers["conv_im2col"].error == pytest.approx(0, abs=0.05)


def test_kinds_that_were_not_measured_are_as_much_slower_as_the_others(graph: Graph) -> None:
    slow = {k: replace(c, overhead_s=8 * c.overhead_s, macs_per_cycle=c.macs_per_cycle / 8)
            for k, c in DECLARED.layers.items()}  # fmt: skip
    runs = [run(graph, replace(DECLARED, layers=slow), [[whole(graph, k)] for k in range(len(graph.layers))])]
    found = fit({graph.name: graph}, runs, DECLARED).unit.layers["lrn"]
    assert found.macs_per_cycle == pytest.approx(DECLARED.layers["lrn"].macs_per_cycle / 8, rel=0.01)
    assert (found.error, found.power_w) == (None, DECLARED.layers["lrn"].power_w)


def test_pairs_that_were_not_seen_gain_what_edges_do_on_average(graph: Graph) -> None:
    real = device(graph)
    unit = fit({graph.name: graph}, calibration(graph, real), DECLARED).unit
    assert unit.gains.keys() == {edge.name for edges in Network(graph).edges for edge in edges}
    assert unit.gain_parts.keys() == set(PAIRS)
    assert min(real.gain_parts.values()) < unit.gain_parts["lrn>softmax"] < max(real.gain_parts.values())


def test_edges_of_a_network_that_was_not_seen_gain_what_such_edges_do(graph: Graph) -> None:
    """A part of the shorter of both layers, so never more than it."""
    real = device(graph)
    found = fit({graph.name: graph}, calibration(graph, real), DECLARED).unit
    for pair in real.gain_parts:
        assert found.gain_parts[pair] == pytest.approx(real.gain_parts[pair], abs=0.06)
        assert found.gain("Conv-0>Relu-0", pair, 1e-3) == found.gain_parts[pair] * 1e-3


def test_edges_of_one_pair_of_kinds_may_gain_what_they_do(graph: Graph) -> None:
    """Half of the edges of the commonest pair fuse, the other half do not: a run of the whole network tells."""
    real = device(graph)
    (pair, _), edges = (
        Counter(e.pair for of in Network(graph).edges for e in of).most_common(1)[0],
        Network(graph).edges,
    )
    names = sorted({edge.name for of in edges for edge in of if edge.pair == pair})
    odd = replace(real, gains=dict.fromkeys(names[: len(names) // 2], 1e-4))
    found = fit({graph.name: graph}, calibration(graph, odd), DECLARED).unit
    parts = [whole(graph, layer) for layer in range(len(graph.layers))]
    assert predict(graph, parts, found) == pytest.approx(predict(graph, parts, odd), rel=0.02)


def apart(graph: Graph, draw: random.Random, border: float) -> list[list[PartOf]]:
    """Segments, the first layer in one of its own."""
    first, *others = segments(graph, draw, border)
    return [first[:1], *([first[1:]] if first[1:] else []), *others]


def test_what_a_whole_network_saves_is_not_laid_on_an_edge_that_no_piece_has(graph: Graph) -> None:
    """Pieces never have both ends of one edge in a segment; the whole takes a fifth less than they add up to."""
    real, draw, network, reader = device(graph), random.Random(5), Network(graph), 1
    pieces = [
        run(graph, real, apart(graph, draw, border), 0.01, seed)
        for seed, border in enumerate([1.0, 0.5, 0.4, 0.3, 0.2])
    ]
    one = run(graph, real, segments(graph, draw, 0.0), 0.01)
    (edge,) = network.edges[reader]
    found = fit({graph.name: graph}, [*pieces, one.lasting(0.8 * one.time_s)], DECLARED).unit
    shorter_s = min(found.kernels[network.names[end]].whole_s for end in (edge.maker, reader))
    assert found.gains[edge.name] < 2 * shorter_s


@pytest.mark.parametrize("part", [None, 0.25])
def test_a_run_of_no_segments_tells_nothing_and_the_others_what_their_processors_are_at(
    graph: Graph, part: float | None
) -> None:
    runs = calibration(graph, device(graph))
    if part:
        runs = [replace(r, samples=tuple(replace(s, busy_s=part * s.time_s) for s in r.samples)) for r in runs]
    found = fit({graph.name: graph}, [*runs, replace(runs[0], samples=())], DECLARED).unit
    assert found.busy_part == (part and pytest.approx(part))


def test_nothing_measured_and_networks_that_are_missing_are_said(graph: Graph) -> None:
    with pytest.raises(CleaveError, match=r"^no segment was measured that coefficients could be fitted to"):
        fit({graph.name: graph}, [], DECLARED)
    runs = [run(graph, device(graph), [[whole(graph, 0)]])]
    with pytest.raises(
        CleaveError, match=r"^the network 'squeezenet' was measured but is not given; add it with --cnn$"
    ):
        fit({}, runs, DECLARED)


# --- memory ---

MB = 10**6


def footing(weights: float, activations: float, buffers: float, segments: int, layers: int = 0) -> Footing:
    """A rank that takes 50 MB, 1.2 bytes a byte of weights, 1.5 of activations, 1 of buffers, 0.4 MB a session, and
    0.02 MB a layer."""
    held = round(1.2 * weights + 1.5 * activations + buffers + 0.4 * MB * segments + 0.02 * MB * layers)
    memory = Memory(50 * MB, round(buffers), held - round(buffers), 7 * MB, 0)
    return Footing("d", weights, activations, 0.0, buffers, segments, 57 * MB + held, memory, 0.0, layers=layers)


def test_memory_is_found_where_runs_tell_it_apart(graph: Graph) -> None:
    draw = random.Random(1)
    ranks = [
        footing(*(draw.uniform(1, most) * MB for most in (200, 30, 60)), draw.randrange(1, 200), draw.randrange(1, 900))
        for _ in range(40)
    ]
    base = run(graph, device(graph), [[whole(graph, 0)]])
    found = fit({graph.name: graph}, [replace(base, ranks=(rank,)) for rank in ranks], DECLARED)
    unit = found.unit
    assert unit.memory_bias_bytes == pytest.approx(50 * MB, rel=0.02)
    assert unit.memory_segment_bytes == pytest.approx(0.4 * MB, rel=0.02)
    assert unit.memory_layer_bytes == pytest.approx(0.02 * MB, rel=0.02)
    assert (unit.memory_weights, unit.memory_activations, unit.memory_buffers) == pytest.approx((1.2, 1.5, 1), rel=0.03)
    assert found.report.memory is not None
    assert found.report.memory < 0.01


def test_memory_is_as_far_off_as_in_runs_on_several_devices_where_these_tell(graph: Graph) -> None:
    """Of which one took twice as much as the rest say."""
    draw = random.Random(1)
    ranks = [footing(*(draw.uniform(1, 99) * MB for _ in range(3)), draw.randrange(1, 200)) for _ in range(40)]
    alone = replace(run(graph, device(graph), [[whole(graph, 0)]]), ranks=tuple(ranks))
    odd = replace(ranks[0], peak_bytes=2 * ranks[0].peak_bytes)
    untold = replace(odd, memory=None)
    several = ([[odd]], [[untold]], [])
    errors = [fit({graph.name: graph}, [alone], DECLARED, others).unit.memory_error for others in several]
    assert errors[0] == pytest.approx(0.5, abs=0.02)
    assert errors[1] == errors[2] < 0.01


def test_memory_is_as_far_off_as_by_a_fit_that_has_not_seen_what_was_run(graph: Graph) -> None:
    """One of two designs has weights of its own, which take three times what those of the others do."""
    draw = random.Random(1)
    ranks = [footing(*(draw.uniform(1, 99) * MB for _ in range(3)), draw.randrange(1, 200)) for _ in range(40)]

    def like(rank: Footing, kind: str, held: int) -> Footing:
        assert rank.memory
        memory = replace(rank.memory, segments_bytes=rank.memory.segments_bytes + held)
        weights = {"": rank.weights_bytes, kind: 60 * MB}
        return replace(rank, memory=memory, peak_bytes=rank.peak_bytes + held, weights_of=weights)

    usual = [[like(rank, "fc", 60 * MB)] for rank in ranks[:8]]
    odd = [like(rank, "conv", 180 * MB) for rank in ranks[8:12]]
    unit = fit_memory([*ranks, *chain(*usual), *odd], DECLARED)
    assert max(abs(peak_bytes(rank, unit) / rank.peak_bytes - 1) for rank in odd) < 0.02  # once it has seen them
    seldom, often, few = (
        memory_error(ranks, others, DECLARED)
        for others in ([*usual, odd], [*usual, odd[:2], odd[2:]], [*usual[:2], odd])
    )
    assert seldom is not None
    assert often is not None
    assert few is not None
    assert seldom > 0.09
    assert max(often, few) < 0.02


def test_what_runs_of_one_network_cannot_tell_apart_stays_near_what_is_likely(graph: Graph) -> None:
    ranks = [footing(5 * MB, 3 * MB, buffers * MB, 2 * buffers) for buffers in (1, 5, 9)]
    base = run(graph, device(graph), [[whole(graph, 0)]])
    unit = fit({graph.name: graph}, [replace(base, ranks=tuple(ranks))], DECLARED).unit
    assert all(0.3 < k < 3 for k in (unit.memory_weights, unit.memory_activations, unit.memory_buffers))


def test_memory_that_no_rank_told_stays_as_declared(graph: Graph) -> None:
    found = fit({graph.name: graph}, [run(graph, device(graph), [[whole(graph, 0)]])], DECLARED)
    assert found.unit.memory_bias_bytes == DECLARED.memory_bias_bytes
    assert found.report.memory is None


# --- energy ---


def metered(draw: random.Random) -> Metered:
    """A host that draws 2 W, 3 W more in convolutions, 1 W more in all else, and 10 nJ a byte sent."""
    busy = {"conv_im2col": draw.uniform(0, 5), "activation": draw.uniform(0, 2), "fc": draw.uniform(0, 2)}
    time_s, sent = sum(busy.values()) + draw.uniform(0, 5), draw.uniform(0, 1e9)
    energy = 2 * time_s + 3 * busy["conv_im2col"] + busy["activation"] + busy["fc"] + 1e-8 * sent
    return Metered(energy, time_s, busy, sent)


def test_power_is_found_from_metered_runs() -> None:
    draw = random.Random(2)
    unit = with_power(DECLARED, [metered(draw) for _ in range(30)])
    assert unit.idle_w == pytest.approx(2, rel=0.05)
    assert unit.layers["conv_im2col"].power_w == pytest.approx(5, rel=0.05)
    assert unit.layers["activation"].power_w == pytest.approx(3, rel=0.2)
    assert unit.send_j_per_byte == pytest.approx(1e-8, rel=0.1)
    assert unit.receive_j_per_byte == pytest.approx(0, abs=1e-9)
    assert all(cost.power_w >= unit.idle_w for cost in unit.layers.values())


@pytest.mark.parametrize("seed", range(8))
def test_watts_that_runs_cannot_tell_apart_are_not_laid_on_one_of_them(seed: int) -> None:
    """A device that computes nearly all the time, by a meter that is 2 % off: whatever it draws idle, convolutions take
    twice what activations take."""
    draw, runs = random.Random(seed), []
    for _ in range(12):
        busy = {"conv_im2col": draw.uniform(0, 5), "activation": draw.uniform(0, 5)}
        time_s = sum(busy.values()) * draw.uniform(1.0, 1.03)
        energy = (2 * time_s + 4 * busy["conv_im2col"] + busy["activation"]) * draw.gauss(1, 0.02)
        runs.append(Metered(energy, time_s, busy))
    unit = with_power(DECLARED, runs)
    assert unit.layers["conv_im2col"].power_w == pytest.approx(6, rel=0.08)
    assert unit.layers["activation"].power_w == pytest.approx(3, rel=0.15)


def test_without_a_meter_power_stays_as_declared() -> None:
    for few in ([], [metered(random.Random(0))]):
        unit = with_power(DECLARED, few)
        assert unit.idle_w is None
        assert {k: c.power_w for k, c in unit.layers.items()} == {k: c.power_w for k, c in DECLARED.layers.items()}
