"""The whole job on clusters in a box: prepare, deploy, bench and verify hybrid mappings, over real SSH and TCP."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codegen.bundle import write_bundle
from dse.inputs import read_cnn
from model.cluster.platform import Platform
from runtime.deploy.prepare import pins
from runtime.plan import Plan
from tests.cluster import Cluster, standing
from tests.command import done, dse
from tests.hybrid import hybrid
from tests.runtime.deploy.conftest import make_bundle

pytestmark = pytest.mark.cluster

WORK = "jobs"
"""Folder on the hosts."""


@pytest.fixture(scope="module", params=["testbed-4", "testbed-4-uneven"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four hosts that are alike, then four that are not."""
    if request.param == "testbed-4":
        yield request.getfixturevalue("testbed")
        return
    with standing(request.param, tmp_path_factory.mktemp("jobs") / "testbed", "j") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def prepared(testbed: Cluster, wheels: Path) -> Iterator[dict[str, Any]]:
    """What ``dse prepare`` says that it did, on hosts that have an environment of their own from now on; those that are
    not alike do with this machine's."""
    with testbed.hurried():
        body = command(testbed, "prepare", "--wheels", wheels)
    yield body
    with testbed.hurried():
        for host in testbed.hosts:
            testbed.said(host, f"rm -rf {WORK}")


def job(hosts: Cluster, network: str, folder: Path) -> Path:
    """A bundle of a hybrid mapping over all hosts."""
    cnn, platform = read_cnn(f"zoo:{network}", [], False), Platform.from_file(hosts.platform)
    bundle = folder / network
    write_bundle(cnn.graph, platform, hybrid(cnn, platform), cnn.source, bundle, force=False)
    return bundle


def command(hosts: Cluster, *words: object) -> dict[str, Any]:
    """What a command on the cluster says, as plain data."""
    return dict(json.loads(done(*words, *hosts.options, "--work", WORK, "--json")))


def test_hosts_get_an_environment_of_their_own_from_wheels(testbed: Cluster, prepared: dict[str, Any]) -> None:
    assert prepared["prepared"] == dict.fromkeys(testbed.hosts, "prepared")
    assert [host["verdict"] for host in prepared["hosts"]] == ["ok"] * 4
    ask = "import onnxruntime, mpi4py.MPI; print(onnxruntime.__file__); print(mpi4py.__file__)"
    for path in testbed.said(testbed.hosts[0], f"{WORK}/venv/bin/python -c '{ask}'").splitlines():
        assert path.startswith(f"/var/lib/cleave-testbed/home/{WORK}/venv/")


def test_hosts_that_were_prepared_are_left_as_they_are(
    testbed: Cluster, prepared: dict[str, Any], wheels: Path, tmp_path: Path
) -> None:
    first = testbed.hosts[0]
    bundle = make_bundle(tmp_path, "\n".join(testbed.platform.read_text().splitlines()[:3]))
    before = testbed.said(first, f"ls -ld --full-time {WORK}/venv")
    with testbed.hurried():
        again = command(testbed, "prepare", "--wheels", wheels, "--exclude", testbed.hosts[1])["prepared"]
        of_bundle = command(testbed, "deploy", bundle, "--dry-run", "--prepare", "--wheels", wheels)
    assert again == {host: "was prepared already" for host in testbed.hosts if host != testbed.hosts[1]}
    assert of_bundle["dry_run"] is True
    assert of_bundle["prepared"] == {first: f"would have {' '.join(pins([sys.version]))}"}
    assert testbed.said(first, f"ls -ld --full-time {WORK}/venv") == before


@pytest.mark.parametrize("network", ["alexnet", "densenet121"])
def test_a_hybrid_mapping_gives_the_whole_model_s_answer_from_all_hosts(
    hosts: Cluster, prepared: dict[str, Any], network: str, tmp_path: Path
) -> None:
    bundle = job(hosts, network, tmp_path)
    plan = Plan.from_json((bundle / "plan.json").read_text())
    with hosts.hurried():
        first, second = (command(hosts, "deploy", bundle)["sent"] for _ in range(2))
    assert all(first[host]["sent_bytes"] > 0 for host in hosts.hosts)
    assert {host: sent["sent_bytes"] for host, sent in second.items()} == dict.fromkeys(hosts.hosts, 0)
    with hosts.watched() as seen:
        body = command(hosts, "bench", bundle, "--warmup", 1, "--frames", 3)
    assert set(seen.values()) == {(rank.rank, rank.host) for rank in plan.ranks}
    assert {host for _, host in seen.values()} == set(hosts.hosts)
    assert body["verification"]["passed"], body["verification"]
    assert len(body["latencies_s"]) == 3
    assert min(body["latencies_s"]) > 0
    assert body["period_s"] > 0


def test_a_host_that_reaches_no_index_says_so(testbed: Cluster, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, "\n".join(testbed.platform.read_text().splitlines()[:3]))
    with testbed.hurried():
        found = dse("deploy", bundle, *testbed.options, "--prepare", "--work", "unprepared")
    testbed.said("pi0", "rm -rf unprepared")
    assert found.code == 2
    assert found.sentences == [
        f"pi0: pip failed there: ERROR: No matching distribution found for {pins([sys.version])[0]} "
        "(no index in reach? carry --wheels)"
    ]
