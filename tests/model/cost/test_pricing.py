"""Prices worked out by hand, on figures chosen to be easy, and Table 2 of the thesis."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from codegen import zoo
from model.cluster import coefficients
from model.cluster.platform import Platform
from model.cost import spending
from model.cost.costs import costs
from model.cost.ledger import ACTIVATIONS, BUFFERS, BUSY, COMMUNICATE, COMPUTE, ENERGY, MEMORY, WAIT, WEIGHTS
from model.cost.priced import Priced, priced
from model.mappings.arrays import arrays
from model.mappings.mapping import Mapping, Shard
from model.network import layer_kinds
from model.network.graph import Graph
from model.network.load import load
from model.simulator.simulated import simulated
from runtime.errors import CleaveError
from tests.reference.table2 import TABLE2, _priced
from tests.tiny_cnn import examples, graph_of, network, node, random_mapping, six_layers, weight

BIAS = 1_000_000.0
KILO = 4000.0
"""Bytes of a thousand floats."""
MS = 1e-3


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A coefficient file: a layer of a thousand multiply-accumulates takes 1 ms and 10 us more on 4 threads.

    An activation draws 3 W, any other layer 5 W, communication 7 W. A GPU is twice as fast.
    """
    memory = {"memory_weights": 2.0, "memory_activations": 3.0, "memory_buffers": 5.0, "memory_bias_bytes": BIAS}

    def unit(threads: int, speed: float) -> dict:
        layers = {
            kind: {"macs_per_cycle": speed, "overhead_s": 1e-5, "power_w": 3.0 if kind == "activation" else 5.0}
            for kind in layer_kinds.KINDS
        }
        return {"frequency_hz": 1e6, "threads": threads, "layers": layers, "communication_w": 7.0, **memory}

    body = {"format": "cleave-coefficients", "version": coefficients.VERSION, "name": "easy"}
    body |= {"calibrated": False, "provenance": "made up"}
    path = tmp_path_factory.mktemp("coefficients") / "easy.json"
    path.write_text(json.dumps({**body, "units": {"cpu": unit(4, 1.0), "gpu": unit(1, 2.0)}}))
    return str(path)


def parse(text: str, easy: str) -> Platform:
    """A platform priced by the easy file, which lies where a platform file cannot name it."""
    platform = Platform.parse(text, "easy.txt")
    return replace(platform, devices=tuple(replace(d, coefficients=easy) for d in platform.devices))


def cluster(easy: str, hosts: int = 3, more: str = "", rate: str = "4MB/s") -> Platform:
    """Hosts with links of 4 MB/s and 1 ms: 1000 floats take 1 ms, and 2 ms more from host to host."""
    line = f"slots=0-3, bandwidth={rate}, latency=1ms{more}"
    return parse("".join(f"h{i}, arm, {line}\n" for i in range(hosts)), easy)


def chain() -> ModelProto:
    """Three activations of 1000 floats."""
    nodes = [node("Relu", ["x"], ["r"]), node("Tanh", ["r"], ["t"]), node("Sigmoid", ["t"], ["y"])]
    return network(nodes, {"x": (1, 8, 125)}, ["y"])


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_of(tmp_path, chain())


LAYER = 1.01 * MS
MESSAGE = 3 * MS


def test_one_device_takes_the_sum_of_its_layers(graph: Graph, easy: str) -> None:
    found = priced(graph, cluster(easy), Mapping.whole(graph, [1, 1, 1]))
    assert found.latency_s == pytest.approx(3 * LAYER)
    assert found.period_s == pytest.approx(3 * LAYER)
    assert found.energy_j == pytest.approx(3 * LAYER * 3.0)
    assert found.memory_bytes == pytest.approx(2 * KILO * 3.0 + BIAS)
    row = found.account[1]
    assert row[[COMPUTE, COMMUNICATE, WAIT, WEIGHTS]] == pytest.approx([3 * LAYER, 0, 0, 0])
    assert row[[ACTIVATIONS, BUFFERS]].tolist() == [2 * KILO, 0]
    assert not found.account[[0, 2]].any()
    assert found.fits


