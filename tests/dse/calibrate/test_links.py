"""Bundles that measure links: what is in them, what real ranks say, and that a simulator then says the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from codegen.probes import AFTER, BEFORE
from dse.calibrate.link_keys import host_keys, unit_fields
from dse.calibrate.links import LARGE, LATE_BYTES, MOST_S, SMALL, LinkBundle, link_bundles, read
from dse.cli.access import Access, connected
from dse.show_calibrated import held_up, link_rows
from model.cluster.platform import Platform
from model.fit.link_costs import (
    BOTH,
    BURST,
    FASTEST_BYTES_PER_S,
    KINDS,
    LATE,
    TWO,
    WAY,
    Estimate,
    LinkCosts,
    LinkSample,
    Overheads,
    Sharing,
)
from model.fit.link_costs import Path as Way
from model.fit.links import fit
from model.mappings.mapping import Mapping
from model.simulator.simulated import simulated
from model.simulator.simulation import ENTER, SEND
from model.simulator.ticks import TICK_S
from runtime.inprocess import run_in_process
from runtime.launch import run
from runtime.options import Options
from runtime.plan import Plan, Recv
from runtime.plan import Send as SendStep
from runtime.trace import Trace
from tests.cluster import standing
from tests.tiny_cnn import graph_of, six_layers

PAIR = Platform.parse("a, address=localhost, slots=0\nb, address=localhost, slots=1", "pair.txt")
FOUR = Platform.parse("\n".join(f"p{k}, slots=0-1, gpu=X (CUDA)" for k in range(4)), "four.txt")
EXACT = Estimate(0.0, 0.0, 0.0)


def matched(plan: Plan) -> bool:
    """Whether every message that is sent is waited for, once, by the rank it goes to."""
    sent = [(r.rank, s.dest, s.tag) for r in plan.ranks for s in r.steps if isinstance(s, SendStep)]
    waited = [(s.source, r.rank, s.tag) for r in plan.ranks for s in r.steps if isinstance(s, Recv)]
    return len(set(sent)) == len(sent) and sorted(sent) == sorted(waited)


def test_every_message_of_a_plan_is_waited_for() -> None:
    bundles = link_bundles(FOUR)
    assert [b.name for b in bundles] == [
        *("links-network-small", "links-network-large", "links-p0-small", "links-p0-large")
    ]
    assert all(matched(b.plan) for b in bundles)


def test_a_ring_joins_each_host_to_two_others_and_devices_of_alike_hosts_are_tried_once() -> None:
    network, _, near, _ = link_bundles(FOUR)
    assert [r.device for r in network.plan.ranks] == [f"p{k}_cpu01" for k in range(4)]
    assert [r.device for r in near.plan.ranks] == ["p0_cpu01", "p0_gpu"]
    for rank in network.plan.ranks:
        assert {s.dest for s in rank.steps if isinstance(s, SendStep)} == {(rank.rank + k) % 4 for k in (1, 3)}


def test_devices_of_one_host_that_are_not_alike_are_each_tried() -> None:
    text = "h, address=localhost, slots=0\nh, address=localhost, slots=1\nh, address=localhost, slots=2-3, threads=2"
    small, _ = link_bundles(Platform.parse(text, "h.txt"))
    assert [r.device for r in small.plan.ranks] == ["h_cpu0", "h_cpu23"]
    assert matched(small.plan)


def test_how_long_a_message_takes_is_known_of_all_that_come_while_their_receiver_computes() -> None:
    assert set(LATE_BYTES) <= {*SMALL, *LARGE}


def test_one_device_has_no_link() -> None:
    assert link_bundles(Platform.parse("a", "one.txt")) == []


def test_slow_links_and_small_hosts_get_no_message_that_takes_long() -> None:
    text = "a, slots=0, bandwidth=8Mbit/s\nb, slots=0, memory=64MB"
    for bundle in link_bundles(Platform.parse(text, "slow.txt")):
        size = max(b.shape[0] for r in bundle.plan.ranks for b in r.buffers if b.name not in (BEFORE.name, AFTER.name))
        assert size <= min(1e6 * MOST_S, 64e6 / 32)
        assert matched(bundle.plan)


def test_no_burst_takes_longer_than_a_message_may() -> None:
    small, large = link_bundles(Platform.parse("a, slots=0, bandwidth=250kbit/s\nb, slots=0", "slow.txt"))
    for bundle, some in ((small, True), (large, False)):
        steps = [step for rank in bundle.plan.ranks for step in rank.steps if isinstance(step, SendStep)]
        bursts = Counter(name for name in (s.buffer.rpartition("/")[0] for s in steps) if name.startswith(BURST))
        assert bool(bursts) == some
        assert all(count * int(name.rpartition("/")[2]) <= 250e3 / 8 * MOST_S for name, count in bursts.items())


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[LinkSample]:
    """Two ranks on this machine; fewer frames than in use."""
    return [s for b in link_bundles(PAIR) for s in ran(replace(b, warmup=1, frames=3), tmp_path_factory.mktemp("l"))]


def ran(bundle: LinkBundle, folder: Path) -> list[LinkSample]:
    bundle.write(folder / "bundle")
    run(folder / "bundle", replace(bundle.options, report=str(folder / "report.json")))
    return read(bundle.plan, Trace.from_json((folder / "report.json").read_text()))


def test_devices_are_of_one_host_where_the_plan_says_so(tmp_path: Path) -> None:
    """However they are called."""
    for bundle in link_bundles(PAIR):
        folder = tmp_path / bundle.name
        bundle.write(folder)
        run_in_process(str(folder), Options(1, 0, barrier=True, report=str(folder / "report.json")))
        trace = Trace.from_json((folder / "report.json").read_text())
        assert not any(sample.local for sample in read(bundle.plan, trace))
        ranks = tuple(replace(rank, host="c") for rank in bundle.plan.ranks)
        assert all(sample.local for sample in read(replace(bundle.plan, ranks=ranks), trace))


def test_real_ranks_say_how_long_each_probe_takes(measured: list[LinkSample]) -> None:
    seen = {(s.kind, s.source, s.size_bytes) for s in measured}
    assert {s.kind for s in measured} == set(KINDS) - {TWO}
    assert {(WAY, f"{host}_cpu{core}", size) for host, core in ("a0", "b1") for size in (*SMALL, *LARGE)} <= seen
    assert all(len(s.times_s) == len(s.send_s) == 3 and min(s.send_s) > 0 for s in measured)
    assert {s.count for s in measured if s.kind in (BURST, BOTH)} == {16, 2}
    assert all(min(s.times_s) > 0 and len(s.there_s) == 3 for s in measured if s.kind == LATE)
    assert not any(s.local for s in measured)


def test_figures_of_this_machine_are_those_of_memory_not_of_a_network(measured: list[LinkSample]) -> None:
    found = fit(measured, {"a_cpu0": "x", "b_cpu1": "x"})
    assert all(path.bandwidth_bytes_per_s.value > 200e6 for path in found.paths)
    assert all(path.latency_s.value < 10e-3 for path in found.paths)
    assert set(unit_fields(found, "x")) == {f.name for f in Overheads.__dataclass_fields__.values()}
    assert set(host_keys(PAIR, found)) == {"a", "b"}


def way(source: str, target: str, rate: float, latency: float = 0.0, local: bool = False) -> Way:
    exact = [Estimate(value, value, value) for value in (rate, latency, 0.0)]
    return Way(source, target, local, exact[0], exact[1], exact[2], {})


def test_a_host_has_the_rate_that_it_reached_with_its_fastest_neighbour() -> None:
    rates = {(0, 1): 100e6, (1, 2): 100e6, (2, 3): 12.5e6, (3, 0): 12.5e6}
    ends = [(f"p{a}_cpu01", f"p{b}_cpu01", rate) for (a, b), rate in rates.items()]
    paths = [p for a, b, rate in ends for p in (way(a, b, rate, 40e-6), way(b, a, rate, 40e-6))]
    near = way("p0_cpu01", "p0_gpu", 3e9, local=True)
    keys = host_keys(FOUR, LinkCosts({}, (*paths, near), ()))
    assert [keys[f"p{k}"]["bandwidth"] for k in range(4)] == ["100MB/s", "100MB/s", "100MB/s", "12.5MB/s"]
    assert {k["latency"] for k in keys.values()} == {"20us"}
    assert {k["copy_bandwidth"] for k in keys.values()} == {"3000MB/s"}


def test_a_way_whose_bytes_cost_nothing_has_no_limit() -> None:
    """Ranks of one host copy them: the processors are what takes time."""
    quick = replace(way("a", "b", 1.0), bandwidth_bytes_per_s=Estimate(FASTEST_BYTES_PER_S, 4e10, FASTEST_BYTES_PER_S))
    rows = link_rows(LinkCosts({}, (quick, way("b", "a", 1.5e8, 4e-5)), ()))
    assert rows[0] == ["a to b", "no limit", "40000.0 to no limit", "0.0", "0.0 to 0.0"]
    assert rows[1] == ["b to a", "150.0", "150.0 to 150.0", "40.0", "40.0 to 40.0"]


def test_hosts_that_hold_each_other_up_are_told_of_unless_the_platform_file_says_it() -> None:
    def sharing(source: str, target: str, low: float, kind: str = BOTH) -> Sharing:
        return Sharing(kind, source, target, "", Estimate(low + 0.1, low, low + 0.2))

    found = (
        sharing("a_cpu0", "b_cpu0", 0.8),
        sharing("b_cpu0", "c_cpu0", 0.1),
        sharing("c_cpu0", "a_cpu0", 0.9),
        sharing("a_cpu0", "a_cpu1", 0.9),
        sharing("b_cpu0", "a_cpu0", 0.9, TWO),
    )
    text = "a, slots=0\na, slots=1\nb, slots=0\nc, slots=0, duplex=half"
    (told,) = held_up(Platform.parse(text, "p.txt"), LinkCosts({}, (), found))
    assert told.startswith("a and b hold each other up when both send at once, by 90%;")


def test_a_simulated_message_takes_what_was_fitted(tmp_path: Path) -> None:
    """Of a real mapping: six layers, a cut in the middle, on the platform that the keys make."""
    fields = (8e-6, 0.2e-9, 5e-6, 0.1e-9, 3e-6, 0.5)
    costs = LinkCosts(
        {"x": Overheads(*(Estimate(v, v, v) for v in fields))},
        (way("a_cpu0", "b_cpu0", 50e6, 90e-6), way("b_cpu0", "a_cpu0", 50e6, 90e-6)),
        (),
    )
    body = json.loads((files("platforms") / "coefficients" / "generic.json").read_text())
    body["units"]["cpu"] |= unit_fields(costs, "x")
    (tmp_path / "x.json").write_text(json.dumps(body))
    keys = host_keys(Platform.parse("a, slots=0\nb, slots=0", "p.txt"), costs)
    rows = [", ".join([h, "slots=0", "coefficients=x.json", *map("=".join, k.items())]) for h, k in keys.items()]
    platform = Platform.parse("\n".join(rows), str(tmp_path / "p.txt"))
    graph = graph_of(tmp_path, six_layers())
    found = simulated(graph, platform, Mapping.whole(graph, [0 if layer.index < 3 else 1 for layer in graph.layers]))
    events, size = found.alone, float(found.case.ledger.size[0])
    handed = int(events.handed[0])
    sent_s = (events.stop[0, handed + ENTER] - events.start[0, handed + SEND]) * TICK_S
    taken_s = float(np.max(events.receive)) * TICK_S
    assert sent_s == pytest.approx(8e-6 + 0.2e-9 * size + 90e-6 + 0.5 * size / 50e6 + 3e-6, rel=1e-6)
    assert taken_s == pytest.approx(5e-6 + 0.1e-9 * size, rel=1e-6)


@pytest.mark.cluster
@pytest.mark.slow
def test_on_a_testbed_the_links_are_those_that_were_made(tmp_path: Path) -> None:
    """Gigabit and a tenth of it, less the 4 % that headers of packets take."""
    with standing("testbed-4-uneven", tmp_path / "box", "k") as box:
        platform = Platform.from_file(box.platform)
        access = Access(known_hosts=[box.known_hosts], key=box.key, python=str(box.testbed.python))
        samples: list[LinkSample] = []
        for bundle in link_bundles(platform):
            report = tmp_path / f"{bundle.name}.json"
            bundle.write(tmp_path / bundle.name)
            with connected(tmp_path / bundle.name, platform, access) as hosts:
                hosts.check()
                with hosts.session(hosts.upload()) as session:
                    session.run(replace(bundle.options, report=str(report)), 600)
            samples += read(bundle.plan, Trace.from_json(report.read_text()))
        found = fit(samples, {d.name: "x" for d in platform.devices})
    for path in found.paths:
        slow = "pi3" in path.source + path.target
        assert path.bandwidth_bytes_per_s.value == pytest.approx(12e6 if slow else 120e6, rel=0.1 if slow else 0.3)
        assert path.latency_s.value < 5e-3
    assert min(s.share.value for s in found.sharing if s.kind == TWO and s.target == "pi3_cpu1") > 0.5
