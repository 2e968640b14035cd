"""Result folders appear whole or not at all, and nothing that is not ours is ever replaced."""

from __future__ import annotations

import json
import os
import shutil
import stat
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from codegen.folder import BUNDLE, MARKS, RUN, check_free, check_writable, fresh, scratch
from runtime.errors import CleaveError


def tree(folder: Path) -> dict[str, str]:
    """Everything below a folder, hidden files too."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "folder" for path in folder.rglob("*")
    }


def marked(mark: str, text: str) -> str:
    return json.dumps({"format": MARKS[mark], "text": text})


def fill(folder: Path, mark: str = BUNDLE, text: str = "new") -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text(text)
    (folder / mark).write_text(marked(mark, text))


def results(out: Path, mark: str = BUNDLE) -> None:
    """A folder as this program made it before."""
    out.mkdir()
    fill(out, mark, "old")


def test_a_folder_appears_with_all_that_was_written(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with fresh(out) as draft:
        assert not out.exists()
        assert draft.parent == out.parent  # the same file system: renaming is one step
        fill(draft)
    assert tree(tmp_path / "new") == {
        "out": "folder",
        "out/deep": "folder",
        "out/deep/file": "new",
        f"out/{BUNDLE}": marked(BUNDLE, "new"),
    }


def test_others_may_read_the_folder(tmp_path: Path) -> None:
    with fresh(tmp_path / "out") as draft:
        fill(draft)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755


@pytest.mark.parametrize("error", [ValueError("oops"), CleaveError("oops"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def write() -> None:
        with fresh(tmp_path / "out") as draft:
            fill(draft)
            raise error

    with pytest.raises(type(error)):
        write()
    assert tree(tmp_path) == {}


def test_ctrl_c_while_a_scratch_folder_is_removed_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmdir, told = os.rmdir, list[int]()

    def interrupted(*args: Any, **words: Any) -> None:
        if not told:
            told.append(130)
            raise SystemExit(130)
        rmdir(*args, **words)

    monkeypatch.setattr(os, "rmdir", interrupted)

    def use() -> None:
        with scratch(tmp_path, ".draft-") as draft:
            assert draft.parent == tmp_path
            fill(draft)

    with pytest.raises(SystemExit):
        use()
    assert told == [130]
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("mark", MARKS)
def test_an_error_in_the_middle_leaves_the_old_results(tmp_path: Path, mark: str) -> None:
    results(tmp_path / "out", mark)
    before = tree(tmp_path)

    def write() -> None:
        with fresh(tmp_path / "out", force=True, mark=mark) as draft:
            fill(draft)
            raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        write()
    assert tree(tmp_path) == before


def test_an_error_of_the_disk_is_told_with_the_folder(tmp_path: Path) -> None:
    def write() -> None:
        with fresh(tmp_path / "out") as draft:
            fill(draft)
            raise OSError(28, "No space left on device")

    with pytest.raises(CleaveError, match=r"out: cannot be written: No space left on device$"):
        write()
    assert tree(tmp_path) == {}


def test_an_error_of_another_file_is_told_with_that_file(tmp_path: Path) -> None:
    def write() -> None:
        with fresh(tmp_path / "out") as draft:
            fill(draft)
            (tmp_path / "net.onnx").read_bytes()

    with pytest.raises(CleaveError) as caught:
        write()
    assert caught.value.sentences == (f"{tmp_path / 'net.onnx'}: No such file or directory",)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("there", ["out/new", "out-2"])
def test_what_was_made_meanwhile_is_not_replaced(there: str, tmp_path: Path) -> None:
    """By another run with the same place, say. The later one's results are put beside it."""
    others = {"out": "folder", "out/deep": "folder", "out/deep/file": "old", f"out/{BUNDLE}": marked(BUNDLE, "old")}

    def write() -> None:
        with fresh(tmp_path / "out") as draft:
            fill(draft)
            results(tmp_path / "out")
            (tmp_path / there).mkdir()

    with pytest.raises(
        CleaveError, match=r"out: something else was put there meanwhile, .* is .*/out-(2|3)$"
    ) as caught:
        write()
    beside = "out-3" if there == "out-2" else "out-2"
    assert str(caught.value).endswith(beside)
    mine = {
        name.replace("out", beside): text if text == "folder" else text.replace("old", "new")
        for name, text in others.items()
    }
    assert tree(tmp_path) == others | mine | {there: "folder"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("what", ["file", "link", "folder of others"])
def test_what_is_not_ours_is_not_replaced_when_it_comes_meanwhile(what: str, force: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def put() -> None:
        if what == "file":
            out.write_text("precious")
        elif what == "link":
            out.symlink_to("nowhere")
        else:
            out.mkdir()
            (out / "notes.txt").write_text("precious")

    def write() -> None:
        with fresh(out, force) as draft:
            fill(draft)
            put()

    with pytest.raises(CleaveError, match=r"out: something else was put there meanwhile, .*/out-2$"):
        write()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out-2"}
    assert (tmp_path / "out-2" / BUNDLE).read_text() == marked(BUNDLE, "new")
    assert not (out / BUNDLE).exists()


def test_an_empty_folder_that_was_made_meanwhile_is_filled(tmp_path: Path) -> None:
    with fresh(tmp_path / "out") as draft:
        fill(draft)
        (tmp_path / "out").mkdir()
    assert f"out/{BUNDLE}" in tree(tmp_path)


def test_a_draft_that_cannot_take_its_place_leaves_the_old_results(tmp_path: Path) -> None:
    """Something cleaned the hidden draft away while it was filled."""
    results(tmp_path / "out")
    before = tree(tmp_path)

    def write() -> None:
        with fresh(tmp_path / "out", force=True) as draft:
            shutil.rmtree(draft)

    with pytest.raises(CleaveError, match="out: cannot be written"):
        write()
    assert tree(tmp_path) == before


@pytest.mark.parametrize("mark", MARKS)
def test_force_replaces_our_own_results_entirely(tmp_path: Path, mark: str) -> None:
    results(tmp_path / "out", mark)
    (tmp_path / "out" / "stale").write_text("old")
    with fresh(tmp_path / "out", force=True, mark=mark) as draft:
        fill(draft, mark)
    assert tree(tmp_path) == {
        "out": "folder",
        "out/deep": "folder",
        "out/deep/file": "new",
        f"out/{mark}": marked(mark, "new"),
    }


@pytest.mark.parametrize("when", range(4))
def test_ctrl_c_while_results_are_replaced_leaves_the_old_or_the_new_ones(
    when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before or right after the first renaming or the second."""
    results(tmp_path / "out")
    before, rename, moments = tree(tmp_path), Path.rename, count()

    def interrupted(self: Path, target: Path) -> Path:
        if next(moments) == when:
            raise SystemExit(130)
        found = rename(self, target)
        if next(moments) == when:
            raise SystemExit(130)
        return found

    monkeypatch.setattr(Path, "rename", interrupted)

    def write() -> None:
        with fresh(tmp_path / "out", force=True) as draft:
            fill(draft)

    with pytest.raises(SystemExit):
        write()
    new = {name: text if text == "folder" else text.replace("old", "new") for name, text in before.items()}
    assert tree(tmp_path) == (before if when < 3 else new)


def test_without_force_results_stay(tmp_path: Path) -> None:
    results(tmp_path / "out")
    before = tree(tmp_path)
    with pytest.raises(CleaveError, match=r"out: exists already; use --force to replace it, or choose another place"):
        check_free(tmp_path / "out", force=False)
    with pytest.raises(CleaveError, match="exists already"), fresh(tmp_path / "out"):
        pytest.fail("there is nothing to fill")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_a_foreign_folder_is_never_touched(tmp_path: Path, force: bool) -> None:
    out = tmp_path / "home"
    (out / "deep" / BUNDLE).mkdir(parents=True)  # a mark further down, or one that is no file, makes it none of ours
    (out / "summary.json").mkdir()
    (out / "thesis.txt").write_text("years of work")
    before = tree(tmp_path)
    with pytest.raises(CleaveError, match="home: "), fresh(out, force):
        pytest.fail("there is nothing to fill")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(("held", "new"), [(RUN, BUNDLE), (BUNDLE, RUN)])
def test_nothing_of_another_kind_is_replaced(tmp_path: Path, held: str, new: str) -> None:
    results(tmp_path / "out", held)
    before = tree(tmp_path)
    said = {
        RUN: "out: is a run, and would be replaced by a bundle",
        BUNDLE: "out: is a bundle, and would be .* by a run",
    }
    with pytest.raises(CleaveError, match=said[held]), fresh(tmp_path / "out", True, new):
        pytest.fail("there is nothing to fill")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
def test_an_empty_folder_is_taken(tmp_path: Path, force: bool) -> None:
    (tmp_path / "out").mkdir()
    with fresh(tmp_path / "out", force) as draft:
        fill(draft)
    assert set(tree(tmp_path)) == {"out", "out/deep", "out/deep/file", f"out/{BUNDLE}"}


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"format": "of another program"}', "[" * 100_000])
def test_a_file_of_the_same_name_does_not_make_a_folder_ours(text: str, tmp_path: Path) -> None:
    for mark in MARKS:
        (tmp_path / mark).write_text(text)
    with pytest.raises(CleaveError, match="holds files that are not results of this program"):
        check_free(tmp_path, True)


def test_what_is_read_is_not_replaced_with_the_folder_that_it_is_in(tmp_path: Path) -> None:
    results(tmp_path / "out")
    (tmp_path / "link").symlink_to("out/deep")
    check_free(tmp_path / "out", True, read=(None, "zoo:alexnet", tmp_path / "out-2/net.onnx"))
    for name in ("out/deep/file", "link/file", "out/gone"):
        with pytest.raises(CleaveError, match=f"out: holds .*{name}, which is read, and would be replaced"):
            check_free(tmp_path / "out", True, read=(tmp_path / name,))


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("out", [".", "../here", "/proc"])
def test_a_folder_that_cannot_be_replaced_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, force: bool
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))  # as an empty volume
    said = (
        "is a mount point, which cannot be replaced"
        if out == "/proc"
        else "is the folder that you are in, which cannot"
    )
    with pytest.raises(CleaveError, match=said):
        check_free(Path(out), force)


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_folder_is_never_replaced(tmp_path: Path, force: bool) -> None:
    (tmp_path / "file").write_text("old")
    results(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    before = tree(tmp_path)
    for name in ("file", "link", "broken"):
        with pytest.raises(CleaveError, match=f"{name}: exists and is no folder"), fresh(tmp_path / name, force):
            pytest.fail("there is nothing to fill")
    assert tree(tmp_path) == before


def test_a_pipe_is_no_file_to_be_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CleaveError, match="pipe: is no file but a pipe or a device; name a file"):
        check_writable(None, tmp_path / "new", tmp_path / "pipe")


def test_what_is_read_is_not_replaced_nor_one_file_written_twice(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "net.onnx")
    check_writable(tmp_path / "new", tmp_path / "other", read=(None, "zoo:alexnet", tmp_path / "net.onnx"))
    for out in (tmp_path / "net.onnx", tmp_path / "link", tmp_path / "." / ".." / tmp_path.name / "net.onnx"):
        with pytest.raises(CleaveError, match=f"{out.name}: is read, and would be replaced; name another file"):
            check_writable(out, read=("zoo:alexnet", str(tmp_path / "net.onnx")))
    for other in (tmp_path / "new", tmp_path / ".." / tmp_path.name / "new"):
        with pytest.raises(CleaveError, match="new: is named for two things"):
            check_writable(tmp_path / "new", None, other)


def test_a_place_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(CleaveError, match=r"file/out: cannot be written: "), fresh(tmp_path / "file" / "out"):
        pytest.fail("there is nothing to fill")


def test_a_place_on_a_read_only_file_system_cannot_be_written() -> None:
    with pytest.raises(CleaveError, match=r"^/proc/out: cannot be written: "), fresh(Path("/proc/out")):
        pytest.fail("there is nothing to fill")


def test_a_folder_without_permission_cannot_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (tmp_path / "locked").mkdir(mode=0o555)
    with pytest.raises(CleaveError, match="cannot be written"), fresh(tmp_path / "locked" / "out"):
        pytest.fail("there is nothing to fill")
