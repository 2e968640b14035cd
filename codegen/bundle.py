"""The bundle: everything that is copied to the cluster, in one folder.

``plan.json``, a program and the segments of each rank, rankfile, hostfile, AutoDiCE's ``sender.json`` and
``receiver.json``, the mapping, the few files of ``runtime`` that a device needs, and ``bundle.json``: what it was
made from, and a hash of every file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from codegen import render
from codegen.folder import fresh
from codegen.slicing import segment
from model.cluster.platform import Platform
from model.mappings.gather import gathered
from model.mappings.mapping import Mapping, checked
from model.mappings.planning import Planned, plan
from model.network import wire
from model.network.graph import Graph
from runtime.contents import described
from runtime.errors import CleaveError
from runtime.hashing import file_hash, files_hash, text_hash
from runtime.plan import Plan, Run

FORMAT = "cleave-bundle"
VERSION = 1
USE, GATHER = JOINS = ("use", "gather")
"""Where the parts of a split layer are joined: on each device that uses them, or on one that passes them on."""


@dataclass(frozen=True)
class Form:
    """How a mapping is made into a bundle.

    join:   where the parts of a layer are put together, ``USE`` (where they are used) or ``GATHER`` (as AutoDiCE does)
    target: what the programs are written in
    borders: indices of layers of the network that begin a segment, though they need not
    note:   what else ``bundle.json`` keeps of where the mapping comes from, plain data
    """

    join: str = USE
    target: str = render.PYTHON
    borders: tuple[int, ...] = ()
    note: dict[str, Any] = field(default_factory=dict)


PLAIN = Form()


@dataclass(frozen=True)
class Source:
    """The CNN that a bundle was made from.

    path:   of the file; folded, shapes: as given to ``model.network.load``
    said:   the hash, where it is known
    """

    path: Path
    folded: bool
    shapes: dict[str, tuple[int, ...]]
    said: str | None = field(default=None, compare=False)

    @cached_property
    def blake3(self) -> str:
        """Hash of the file and of its external data."""
        return self.said or model_hash(self.path)


def source(graph: Graph, folded: bool, shapes: dict[str, tuple[int, ...]]) -> Source:
    """Describe the file that ``graph`` was read from."""
    return Source(graph.path.parent.resolve() / graph.path.name, folded, shapes)


def write_bundle(
    graph: Graph, platform: Platform, mapping: Mapping, origin: Source, out: Path, force: bool, form: Form = PLAIN
) -> Plan:
    """Make a bundle in the folder ``out``; returns its plan. ``CleaveError`` for a mapping that does not check."""
    checked(mapping, graph, platform, "mapping")
    with fresh(out, force) as folder:
        return fill(folder, graph, platform, mapping, origin, form)


def fill(folder: Path, graph: Graph, platform: Platform, mapping: Mapping, origin: Source, form: Form = PLAIN) -> Plan:
    """Write a bundle of a checked mapping into an existing folder; returns its plan."""
    graph.check_files()
    (folder / "mapping.json").write_text(mapping.to_json(graph, platform))
    graph, mapping, borders = _joined(graph, mapping, form)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing and copying need no interpreter
        source_hash = pool.submit(lambda: origin.blake3)
        planned = plan(graph, platform, mapping, borders)
        render.write(render.render(planned.plan, form.target), folder)
        hashes = _write_segments(pool, folder, graph, planned, apart=form.target == render.CPP)
    graph.check_files()
    cnn = {"path": str(origin.path), "blake3": source_hash.result(), "folded": origin.folded, "shapes": origin.shapes}
    body = {"cnn": cnn, "platform": platform.name, "cut_by": _cutter(), **asdict(form)}
    describe(folder, body, hashes)
    return planned.plan


def describe(folder: Path, body: dict[str, Any], hashes: dict[str, str]) -> None:
    """Write ``bundle.json``: what is said of a bundle, and a hash of every file that there is; some may be known."""
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    files = {name: hashes.get(name) or file_hash(folder / name) for name in names}
    whole = {"format": FORMAT, "version": VERSION, **body, "files": files}
    (folder / "bundle.json").write_text(json.dumps(whole, indent=1) + "\n")


def is_there(
    folder: Path, graph: Graph, platform: Platform, mapping: Mapping, origin: Source, form: Form = PLAIN
) -> bool:
    """Whether a folder holds a bundle already that does just what ``fill`` would have it do."""
    try:
        made_from, made = read_bundle(folder)
        with described(folder) as body:
            cut_by = body.get("cut_by")
    except CleaveError:
        return False
    if (made_from.blake3, made, cut_by) != (origin.blake3, form, _cutter()):
        return False
    graph, mapping, borders = _joined(graph, mapping, form)
    return _holds(folder, render.render(plan(graph, platform, mapping, borders).plan, form.target))


def _holds(folder: Path, texts: dict[str, str]) -> bool:
    """Whether a bundle has all files that it lists, and among them these, as they are; segments are not read."""
    try:
        listed = _listed(folder)
        there = not _gone(folder, listed)
        return there and all(listed.get(n) == text_hash(text) == file_hash(folder / n) for n, text in texts.items())
    except (CleaveError, OSError):
        return False


def _listed(folder: Path) -> dict[str, str]:
    """Hashes of the files of a bundle, by name."""
    with described(folder) as body:
        return dict(body["files"])


def _gone(folder: Path, listed: Iterable[str]) -> list[str]:
    return [name for name in listed if not (folder / name).is_file()]


def check_complete(bundle: Path) -> None:
    """``CleaveError`` where the folder is no bundle, or lacks files that it had."""
    read_bundle(bundle)
    if gone := _gone(bundle, _listed(bundle)):
        more = f", and {len(gone) - 1} more of its files" if len(gone) > 1 else ""
        raise CleaveError(f"{bundle}: {gone[0]} is gone{more}; make it again with dse generate")


@cache
def _cutter() -> str:
    """A hash of what reads networks and cuts them: segments of another need not be the same."""
    root = Path(__file__).parents[1]
    files = (file for part in ("codegen", "model/network", "model/mappings") for file in (root / part).glob("*.py"))
    return text_hash("".join(file.read_text(encoding="utf-8") for file in sorted(files)))


def _joined(graph: Graph, mapping: Mapping, form: Form) -> tuple[Graph, Mapping, set[int]]:
    """What is lowered, and its borders: where parts are gathered, with the layers that do it."""
    names = [graph.layers[index].name for index in form.borders]
    if form.join == GATHER:
        graph, mapping = gathered(graph, mapping)
    return graph, mapping, {graph.by_name[name].index for name in names}


def _write_segments(pool: Executor, folder: Path, graph: Graph, planned: Planned, apart: bool) -> dict[str, str]:
    """Cut all segments; returns the hashes of their files."""

    def write(run: Run) -> dict[str, str]:
        path = folder / run.file
        path.parent.mkdir(exist_ok=True)
        files = segment(graph, planned, run).save(path, apart)
        return {str(file.relative_to(folder)): file_hash(file) for file in files}

    written = pool.map(write, [run for rank in planned.plan.ranks for run in rank.runs])
    return {name: digest for files in written for name, digest in files.items()}


def read_bundle(bundle: Path) -> tuple[Source, Form]:
    """What a bundle was made from, and how. ``CleaveError`` where the folder is no bundle."""
    with described(bundle) as body:
        cnn = body["cnn"]
        if body["format"] != FORMAT or body["version"] != VERSION:
            raise CleaveError(
                f"{bundle}/bundle.json: is no {FORMAT} of version {VERSION}; make the bundle again with dse generate"
            )
        shapes = {name: tuple(shape) for name, shape in cnn["shapes"].items()}
        given = {name: body[name] for name in asdict(PLAIN) if name in body}
        form = Form(**{**given, "borders": tuple(given.get("borders", ())), "note": dict(given.get("note", {}))})
        return Source(Path(cnn["path"]), cnn["folded"], shapes, cnn["blake3"]), form


def read_source(bundle: Path) -> Source:
    """The first of what ``read_bundle`` reads."""
    return read_bundle(bundle)[0]


def check_source(bundle: Path, cnn: Path | None = None) -> Path:
    """The file of the whole model that the bundle must equal, or ``CleaveError`` where it is gone or has changed."""
    origin = read_source(bundle)
    path = cnn or origin.path
    if not path.is_file():
        raise CleaveError(f"{bundle}: was made from {path}, which is not there; say where it is with --cnn FILE")
    if model_hash(path) != origin.blake3:
        raise CleaveError(f"{bundle}: {path} is not the model that it was made from (another hash); generate it again")
    return path


def model_hash(path: Path) -> str:
    """Hash of a model file and of its external data, in order of first mention."""
    try:
        tensors = wire.scan(path).graph.initializer
    except DecodeError as error:
        raise CleaveError(f"{path}: is no ONNX model ({error})") from error
    external = {e.value: None for t in tensors for e in t.external_data if e.key == "location"}
    return files_hash([path, *(path.parent / name for name in external if name != path.name)])
