"""Mistakes in platform files, each in its exact words; and no text at all that makes the reader fall over."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dse.testbed import spec
from model.cluster.platform import Platform
from model.cluster.platform_file import KEYS
from model.cluster.quantity import UNITS
from model.cost.links import links
from runtime.errors import CleaveError
from runtime.meter import EXAMPLES

ROOT = Path(__file__).parents[3]

NAME_RULE = "(only letters, digits, '.', '-' and '_', the first a letter, digit or '_')"
HOST_RULE = "(1 to 63 characters before, between and after its dots)"


def sentences(*lines: str) -> list[str]:
    with pytest.raises(CleaveError) as caught:
        Platform.parse("\n".join(lines), "pf.txt")
    return list(caught.value.sentences)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a, memry=8GB", "unknown key 'memry' (did you mean 'memory'?)"),
        ("a, colour=red", f"unknown key 'colour' (known: {', '.join(KEYS)})"),
        ("a, arm, fast", "'fast' is not key=value"),
        ("a, slots=0,1", "'1' is not key=value; cores are written 0-5 or 0-2+4"),
        ("a,, slots=0", "an empty field; commas stand between two fields only"),
        ("a, arm,", "an empty field; commas stand between two fields only"),
        (", slots=0", "no host; write e.g. nx01, arm, slots=0-5"),
        ("slots=0", f"host: 'slots=0' is not a name {NAME_RULE}"),
        ("a, 0-5", "architecture: '0-5' is not an architecture; write e.g. aarch64, and cores as slots=0-5"),
        ("a, memory=8GB, memory=8GB", "memory: stated twice"),
        ("a:b, address=c", "address: stated twice"),
        ("a:", "address: no value"),
        ("a, memory=", "memory: no value"),
        ("a, gpu=", "gpu: no value"),
        ("a, slots=", "slots: no value"),
        ("a, memory=8Gb", "memory: '8Gb' has the ambiguous unit 'Gb': write GB for bytes"),
        ("a, memory=GB", "memory: 'GB' is not a number with a unit; write e.g. 8GB"),
        ("a, memory=0B", "memory: '0B' must be more than zero"),
        ("a, bandwidth=0Gbit/s", "bandwidth: '0Gbit/s' must be more than zero"),
        ("a, copy_bandwidth=0GB/s", "copy_bandwidth: '0GB/s' must be more than zero"),
        ("a, latency=-1ms", "latency: '-1ms' is negative; write e.g. 0.1ms"),
        ("a, cpu_power=3", "cpu_power: '3' has no unit; known: W, mW"),
        ("a, slots=5-0", "slots: '5-0' is not a core or a rising range; write e.g. 0-5 or 0-2+4"),
        ("a, slots=-1", "slots: '-1' is not a core or a rising range; write e.g. 0-5 or 0-2+4"),
        ("a, slots=0-99999", "slots: '0-99999' is not a core or a rising range; write e.g. 0-5 or 0-2+4"),
        ("a, slots=0-2+2", "slots: '0-2+2' has a core twice"),
        ("a, arena=no", "arena: 'no' is neither on nor off"),
        ("a, cpu_slowdown=12%", "cpu_slowdown: '12%' is not how many times as long; write e.g. 1.15"),
        ("a, cpu_slowdown=0.0", "cpu_slowdown: '0.0' is not how many times as long; write e.g. 1.15"),
        ("a, gpu_slowdown=2", "gpu_slowdown: there is no GPU on this line; add gpu="),
        ("a, duplex=both", "duplex: 'both' is neither half nor full"),
        ("a, medium=2.4 GHz", f"medium: '2.4 GHz' is not a name {NAME_RULE}"),
        ("a, medium=a", "medium: 'a' is a host; give the medium a name of its own"),
        ("a, meter=rapl", f"meter: 'rapl' is not a meter; write e.g. {EXAMPLES}"),
        ("a, meter=csv:p.csv", "meter: 'csv:p.csv': the path of the file on the host starts with /"),
        ("a, threads=0", "threads: '0' is not a whole number from 1 to 9999"),
        ("a, threads=1.5", "threads: '1.5' is not a whole number from 1 to 9999"),
        ("a, port=65536", "port: '65536' is not a whole number from 1 to 65535"),
        (
            "a, gpu=Volta",
            "gpu: 'Volta' does not say what drives it; end it with (CUDA) or (TensorRT), or state provider=",
        ),
        (
            "a, gpu=V (Vulkan)",
            "gpu: 'V (Vulkan)' does not say what drives it; end it with (CUDA) or (TensorRT), or state provider=",
        ),
        (
            "a, gpu=V, provider=CUDA",
            "provider: 'CUDA' is not an execution provider; write e.g. CUDAExecutionProvider",
        ),
        ("a, address=::g", "address: '::g' is not an IPv6 address"),
        ("1, slots=0", "host '1' is a number; state its address="),
        ("a, address=pi0..lan", f"address: 'pi0..lan' is not a host name {HOST_RULE}"),
        (f"a, address={'p' * 64}.lan", f"address: '{'p' * 64}.lan' is not a host name {HOST_RULE}"),
    ],
)
def test_mistake_on_a_line(line: str, sentence: str) -> None:
    assert sentences("# header", "", line) == [f"pf.txt:3: {sentence}"]


def test_key_without_its_device_is_refused_for_every_key_of_a_unit() -> None:
    assert sentences("a, gpu=V (CUDA), threads=1, cpu_power=1W") == [
        "pf.txt:1: threads: there is no CPU on this line; add slots=",
        "pf.txt:1: cpu_power: there is no CPU on this line; add slots=",
    ]
    assert sentences("a, provider=CUDAExecutionProvider, gpu_memory=1GB, gpu_power=1W") == [
        "pf.txt:1: provider: there is no GPU on this line; add gpu=",
        "pf.txt:1: gpu_memory: there is no GPU on this line; add gpu=",
        "pf.txt:1: gpu_power: there is no GPU on this line; add gpu=",
    ]


def test_the_document_has_every_key_and_unit_and_no_other_key() -> None:
    """Those of a testbed's file, too."""
    text = (ROOT / "docs" / "platform.md").read_text()
    hosts, testbed = text.split("## A cluster in a box")
    for part, keys in ((hosts, {*KEYS}), (testbed, {*spec.KEYS})):
        rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", part, re.MULTILINE)
        assert {key for row in rows for key in re.findall("[a-z_]+", row)} == keys
    for units in UNITS.values():
        assert all(f"`{unit}`" in hosts for unit in units)


