"""What of a bundle goes where, and what is refused before a file of it is opened for sending."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from runtime.deploy.parcel import File, area, pack, safe
from runtime.deploy.target import Target
from runtime.errors import CleaveError

HOSTS = [Target(name, name) for name in "abc"]


def relist(bundle: Path, **changes: str | None) -> None:
    """Change what bundle.json says of files: a hash, or None to leave one out."""
    body = json.loads((bundle / "bundle.json").read_text())
    files = {**body["files"], **changes}
    body["files"] = {path: hash_ for path, hash_ in files.items() if hash_ is not None}
    (bundle / "bundle.json").write_text(json.dumps(body))


def refused(bundle: Path) -> str:
    with pytest.raises(CleaveError) as caught:
        pack(bundle, HOSTS)
    (sentence,) = caught.value.sentences
    return sentence.removeprefix(f"{bundle}: ")


def test_two_ranks_of_one_host_travel_together(bundle: Path) -> None:
    plan = json.loads((bundle / "plan.json").read_text())
    plan["ranks"][2]["host"] = "a"
    text = json.dumps(plan)
    (bundle / "plan.json").write_text(text)
    relist(bundle, **{"plan.json": blake3(text.encode()).hexdigest()})
    found = {parcel.target.name: parcel for parcel in pack(bundle, HOSTS).parcels}
    assert list(found) == ["a", "b"]
    assert [rank.rank for rank in found["a"].ranks] == [0, 2]
    assert {"rank_00.py", "rank_02.py", "rank02/segment000.onnx"} < set(found["a"].files)
    assert "rank_01.py" not in found["a"].files
    assert found["a"].memory_bytes > found["a"].files["rank00/segment000.onnx"].size_bytes + 2 * 50e6


def test_weights_that_lie_beside_a_segment_take_memory_too(bundle: Path) -> None:
    (parcel,) = (each for each in pack(bundle, HOSTS).parcels if each.target.name == "a")
    (file,) = {run.file for run in parcel.ranks[0].runs[:1]}
    files = {**parcel.files, f"{file}.data": File(bundle / file, "0" * 64, 2 * 10**9)}
    assert replace(parcel, files=files).memory_bytes == parcel.memory_bytes + 2 * 10**9


def test_a_host_that_the_platform_does_not_have(bundle: Path) -> None:
    with pytest.raises(CleaveError) as caught:
        pack(bundle, HOSTS[:2])
    assert caught.value.sentences == (f"{bundle}: rank 2 runs on 'c', which the platform does not have (a, b)",)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a\\b", "", ".", "a//b", "a\nb", "a\0b"])
def test_a_path_that_leads_out_of_the_bundle_is_refused(path: str, bundle: Path) -> None:
    relist(bundle, **{path: "0" * 64})
    assert refused(bundle) == f"bundle.json lists {path!r}, which is no path inside the bundle"


@given(st.text(alphabet="./ab", max_size=12))
def test_a_safe_path_stays_inside(path: str) -> None:
    root = Path("/root/of/all")
    if safe(path):
        assert (root / path).resolve().is_relative_to(root)
        assert (root / path) != root


def test_symbolic_links_are_refused(bundle: Path) -> None:
    segment = bundle / "rank00" / "segment000.onnx"
    segment.rename(bundle / "aside")
    segment.symlink_to(bundle / "aside")
    assert refused(bundle) == "rank00/segment000.onnx is a symbolic link, or in one; a bundle has none"
    segment.unlink()
    (bundle / "aside").rename(segment)
    (bundle / "rank00").rename(bundle / "folder")
    (bundle / "rank00").symlink_to("folder")
    assert refused(bundle) == "rank00/segment000.onnx is a symbolic link, or in one; a bundle has none"


def test_a_file_that_is_not_as_it_was_generated(bundle: Path) -> None:
    program = bundle / "rank_00.py"
    program.write_text(program.read_text() + "# mine\n")
    assert refused(bundle) == "rank_00.py is not as it was generated (another hash); generate the bundle again"
    program.unlink()
    assert refused(bundle) == "rank_00.py is gone; generate the bundle again"


def test_a_plan_that_wants_a_file_which_is_not_listed(bundle: Path) -> None:
    relist(bundle, **{"rank00/segment000.onnx": None})
    assert refused(bundle) == "plan.json wants 'rank00/segment000.onnx', which bundle.json does not list"


@pytest.mark.parametrize(
    ("name", "folder"),
    [("b", "b"), ("a b;rm", "a_b_rm"), ("..x", "x"), ("$(x)", "__x_"), ("'", "_"), ("---", "bundle"), ("ü", "_")],
)
def test_the_folder_on_a_host_has_a_plain_name(name: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    plain, _, mark = area(tmp_path / name).rpartition("-")
    assert plain == folder
    assert re.fullmatch("[0-9a-f]{8}", mark)


def test_no_two_places_have_one_folder_on_a_host(tmp_path: Path) -> None:
    places = [tmp_path / first / last for first in "ab" for last in ("best-latency", "ü", "ö", "a b", "a_b")]
    assert len({area(place) for place in places}) == len(places)
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert area(tmp_path / "link" / "best-latency") == area(tmp_path / "a" / ".." / "a" / "best-latency")


def test_a_bundle_that_comes_after_others_in_places_of_their_own_may_have_their_folder(bundle: Path) -> None:
    assert pack(bundle, HOSTS).name == area(bundle)
    assert pack(bundle, HOSTS, "measured").name == "measured"
