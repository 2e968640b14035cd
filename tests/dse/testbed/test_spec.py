"""What a testbed is to be: read strictly, and the shipped ones are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.testbed import spec
from runtime.errors import CleaveError

GOOD = "pi0, cores=0, share=0.45, memory=2GB, bandwidth=1Gbit/s"


def problems(text: str) -> list[str]:
    with pytest.raises(CleaveError) as caught:
        spec.parse(text, "box.spec")
    return list(caught.value.sentences)


def test_a_line_is_a_host_in_si_units() -> None:
    (host,) = spec.parse("# a host\n\npi0, cores=0-2+4, share=1.5, memory=2GiB, bandwidth=100Mbit/s # slow\n", "x")
    assert host == spec.HostSpec("pi0", (0, 1, 2, 4), 1.5, 2 * 2**30, 12.5e6)


def test_shipped_specs_are_what_they_promise() -> None:
    assert spec.SPECS.names == ["testbed-4", "testbed-4-uneven", "testbed-8"]
    even, uneven, eight = (spec.read(name) for name in spec.SPECS.names)
    assert {(host.share, host.bandwidth_bytes_per_s) for host in even} == {(0.45, 125e6)}
    assert [host.share / 0.45 for host in uneven] == [1, 0.25, 1, 1]
    assert [host.bandwidth_bytes_per_s for host in uneven] == [125e6, 125e6, 125e6, 12.5e6]
    assert [host.share for host in eight] == [0.2] * 8
    for hosts in (even, uneven, eight):
        assert set(spec.core_load(hosts)) == {0, 1}, "two cores are enough"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("pi0, cores=0, share=0.45", "pi0: does not state memory, bandwidth"),
        (f"{GOOD}, colour=red", "unknown key 'colour' (known: cores, share, memory, bandwidth)"),
        (f"{GOOD}, shar=1", "unknown key 'shar' (did you mean 'share'?)"),
        (f"{GOOD}, share=0.45", "share: stated twice"),
        (GOOD.replace("0.45", "0.05"), "share: '0.05' is not a number from 0.1 to 1, the number of the host's cores"),
        (GOOD.replace("0.45", "1.5"), "share: '1.5' is not a number from 0.1 to 1, the number of the host's cores"),
        (GOOD.replace("0.45", "45%"), "share: '45%' is not a number from 0.1 to 1, the number of the host's cores"),
        (GOOD.replace("2GB", "2MB"), "memory: '2MB' is less than 64MB, what an SSH server and a few sessions need"),
        (GOOD.replace("1Gbit/s", "1Gbps"), "bandwidth: '1Gbps' has the ambiguous unit 'Gbps'"),
        (GOOD.replace("pi0,", "pi0, arm,"), "architecture: all hosts are of this machine's; write key=value fields"),
        (GOOD.replace("pi0", "workstation"), "host: 'workstation' is what every host calls another machine or itself"),
        (GOOD.replace("pi0", "Pi0"), "host: 'Pi0' is not a host name (lower-case letters, digits and '-'"),
        (GOOD.replace("pi0", "pi-"), "host: 'pi-' is not a host name (lower-case letters, digits and '-'"),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, sentence: str) -> None:
    (said,) = problems(f"# hosts\n{line}\n")
    assert said.startswith(f"box.spec:2: {sentence}")


def test_all_mistakes_are_told_at_once_in_their_order() -> None:
    said = problems(f"{GOOD}\npi1, cores=x, share=2, memory=1\n{GOOD}\n")
    assert [sentence.split(": ")[0] for sentence in said] == [f"box.spec:{n}" for n in (2, 2, 2, 2, 3)]
    assert said[-1] == "box.spec:3: a host twice: 'pi0' is on line 1"


def test_a_core_cannot_be_promised_twice() -> None:
    lines = [GOOD.replace("pi0", name).replace("0.45", "0.5") for name in ("a", "b")]
    assert len(spec.parse("\n".join(lines), "x")) == 2
    assert problems("\n".join([*lines, GOOD])) == [
        "box.spec:3: core 0 is promised to its hosts 145%; lower their shares"
    ]


def test_a_file_without_hosts_is_refused() -> None:
    assert problems("# nobody\n")[0].startswith("box.spec: no host; write one a line")


def test_a_file_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(
        CleaveError, match="there is no such file; shipped testbeds: testbed-4, testbed-4-uneven, testbed-8"
    ):
        spec.read(tmp_path / "testbed-4")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.spec").write_bytes(b"pi0\xff")
    with pytest.raises(CleaveError, match=r"x\.spec:1: byte 0xff is not UTF-8 text"):
        spec.read(tmp_path / "x.spec")


@given(
    st.lists(st.sampled_from([*spec.KEYS, "pi0", "arm", "0-5", "8GB", "0.3", "1Mbit/s", "=", "=", ",", ",", "\n", "#"]))
)
def test_any_text_is_read_or_refused_with_its_place(words: list[str]) -> None:
    hosts, said = (), ()
    try:
        hosts = spec.parse("".join(words), "box.spec")
    except CleaveError as error:
        said = error.sentences
    assert bool(hosts) != bool(said)
    assert all(sentence.startswith("box.spec:") for sentence in said)


@given(
    st.from_regex("[a-z]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True).filter(lambda name: name not in spec.TAKEN),
    st.sets(st.integers(0, 200), min_size=1),
    st.integers(1, 10**9),
    st.integers(spec.LEAST_MEMORY_BYTES, 10**15),
    st.integers(1, 10**6),
)
def test_what_is_written_is_what_is_read(name: str, cores: set[int], nanos: int, memory: int, megabits: int) -> None:
    share = round(spec.LEAST_SHARE + (len(cores) - spec.LEAST_SHARE) * nanos / 1e9, 9)
    line = f"{name}, bandwidth={megabits}Mbit/s, memory={memory}B, cores={'+'.join(map(str, cores))}, share={share:.9f}"
    assert spec.parse(line, "x") == (spec.HostSpec(name, tuple(sorted(cores)), share, memory, megabits * 125e3),)
