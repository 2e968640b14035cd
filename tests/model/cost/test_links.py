"""Links that hosts share, and those that carry one direction at a time: what is on them when."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster.platform import Host, Platform
from model.cost import pricing
from model.cost.case import Case
from model.cost.costs import WHOLE
from model.cost.links import links, own_rate
from model.cost.priced import priced
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from model.simulator import simulation
from model.simulator.bounds import BANDWIDTH, COMPUTE, MORE, TRANSFER, gains, held
from model.simulator.panels import busy
from model.simulator.script import Script
from model.simulator.simulated import Events, Simulated, simulated
from model.simulator.simulation import ENTER, LEAVE
from model.simulator.ticks import TICK_S, ticks
from tests.tiny_cnn import branches, examples, graph_of, network, node, random_mapping, six_layers

MS = 10**12
"""Ticks."""
FRAMES, WARMUP = 6, 2
DEVICES = 5
KINDS = {
    "cards": "",
    "half-duplex cards": ", duplex=half",
    "a medium": ", medium=wifi",
    "a half-duplex medium": ", medium=wifi, duplex=half",
}


def parse(*lines: str) -> Platform:
    return Platform.parse("\n".join(lines), "links.txt")


def hosts(count: int, fields: str) -> Platform:
    return parse(*(f"h{i}, slots=0, {fields}" for i in range(count)))


def any_platform(draw: random.Random) -> Platform:
    """Four hosts, some on media; the first one has two devices."""
    duplex = {medium: draw.choice(["half", "full"]) for medium in ("wifi", "lan")}
    lines = []
    for i in range(DEVICES - 1):
        medium = draw.choice(["", "wifi", "wifi", "lan"])
        fields = f"bandwidth={draw.choice([1, 2, 5])}MB/s, latency={draw.choice([0, 1, 3])}ms"
        fields += f", medium={medium}" if medium else ""
        lines.append(f"h{i}, slots=0, {fields}, duplex={duplex.get(medium) or draw.choice(['half', 'full'])}")
    return parse(*lines, "h0, slots=1")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("net"), branches())


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("chain"), six_layers())


@pytest.fixture(scope="module")
def diamond(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Two layers between a first and a last one; all tensors have 4000 bytes."""
    nodes = [node("Relu", ["x"], ["r"]), node("Tanh", ["r"], ["t"]), node("Sigmoid", ["r"], ["s"])]
    nodes.append(node("Add", ["t", "s"], ["y"]))
    return graph_of(tmp_path_factory.mktemp("diamond"), network(nodes, {"x": (1, 8, 125)}, ["y"]))


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Three layers in a row; all tensors have 4000 bytes."""
    nodes = [node("Relu", ["x"], ["r"]), node("Tanh", ["r"], ["t"]), node("Sigmoid", ["t"], ["y"])]
    return graph_of(tmp_path_factory.mktemp("line"), network(nodes, {"x": (1, 8, 125)}, ["y"]))


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Coefficients by which any layer takes 1 ms."""
    body = json.loads((files("platforms") / "coefficients" / "generic.json").read_text())
    for layer in body["units"]["cpu"]["layers"].values():
        layer |= {"macs_per_cycle": 1e30, "overhead_s": 1e-3}
    path = tmp_path_factory.mktemp("coefficients") / "easy.json"
    path.write_text(json.dumps(body))
    return str(path)


def three(easy: str, fields: str, rates: Sequence[float] = (2, 2, 2)) -> Platform:
    """Hosts whose links have so many MB/s: at 2 they take 4000 bytes in 2 ms."""
    found = parse(*(f"h{i}, slots=0, bandwidth={rate}MB/s{fields}" for i, rate in enumerate(rates)))
    return replace(found, devices=tuple(replace(device, coefficients=easy) for device in found.devices))


ROUNDED = 2
"""Ticks that times in three parts may be off."""
Spans = dict[tuple[str, str], list[tuple[int, int]]]


def side(host: Host, way: str) -> tuple[str, str]:
    """What a message occupies on a host's side."""
    return host.link, "" if host.half_duplex else way


