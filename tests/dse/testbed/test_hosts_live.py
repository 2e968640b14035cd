"""Hosts that stand: logged in to, measured, filled up, unplugged."""

from __future__ import annotations

import re
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import psutil
import pytest

from runtime import quota
from runtime.compiling import NATIVE
from tests.cluster import Cluster, standing
from tests.command import done

pytestmark = pytest.mark.cluster

TRIES = 8
"""Another testbed that stands at the same time takes what this one should have, so the best of some runs counts."""

BUSY = """
import time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() < begin + 0.5: pass
print((time.process_time() - used) / (time.monotonic() - begin))
"""
RUNS = """
import time
last = begin = time.monotonic()
end, runs = begin + 0.5, []
while last < end:
    now = time.monotonic()
    if now > last + 0.0005: runs, begin = runs + [last - begin], now
    last = now
print(sorted(runs)[len(runs) // 2])
"""
"""Seconds for which a host runs until it stands still, the median."""
TAKE = """
import socket, time
with socket.create_server(("", 5001)) as server:
    print("listening", flush=True)
    connection = server.accept()[0]
    connection.recv(1 << 18)
    begin, count = time.monotonic(), 0
    while data := connection.recv(1 << 18): count += len(data)
print(count / (time.monotonic() - begin))
"""
GIVE = """
import socket, sys, time
connection, block = socket.create_connection((sys.argv[1], 5001)), bytes(1 << 17)
until = time.monotonic() + 0.7
while time.monotonic() < until: connection.sendall(block)
"""