@pytest.mark.parametrize("cost", [priced, lambda *of: simulated(*of).price])
def test_a_host_whose_meter_told_draws_its_idle_watts_all_the_time_and_declared_watts_are_no_more(
    graph: Graph, easy: str, tmp_path: Path, cost: Callable[..., Priced]
) -> None:
    """3 W while an activation is computed, 2 of which are always drawn."""
    body = json.loads(Path(easy).read_text())
    body["units"]["cpu"] |= {"idle_w": 2.0, "send_j_per_byte": 1e-6, "receive_j_per_byte": 1e-7}
    (tmp_path / "metered.json").write_text(json.dumps(body))
    found = cost(
        graph, cluster(str(tmp_path / "metered.json"), more=", cpu_power=99W"), Mapping.whole(graph, [0, 2, 2])
    )
    assert found.account[0, ENERGY] == pytest.approx(LAYER * 1.0 + found.latency_s * 2.0 + 4000 * 1e-6)
    assert found.account[2, ENERGY] == pytest.approx(2 * LAYER * 1.0 + found.latency_s * 2.0 + 4000 * 1e-7)
    assert found.account[1, ENERGY] == 0


@pytest.mark.parametrize("cost", [priced, lambda *of: simulated(*of).price])
@pytest.mark.parametrize("idle_w", [2.0, 0.0])
def test_devices_of_one_machine_with_a_meter_each_answer_for_all_that_it_draws(
    graph: Graph, easy: str, tmp_path: Path, idle_w: float, cost: Callable[..., Priced]
) -> None:
    """What waits cost a processor, too, at what computing draws; messages do not leave the machine."""
    body = json.loads(Path(easy).read_text())
    body["units"]["cpu"] |= {"idle_w": idle_w, "busy_part": 1.0, "wake_busy_s": 1e-4, "cold_part": 0.01}
    body["units"]["cpu"] |= {"send_j_per_byte": 1.0, "receive_j_per_byte": 1.0}
    (tmp_path / "metered.json").write_text(json.dumps(body))
    platform = cluster(str(tmp_path / "metered.json"), more=", address=localhost")
    found = cost(graph, platform, Mapping.whole(graph, [0, 2, 2]))
    busy_s = float(found.account[:, BUSY].sum())
    assert busy_s > 3 * LAYER + 1e-4
    extra_w = float(np.mean([each["power_w"] for each in body["units"]["cpu"]["layers"].values()])) - idle_w
    wanted = 3 * LAYER * (3.0 - idle_w) + (busy_s - 3 * LAYER) * extra_w + found.latency_s * idle_w
    assert found.account[[0, 2], ENERGY] == pytest.approx([wanted, wanted])
    assert found.account[1, ENERGY] == 0
    assert found.energy_j == pytest.approx(wanted)


@pytest.mark.parametrize("cost", [priced, lambda *of: simulated(*of).price])
@pytest.mark.parametrize("rested", [0.0, 0.5])
@pytest.mark.parametrize("cold_part", [0.0, 0.01])
def test_a_device_draws_its_watts_while_its_processor_is_at_it_rested_or_not(
    graph: Graph, easy: str, tmp_path: Path, rested: float, cold_part: float, cost: Callable[..., Priced]
) -> None:
    """It has half of a processor, whose caches are cold where it begins, the colder the longer it waits."""
    body = json.loads(Path(easy).read_text())
    body["units"]["cpu"] |= {"busy_part": 0.5, "wake_busy_s": 1e-4, "cold_s": 1e-4, "cold_part": cold_part}
    body["units"]["cpu"] |= {"rested_part": rested, "rested_s": 1.0}
    (tmp_path / "half.json").write_text(json.dumps(body))
    platform = cluster(str(tmp_path / "half.json"))
    alone = cost(graph, platform, Mapping.whole(graph, [1, 1, 1]))
    assert alone.account[1, BUSY] == pytest.approx(0.5 * 3 * LAYER)
    assert alone.energy_j == pytest.approx(0.5 * 3 * LAYER * 3.0)
    found = cost(graph, platform, Mapping.whole(graph, [0, 2, 2]))
    assert found.account[:, COMPUTE] == pytest.approx([(1 - rested) * LAYER, 0, 2 * (1 - rested) * LAYER])
    idle_s = found.latency_s - found.account[:, COMPUTE]
    assert (idle_s > 0).all()
    often_s, (first_s, _, last_s) = np.sqrt(1e-4 * np.array([0.5, 1.0]) * LAYER), cold_part * idle_s
    busy_s = [0.5 * LAYER + often_s[0] + first_s, 0, LAYER + often_s[1] + last_s + 1e-4]
    assert found.account[:, BUSY] == pytest.approx(busy_s)
    assert found.account[2, ENERGY] == pytest.approx((LAYER + often_s[1]) * 3.0 + (MESSAGE + last_s + 1e-4) * 7.0)


