"""Platforms: the shipped ones, AutoDiCE's forms, every key, device names, links, and files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster.platform import PLATFORMS, Device, Host, Platform, Pool
from runtime.errors import CleaveError


def parse(*lines: str) -> Platform:
    return Platform.parse("\n".join(lines), "pf.txt")


def names(platform: Platform) -> list[str]:
    return [device.name for device in platform.devices]


# What is shipped


def test_shipped_names() -> None:
    assert PLATFORMS.names == ["jetson8", "jetson8-cpu", "local2", "local4"]


def test_jetson8() -> None:
    platform = Platform.from_file("jetson8")
    assert platform.name == "jetson8"
    assert names(platform) == [f"nx0{i}_{unit}" for i in range(1, 9) for unit in ("cpu012345", "gpu")]
    assert platform.hosts[1] == Host("nx02", "nx02", "aarch64", 125e6, 1e-4, 4e9, None, None, None, None)
    cpu = Device("nx02_cpu012345", 1, "cpu", (0, 1, 2, 3, 4, 5), 6, "CPUExecutionProvider", "jetson-xavier-nx", None, 1)
    gpu = Device("nx02_gpu", 1, "gpu", (), 1, "CUDAExecutionProvider", "jetson-xavier-nx", None, 1)
    assert platform.devices[2:4] == (cpu, gpu)
    assert platform.pools == tuple(Pool(f"nx0{i}", 8_000_000_000) for i in range(1, 9))


def test_jetson8_cpu_is_jetson8_without_gpus() -> None:
    both, cpu = Platform.from_file("jetson8"), Platform.from_file("jetson8-cpu.txt")
    assert (cpu.name, cpu.hosts, cpu.pools) == ("jetson8-cpu", both.hosts, both.pools)
    assert cpu.devices == both.devices[::2]


@pytest.mark.parametrize("n", [2, 4])
def test_local(n: int) -> None:
    platform = Platform.from_file(f"local{n}")
    hosts = [f"local{i + 1}" for i in range(n)]
    assert platform.hosts == tuple(
        Host(name, "localhost", "", 4e9, 1e-6, 4e9, None, None, None, None) for name in hosts
    )
    assert platform.devices == tuple(
        Device(f"{name}_cpu0", i, "cpu", (0,), 1, "CPUExecutionProvider", "generic", None, i)
        for i, name in enumerate(hosts)
    )
    assert platform.pools == tuple(Pool(name, None) for name in hosts)


# AutoDiCE's forms


def test_autodice_line_is_a_cpu_and_a_gpu() -> None:
    platform = parse(
        "nx01, arm, slots=0-5, gpu=NVIDIAVolta (CUDA)",
        "nx02, arm, slots=0-5, gpu=NVIDIAVolta (CUDA)",
    )
    assert names(platform) == ["nx01_cpu012345", "nx01_gpu", "nx02_cpu012345", "nx02_gpu"]
    assert platform.hosts[0].arch == "arm"


def test_autodice_bare_host() -> None:
    platform = parse("nx01", "", "lenovo # under the desk")
    assert names(platform) == ["nx01_cpu0", "lenovo_cpu0"]
    assert platform.hosts[0] == Host("nx01", "nx01", "", 125e6, 1e-4, 4e9, None, None, None, None)
    assert platform.pools == (Pool("nx01", None), Pool("lenovo", None))


def test_autodice_name_and_address() -> None:
    assert [h.address for h in parse("tx01:192.168.178.66", "tx02 : tx02.lan").hosts] == ["192.168.178.66", "tx02.lan"]


# The keys


def test_every_key() -> None:
    platform = parse(
        "pc, x86_64, slots=0-1, gpu=T4 (TensorRT), address=10.0.0.7, memory=16GiB, gpu_memory=8GB, bandwidth=2.5Gbit/s,"
        "latency=50us, copy_bandwidth=12GB/s, threads=4, provider=TensorrtExecutionProvider, cpu_power=65W,"
        "gpu_power=70W, idle_power=8500mW, coefficients=mine, interface=eth0.7, user=ml, port=2222,"
        "meter=rapl:package-0, duplex=half, medium=hub-2, cpu_slowdown=1.25, gpu_slowdown=0.5"
    )
    figures, access = (312.5e6, 5e-5, 12e9), ("eth0.7", "ml", 2222)
    power = (8.5, "rapl:package-0")
    assert platform.hosts == (Host("pc", "10.0.0.7", "x86_64", *figures, *access, *power, True, "hub-2"),)
    assert platform.devices == (
        Device("pc_cpu01", 0, "cpu", (0, 1), 4, "CPUExecutionProvider", "mine", 65.0, 0, slowdown=1.25),
        Device("pc_gpu", 0, "gpu", (), 1, "TensorrtExecutionProvider", "mine", 70.0, 1, slowdown=0.5),
    )
    assert platform.pools == (Pool("pc", 16 * 1024**3), Pool("pc_gpu", 8_000_000_000))


def test_gpu_alone() -> None:
    platform = parse("nx01, gpu=V (CUDA), memory=8GB")
    assert names(platform) == ["nx01_gpu"]
    assert platform.pools[platform.devices[0].pool] == Pool("nx01", 8_000_000_000)


def test_provider_overrides_what_the_gpu_name_says() -> None:
    assert parse("a, gpu=Radeon, provider=ROCMExecutionProvider").devices[0].provider == "ROCMExecutionProvider"
    tensorrt = "TensorrtExecutionProvider"
    assert parse(f"a, gpu=V (CUDA), provider={tensorrt}").devices[0].provider == tensorrt


def test_the_arena_is_on_unless_a_line_says_otherwise() -> None:
    lines = ("a", "b, arena=on", "c, slots=0, gpu=V (CUDA), arena=off")
    assert [device.arena for device in parse(*lines).devices] == [True, True, False, False]


def test_a_host_has_the_meter_that_one_of_its_lines_names() -> None:
    lines = ("a, meter=ina3221:VDD_IN", "b, meter=none", "c", "a, gpu=V (CUDA)", "d, meter=csv:/var/log/my power.csv")
    meters = [host.meter for host in parse(*lines).hosts]
    assert meters == ["ina3221:VDD_IN", None, None, "csv:/var/log/my power.csv"]


def test_one_host_on_several_lines_shares_what_each_states() -> None:
    platform = parse("a, slots=0-1, memory=4GB", "b", "a, arm, slots=2-3, memory=4GB, threads=1", "a, gpu=V (CUDA)")
    assert names(platform) == ["a_cpu01", "b_cpu0", "a_cpu23", "a_gpu"]
    assert [host.name for host in platform.hosts] == ["a", "b"]
    assert platform.hosts[0].arch == "arm"
    assert [device.pool for device in platform.devices] == [0, 1, 0, 0]
    assert [device.threads for device in platform.devices] == [2, 1, 1, 1]


def test_spaces_and_crlf() -> None:
    assert names(Platform.parse(" a ,\tarm , slots = 1+0\r\n\r\n  # end\r\n", "x")) == ["a_cpu01"]


@pytest.mark.parametrize(
    ("slots", "name", "cores"),
    [
        ("0", "pc_cpu0", (0,)),
        ("4+0-2", "pc_cpu0124", (0, 1, 2, 4)),
        ("0-11", "pc_cpu0-11", tuple(range(12))),
        ("0-2 + 12", "pc_cpu0-2+12", (0, 1, 2, 12)),
        ("9+11", "pc_cpu9+11", (9, 11)),
        ("1-2", "pc_cpu12", (1, 2)),
        ("12", "pc_cpu12-12", (12,)),
    ],
)
def test_device_name(slots: str, name: str, cores: tuple[int, ...]) -> None:
    device = parse(f"pc, slots={slots}").devices[0]
    assert (device.name, device.cores) == (name, cores)


@given(st.sets(st.sets(st.integers(0, 40), min_size=1).map(frozenset), min_size=2, max_size=2))
def test_different_cores_have_different_names(sets: set[frozenset[int]]) -> None:
    found = {parse(f"pc, slots={'+'.join(map(str, cores))}").devices[0].name for cores in sets}
    assert len(found) == 2


# Links


def test_bandwidth_and_latency() -> None:
    platform = parse(
        "a, slots=0, gpu=V (CUDA), bandwidth=1GB/s, latency=1ms, copy_bandwidth=9GB/s",
        "b, bandwidth=100Mbit/s, latency=0s",
    )
    inf = np.inf
    assert platform.bandwidth().tolist() == [[inf, 9e9, 12.5e6], [9e9, inf, 12.5e6], [12.5e6, 12.5e6, inf]]
    assert platform.latency().tolist() == [[0, 0, 1e-3], [0, 0, 1e-3], [1e-3, 1e-3, 0]]
    assert platform.bandwidth().dtype == platform.latency().dtype == np.float64


def test_hosts_have_links_of_their_own_in_both_directions_unless_lines_say_otherwise() -> None:
    platform = parse(
        "a", "b, duplex=full", "c, duplex=half", "d, medium=wifi, duplex=half", "e, duplex=half, medium=wifi"
    )
    assert [(host.link, host.half_duplex) for host in platform.hosts] == [
        ("a", False), ("b", False), ("c", True), ("wifi", True), ("wifi", True),
    ]  # fmt: skip


def test_what_is_left_of_a_medium_without_some_of_its_hosts_is_that_medium() -> None:
    lines = ("a, medium=wifi, duplex=half", "b, medium=wifi, duplex=half", "c")
    assert parse(*lines).without(("a",)) == parse(*lines[1:])
    assert parse(*lines).without(("c", "b")) == parse(lines[0])


def test_index() -> None:
    platform = parse("pi0", "pi1")
    assert platform.index("pi1_cpu0") == 1
    with pytest.raises(CleaveError, match=r"^device 'pi9' is not on the platform \(it has pi0_cpu0, pi1_cpu0\)$"):
        platform.index("pi9")


# Files


def test_a_file_names_the_platform_and_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "desk.v2.txt"
    path.write_text("a\n")
    assert Platform.from_file(path).name == "desk.v2"
    path.write_text("a\nb, x=1\n")
    with pytest.raises(CleaveError, match=f"^{re.escape(str(path))}:2: unknown key 'x'"):
        Platform.from_file(str(path))


def test_a_file_of_ones_own_comes_before_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jetson8").mkdir()
    assert len(Platform.from_file("jetson8").devices) == 16
    (tmp_path / "local2").write_text("a\n")
    assert names(Platform.from_file("local2")) == ["a_cpu0"]


def cannot_read(path: Path | str) -> str:
    with pytest.raises(CleaveError) as caught:
        Platform.from_file(path)
    return str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = "there is no such file; shipped platforms: jetson8, jetson8-cpu, local2, local4"
    assert cannot_read("nosuch.txt") == f"nosuch.txt: {missing}"
    assert cannot_read(tmp_path / "local2.txt") == f"{tmp_path / 'local2.txt'}: {missing}"
    assert cannot_read(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    assert cannot_read("a\x00b") == "a\x00b: cannot be read: embedded null byte"
    (tmp_path / "binary").write_bytes(b"a\nb\xff")
    assert cannot_read(tmp_path / "binary") == f"{tmp_path / 'binary'}:2: byte 0xff is not UTF-8 text"
    (tmp_path / "empty").write_text("# nothing\n\n")
    no_device = "no device; write one host a line, e.g. nx01, arm, slots=0-5"
    assert cannot_read(tmp_path / "empty") == f"{tmp_path / 'empty'}: {no_device}"
