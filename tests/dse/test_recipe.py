"""A bundle that is made of a mapping before it goes to the cluster."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from codegen.bundle import check_source
from codegen.verify import verify
from dse.cli.bundle import Loss, Recipe, ready
from model.cluster.platform import Platform
from runtime.errors import CleaveError
from tests.command import done, files
from tests.tiny_cnn import save, six_layers

PLATFORM = "edge00:10.0.0.1\nedge01, arm, slots=0-5\n"
MAPPING = {"edge00": ["l1", "l2", "l3"], "edge01_cpu02": ["l1", "l4"], "edge01_cpu1": ["l5", "l6"]}
HORIZONTAL = {"l1": ["lop", [4, 65535], ["edge00", "edge01_cpu20"]]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """AutoDiCE's files in the current folder."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path, six_layers())
    (tmp_path / "platform.txt").write_text(PLATFORM)
    (tmp_path / "mapping.json").write_text(json.dumps(MAPPING))
    (tmp_path / "horizontal.json").write_text(json.dumps(HORIZONTAL))
    return tmp_path


def made(dry: bool = False, **how: Any) -> tuple[bool, str]:
    """Whether ``new`` is the bundle that goes, and what was said."""
    said = io.StringIO()
    recipe = Recipe("tiny.onnx", Path("mapping.json"), Path("horizontal.json"), **how)
    with ready(Path("new"), Platform.from_file("platform.txt"), recipe, Loss(), Console(file=said), dry) as found:
        assert (found.bundle / "plan.json").is_file()
        assert found.body == {"bundle": "new"}
        return found.bundle == Path("new"), said.getvalue()


@pytest.mark.parametrize("join", ["use", "gather"])
def test_the_bundle_is_that_of_generate_and_right(join: str) -> None:
    assert made(join=join) == (True, "wrote new\n")
    words = ["--platform", "platform.txt", "--mapping", "mapping.json", "--horizontal", "horizontal.json"]
    done("generate", "--cnn", "tiny.onnx", *words, "--join", join, "--out", "other")
    assert files(Path("new")) == files(Path("other"))
    ranks = json.loads(Path("new/plan.json").read_text())["ranks"]
    assert [(rank["device"], rank["cores"]) for rank in ranks] == [
        ("edge00_cpu0", [0]),
        ("edge01_cpu02", [0, 2]),
        ("edge01_cpu1", [1]),
    ]


@pytest.mark.mpi
def test_cores_that_a_mapping_names_give_the_answer_of_the_whole_model() -> None:
    made()
    assert verify(Path("new"), check_source(Path("new")), frames=1).passed


def test_what_is_there_is_taken_unless_it_is_another_and_replaced_only_when_asked_to(here: Path) -> None:
    made()
    before = files(here)
    assert made() == (True, "new is there already, made of the same\n")
    with pytest.raises(CleaveError) as caught:
        made(join="gather")
    assert caught.value.sentences == (
        "new: exists already; it is not made of the same; use --force to replace it, or name another folder",
    )
    assert files(here) == before
    assert made(join="gather", force=True) == (True, "wrote new\n")
    assert json.loads(Path("new/bundle.json").read_text())["join"] == "gather"


def test_force_mends_a_bundle_that_is_broken() -> None:
    made()
    segment = next(Path("new").glob("rank00/*.onnx"))
    whole = segment.read_bytes()
    segment.write_bytes(b"")
    assert made(force=True) == (True, "wrote new\n")
    assert segment.read_bytes() == whole


def test_files_of_somebody_else_stay(here: Path) -> None:
    (here / "new").mkdir()
    (here / "new/thesis.txt").write_text("mine")
    for force, sentence in ((False, "exists already; it is not made of the same"), (True, "holds files that are not")):
        with pytest.raises(CleaveError, match=f"^new: {sentence}"):
            made(force=force)
    assert files(here / "new") == {"thesis.txt": b"mine"}


def test_a_dry_run_writes_nothing(here: Path) -> None:
    before = files(here)
    assert made(dry=True) == (False, "dry run: would write new\n")
    assert files(here) == before


def test_cores_that_the_platform_file_lacks_are_told(here: Path) -> None:
    (here / "mapping.json").write_text(json.dumps(MAPPING).replace("edge00", "edge00_cpu23"))
    with pytest.raises(CleaveError) as caught:
        made()
    assert caught.value.sentences[0] == (
        "mapping.json: key 'edge00_cpu23': device 'edge00_cpu23' is not on the platform (it has edge00_cpu0, "
        "edge01_cpu02, edge01_cpu1); say in the platform file which cores it has: edge00, slots=2+3"
    )