@pytest.mark.parametrize("cost", [priced, lambda *of: simulated(*of).price])
@pytest.mark.parametrize(
    ("rate", "overlap", "message_ms"), [("4MB/s", 0.0, 3), ("4MB/s", 0.5, 2.5), ("4MB/s", 1.0, 2), ("1MB/s", 1.0, 4)]
)
def test_bytes_may_come_while_the_latency_passes_but_a_message_takes_no_less_than_either(
    graph: Graph, easy: str, tmp_path: Path, rate: str, overlap: float, message_ms: float, cost: Callable[..., Priced]
) -> None:
    """2 ms of latency, and bytes of 1 ms or 4."""
    body = json.loads(Path(easy).read_text())
    body["units"]["cpu"]["overlap"] = overlap
    (tmp_path / "early.json").write_text(json.dumps(body))
    found = cost(graph, cluster(str(tmp_path / "early.json"), rate=rate), Mapping.whole(graph, [0, 2, 2]))
    assert found.latency_s == pytest.approx(3 * LAYER + message_ms * MS)
    assert found.account[2, COMMUNICATE] == pytest.approx(message_ms * MS)


def test_no_watts_are_watts(graph: Graph, easy: str) -> None:
    assert priced(graph, cluster(easy, more=", cpu_power=0W"), Mapping.whole(graph, [0, 2, 2])).energy_j == 0


def test_two_devices_in_a_row(graph: Graph, easy: str) -> None:
    found = priced(graph, cluster(easy), Mapping.whole(graph, [0, 2, 2]))
    assert found.latency_s == pytest.approx(LAYER + 1 * MS + 2 * MS + 2 * LAYER)
    first, last = found.account[0], found.account[2]
    assert [first[COMPUTE], last[COMPUTE]] == pytest.approx([LAYER, 2 * LAYER])
    assert [first[COMMUNICATE], last[COMMUNICATE]] == pytest.approx([MESSAGE, MESSAGE])
    assert [first[WAIT], last[WAIT]] == [0, 0]
    assert first[ENERGY] == pytest.approx(LAYER * 3.0 + MESSAGE * 7.0)
    assert last[ENERGY] == pytest.approx(2 * LAYER * 3.0 + MESSAGE * 7.0)
    assert found.energy_j == last[ENERGY]
    assert found.period_s == pytest.approx(2 * LAYER)
    assert first[MEMORY] == pytest.approx(2 * KILO * 3 + KILO * 5 + BIAS)  # the input and its ReLU, one message
    assert last[MEMORY] == pytest.approx(2 * KILO * 3 + KILO * 5 + BIAS)  # two activations at a time, one message
    assert [row["device"] for row in found.devices(cluster(easy))] == ["h0_cpu0123", "h2_cpu0123"]


def test_a_slower_device_takes_longer_to_compute_and_no_longer_to_send(graph: Graph, easy: str) -> None:
    mapping, platform = Mapping.whole(graph, [0, 2, 2]), cluster(easy).slowed([1.5, 9.0, 1.0])
    usual, found = priced(graph, cluster(easy), mapping), priced(graph, platform, mapping)
    assert found.latency_s == pytest.approx(usual.latency_s + 0.5 * LAYER)
    assert found.account[0, COMPUTE] == pytest.approx(1.5 * LAYER)
    assert found.account[2].tolist() == usual.account[2].tolist()
    columns = [COMMUNICATE, WEIGHTS, ACTIVATIONS, BUFFERS, MEMORY]
    assert found.account[0, columns].tolist() == usual.account[0, columns].tolist()


