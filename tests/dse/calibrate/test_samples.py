"""Measurements are kept line by line: what is there stays, a torn line goes, and nobody else writes meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.calibrate.samples import Store, opened
from model.cost.samples import SEGMENT, Footing, PartOf, Run, Sample, means_s
from model.fit.link_costs import LinkSample
from runtime.errors import CleaveError
from runtime.steady import steady_s
from runtime.trace import Memory
from tests.tiny_cnn import examples

PARTS = (PartOf(0, 1, 0, 4), PartOf(1, 2, 3, 9))
RANK = Footing("a_cpu0", 1.0, 2.0, 0.0, 3.0, 2, 5, Memory(1, 2, 3, 4, -5), 0.25)
RUN = Run(
    "key", "a_cpu0", "six", "python", "hash", "whole", "2030-01-01T00:00:00+00:00", "a", "main.py", {"kernel": "6"},
    (0.5, 0.25), (RANK, replace(RANK, memory=None)), (Sample(SEGMENT, "a_cpu0", "six", PARTS, (0.125, 0.25)),),
)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with opened(tmp_path / "s.jsonl") as store:
        store.add_run(RUN)
        store.add("link", {"size_bytes": 4})
    return tmp_path / "s.jsonl"


def reread(file: Path) -> Store:
    with opened(file) as store:
        return store


def test_what_was_added_is_read_again(file: Path) -> None:
    store = reread(file)
    assert store.runs == [RUN]
    assert store.of_kind("link") == [{"kind": "link", "size_bytes": 4}]
    with opened(file) as store:
        store.add_run(replace(RUN, key="other"))
    assert [run.key for run in reread(file).runs] == ["key", "other"]


def test_a_new_file_says_what_it_is_once(file: Path) -> None:
    heads = [line for line in file.read_text().splitlines() if "format" in json.loads(line)]
    assert heads == ['{"format":"cleave-samples","version":2}']


@examples(40)
@given(st.data())
def test_wherever_it_is_cut_off_whole_lines_are_read_and_gone_on_after(file: Path, data: st.DataObject) -> None:
    whole = file.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    torn = file.with_name("torn.jsonl")
    torn.write_bytes(whole[:cut])
    with opened(torn) as store:
        before = list(store.lines)
        assert len(before) == max(whole[:cut].count(b"\n") - 1, 0)
        store.add("link", {"size_bytes": 8})
    assert reread(torn).lines == [*before, {"kind": "link", "size_bytes": 8}]


def test_nobody_else_writes_meanwhile(file: Path) -> None:
    with opened(file), pytest.raises(CleaveError, match="another calibration writes there"), opened(file):
        pass
    assert reread(file).runs == [RUN]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mine\n", ":1: is no line that a calibration writes"),
        ("mine\nand no end", ":1: is no line that a calibration writes"),
        ("mine", "is no cleave-samples of version 2; calibrate into another folder"),
        ('{"format":"cleave-samples","version":1}\n{"kind', "is no cleave-samples of version 2"),
        (
            '{"format":"cleave-samples","version":1}\n',
            "is no cleave-samples of version 2; calibrate into another folder",
        ),
        ('{"format":"cleave-samples","version":2}\n[]\n', ":2: is no line that a calibration writes"),
        ('{"format":"cleave-samples","version":2}\n{"kind":"run"}\n', "holds a run that this version cannot read"),
    ],
)
def test_another_file_is_refused_and_left_alone(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(text)
    with pytest.raises(CleaveError) as caught:
        _ = reread(tmp_path / "s.jsonl").runs
    assert sentence in str(caught.value)
    assert (tmp_path / "s.jsonl").read_text() == text


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("[0.5,0.25]", "[]", "its frames are not as many everywhere"),
        ("[0.125,0.25]", "[0.125]", "its frames are not as many everywhere"),
        ("2030-01-01", "one day", "Invalid isoformat string"),
        ("[0.5,0.25]", "[0.5,null]", "some of its times are none"),
        ("[0.5,0.25]", '["x",0.25]', "could not convert string to float"),
        ("[0.5,0.25]", "[0.5,0.0]", "a frame took no time"),
        ("[0.125,0.25]", "[0.125,NaN]", "some of its times are none"),
        ('"took_s":0.0', '"took_s":null', "some of its times are none"),
        ('"kind":"segment","device":"a_cpu0"', '"kind":"segment","device":"zz"', "nothing is said of a rank on zz"),
    ],
)
def test_a_run_that_was_edited_is_refused(file: Path, before: str, after: str, sentence: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    with pytest.raises(CleaveError, match=f"holds a run that this version cannot read; remove the file .{sentence}"):
        _ = reread(file).runs


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match="cannot be written: No such file or directory"):
        reread(tmp_path / "no" / "s.jsonl")


def test_times_of_segments_add_up_to_what_frames_take() -> None:
    """Ten segments, each of which is held up in frames of its own."""
    times = [[1.0 + 9.0 * (frame % 10 == k) for frame in range(20)] for k in range(10)]
    samples = [Sample(SEGMENT, "a", "six", PARTS, tuple(of)) for of in times]
    assert means_s(samples) == pytest.approx([1.9] * 10, rel=0.3)
    assert means_s(samples).sum() == pytest.approx(19)
    assert sum(sample.time_s for sample in samples) == pytest.approx(10)
    assert means_s([]).sum() == 0


def test_segments_take_as_long_as_a_processor_was_at_them_in_the_time_of_a_frame() -> None:
    """Whichever was held up, and also where that was between two of them."""
    times, busy = ((1.0, 1.0), (9.0, 9.0), (2.0, 2.0)), (1.0, 3.0, 2.0)
    samples = [Sample(SEGMENT, "a", "six", PARTS, t, busy_s=b) for t, b in zip(times, busy, strict=True)]
    found = replace(RUN, samples=tuple(samples), latencies_s=(15.0, 15.0), ranks=(replace(RANK, processor_s=7.5),))
    assert [sample.time_s for sample in found.evened] == pytest.approx([2, 6, 4])
    assert [sample.busy_s for sample in found.evened] == [1, 3, 2]


@pytest.mark.parametrize(("runs", "period"), [(20, 50), (1, 2.2)])
def test_what_holds_up_segments_by_chance_is_shared_out_among_all(runs: float, period: float) -> None:
    """A processor that may run so long of every period, and 12 segments, the last as long as all others together."""
    seconds = [0.2 + 0.1 * (k % 3) for k in range(11)] + [3.3]
    times: list[list[float]] = [[] for _ in seconds]
    clock = 0.0
    for _ in range(60):
        for row, time_s in zip(times, seconds, strict=True):
            held_up = int((clock + time_s) // runs) - int(clock // runs)
            row.append(time_s + (period - runs) * held_up)
            clock += time_s
        clock += 0.37  # what comes between frames
    taken = [replace(RUN.ranks[0], processor_s=sum(seconds))]
    found = replace(RUN, ranks=tuple(taken), samples=tuple(Sample(SEGMENT, "a", "six", PARTS, tuple(r)) for r in times))
    evened = [sample.time_s for sample in found.evened]
    assert sum(evened) == pytest.approx(steady_s([sum(frame) for frame in zip(*times, strict=True)]))
    off = [time_s / alone_s * runs / period - 1 for time_s, alone_s in zip(evened, seconds, strict=True)]
    assert max(map(abs, off)) < 0.2, off
    assert max(abs(s.time_s / t * runs / period - 1) for s, t in zip(found.samples, seconds, strict=True)) > 0.25


@pytest.mark.parametrize(
    ("times", "sentence"), [("[]", "a message has no times"), ("[null]", "some of its times are none")]
)
def test_messages_that_were_edited_are_refused(times: str, sentence: str, file: Path) -> None:
    link = LinkSample("way", "a_cpu0", "b_cpu0", False, 4, (0.5,), (0.75,))
    with opened(file) as store:
        store.add_links("some", [link])
    assert reread(file).links == {"some": [link]}
    file.write_text(file.read_text().replace("[0.75]", times))
    with pytest.raises(CleaveError, match=f"holds a run that this version cannot read; remove the file .{sentence}"):
        _ = reread(file).links