def test_all_mistakes_at_once_in_the_order_of_lines() -> None:
    assert sentences("a, memory=8", "b, slots=x, port=y", "a, memory=9GB, colr=1, user=*, slots=1") == [
        "pf.txt:1: memory: '8' has no unit; known: B, kB, MB, GB, KiB, MiB, GiB",
        "pf.txt:2: port: 'y' is not a whole number from 1 to 65535",
        "pf.txt:2: slots: 'x' is not a core or a rising range; write e.g. 0-5 or 0-2+4",
        f"pf.txt:3: unknown key 'colr' (known: {', '.join(KEYS)})",
        "pf.txt:3: memory: '9GB', but line 1 says '8' of the same host",
        f"pf.txt:3: user: '*' is not a name {NAME_RULE}",
    ]


def test_a_host_may_be_called_by_a_number_if_its_address_is_another() -> None:
    assert Platform.parse("1, slots=0\n1, slots=1, address=10.0.0.1", "pf.txt").hosts[0].address == "10.0.0.1"


def test_a_mistake_of_both_devices_is_said_once() -> None:
    assert sentences("a, slots=0, gpu=V (CUDA), coefficients=a/b") == [
        f"pf.txt:1: coefficients: 'a/b' is not a name {NAME_RULE}"
    ]


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ("a", "a", "'a_cpu0' is on line 1"),
        ("a, slots=0-5", "a", "'a_cpu0' is on line 1 as 'a_cpu012345', which has core 0 too"),
        ("a, slots=0-3", "a, slots=2-4", "'a_cpu234' is on line 1 as 'a_cpu0123', which has core 2 too"),
        ("a, gpu=V (CUDA)", "a, gpu=W (CUDA)", "'a_gpu' is on line 1"),
    ],
)
def test_a_device_twice(first: str, second: str, sentence: str) -> None:
    assert sentences(first, second) == [f"pf.txt:2: a device twice: {sentence}"]


def test_the_same_line_twice() -> None:
    line = "nx01, arm, slots=0-5, gpu=NVIDIAVolta (CUDA)"
    assert sentences(line, line) == [
        "pf.txt:2: a device twice: 'nx01_cpu012345' is on line 1",
        "pf.txt:2: a device twice: 'nx01_gpu' is on line 1",
    ]