def test_a_join_waits_for_the_last_piece(graph: Graph, easy: str) -> None:
    """The second half of the input goes to the other device first, so its half of the ReLU is late."""
    mapping = Mapping.of([Shard(0, 0, 4, 0), Shard(0, 4, 8, 1), Shard(1, 0, 8, 2), Shard(2, 0, 8, 2)])
    found = priced(graph, cluster(easy), mapping)
    half, sent = 0.51 * MS, 2.5 * MS
    early, late = half + sent, sent + half + sent
    assert found.latency_s == pytest.approx(late + 2 * LAYER)
    assert found.account[:, WAIT] == pytest.approx([0, 0, late - early])
    assert found.account[:, COMMUNICATE] == pytest.approx([2 * sent, 2 * sent, 2 * sent])
    assert found.account[:, COMPUTE] == pytest.approx([half, half, 2 * LAYER])
    assert found.account[2, ENERGY] == pytest.approx(2 * LAYER * 3 + (2 * sent + late - early) * 7)
    assert found.account[:, BUFFERS] == pytest.approx([KILO, KILO, KILO])


def test_waiting_for_one_piece_alone_is_no_join(graph: Graph, easy: str) -> None:
    found = priced(graph, cluster(easy), Mapping.whole(graph, [0, 1, 0]))
    assert found.account[:, WAIT].tolist() == [0, 0, 0]


def test_messages_of_one_host_leave_one_after_the_other(tmp_path: Path, easy: str) -> None:
    """A ReLU goes to two devices: the second message waits for the network card of the first."""
    nodes = [node("Relu", ["x"], ["r"]), node("Tanh", ["r"], ["t"]), node("Sigmoid", ["r"], ["s"])]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 8, 125)}, ["t", "s"]))
    found = priced(graph, cluster(easy), Mapping.whole(graph, [0, 1, 2]))
    assert found.ledger.depart[:2] == pytest.approx([LAYER, LAYER + 1 * MS])
    assert found.ledger.arrive[:2] == pytest.approx([LAYER + 3 * MS, LAYER + 4 * MS])
    assert found.latency_s == pytest.approx(LAYER + 4 * MS + LAYER)
    assert found.period_s == pytest.approx((LAYER + MESSAGE) / 2)  # of two frames the first must have come


def test_messages_to_one_host_arrive_one_after_the_other(graph: Graph, easy: str) -> None:
    boxes = [(0, 4, 0), (4, 8, 1)]
    mapping = Mapping.of([*[Shard(layer, *box) for layer in (0, 1) for box in boxes], Shard(2, 0, 8, 2)])
    found = priced(graph, cluster(easy, rate="40kB/s"), mapping)  # 1000 floats take 100 ms, two layers 1 ms
    half, sent = 1.02 * MS, 50 * MS
    first_gone = max(half, sent) + sent  # the card of the first device sends a half of the input before
    assert found.latency_s == pytest.approx(max(first_gone, sent + 2 * MS + half) + sent + 2 * MS + LAYER)


def test_units_of_one_host_copy_without_the_network(graph: Graph, easy: str) -> None:
    text = "a, slots=0-3, gpu=NVIDIA (CUDA), bandwidth=1kB/s, latency=1s, copy_bandwidth=8MB/s"
    found = priced(graph, parse(text, easy), Mapping.whole(graph, [0, 1, 1]))
    gpu = 0.51 * MS
    assert found.latency_s == pytest.approx(LAYER + 0.5 * MS + 2 * gpu)


def test_fewer_threads_are_slower_in_proportion_and_more_are_not_faster(graph: Graph, easy: str) -> None:
    for threads, factor in ((1, 4.0), (2, 2.0), (4, 1.0), (8, 1.0)):
        found = priced(graph, cluster(easy, 1, f", threads={threads}"), Mapping.whole(graph, [0] * 3))
        assert found.latency_s == pytest.approx(3 * (factor * MS + 0.01 * MS))


def test_a_power_of_the_platform_replaces_those_of_the_coefficients(graph: Graph, easy: str) -> None:
    found = priced(graph, cluster(easy, 2, ", cpu_power=11W"), Mapping.whole(graph, [0, 1, 1]))
    assert found.account[0, ENERGY] == pytest.approx((LAYER + MESSAGE) * 11)