def way(platform: Platform, source: int, target: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """What a message leaves and enters by, told from the hosts of its two devices."""
    leaves, enters = platform.devices[source], platform.devices[target]
    if leaves.host == enters.host:
        return (leaves.name, "out"), (enters.name, "in")
    return side(platform.hosts[leaves.host], "out"), side(platform.hosts[enters.host], "in")


def on_links(found: Simulated, events: Events, platform: Platform) -> Spans:
    """Start and stop of all that was on anything."""
    case, spans = found.case, defaultdict(list)
    for message in range(case.sent):
        source = int(case.shards.device[case.messages.shard[message]])
        leaves, enters = way(platform, source, int(case.messages.device[message]))
        for stage, place in [(LEAVE, leaves), (ENTER, enters)][: 1 if leaves == enters else 2]:
            task = events.handed[message] + stage
            spans[place] += zip(events.start[:, task].tolist(), events.stop[:, task].tolist(), strict=True)
    return spans


randoms = st.randoms(use_true_random=False)


@given(randoms)
@examples(60)
def test_no_link_carries_two_messages_at_once(graph: Graph, draw: random.Random) -> None:
    platform = any_platform(draw)
    found = simulated(graph, platform, random_mapping(draw, graph, DEVICES, tiles=True), FRAMES, WARMUP)
    assert found.stream
    for events in (found.alone, found.stream):
        for place, spans in on_links(found, events, platform).items():
            assert all(a[1] <= b[0] for a, b in pairwise(sorted(spans))), place


@given(randoms)
@examples(60)
def test_a_message_occupies_each_link_at_its_own_rate_or_both_and_arrives_as_late_as_its_bytes_at_the_slower_one(
    graph: Graph, draw: random.Random
) -> None:
    platform = any_platform(draw)
    found = simulated(graph, platform, random_mapping(draw, graph, DEVICES, tiles=True), 1)
    case, e = found.case, found.alone
    for message in range(case.sent):
        source, target = int(case.shards.device[case.messages.shard[message]]), int(case.messages.device[message])
        here, there = (platform.hosts[platform.devices[d].host] for d in (source, target))
        if here == there:
            continue
        size, leave, enter = case.ledger.size[message], e.handed[message] + LEAVE, e.handed[message] + ENTER
        leaves, enters = (h.bandwidth_bytes_per_s for h in (here, there))
        slower = min(leaves, enters)
        if here.link == there.link:
            leaves = enters = slower
        assert e.stop[0, leave] - e.start[0, leave] == ticks(size / leaves)
        assert e.stop[0, enter] - e.start[0, enter] == ticks(size / enters)
        waits = e.stop[0, enter] - e.start[0, leave] - ticks(size / slower) - ticks(here.latency_s + there.latency_s)
        assert abs(waits) <= ROUNDED if side(here, "out") == side(there, "in") else waits >= -ROUNDED


@given(randoms)
@examples(30)
def test_no_stream_is_over_before_its_busiest_link_has_carried_all_of_it(graph: Graph, draw: random.Random) -> None:
    platform = any_platform(draw)
    found = simulated(graph, platform, random_mapping(draw, graph, DEVICES, tiles=True), FRAMES, WARMUP)
    rows = found.links(links(platform)[2])
    assert found.stream
    for row in rows:
        assert (FRAMES + WARMUP) * row["busy_s"] <= float(found.stream.stop.max() * TICK_S) * (1 + 1e-12)
    carried = on_links(found, found.alone, platform).values()
    assert sorted(row["messages"] for row in rows) == sorted(map(len, carried))
    assert sorted(row["busy_s"] for row in rows) == pytest.approx(
        sorted(sum(stop - start for start, stop in spans) * TICK_S for spans in carried)
    )


@given(randoms)
@examples(40)
def test_the_analytical_model_has_each_side_of_a_message_free_when_the_one_before_is_through(
    graph: Graph, draw: random.Random
) -> None:
    platform = any_platform(draw)
    case = Case.of(graph, platform, random_mapping(draw, graph, DEVICES, tiles=True))
    book, messages, desk = case.ledger, case.messages, pricing.desk(case.size, case.costs)
    pricing.price(case.g, case.shards, messages, case.costs, book, desk)
    free, carried = defaultdict(float), defaultdict(float)
    for message in range(case.sent):
        source, target = int(case.shards.device[messages.shard[message]]), int(messages.device[message])
        leaves, enters = way(platform, source, target)
        bytes_s, own, others = (
            book.size[message] / rate
            for rate in (
                platform.bandwidth()[source, target],
                own_rate(platform)[source, target],
                own_rate(platform)[target, source],
            )
        )
        begin = max(book.stop[messages.shard[message]], free[leaves])
        assert book.depart[message] == begin
        free[leaves], come = begin + own, begin + case.costs.latency[source, target] + bytes_s
        come = max(come, free[enters] + others) if enters != leaves else come
        assert book.arrive[message] == pytest.approx(come, rel=1e-12)
        free[enters] = max(free[enters], book.arrive[message]) if enters != leaves else free[enters]
        carried[leaves] += own
        carried[enters] += others if enters != leaves else 0.0
    assert sorted(desk.link[desk.link > 0]) == sorted(carried.values())


@given(randoms)
@examples(20)
def test_the_keys_change_nothing_where_they_say_what_is_so_without_them(graph: Graph, draw: random.Random) -> None:
    rates = [f"h{i}, slots={k}, bandwidth={i + 1}MB/s, latency=1ms" for i in range(2) for k in range(2)]
    mapping = random_mapping(draw, graph, 4, tiles=True)
    plain, stated, alone = (
        simulated(graph, parse(*lines), mapping, FRAMES, WARMUP)
        for lines in (rates, [f"{r}, duplex=full" for r in rates], [f"{r}, medium=of-{r[:2]}" for r in rates])
    )
    for other in (stated, alone):
        for a, b in ((plain.alone, other.alone), (plain.stream, other.stream)):
            assert a
            assert b
            assert a.start.tobytes() == b.start.tobytes()
            assert a.stop.tobytes() == b.stop.tobytes()
        for a, b in ((plain.price, other.price), (plain.analytical, other.analytical)):
            assert (a.latency_s, a.period_s) == (b.latency_s, b.period_s)
            assert a.account.tobytes() == b.account.tobytes()


@given(randoms, st.sampled_from(list(KINDS)[1:]))
@examples(30)
def test_nothing_in_a_pipeline_is_earlier_where_links_are_shared(chain: Graph, draw: random.Random, kind: str) -> None:
    """A pipeline: every device has its turn once, so without sharing no message can overtake another one."""
    mapping = Mapping.whole(chain, sorted(draw.randrange(4) for _ in chain.layers))
    fields = f"bandwidth={draw.choice([20, 200, 2000])}kB/s, latency={draw.choice([0, 1])}ms"
    apart, shared = (simulated(chain, hosts(4, fields + KINDS[k]), mapping, FRAMES, WARMUP) for k in ("cards", kind))
    assert shared.price.latency_s == apart.price.latency_s
    assert apart.stream
    assert shared.stream
    assert (shared.stream.stop >= apart.stream.stop).all()


@pytest.mark.parametrize(
    ("kind", "leave", "enter", "end"),
    [
        ("cards", [(1, 3), (3, 5), (4, 6), (6, 8)], [(1, 3), (3, 5), (4, 6), (6, 8)], 9),
        ("half-duplex cards", [(1, 3), (3, 5), (4, 6), (6, 8)], [(1, 3), (3, 5), (5, 7), (7, 9)], 10),
        ("a medium", [(1, 3), (3, 5), (5, 7), (7, 9)], [(1, 3), (3, 5), (5, 7), (7, 9)], 10),
        ("a half-duplex medium", [(1, 3), (3, 5), (5, 7), (7, 9)], [(1, 3), (3, 5), (5, 7), (7, 9)], 10),
    ],
)
def test_there_and_back_in_milliseconds(
    diamond: Graph, easy: str, kind: str, leave: list[tuple[int, int]], enter: list[tuple[int, int]], end: int
) -> None:
    """The first host sends to the second and the third one, and has its answers sent back. No latency."""
    platform, mapping = three(easy, f", latency=0s{KINDS[kind]}"), Mapping.whole(diamond, [0, 1, 2, 0])
    found = simulated(diamond, platform, mapping, 1)
    e = found.alone
    for stage, wanted in ((LEAVE, leave), (ENTER, enter)):
        tasks = e.handed + stage
        assert list(zip((e.start[0, tasks] / MS).tolist(), (e.stop[0, tasks] / MS).tolist(), strict=True)) == wanted
    assert e.stop.max() == end * MS
    assert found.price.latency_s == pytest.approx(end * 1e-3)


@pytest.mark.parametrize(("kind", "period"), [("cards", 2.5), *((kind, 4) for kind in list(KINDS)[1:])])
def test_a_row_of_hosts_in_milliseconds(line: Graph, easy: str, kind: str, period: int) -> None:
    """Each layer takes 1 ms, each of two messages 2 ms and a latency of 2 ms.

    A shared link carries both. On links apart a host begins a frame when what it sent in the last but one is there.
    """
    platform, mapping = three(easy, f", latency=1ms{KINDS[kind]}"), Mapping.whole(line, [0, 1, 2])
    found = simulated(line, platform, mapping, 400, 100)
    assert found.alone.stop.max() == (1 + 2 + 2 + 1 + 2 + 2 + 1) * MS
    assert found.price.period_s == pytest.approx(1e-3 * period, rel=0.02)


def test_the_analytical_model_has_a_message_on_a_half_duplex_medium_once(
    diamond: Graph, line: Graph, easy: str
) -> None:
    platform = three(easy, f", latency=0s{KINDS['a half-duplex medium']}")
    assert priced(diamond, platform, Mapping.whole(diamond, [0, 1, 2, 0])).latency_s == pytest.approx(10e-3)
    row = priced(line, platform, Mapping.whole(line, [0, 1, 2]))
    assert row.latency_s == pytest.approx(7e-3)
    assert row.period_s == pytest.approx(4e-3)  # of the medium


def test_a_critical_path_and_what_more_bandwidth_buys_name_the_medium(line: Graph, easy: str) -> None:
    platform, mapping = three(easy, KINDS["a half-duplex medium"]), Mapping.whole(line, [0, 1, 2])
    found = simulated(line, platform, mapping, FRAMES, WARMUP)
    script = Script.of(found, line, platform, mapping)
    path = held(script, platform, found.alone, found.latency_path)
    transfers = [part for part in path if part.category == TRANSFER]
    assert [(part.where, part.ticks) for part in transfers] == 2 * [("wifi", 2 * MS)]
    assert sum(part.ticks for part in path) == found.alone.stop.max()
    (gain,) = [g for g in gains(script, platform) if g.what == BANDWIDTH]
    assert (gain.where, gain.amount) == ("wifi", pytest.approx(2e4))
    assert gain.latency_s == pytest.approx(-4e-3 * MORE / (1 + MORE))
    bars = busy(script, platform, found.alone, 0)
    assert {name: [(bar.start_s, bar.stop_s) for bar in found] for name, found in bars.items()} == {
        "wifi": [(pytest.approx(a), pytest.approx(a + 2e-3)) for a in (1e-3, 4.2e-3)]
    }


def test_more_of_a_medium_whose_hosts_differ_is_no_amount(line: Graph) -> None:
    ends = ", latency=0s, medium=wifi, duplex=half"
    platform = parse(f"a, bandwidth=1MB/s{ends}", f"b, bandwidth=2MB/s{ends}", f"c, bandwidth=1MB/s{ends}")
    mapping = Mapping.whole(line, [0, 0, 1])
    script = Script.of(simulated(line, platform, mapping, 1), line, platform, mapping)
    assert [(g.where, g.amount) for g in gains(script, platform) if g.what == BANDWIDTH] == [("wifi", None)]


def test_links_are_those_of_hosts_and_media_and_then_copies() -> None:
    platform = parse(
        "a, slots=0, medium=wifi, duplex=half",
        "b, duplex=half",
        "c, medium=lan",
        "a, slots=1",
        "d, duplex=half, medium=wifi",
        "e, medium=lan",
        "f",
    )
    leave, enter, names = links(platform)
    assert names[:7] == ["wifi", "b half-duplex", "lan out", "lan in", "f out", "f in", "a_cpu0 copy out"]
    number = {device.name[0] + str(device.cores[0]): d for d, device in enumerate(platform.devices)}

    def between(pair: str) -> tuple[str, str | None]:
        source, target = (number[name] for name in pair.split())
        return names[leave[source, target]], None if enter[source, target] < 0 else names[enter[source, target]]

    assert between("a0 d0") == between("d0 a1") == ("wifi", None)
    assert between("a0 b0") == ("wifi", "b half-duplex")
    assert between("b0 a1") == ("b half-duplex", "wifi")
    assert between("c0 e0") == between("e0 c0") == ("lan out", "lan in")
    assert between("c0 f0") == ("lan out", "f in")
    assert between("a0 a1") == ("a_cpu0 copy out", "a_cpu1 copy in")


def test_what_leaves_to_another_host_of_the_medium_goes_no_faster_than_it_enters() -> None:
    fast, slow = "bandwidth=8MB/s", "bandwidth=2MB/s"
    rate = own_rate(parse(f"a, {fast}, medium=m", f"b, {slow}, medium=m", f"c, {slow}"))
    off = ~np.eye(3, dtype=bool)
    assert rate[off].tolist() == [2e6, 8e6, 2e6, 2e6, 2e6, 2e6]


def test_what_is_computed_while_a_message_leaves_is_later_and_what_waits_is_not(graph: Graph) -> None:
    """The stem's output goes to another host; ``first`` begins meanwhile, and ``second`` waits for what comes back."""
    mapping = Mapping.whole(graph, [1 if layer.name == "grouped" else 0 for layer in graph.layers])
    case, begins, later_s = Case.of(graph, hosts(2, "bandwidth=1MB/s, latency=1ms"), mapping), [], []
    attending = case.costs._replace(attend=np.full((2, 2), 2e-7), stages=4)
    for costs in (case.costs, attending):
        on = case.at(costs)
        stage = simulation.stage(on.size, costs, 1)
        simulation.simulate(on.g, on.shards, on.messages, costs, on.ledger, stage)
        begins.append(
            {layer.name: on.ledger.start[on.shards.ptr[on.g.n_inputs + layer.index]] for layer in graph.layers}
        )
        later_s.append(Events.of(on, stage, 1).held_up.sum() * TICK_S)
    plain, busy_s = begins
    attended_s = 2e-7 * graph.tensors["r"].size_bytes
    assert later_s[0] == 0 < later_s[1] < attended_s
    assert busy_s["first"] - plain["first"] == pytest.approx(attended_s)
    assert busy_s["second"] == pytest.approx(plain["second"])


@pytest.mark.parametrize(("first_s", "later_s"), [(1.0, 0.5), (0.5, 0.5), (0.01, 0.01), (0.0, 0.0)])
def test_what_is_done_before_a_message_has_left_is_held_up_for_a_part_of_its_own_time(
    graph: Graph, first_s: float, later_s: float
) -> None:
    """A message that takes a second to leave has half of the processor meanwhile. first_s: of what is computed then"""
    mapping = Mapping.whole(graph, [1 if layer.name == "grouped" else 0 for layer in graph.layers])
    case = Case.of(graph, hosts(2, f"bandwidth={graph.tensors['r'].size_bytes / 1e3}kB/s, latency=1s"), mapping)
    attend = np.full((2, 2), 0.5 / graph.tensors["r"].size_bytes)
    work = np.zeros_like(case.costs.work)
    work[case.g.n_inputs + graph.by_name["first"].index, 0, WHOLE] = first_s
    on = case.at(case.costs._replace(attend=attend, stages=4, work=work))
    stage = simulation.stage(on.size, on.costs, 1)
    simulation.simulate(on.g, on.shards, on.messages, on.costs, on.ledger, stage)
    assert Events.of(on, stage, 1).held_up.sum() * TICK_S == pytest.approx(later_s)


def test_what_a_slow_link_sends_leaves_its_receivers_link_free_meanwhile(diamond: Graph, easy: str) -> None:
    """4000 bytes take the second host 20 ms and the others 2. It sends to the third one, then to the first; what the
    third one sends to that goes ahead.
    """
    platform, mapping = three(easy, ", latency=0s", (2, 0.2, 2)), Mapping.whole(diamond, [1, 2, 1, 0])
    found = simulated(diamond, platform, mapping, 1)
    assert [cost.latency_s for cost in (found.price, found.analytical)] == pytest.approx([42e-3, 42e-3])
    spans = on_links(found, found.alone, platform)
    assert [(a / MS, b / MS) for a, b in sorted(spans["h0", "in"])] == [(22, 24), (39, 41)]
    assert [(a / MS, b / MS) for a, b in sorted(spans["h1", "out"])] == [(1, 21), (21, 41)]
    path = held(Script.of(found, diamond, platform, mapping), platform, found.alone, found.latency_path)
    assert {part.category for part in path} == {COMPUTE, TRANSFER}
    assert [(part.where, part.ticks / MS) for part in path if part.category == TRANSFER] == [
        ("h1 out", 20), ("h1 out", 18), ("h0 in", 2),
    ]  # fmt: skip