@pytest.mark.parametrize("key", ["architecture", "address", "memory", "bandwidth", "user", "port"])
def test_lines_of_a_host_must_agree(key: str) -> None:
    values = {"architecture": ("arm", "x86"), "memory": ("1GB", "2GB"), "bandwidth": ("1MB/s", "2MB/s")}
    one, two = values.get(key, ("1", "2"))
    prefix = "" if key == "architecture" else f"{key}="
    assert sentences(f"a, {prefix}{one}, slots=0", f"a, {prefix}{two}, slots=1") == [
        f"pf.txt:2: {key}: {two!r}, but line 1 says {one!r} of the same host"
    ]


@pytest.mark.parametrize(
    ("first", "second", "here", "there"),
    [
        ("duplex=half", "duplex=full", "full", "half"),
        ("duplex=half", "user=me", "full", "half"),
        ("user=me", "duplex=half", "half", "full"),
    ],
)
def test_hosts_of_a_medium_must_agree_on_its_duplex(first: str, second: str, here: str, there: str) -> None:
    assert sentences(f"a, medium=wifi, {first}", "b, duplex=half", f"c, medium=wifi, {second}") == [
        f"pf.txt:3: medium: 'wifi' is {here} duplex here, but {there} duplex on line 1; "
        "state the same duplex= of all its hosts"
    ]


def test_each_host_of_a_medium_that_is_not_as_the_first_is_told_with_the_line_that_says_so() -> None:
    lines = ("a, medium=wifi", "b, slots=0, medium=wifi", "b, slots=1, duplex=half", "c, duplex=half, medium=wifi")
    assert sentences(*lines) == [
        f"pf.txt:{number}: medium: 'wifi' is half duplex here, but full duplex on line 1; "
        "state the same duplex= of all its hosts"
        for number in (3, 4)
    ]


ATTACKS = [
    "-oProxyCommand=x",
    "-a",
    "..",
    ".",
    "../x",
    "a/b",
    "a b",
    "a;ls",
    "$(ls)",
    "`ls`",
    "a\tb",
    "a\x00b",
    "ä",
    "a*",
]


@pytest.mark.parametrize("name", [*ATTACKS, "a" * 254])
def test_hostile_names_are_refused(name: str) -> None:
    assert sentences(name) == [f"pf.txt:1: host: {name!r} is not a name {NAME_RULE}"]
    for key in ("address", "user", "interface", "medium", "coefficients"):
        assert sentences(f"a, {key}={name}") == [f"pf.txt:1: {key}: {name!r} is not a name {NAME_RULE}"]


def test_a_host_name_may_be_as_long_as_names_are_and_end_in_a_dot() -> None:
    for name in ("p" * 63 + ".lan", "pi0.lan."):
        assert Platform.parse(f"a, address={name}", "pf.txt").hosts[0].address == name


def test_an_ipv6_address_has_no_scope() -> None:
    assert Platform.parse("a, address=fe80::1", "pf.txt").hosts[0].address == "fe80::1"
    assert sentences("a, address=fe80::1%$(ls)") == [f"pf.txt:1: address: 'fe80::1%$(ls)' is not a name {NAME_RULE}"]


line_like = st.lists(
    st.sampled_from([*KEYS, "a", "b", "arm", "0-5", "8GB", "V (CUDA)", "=", "=", ",", ",", "\n", "#", " ", ":", "-1"])
    | st.text(max_size=3),
    max_size=30,
).map("".join)


@given(st.text() | line_like)
@example("a, slots=" + "9" * 5000)
@example("a, port=" + "9" * 5000)
@example("a, memory=" + "9" * 5000 + "GB")
@example("a, address=" + ":" * 50)
def test_any_text_is_a_platform_or_a_cleave_error(text: str) -> None:
    try:
        platform = Platform.parse(text, "pf.txt")
    except CleaveError as error:
        unplaced = [sentence for sentence in error.sentences if not re.match(r"pf\.txt(:\d+)?: \S", sentence)]
    else:
        unplaced = []
        assert_sound(platform)
    assert unplaced == []


def assert_sound(platform: Platform) -> None:
    assert len({device.name for device in platform.devices}) == len(platform.devices) > 0
    assert (platform.bandwidth() > 0).all()
    assert np.isfinite(platform.latency()).all()
    leave, enter, names = links(platform)
    assert len({*names}) == len(names) > leave.max()
    assert (leave != enter).all()