def test_activations_are_held_until_their_last_reader(tmp_path: Path, easy: str) -> None:
    """While the last layer runs, the first is still alive; the input is gone."""
    nodes = [node("Relu", ["x"], ["r"]), node("Tanh", ["r"], ["t"]), node("Sigmoid", ["t"], ["s"])]
    nodes += [node("Concat", ["s", "r"], ["y"], axis=1)]
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 8, 125)}, ["y"]))
    found = priced(graph, cluster(easy), Mapping.whole(graph, [0] * 4))
    assert found.account[0, ACTIVATIONS] == 4 * KILO  # r, s, and y of twice the size
    found = priced(graph, cluster(easy), Mapping.whole(graph, [0, 0, 0, 1]))
    assert found.account[0, ACTIVATIONS] == 2 * KILO  # r only until t is there: what is sent is a buffer's matter
    assert found.account[1, ACTIVATIONS] == 2 * KILO


def test_weights_are_divided_among_shards_but_what_all_need_is_not(tmp_path: Path, easy: str) -> None:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"]),
        node("Mul", ["c", "row"], ["m"]),
        node("Clip", ["m", "low"], ["y"]),
    ]
    weights = {"w": weight(8, 4, 1, 1), "b": weight(8), "row": weight(1, 1, 1, 5), "low": np.array(0, np.float32)}
    graph = graph_of(tmp_path, network(nodes, {"x": (1, 4, 5, 5)}, ["y"], weights))
    boxes = [(0, 2, 0), (2, 8, 1)]
    found = priced(graph, cluster(easy), Mapping.of([Shard(i, *box) for i in range(3) for box in boxes]))
    cut, kept = 4 * (8 * 4 + 8), 4 * (5 + 1)
    assert found.account[:2, WEIGHTS] == pytest.approx([cut / 4 + kept, cut * 3 / 4 + kept])


def test_a_split_layer_shares_its_work_but_not_its_overhead(tmp_path: Path, easy: str) -> None:
    graph = graph_of(
        tmp_path, network([node("Conv", ["x", "w"], ["y"])], {"x": (1, 4, 5)}, ["y"], {"w": weight(8, 4, 1)})
    )
    found = priced(graph, cluster(easy), Mapping.of([Shard(0, 0, 2, 0), Shard(0, 2, 8, 1)]))
    work = 8 * 5 * 4 * 1e-6
    assert found.account[:, COMPUTE] == pytest.approx([work / 4 + 1e-5, work * 3 / 4 + 1e-5, 0])


def test_coefficients_for_another_unit_are_missing(graph: Graph, easy: str, tmp_path: Path) -> None:
    body = json.loads(Path(easy).read_text())
    del body["units"]["gpu"]
    (tmp_path / "cpu.json").write_text(json.dumps(body))
    platform = parse("a, gpu=NVIDIA (CUDA)\n", str(tmp_path / "cpu.json"))
    with pytest.raises(CleaveError, match=r"^device 'a_gpu': coefficients 'easy' have no figures for a gpu"):
        priced(graph, platform, Mapping.whole(graph, [0] * 3))


# --- memory limits ---


def overflow(graph: Graph, platform: Platform, mapping: Mapping) -> tuple[float, Priced]:
    found = priced(graph, platform, mapping)
    return float(spending.excess(costs(graph, arrays(graph), platform), found.ledger)), found


def test_without_a_limit_everything_fits(graph: Graph, easy: str) -> None:
    excess, found = overflow(graph, cluster(easy), Mapping.whole(graph, [0] * 3))
    assert excess == -np.inf
    assert found.fits


@pytest.mark.parametrize(("limit", "excess"), [(1_023_999, 1), (1_024_000, 0), (1_100_000, -76_000), (24_000, 10**6)])
def test_a_limit_is_compared_with_what_is_resident(graph: Graph, easy: str, limit: int, excess: int) -> None:
    platform = cluster(easy, 1, f", memory={limit}B")
    found, price = overflow(graph, platform, Mapping.whole(graph, [0] * 3))
    assert found == pytest.approx(excess)
    assert price.fits == (excess <= 0)


