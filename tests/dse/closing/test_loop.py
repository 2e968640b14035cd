"""The loop against a cluster that is a model with other coefficients: what it measures, learns and keeps."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse import run as job
from dse.closing.attempts import Attempt, Closed
from dse.closing.earlier import Earlier
from dse.closing.figures import FILE, Measurement
from dse.closing.loop import Closing, Limits
from dse.closing.pool import Space
from dse.closing.trouble import Trouble
from dse.evaluation import OBJECTIVES
from dse.inputs import Cnn, read_cnn
from dse.search import Front, search
from dse.settings import Settings
from model.cluster.platform import Platform
from model.cost.priced import priced
from model.mappings.mapping import Mapping
from runtime.deploy.target import DeployError
from runtime.errors import CleaveError
from tests.tiny_cnn import branches, platform, save

SETTINGS = Settings(population=40, generations=8)


@dataclass
class Cluster:
    """Computes what a mapping takes where the second device is slow; its energy is not metered."""

    real: Platform
    cnn: Cnn
    gone: str | None = None
    runs: list[Mapping] = field(default_factory=list)

    def run(self, mapping: Mapping, folder: Path) -> Measurement:
        self.runs.append(mapping)
        if self.gone and self.real.index(self.gone) in mapping.devices:
            raise DeployError({"h1": ["is not there"]})
        found = priced(self.cnn.graph, self.real, mapping)
        slow = sum(row["compute_s"] for row in found.devices(self.real) if row["device"] == "h1_cpu0")
        return Measurement(np.array([found.latency_s + 9 * slow, np.nan, found.memory_bytes + 1e6, found.period_s]))

    def record(self, mapping: Mapping, found: Measurement, expected: np.ndarray) -> dict[str, Any]:
        return {"latency_s": float(found.values[0]), "expected": float(expected[0])}


def closed(
    folder: Path,
    count: int,
    gone: str | None = None,
    budget_s: float | None = None,
    say: Callable[[str], None] = lambda _: None,
    unfit: frozenset[str] = frozenset(),
    again: int = 0,
    earlier: Sequence[Earlier] = (),
    **settings: object,
) -> tuple[Closed, Front, Cluster]:
    """A search of a tiny network on three devices, and its loop."""
    folder.mkdir(exist_ok=True)
    cnn, cluster = read_cnn(str(save(folder, branches())), [], False), platform(3)
    how = replace(SETTINGS, **settings)  # type: ignore[arg-type]
    encoding, costs = job.prepare(cnn, cluster, job.Coding())
    front = search(encoding, costs, how)
    space = Space(encoding, costs, how, tuple(host.name for host in cluster.hosts), False)
    rig = Cluster(cluster, cnn, gone)
    limits = Limits(count, budget_s, again)
    return Closing(space, rig, limits, folder, say, Trouble(unfit), earlier).run(front), front, rig


@pytest.mark.parametrize("evaluator", ["analytical", "simulator", "both"])
def test_so_many_are_measured_none_twice_and_the_search_learns_which_device_is_slow(
    tmp_path: Path, evaluator: str
) -> None:
    found, before, rig = closed(tmp_path, 12, evaluator=evaluator)
    assert len(found.measured) == len(rig.runs) == len(set(rig.runs)) == 12
    model, corrected = found.errors()["latency_s"]
    assert corrected is not None
    assert corrected < model
    front = found.front
    assert front.measured is not None
    best = front.best_of("latency_s")
    assert front.measured[best, 0] == front.scores[best, 0] == min(a.found.values[0] for a in found.attempts)
    assert front.evaluated > before.evaluated


def test_every_score_is_what_was_measured_or_what_is_expected(tmp_path: Path) -> None:
    found, _, _ = closed(tmp_path, 6)
    front = found.front
    assert front.measured is not None
    assert front.predicted is not None
    seen = ~np.isnan(front.measured)
    assert seen.any()
    assert not seen[:, OBJECTIVES.index("energy_j")].any()
    assert (front.scores[seen] == front.measured[seen]).all()
    assert np.isfinite(front.scores).all()
    assert (front.scores[:, 1] == front.predicted[:, 1]).all()
    assert front.off is not None
    assert np.isnan(front.off[seen]).all()
    assert np.isnan(front.off[:, 1]).all()  # nobody meters energy: measurements say nothing of it
    rest = ~seen[:, 0]
    assert rest.any()
    assert (front.off[rest, 0] > 0).all()


def scattering(monkeypatch: pytest.MonkeyPatch, part: float, seed: int = 3) -> None:
    """Latencies are off by so much, another time differently."""
    run, draw = Cluster.run, random.Random(seed)

    def scattered(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        found = run(rig, mapping, folder)
        return replace(found, values=found.values * [draw.gauss(1.0, part), 1.0, 1.0, 1.0])

    monkeypatch.setattr(Cluster, "run", scattered)


def best_of(found: Closed) -> Attempt:
    return min(found.measured, key=lambda attempt: attempt.found.values[0])


def test_what_seems_best_is_measured_again_and_the_mean_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scattering(monkeypatch, 0.2)
    found, _, rig = closed(tmp_path, 16, again=16)
    best, front = best_of(found), found.front
    assert best.times == 2
    assert len(found.measured) == len(set(rig.runs)) == 16 < len(rig.runs) < 32
    assert front.measured is not None
    assert front.measured[front.best_of("latency_s"), 0] == best.found.values[0]
    seen: dict[Mapping, list[float]] = {}
    for mapping, line in zip(rig.runs, (tmp_path / FILE).read_text().splitlines(), strict=True):
        seen.setdefault(mapping, []).append(json.loads(line)["latency_s"])
    for attempt in found.attempts:
        assert attempt.times == len(seen[attempt.mapping])
        assert attempt.found.values[0] == pytest.approx(np.mean(seen[attempt.mapping]))


def test_the_best_is_less_off_where_it_was_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of those that were measured once is one that was lucky."""
    run = Cluster.run

    def off(seed: int, again: int) -> float:
        with monkeypatch.context() as patch:
            scattering(patch, 0.1, seed)
            found, _, rig = closed(tmp_path, 16, again=again)
        best = best_of(found)
        return float(best.found.values[0] / run(rig, best.mapping, tmp_path).values[0]) - 1

    once, twice = (np.mean([off(seed, again) for seed in range(8)]) for again in (0, 5))
    assert once < -0.04
    assert abs(twice) < 0.5 * abs(once)


