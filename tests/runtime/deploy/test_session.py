"""Bundles run on a cluster in a box, over real SSH and TCP; and nothing is left there, however a run ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from runtime.deploy.cluster import cluster
from runtime.deploy.keys import Trust
from runtime.deploy.parcel import pack
from runtime.deploy.target import DeployError
from tests.cluster import Cluster
from tests.command import PROGRAM, Said, done, dse
from tests.runtime.deploy.conftest import make_bundle
from tests.runtime.deploy.sshd import Server

ROOT = Path(__file__).parents[3]
LONG = ("--frames", "200000", "--no-verify")


@pytest.fixture
def four(testbed: Cluster, tmp_path: Path) -> Path:
    """A bundle for three of the hosts of the testbed."""
    return make_bundle(tmp_path, "\n".join(testbed.platform.read_text().splitlines()[:5]))


@pytest.fixture
def clean(testbed: Cluster) -> Iterator[Callable[[], None]]:
    """What is on the hosts before must be there soon afterwards, and no more."""
    before = settled(testbed)

    def check() -> None:
        deadline = time.monotonic() + 60
        while (now := everywhere(testbed)) != before:
            assert time.monotonic() < deadline, {host: {*now[host]} ^ {*before[host]} for host in testbed.hosts}

    yield check
    check()


def settled(testbed: Cluster) -> dict[str, list[str]]:
    """What is on the hosts, once what an earlier test has left is gone."""
    seen = [everywhere(testbed)]

    def is_same() -> bool:
        time.sleep(2)
        seen.append(everywhere(testbed))
        return seen[-1] == seen[-2]

    wait_until(is_same)
    return seen[-1]


def everywhere(testbed: Cluster) -> dict[str, list[str]]:
    return {host: leftovers(testbed, host) for host in testbed.hosts}


def leftovers(testbed: Cluster, host: str) -> list[str]:
    """Processes but those of sshd, files of runs and of Open MPI, keys."""
    text = "ps -eo args | grep -v -e sshd -e 'ps -eo' -e 'grep -v' -e '^sh -c' -e 'sleep infinity' -e boot.sh;"
    text += " mkdir -p .cleave/runs; ls -A .cleave/runs .cache /tmp /dev/shm; cat .ssh/authorized_keys; true"
    return testbed.said(host, text).splitlines()


def words(testbed: Cluster, *more: object) -> list[str]:
    how = ["--platform", testbed.platform, "--key", testbed.key, "--known-hosts", testbed.known_hosts]
    return [str(word) for word in (*how, "--python", testbed.testbed.python, *more)]


def wait_until(true: Callable[[], object], time_s: float = 120) -> None:
    deadline = time.monotonic() + time_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def started(testbed: Cluster, bundle: Path, *more: object) -> Iterator[subprocess.Popen[bytes]]:
    """A long run in a process of its own, its ranks at work; it does not outlast the block."""
    command = [*PROGRAM, "bench", str(bundle), *words(testbed, *LONG, *more)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: all(rank(testbed, host) for host in testbed.hosts[:3]) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def rank(testbed: Cluster, host: str) -> list[int]:
    """The processes of ranks on a host, as this machine numbers them."""
    found = []
    for pid in testbed.pids(host):
        try:
            text = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if any(word.endswith("/main.py") for word in text) and "/bin/sh" not in text:
            found.append(pid)
    return found


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_a_bundle_is_deployed_timed_and_compared(testbed: Cluster, four: Path, clean: Callable[[], None]) -> None:
    testbed.said("pi1", "rm -rf .cleave/bundles")
    said = done("deploy", four, *words(testbed))
    assert re.search(r"^pi1 +ok +x86_64|^pi1 +ok +aarch64", said, re.MULTILINE)
    assert re.search(r"^pi1: sent \d+ files, 4\.\d\d MB; 0 were there$", said, re.MULTILINE)
    body = json.loads(done("bench", four, *words(testbed, "--json", "--frames", 5, "--head", "pi1")))
    assert (body["verification"]["passed"], body["verification"]["frames"]) == (True, 3)
    assert len(body["latencies_s"]) == 5
    assert body["period_s"] > 0
    assert [r["device"][:3] for r in body["ranks"]] == ["pi0", "pi1", "pi2"]
    assert all(r["peak_bytes"] > 2e7 for r in body["ranks"])
    assert [host["verdict"] for host in body["hosts"]] == ["ok"] * 3
    assert json.loads(done("deploy", four, *words(testbed, "--json")))["sent"]["pi1"]["sent_bytes"] == 0


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_mpirun_may_run_on_a_host_without_a_rank(testbed: Cluster, four: Path, clean: Callable[[], None]) -> None:
    said = done("bench", four, *words(testbed, "--frames", 2, "--head", "pi3"))
    assert said.splitlines()[-1].endswith("gives the whole model's answer (3 frames, tolerance 0.0001)")


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_frames_of_the_user_go_along(testbed: Cluster, four: Path, tmp_path: Path, clean: Callable[[], None]) -> None:
    frames = np.random.default_rng(0).standard_normal((7, 1, 256)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", x=frames)
    body = json.loads(done("bench", four, *words(testbed, "--json", "--frames", 2, "--input", tmp_path / "mine.npz")))
    assert (body["verification"]["passed"], body["verification"]["frames"]) == (True, 7)


@pytest.mark.cluster
def test_a_dry_run_looks_and_sends_nothing(testbed: Cluster, four: Path) -> None:
    testbed.said("pi0", "rm -rf .cleave")
    said = done("deploy", four, *words(testbed, "--dry-run"))
    assert re.search(r"^dry run: would send \d+ files, 1\.\d\d MB, to pi0$", said, re.MULTILINE)
    assert "No such file" in testbed.ssh("pi0", "ls .cleave").stderr


@pytest.mark.cluster
def test_hosts_that_do_not_trust_one_another_say_so(testbed: Cluster, four: Path, clean: Callable[[], None]) -> None:
    said = refused("bench", four, *words(testbed, "--trust", "existing"))
    assert re.match(r"pi[123]: does not let pi0 in, which starts its ranks \(cleave@198\.", said.sentences[0])
    assert said.sentences[0].endswith("use --trust key, or let the key of that host in on the others")


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_hosts_that_trust_one_another_need_no_key(testbed: Cluster, four: Path) -> None:
    testbed.said("pi0", "mkdir -p .ssh; ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
    key = testbed.said("pi0", "cat .ssh/id_ed25519.pub")
    for host in ("pi1", "pi2"):
        testbed.said(host, f"mkdir -p .ssh; echo '{key}' >> .ssh/authorized_keys")
    try:
        done("bench", four, *words(testbed, "--trust", "existing", "--frames", 2))
        assert testbed.said("pi1", "cat .ssh/authorized_keys") == key
    finally:
        for host in ("pi0", "pi1", "pi2"):
            testbed.said(host, "rm -rf .ssh")


@pytest.mark.cluster
def test_ctrl_c_ends_all_ranks(testbed: Cluster, four: Path, clean: Callable[[], None]) -> None:
    with started(testbed, four) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == b"stopped; what was unfinished is gone\n"
        assert process.returncode == 130


@pytest.mark.cluster
def test_a_workstation_that_dies_leaves_nothing(testbed: Cluster, four: Path, clean: Callable[[], None]) -> None:
    with started(testbed, four) as process:
        process.kill()
    wait_until(lambda: not any(rank(testbed, host) for host in testbed.hosts), 60)


@pytest.mark.cluster
def test_a_rank_that_is_killed_ends_the_run(testbed: Cluster, four: Path, clean: Callable[[], None]) -> None:
    with started(testbed, four) as process:
        os.kill(rank(testbed, "pi1")[0], signal.SIGKILL)
        said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 2
    assert said.startswith("error: pi1: rank 1 was killed (SIGKILL) by somebody there, not for want of memory: run it")


@pytest.mark.cluster
def test_a_run_that_takes_too_long_is_ended(testbed: Cluster, four: Path, clean: Callable[[], None]) -> None:
    begin = time.monotonic()
    said = refused("bench", four, *words(testbed, *LONG, "--timeout", 4))
    assert said.sentences[0] == "the ranks were not done after 4 s and were ended"
    assert time.monotonic() - begin < 120


def test_two_hosts_of_one_address_are_refused(bundle: Path, sshds: list[Server]) -> None:
    targets = [server.target() for server in sshds]
    trust = Trust(tuple(server.known_hosts for server in sshds), {})
    with cluster(pack(bundle, targets), targets, None, trust) as hosts:
        hosts.check()
        with pytest.raises(DeployError, match="b: has the same address as a"), hosts.session(hosts.upload()):
            pass


def refused(*command: object) -> Said:
    said = dse(*command)
    assert said.code == 2, said
    return said