ANSWER = """
import socket
with socket.create_server(("", 5002)) as server:
    print("listening", flush=True)
    connection, left = server.accept()[0], 20 << 17
    while left:
        left -= len(connection.recv(min(left, 1 << 17)))
        if left % (1 << 17) == 0: connection.sendall(b"x")
"""
ASK = """
import socket, sys, time
connection, block, times = socket.create_connection((sys.argv[1], 5002)), bytes(1 << 17), []
for _ in range(20):
    time.sleep(0.01)
    begin = time.monotonic()
    connection.sendall(block)
    connection.recv(1)
    times.append(time.monotonic() - begin)
print(min(times))
"""
"""Seconds in which 128 KiB go over and an answer comes back, the least."""


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Shares and links as in ``testbed-4-uneven``, and a host with little memory."""
    text = "\n".join(
        [
            "whole, cores=0, share=0.45, memory=1GB, bandwidth=1Gbit/s",
            "quarter, cores=1, share=0.1125, memory=1GB, bandwidth=1Gbit/s",
            "thin, cores=1, share=0.45, memory=1GB, bandwidth=100Mbit/s",
            "small, cores=0, share=0.45, memory=100MB, bandwidth=1Gbit/s",
        ]
    )
    folder = tmp_path_factory.mktemp("uneven")
    (folder / "uneven.spec").write_text(text)
    with standing(folder / "uneven.spec", folder / "box", "u") as cluster:
        yield cluster


def python(source: str, *words: str) -> str:
    """A shell command that runs a program."""
    assert "'" not in source
    return " ".join(["python3 -c '" + source + "'", *words])


def best(measure: Callable[[], float], wanted: float, within: float) -> float:
    """The first figure that is within some part of what is wanted, else the largest."""
    figures: list[float] = []
    while len(figures) < TRIES and not any(abs(figure / wanted - 1) <= within for figure in figures):
        figures.append(measure())
    return min(figures, key=lambda figure: abs(figure - wanted))


def transfer(cluster: Cluster, giver: str, taker: str) -> float:
    """Bytes a second of one TCP stream between two hosts."""
    with cluster.start(taker, python(TAKE)) as taking:
        assert taking.stdout is not None
        assert taking.stdout.readline() == "listening\n"
        cluster.said(giver, python(GIVE, taker))
        return float(taking.communicate(timeout=30)[0])


def test_each_host_is_itself_and_knows_the_others(testbed: Cluster) -> None:
    greet = "; ".join(f"getent hosts {host}" for host in testbed.hosts)
    for host in testbed.hosts:
        name, user, home, *others = testbed.said(host, f"hostname; whoami; pwd; {greet}").splitlines()
        assert (name, user, home) == (host, "cleave", "/var/lib/cleave-testbed/home")
        assert [tuple(line.split()) for line in others] == [(testbed.testbed.address(h), h) for h in testbed.hosts]


def test_every_host_reaches_every_other_by_name(testbed: Cluster) -> None:
    source = "import socket, sys\nfor host in sys.argv[1:]: print(socket.create_connection((host, 22), 5).recv(4))"
    for host in testbed.hosts:
        assert testbed.said(host, python(source, *testbed.hosts)).splitlines() == ["b'SSH-'"] * len(testbed.hosts)


def test_a_host_sees_neither_files_nor_processes_nor_interfaces_of_others(testbed: Cluster) -> None:
    first, second = testbed.hosts[:2]
    testbed.said(first, "touch mine; touch /dev/shm/mine /run/mine; nohup sleep 61 >/dev/null 2>&1 &")
    seen = testbed.said(second, "ls ~ /dev/shm /run; ls /sys/class/net; ps -e -o args")
    assert "mine" not in seen
    assert "sleep 61" not in seen
    assert {"eth0", "lo"} <= set(seen.split())
    assert not [word for word in seen.split() if re.fullmatch("(veth|cleave|port)[0-9]+", word)]
    assert "mine" in testbed.said(first, "ls")
    assert not Path("/dev/shm/mine").exists()
    testbed.said(first, "pkill sleep; rm mine /dev/shm/mine /run/mine")


def test_paramiko_logs_in_with_what_the_folder_holds_and_copies_files(testbed: Cluster) -> None:
    with paramiko.SSHClient() as client:
        client.load_host_keys(str(testbed.known_hosts))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.connect(
            testbed.testbed.address("pi2"),
            username="cleave",
            key_filename=str(testbed.key),
            look_for_keys=False,
            allow_agent=False,
        )
        with client.open_sftp() as files, files.open("from-afar", "w") as file:
            file.write("hello")
    assert testbed.said("pi2", "cat ~/from-afar; rm ~/from-afar") == "hello"


def test_all_that_a_session_starts_is_in_the_host_s_groups(testbed: Cluster) -> None:
    testbed.said("pi1", "setsid nohup sleep 62 >/dev/null 2>&1 & until pgrep -x sleep; do :; done")
    (pid,) = (p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "62"])
    groups = Path(f"/proc/{pid}/cgroup").read_text()
    assert groups.count(f"cleave-testbed/{testbed.testbed.name}/host-pi1") >= 1
    testbed.said("pi1", "pkill sleep")


def test_a_key_that_nobody_gave_does_not_open_a_host(testbed: Cluster, tmp_path: Path) -> None:
    stranger = Cluster(tmp_path, testbed.testbed)
    stranger.known_hosts.write_bytes(testbed.known_hosts.read_bytes())
    found = stranger.ssh("pi0", "true")
    assert found.returncode == 255
    assert "Permission denied (publickey)" in found.stderr


def test_a_host_whose_cable_is_pulled_is_away_until_it_is_plugged_in(testbed: Cluster) -> None:
    source = 'import socket\ntry: socket.create_connection(("pi3", 22), 1)\nexcept OSError as error: print(error)'
    testbed.pull("pi3")
    try:
        assert testbed.said("pi0", python(source)) == "timed out"
    finally:
        testbed.plug("pi3")
    assert testbed.said("pi0", python(source)) == ""


def test_status_shows_hosts_and_limits(uneven: Cluster) -> None:
    lines = [line.split() for line in done("testbed", "status").splitlines()]
    rows = {tuple(line[:-1]) for line in lines}
    address = uneven.testbed.address
    assert ("whole", address("whole"), "0", "0.45", "1000", "MB", "1000Mbit/s", "answers") in rows
    assert ("thin", address("thin"), "1", "0.45", "1000", "MB", "100Mbit/s", "answers") in rows


@pytest.mark.parametrize(
    ("giver", "taker", "megabits"), [("whole", "small", 1000), ("thin", "whole", 100), ("whole", "thin", 100)]
)
def test_a_link_carries_what_the_spec_says_both_ways(uneven: Cluster, giver: str, taker: str, megabits: int) -> None:
    wanted = megabits * 125e3
    found = best(lambda: transfer(uneven, giver, taker), wanted, within=0.15)
    assert found == pytest.approx(wanted, rel=0.15)


def test_a_short_message_takes_as_long_as_its_bytes_do(uneven: Cluster) -> None:
    """And no less because nothing was sent before it."""
    with uneven.start("small", python(ANSWER)) as answering:
        assert answering.stdout is not None
        assert answering.stdout.readline() == "listening\n"
        assert float(uneven.said("whole", python(ASK, "small"))) > 0.9 * 2**17 / 125e6


SHARES = pytest.mark.parametrize(("host", "share"), [("whole", 0.45), ("quarter", 0.1125)])


@SHARES
def test_a_host_is_as_slow_as_the_spec_says(uneven: Cluster, host: str, share: float) -> None:
    found = best(lambda: float(uneven.said(host, python(BUSY))), share, within=0.07)
    assert found == pytest.approx(share, rel=0.07)


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Shell commands that say what share of a core they have, in both languages of the programs of ranks."""
    program = tmp_path_factory.mktemp("telling") / "quota"
    native = Path(quota.__file__).parent / NATIVE
    main = '#include <iostream>\n#include "quota.hpp"\nint main() { std::cout << core_share(); }'
    command = ["g++", "-std=c++17", f"-I{native}", str(native / "quota.cpp"), "-xc++", "-", "-o", str(program)]
    subprocess.run(command, input=main, text=True, check=True)
    source = Path(quota.__file__).read_text(encoding="utf-8") + "\nprint(core_share())"
    scripts = {"python": (source.encode(), "python3 -"), "cpp": (program.read_bytes(), "cat > q; chmod u+x q; ./q")}
    return {key: f"echo {b64encode(data).decode()} | base64 -d | ({run})" for key, (data, run) in scripts.items()}


@SHARES
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_a_process_knows_its_share_of_a_core(
    uneven: Cluster, telling: dict[str, str], host: str, share: float, language: str
) -> None:
    assert float(uneven.said(host, telling[language])) == pytest.approx(share, rel=1e-3)


def test_a_host_runs_a_millisecond_at_a_time(uneven: Cluster) -> None:
    found = best(lambda: float(uneven.said("quarter", python(RUNS))), 1e-3, within=0.3)
    assert found == pytest.approx(1e-3, rel=0.3)


def test_what_takes_more_memory_than_a_host_has_is_killed_and_the_host_lives(uneven: Cluster) -> None:
    assert uneven.said("small", python('print(len(bytearray(b"x" * 30_000_000)))')) == "30000000"
    found = uneven.ssh("small", python('bytearray(b"x" * 150_000_000)'))
    assert (found.returncode, found.stderr.strip()) in [(137, "Killed"), (137, "")]
    assert uneven.said("small", "hostname") == "small"
    assert uneven.ssh("whole", python('bytearray(b"x" * 150_000_000)')).returncode == 0