def test_each_objective_that_scatters_is_confirmed_and_no_more(tmp_path: Path) -> None:
    for number, columns in ((3, [0]), (4, [0, 3])):
        found, _, rig = closed(tmp_path / str(number), 12, again=9, objectives=OBJECTIVES[:number])
        best = {min(found.attempts, key=lambda a: a.found.values[k]).mapping for k in columns}
        assert len(found.attempts) == 12
        assert set(rig.runs[12:]) == best
        assert len(rig.runs) == 12 + len(best)


def test_what_fails_when_it_is_measured_again_counts_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, said = Cluster.run, list[str]()

    def failing(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        if mapping in rig.runs:
            raise DeployError({"h1": ["is not there"]})
        return run(rig, mapping, folder)

    monkeypatch.setattr(Cluster, "run", failing)
    found, _, _ = closed(tmp_path, 8, again=3, say=said.append)
    assert said[-1] == "that failed, and it counts as it was: h1: is not there"
    assert len(found.measured) == len((tmp_path / FILE).read_text().splitlines()) == 8
    assert best_of(found).times == 1


def test_a_budget_has_a_share_for_each_measurement() -> None:
    assert (Limits(40, 90.0, 5).first_s, Limits(40, 90.0, 5).whole_s) == (80.0, 90.0)
    assert Limits(40, None, 5).first_s == float("inf")
    assert Limits(7, 90.0).first_s == 90.0


def test_lines_of_one_mapping_are_measurements_of_one(tmp_path: Path) -> None:
    _, front, _ = closed(tmp_path, 1)
    genes, values = front.genes[0], np.array([2.0, np.nan, 1e6, 4.0])
    both = [Earlier(genes, values, "one"), Earlier(genes, values * [2, 1, 1, 1], "two")]
    found = closed(tmp_path / "more", 1, earlier=both)[0]
    assert (found.before, len(found.attempts), found.attempts[0].times) == (1, 2, 2)
    np.testing.assert_array_equal(found.attempts[0].found.values, [3.0, np.nan, 1e6, 4.0])
    assert (tmp_path / "more" / FILE).read_text().splitlines()[:2] == ["one", "two"]


def test_corrected_predictions_expect_no_less_than_what_those_were_off_by_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However well a few measurements, which scatter, can be explained."""
    scattering(monkeypatch, 0.05)
    found, _, _ = closed(tmp_path, 6)
    corrected, off = found.errors()["latency_s"][1], found.front.off
    assert corrected is not None
    assert corrected > 0.01
    assert off is not None
    told = off[~np.isnan(off[:, 0]), 0]
    assert len(told) > 2
    assert (told >= corrected).all()


def test_what_was_measured_at_once_says_nothing_of_corrections(tmp_path: Path) -> None:
    found, _, _ = closed(tmp_path, 1)
    assert found.errors()["latency_s"][1] is None
    assert found.front.off is not None
    assert np.isnan(found.front.off).all()


def test_no_measured_point_is_worse_than_another_and_no_predicted_one_than_any(tmp_path: Path) -> None:
    found, _, _ = closed(tmp_path, 10)
    scores = found.front.scores[:, :3]
    assert found.front.measured is not None
    seen = ~np.isnan(found.front.measured[:, 0])
    for i, mine in enumerate(scores):
        better = (scores <= mine).all(axis=1) & (scores < mine).any(axis=1)
        assert not better[seen if seen[i] else slice(None)].any()


def test_one_seed_and_one_cluster_give_one_result(tmp_path: Path) -> None:
    one, two = closed(tmp_path, 7), closed(tmp_path, 7)
    assert one[2].runs == two[2].runs
    assert one[0].front.genes.tobytes() == two[0].front.genes.tobytes()
    assert one[0].front.scores.tobytes() == two[0].front.scores.tobytes()


def test_a_host_that_is_gone_is_given_up_and_the_rest_is_measured(tmp_path: Path) -> None:
    said = list[str]()
    found, _, rig = closed(tmp_path, 12, gone="h1_cpu0", say=said.append)
    assert said[-2:] == [
        f"after {len(found.attempts)} of 12 there is nothing left to measure",
        "h1 failed too often: mappings that need it are left out",
    ]
    failed = [a for a in found.attempts if a.found.failed]
    assert [a.found.hosts for a in failed] == [("h1",)] * len(failed)
    assert failed[0].found.failed == ("h1: is not there",)
    assert len(failed) == 2
    assert found.measured
    assert np.isfinite(found.front.scores).all()
    encoding = job.prepare(rig.cnn, rig.real, job.Coding())[0]
    there = [device for genes in found.front.genes for device in encoding.decode(genes).devices]
    assert rig.real.index("h1_cpu0") not in there


@pytest.mark.parametrize(("bad", "overloaded"), [((4,), False), ((1, 2, 3), True)], ids=["away", "too much"])
def test_a_host_that_is_back_or_only_had_too_much_to_do_is_tried_again(
    bad: tuple[int, ...], overloaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was measured there is on the front."""
    run, on_it = Cluster.run, list[bool]()

    def sometimes(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        if rig.real.index("h1_cpu0") in mapping.devices:
            on_it.append(len(on_it) not in bad)
            if not on_it[-1]:
                raise DeployError({"h1": ["is not there"]}, ["h1"] if overloaded else [])
        return run(rig, mapping, folder)

    monkeypatch.setattr(Cluster, "run", sometimes)
    found, _, rig = closed(tmp_path, 30)
    assert on_it.count(False) == len(bad)
    assert on_it[-1], "it was tried again"
    assert len(found.measured) == len(found.attempts) - len(bad)
    encoding = job.prepare(rig.cnn, rig.real, job.Coding())[0]
    there = {device for genes in found.front.genes for device in encoding.decode(genes).devices}
    assert rig.real.index("h1_cpu0") in there


def test_hosts_that_are_unfit_are_not_tried(tmp_path: Path) -> None:
    found, _, rig = closed(tmp_path, 12, unfit=frozenset({"h1"}))
    assert found.measured
    assert not [mapping for mapping in rig.runs if rig.real.index("h1_cpu0") in mapping.devices]


def test_what_fails_whatever_is_tried_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of this machine is full, or mpirun ends at once."""
    said = list[str]()

    def full(*_: object) -> Measurement:
        raise CleaveError("cannot be written")

    monkeypatch.setattr(Cluster, "run", full)
    found, _, _ = closed(tmp_path, 40, say=said.append)
    assert len(found.attempts) == 8
    assert said[-1] == "all 8 of a round failed, so no more are tried"


def test_what_is_too_much_for_hosts_is_no_reason_to_give_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object) -> Measurement:
        raise DeployError({"h0": ["its memory ran out"]}, ["h0"])

    monkeypatch.setattr(Cluster, "run", too_much)
    assert len(closed(tmp_path, 30)[0].attempts) > 12, "more than two rounds"


def test_ctrl_c_does_not_hold_one_failure_against_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be starting anew, and what was measured there is on the front."""
    run = Cluster.run

    def away(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        found = run(rig, mapping, folder)
        if len(rig.runs) == 2:
            raise DeployError({"h1": ["is not there"]})
        if len(rig.runs) == 4:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Cluster, "run", away)
    said = list[str]()
    found, _, _ = closed(tmp_path, 40, say=said.append)
    assert len(found.attempts) == 3, "all of one round"
    assert said[-1] == "stopped: the front is of what is known by 3 measurements"


def test_energy_that_only_some_hosts_tell_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Cluster.run

    def metered(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        found = run(rig, mapping, folder)
        return replace(found, values=np.where(np.isnan(found.values), 9.0, found.values))

    monkeypatch.setattr(Cluster, "run", metered)
    front = closed(tmp_path, 6)[0].front
    assert front.measured is not None
    assert np.isnan(front.measured[:, 1]).all()
    assert (front.scores[:, 1] < 9).all()


def test_a_mapping_that_failed_is_not_on_the_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for its energy either, which nobody has measured of any."""
    run, failed = Cluster.run, list[Mapping]()

    def run_or_fail(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        if len(rig.runs) % 3 == 0:
            rig.runs.append(mapping)
            failed.append(mapping)
            raise CleaveError("its memory ran out")
        return run(rig, mapping, folder)

    monkeypatch.setattr(Cluster, "run", run_or_fail)
    found, _, rig = closed(tmp_path, 12)
    encoding = job.prepare(rig.cnn, rig.real, job.Coding())[0]
    assert len(failed) == 4
    assert not {encoding.decode(genes) for genes in found.front.genes} & set(failed)


def test_a_cluster_that_is_gone_leaves_the_front_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> Measurement:
        raise CleaveError("there is no cluster")

    monkeypatch.setattr(Cluster, "run", gone)
    found, before, _ = closed(tmp_path, 3)
    assert not found.measured
    assert {row.tobytes() for row in before.scores} <= {row.tobytes() for row in found.front.scores}
    assert found.front.best_of("latency_s") == 0


def test_a_network_that_has_changed_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each mapping would fail, one after the other."""
    run = Cluster.run

    def changed(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        if len(rig.runs) == 2:
            rig.cnn.graph.path.write_bytes(b"")
            rig.cnn.graph.check_files()
        return run(rig, mapping, folder)

    monkeypatch.setattr(Cluster, "run", changed)
    with pytest.raises(CleaveError, match="was changed or moved after it was read"):
        closed(tmp_path, 9)
    assert len((tmp_path / FILE).read_text().splitlines()) == 2


def test_time_that_is_spent_ends_it_and_what_was_tried_is_kept(tmp_path: Path) -> None:
    found, before, rig = closed(tmp_path, 5, budget_s=0.0)
    assert not rig.runs
    assert found.front.scores.tobytes() == before.scores.tobytes()
    found, _, rig = closed(tmp_path, 5)
    lines = (tmp_path / FILE).read_text().splitlines()
    assert [json.loads(line)["latency_s"] for line in lines] == [a.found.values[0] for a in found.attempts]


def test_ctrl_c_ends_it_and_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Cluster.run

    def stopped(rig: Cluster, mapping: Mapping, folder: Path) -> Measurement:
        if len(rig.runs) == 3:
            raise KeyboardInterrupt
        return run(rig, mapping, folder)

    monkeypatch.setattr(Cluster, "run", stopped)
    found, _, _ = closed(tmp_path, 9)
    assert len(found.measured) == len((tmp_path / FILE).read_text().splitlines()) == 3
    assert np.isfinite(found.front.measured[:, 0]).any()
