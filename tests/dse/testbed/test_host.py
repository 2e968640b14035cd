"""The inside of a host, and what its user gets, as text."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from dse.testbed import access, host, state
from model.cluster.platform import Platform
from tests.dse.testbed.boxes import BOX, FAST, SLOW

ACCOUNTS = (
    "root:x:0:0:root:/root:/bin/bash\ncleave:x:5:5::/old:/bin/false\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n"
)


def test_the_account_comes_first_and_replaces_one_of_its_name() -> None:
    lines = host.files(BOX, "slow", ACCOUNTS)["passwd"].splitlines()
    assert lines[0] == "cleave:x:1000:1001:testbed:/var/lib/cleave-testbed/home:/bin/sh"
    assert [line.split(":")[0] for line in lines] == ["cleave", "root", "sshd"]


def test_hosts_know_one_another_by_name() -> None:
    assert host.hosts_table(BOX).splitlines() == [
        "127.0.0.1 localhost",
        "198.19.7.254 workstation",
        "198.19.7.1 slow",
        "198.19.7.2 fast",
    ]


def test_a_host_hides_the_files_of_others_before_all_else() -> None:
    script = host.files(BOX, "fast", ACCOUNTS)["boot.sh"].splitlines()
    assert script[:2] == ["set -e", "mount --bind /var/lib/cleave-testbed/box/fast /var/lib/cleave-testbed"]
    assert "hostname fast" in script


def test_nobody_logs_in_without_a_key() -> None:
    config = dict(line.split(" ", 1) for line in host.files(BOX, "fast", ACCOUNTS)["sshd_config"].splitlines())
    assert config["PasswordAuthentication"] == config["KbdInteractiveAuthentication"] == config["UsePAM"] == "no"
    assert config["AllowUsers"] == "cleave"


def test_a_host_is_in_its_groups_and_on_its_cores_before_anything_runs() -> None:
    *shell, script, name, first, second = host.start([Path("/a"), Path("/b")], Path("/box/fast"), (0, 1))
    assert (shell, name, first, second) == (["sh", "-c"], "sh", "/a", "/b")
    assert script.index("cgroup.procs") < script.index("taskset --cpu-list 0,1 unshare") < script.index("boot.sh")


def test_the_platform_file_says_what_the_spec_says() -> None:
    platform = Platform.parse(access.platform(BOX, "x86_64"), "platform.txt")
    for found, pool, spec in zip(platform.hosts, platform.pools, BOX.hosts, strict=True):
        assert (found.name, found.address, found.arch) == (spec.name, BOX.address(spec.name), "x86_64")
        assert (found.user, found.port, found.interface) == ("cleave", 22, "eth0")
        assert found.bandwidth_bytes_per_s == spec.bandwidth_bytes_per_s
        assert pool.capacity_bytes == spec.memory_bytes
    assert [device.cores for device in platform.devices] == [SLOW.cores, FAST.cores]


def test_a_host_is_known_by_name_and_by_address(tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDZUe88sat/xYbtq9P8YMAgyKGcwJtMRs6bTMloPfk6d"
    (tmp_path / "known_hosts").write_text(access.known_hosts(BOX, {"slow": key, "fast": key}))
    known = paramiko.HostKeys(str(tmp_path / "known_hosts"))
    for name in ("slow", "fast", "198.19.7.1", "198.19.7.2"):
        assert known[name]["ssh-ed25519"].get_base64() == key.split()[1]


def test_a_testbed_survives_its_state_file() -> None:
    assert state.Testbed.from_json(BOX.to_json()) == BOX


def test_who_asked_through_sudo_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1001")
    assert state.account() == (1000, 1001)