def test_units_that_share_a_memory_are_added_up(graph: Graph, easy: str) -> None:
    text = "a, slots=0-3, gpu=NVIDIA (CUDA), memory=2MB"
    mapping = Mapping.whole(graph, [0, 1, 1])
    shared, price = overflow(graph, parse(text, easy), mapping)
    assert shared == pytest.approx(price.account[:, MEMORY].sum() - 2e6)
    assert shared > 0
    own, _ = overflow(graph, parse(f"{text}, gpu_memory=3MB", easy), mapping)
    assert own == pytest.approx(price.account[0, MEMORY] - 2e6)
    assert own < 0


def test_a_device_that_takes_no_part_needs_no_memory(graph: Graph, easy: str) -> None:
    found = priced(graph, cluster(easy), Mapping.whole(graph, [0] * 3))
    assert found.account[1:, MEMORY].tolist() == [0, 0]


# --- properties ---


@given(draw=st.randoms(use_true_random=False), rates=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)))
@examples(60)
def test_a_faster_link_never_makes_a_chain_slower(
    easy: str, tmp_path_factory: pytest.TempPathFactory, draw: random.Random, rates: tuple[int, int]
) -> None:
    graph = graph_of(tmp_path_factory.mktemp("six"), six_layers())
    mapping = Mapping.whole(graph, [draw.randrange(3) for _ in graph.layers])
    slow, fast = (priced(graph, cluster(easy, rate=f"{rate}kB/s"), mapping) for rate in sorted(rates))
    assert fast.latency_s <= slow.latency_s
    assert fast.period_s <= slow.period_s
    assert fast.energy_j <= slow.energy_j
    assert fast.memory_bytes == slow.memory_bytes


@given(draw=st.randoms(use_true_random=False))
@examples(40)
def test_a_ledger_adds_up(easy: str, tmp_path_factory: pytest.TempPathFactory, draw: random.Random) -> None:
    """Shards of a device and messages of a card never overlap, nothing starts before its pieces are there."""
    graph = graph_of(tmp_path_factory.mktemp("six"), six_layers())
    platform = cluster(easy)
    found = priced(graph, platform, random_mapping(draw, graph, 3))
    s, m, book = found.shards, found.messages, found.ledger
    for device in range(3):
        own = np.flatnonzero(s.device == device)
        assert (book.start[own][1:] >= book.stop[own][:-1]).all()
        assert (book.stop[own] - book.start[own]).sum() == pytest.approx(found.account[device, COMPUTE])
    for shard in range(len(s.device)):
        waits = m.in_message[m.in_ptr[shard] : m.in_ptr[shard + 1]]
        assert (book.arrive[waits] <= book.start[shard]).all()
        sent = slice(m.out_ptr[shard], m.out_ptr[shard + 1])
        assert (book.depart[sent] >= book.stop[shard]).all()
    sent_by, sent_to, rate = s.device[m.shard[: m.out_ptr[-1]]], m.device[: m.out_ptr[-1]], platform.bandwidth()[0, 1]
    for device in range(3):
        out, into = np.flatnonzero(sent_by == device), np.flatnonzero(sent_to == device)
        seconds = book.size / rate
        assert (book.depart[out][1:] >= (book.depart + seconds)[out][:-1] - 1e-12).all()
        assert ((book.arrive - seconds)[into][1:] >= book.arrive[into][:-1] - 1e-12).all()
        assert (book.arrive[out] >= (book.depart + seconds)[out] + 2 * MS - 1e-12).all()
    assert found.latency_s == pytest.approx(book.stop.max())
    assert found.period_s >= found.account[:, COMPUTE].max()


# --- the thesis ---


@pytest.mark.parametrize("name", TABLE2)
def test_table_2_of_the_thesis(name: str) -> None:
    """Each network alone on the six cores of a Jetson Xavier NX: latency, energy and memory."""
    jetson = Platform.parse("nx, arm, slots=0-5, coefficients=jetson-xavier-nx", "nx.txt")
    printed = {
        "alexnet": (28.3e-3, 0.352, 152.7e6),
        "vgg16": (122.46e-3, 1.959, 446.9e6),
        "densenet121": (138.68e-3, 1.026, 96.0e6),
    }
    found = _priced(load(zoo.cached(name)), jetson)
    assert (found.latency_s, found.energy_j, found.memory_bytes) == pytest.approx(printed[name], rel=0.005)
