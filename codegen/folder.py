"""Result folders: written beside their place under a temporary name, then renamed; never half-written. And scratch
folders, of which nothing stays.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from secrets import token_hex

from runtime.errors import CleaveError
from runtime.reading import parsed

BUNDLE, RUN = "bundle.json", "summary.json"
MARKS = {BUNDLE: "cleave-bundle", RUN: "cleave-run"}
"""A folder with one of these files that says it is of that form was made here, and may be replaced by one of the same
form when asked to."""

ELSEWHERE = "choose another place with --out"


def check_free(
    out: Path,
    force: bool,
    way_out: str = f"use --force to replace it, or {ELSEWHERE}",
    read: Iterable[str | Path | None] = (),
    mark: str = BUNDLE,
) -> None:
    """``CleaveError`` unless ``out`` can be written: it does not exist, or may be replaced.

    way_out: what to do else; read: names of what is read meanwhile, none of which may be replaced with the folder
    mark: what it becomes, one of ``MARKS``
    """
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir() or out.is_symlink():
        raise CleaveError(f"{out}: exists and is no folder; choose another place with --out")
    place = out.resolve()
    if place.is_mount() or Path.cwd().is_relative_to(place):
        what = "a mount point" if place.is_mount() else "the folder that you are in"
        raise CleaveError(f"{out}: is {what}, which cannot be replaced; name a folder in it with --out")
    for name in read:
        if name and Path(name).resolve().is_relative_to(place):
            raise CleaveError(f"{out}: holds {name}, which is read, and would be replaced; {ELSEWHERE}")
    if any(out.iterdir()):
        if not force:
            raise CleaveError(f"{out}: exists already; {way_out}")
        _check_like(out, mark)


def _check_like(out: Path, mark: str) -> None:
    """``CleaveError`` unless a folder is what it is to be replaced by."""
    held = [other for other, form in MARKS.items() if _says(out / other, form)]
    if not held:
        raise CleaveError(f"{out}: holds files that are not results of this program; {ELSEWHERE}")
    if mark not in held:
        old, new = (MARKS[name].removeprefix("cleave-") for name in (held[0], mark))
        raise CleaveError(f"{out}: is a {old}, and would be replaced by a {new}; {ELSEWHERE}")


def _says(file: Path, form: str) -> bool:
    """Whether a file is there that says what form it has."""
    try:
        body = parsed(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(body, dict) and body.get("format") == form


def check_writable(*files: Path | None, read: Iterable[str | Path | None] = ()) -> None:
    """``CleaveError`` unless files can be made: what takes long should not fail at its end. None: nothing is written

    read: names of what is read meanwhile, some of which may not be files; none of them is replaced
    """
    taken, wanted = {os.path.realpath(name) for name in read if name}, set[str]()
    for file in filter(None, files):
        place = os.path.realpath(file)
        if place in taken:
            raise CleaveError(f"{file}: is read, and would be replaced; name another file")
        if place in wanted:
            raise CleaveError(f"{file}: is named for two things; give each a file of its own")
        wanted.add(place)
        if file.is_dir():
            raise CleaveError(f"{file}: is a folder; name a file in it")
        if file.exists() and not file.is_file():
            raise CleaveError(f"{file}: is no file but a pipe or a device; name a file")
        if not os.access(file.parent, os.W_OK | os.X_OK):
            raise CleaveError(f"{file}: cannot be written: {file.parent} is no folder that can be written to")


def remove(folder: Path) -> None:
    """With all that it holds, as far as that can be; also where Ctrl-C comes meanwhile."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what the first left when it was interrupted


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder beside results that is there meanwhile. ``OSError`` where there can be none."""
    folder = parent / f"{prefix}{token_hex(4)}"
    try:
        folder.mkdir(0o700)  # in here: Ctrl-C may come as soon as it is there
        yield folder
    finally:
        remove(folder)


@contextmanager
def fresh(out: Path, force: bool = False, mark: str = BUNDLE) -> Iterator[Path]:
    """A new folder to fill, which becomes ``out`` when the block ends well and vanishes when it does not."""
    check_free(out, force, mark=mark)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with scratch(out.parent, f".{out.name}.") as draft:
            draft.chmod(0o755)
            yield draft
            _put(out, draft, force, mark)
    except OSError as error:
        file = Path(str(error.filename or out))
        what = f"{out}: cannot be written" if _concerns(file, out) else f"{file}"
        raise CleaveError(f"{what}: {error.strerror or error}") from error


def _concerns(file: Path, out: Path) -> bool:
    """Whether what is wrong with a file is wrong with a folder that is made, and not with another that is read."""
    below = file.relative_to(out.parent).parts[:1] if file.is_relative_to(out.parent) else ()
    return file == out or file in out.parents or any(part.startswith(f".{out.name}.") for part in below)


def _put(out: Path, draft: Path, force: bool, mark: str) -> None:
    """Make ``draft`` ``out``, or, where what was put there meanwhile may not be replaced, a folder beside that."""
    try:
        check_free(out, force, mark=mark)
        if out.exists():
            _replace(out, draft)
        else:
            draft.rename(out)
    except (CleaveError, OSError) as error:
        beside = unused(out)
        draft.rename(beside)
        what = "something else was put there meanwhile, which is not replaced"
        raise CleaveError(f"{out}: {what}; what was to be there is {beside}") from error


def unused(place: Path, suffix: str = "") -> Path:
    """A place with a suffix, or the first of ``place-2``, ``place-3`` … where nothing is."""
    numbers = chain([""], (f"-{number}" for number in count(2)))
    places = (place.with_name(f"{place.name}{number}{suffix}") for number in numbers)
    return next(place for place in places if not os.path.lexists(place))


def _replace(out: Path, draft: Path) -> None:
    """Put ``draft`` in the place of ``out``, or leave ``out`` there; also where Ctrl-C comes meanwhile."""
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    old = aside / out.name
    try:
        out.rename(old)
        draft.rename(out)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        if not (old.exists() and draft.exists()):  # else something was put between them, and nothing replaced
            remove(aside)
        raise
    remove(aside)
