"""Bundles: complete, the same every time, and true to the model that they were made from."""

from __future__ import annotations

import json
import random
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from blake3 import blake3

from codegen import slicing
from codegen.bundle import (
    JOINS,
    Form,
    check_source,
    is_there,
    model_hash,
    read_bundle,
    read_source,
    source,
    write_bundle,
)
from codegen.render import DEVICE_FILES
from codegen.verify import verify
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping, Shard
from model.network.graph import Graph
from model.network.load import load
from runtime.errors import CleaveError
from runtime.hashing import file_hash
from runtime.launch import run
from runtime.options import Options
from runtime.plan import Plan
from tests.tiny_cnn import branches, graph_of, network, node, platform, random_mapping, save, six_layers, weight

DEVICES = 3
CLUSTER = platform(DEVICES)


def write(graph: Graph, out: Path, seed: int = 0, force: bool = False, folded: bool = False) -> Plan:
    mapping = random_mapping(random.Random(seed), graph, DEVICES)
    return write_bundle(graph, CLUSTER, mapping, source(graph, folded, {}), out, force)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_of(tmp_path, branches())


def test_a_bundle_has_all_that_ranks_need(graph: Graph, tmp_path: Path) -> None:
    plan = write(graph, tmp_path / "out")
    expected = {"plan.json", "mapping.json", "bundle.json", "main.py", "rankfile", "hostfile"}
    expected |= {"sender.json", "receiver.json", *[f"runtime/{name}" for name in DEVICE_FILES]}
    for rank in plan.ranks:
        expected |= {f"rank_{rank.rank:02d}.py", *[run.file for run in rank.runs]}
    assert set(contents(tmp_path / "out")) == expected
    assert Plan.from_json((tmp_path / "out" / "plan.json").read_text()) == plan


def test_a_bundle_computes_what_its_model_does(graph: Graph, tmp_path: Path) -> None:
    for seed in range(3):
        write(graph, tmp_path / "out", seed, force=True)
        assert verify(tmp_path / "out", check_source(tmp_path / "out"), frames=2).passed


def test_the_mapping_can_be_read_again(graph: Graph, tmp_path: Path) -> None:
    write(graph, tmp_path / "out", 5)
    text = (tmp_path / "out" / "mapping.json").read_text()
    assert Mapping.from_json(text, graph, CLUSTER) == random_mapping(random.Random(5), graph, DEVICES)


def test_every_file_stands_in_the_description_with_its_hash(graph: Graph, tmp_path: Path) -> None:
    write(graph, tmp_path / "out")
    body = json.loads((tmp_path / "out" / "bundle.json").read_text())
    files = {name: blake3(data).hexdigest() for name, data in contents(tmp_path / "out").items()}
    del files["bundle.json"]
    assert body["files"] == files
    assert (body["format"], body["version"], body["platform"]) == ("cleave-bundle", 1, "tiny")


def test_two_bundles_of_one_mapping_are_the_same_byte_for_byte(graph: Graph, tmp_path: Path) -> None:
    write(graph, tmp_path / "a")
    write(load(graph.path), tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_another_mapping_makes_another_bundle(graph: Graph, tmp_path: Path) -> None:
    write(graph, tmp_path / "a", 0)
    write(graph, tmp_path / "b", 1)
    assert contents(tmp_path / "a") != contents(tmp_path / "b")


def test_a_mapping_that_does_not_check_makes_no_bundle(graph: Graph, tmp_path: Path) -> None:
    mapping = Mapping.of(Mapping.whole(graph, [0] * len(graph.layers)).shards[1:])
    with pytest.raises(CleaveError, match=r"^mapping: layer 'stem': is on no device$"):
        write_bundle(graph, CLUSTER, mapping, source(graph, False, {}), tmp_path / "out", force=False)
    assert not (tmp_path / "out").exists()


def test_weights_that_vanish_while_a_bundle_is_written_leave_nothing(tmp_path: Path) -> None:
    """The graph is loaded, then its external data goes: halfway through the segments, the error comes."""
    (tmp_path / "model").mkdir()
    model = six_layers()
    onnx.save(model, tmp_path / "model/m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    graph = load(tmp_path / "model" / "m.onnx")
    origin = source(graph, False, {})
    (tmp_path / "model" / "m.bin").unlink()
    mapping = Mapping.whole(graph, [0] * len(graph.layers))
    with pytest.raises(CleaveError, match=r"m\.bin: was changed or moved after it was read"):
        write_bundle(graph, CLUSTER, mapping, origin, tmp_path / "results" / "out", force=False)
    assert list((tmp_path / "results").iterdir()) == []


def test_force_replaces_a_bundle(graph: Graph, tmp_path: Path) -> None:
    write(graph, tmp_path / "out", 0)
    with pytest.raises(CleaveError, match="exists already"):
        write(graph, tmp_path / "out", 1)
    write(graph, tmp_path / "other", 1)
    write(graph, tmp_path / "out", 1, force=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "other")


def test_large_segments_keep_their_weights_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above 2 GB, with the limit brought down."""
    monkeypatch.setattr(slicing, "INLINE_BYTES", 2000)
    graph = graph_of(tmp_path, six_layers())
    mapping = Mapping.whole(graph, [0, 0, 1, 1, 1, 1])
    write_bundle(graph, CLUSTER, mapping, source(graph, False, {}), tmp_path / "out", force=False)
    beside = [name for name in contents(tmp_path / "out") if name.endswith(".onnx.data")]
    assert beside == ["rank01/segment000.onnx.data"]
    assert set(beside) <= set(json.loads((tmp_path / "out" / "bundle.json").read_text())["files"])
    assert verify(tmp_path / "out", graph.path, frames=1).passed


# --- the model it was made from ---


def test_what_a_bundle_was_made_from_can_be_read(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, network([node("Relu", ["x"], ["y"])], {"x": ("N", 4)}, ["y"]), shapes={"x": (2, 4)})
    origin = source(graph, True, {"x": (2, 4)})
    write_bundle(graph, CLUSTER, Mapping.whole(graph, [0]), origin, tmp_path / "out", force=False)
    assert read_source(tmp_path / "out") == origin
    assert read_source(tmp_path / "out").blake3 == origin.blake3
    assert origin.path.is_absolute()
    assert (origin.folded, origin.shapes) == (True, {"x": (2, 4)})


def test_an_unchanged_model_is_found_wherever_it_is(graph: Graph, tmp_path: Path) -> None:
    write(graph, tmp_path / "out")
    assert check_source(tmp_path / "out") == graph.path
    moved = graph.path.rename(tmp_path / "moved.onnx")
    assert check_source(tmp_path / "out", moved) == moved
    with pytest.raises(
        CleaveError, match=r"was made from .*tiny\.onnx, which is not there; say where it is with --cnn"
    ):
        check_source(tmp_path / "out")


def test_a_changed_model_is_found_out(graph: Graph, tmp_path: Path) -> None:
    write(graph, tmp_path / "out")
    model = onnx.load(graph.path)
    model.graph.initializer[0].raw_data = np.zeros(8 * 27, np.float32).tobytes()
    save(tmp_path, model)
    with pytest.raises(CleaveError, match="is not the model that it was made from"):
        check_source(tmp_path / "out")


@pytest.mark.parametrize("how", ["written anew", "moved"])
def test_a_model_that_changes_between_reading_and_cutting_is_told(how: str, graph: Graph, tmp_path: Path) -> None:
    """Its weights lie in the file: those of another training would come into the segments."""
    if how == "moved":
        graph.path.rename(tmp_path / "moved.onnx")
    else:
        save(tmp_path, six_layers())
    with pytest.raises(CleaveError, match=r"tiny\.onnx: was changed or moved after it was read; run the same command"):
        write(graph, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def external(folder: Path) -> Path:
    folder.mkdir()
    model = network([node("Conv", ["x", "w"], ["y"])], {"x": (1, 3, 4)}, ["y"], {"w": weight(6, 3, 1)})
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    return folder / "m.onnx"


def test_external_weights_that_change_between_reading_and_cutting_are_told(tmp_path: Path) -> None:
    graph = load(external(tmp_path / "m"))
    (file,) = graph.external
    file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(CleaveError, match=f"{file.name}: was changed or moved after it was read"):
        write(graph, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_changed_external_weights_are_found_out(tmp_path: Path) -> None:
    graph = load(external(tmp_path / "model"))
    write_bundle(graph, CLUSTER, Mapping.whole(graph, [1]), source(graph, False, {}), tmp_path / "out", force=False)
    assert check_source(tmp_path / "out") == graph.path
    data = bytearray((tmp_path / "model" / "m.bin").read_bytes())
    data[5] ^= 1
    (tmp_path / "model" / "m.bin").write_bytes(data)
    with pytest.raises(CleaveError, match="is not the model that it was made from"):
        check_source(tmp_path / "out")


def test_weights_may_lie_beside_a_link_to_the_model(tmp_path: Path) -> None:
    path = external(tmp_path / "model")
    path.symlink_to(path.rename(tmp_path / "elsewhere.onnx"))
    graph = load(path)
    write_bundle(graph, CLUSTER, Mapping.whole(graph, [1]), source(graph, False, {}), tmp_path / "out", force=False)
    assert check_source(tmp_path / "out") == path
    assert verify(tmp_path / "out", path, frames=1, communicator="inprocess").passed


def test_a_hash_depends_on_nothing_but_the_content(tmp_path: Path) -> None:
    first, second = external(tmp_path / "a"), external(tmp_path / "b")
    assert model_hash(first) == model_hash(second)
    assert model_hash(first) != model_hash(save(tmp_path, six_layers()))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"format": "cleave-bundle", "version": 1, "cnn": 3}'])
def test_a_folder_with_another_description_is_no_bundle(text: str, tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text(text)
    with pytest.raises(CleaveError, match=r"bundle\.json: is no "):
        read_source(tmp_path)


def test_a_folder_without_a_description_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match=r"is no bundle \(no bundle\.json in it\); make one with dse generate"):
        read_source(tmp_path)


def test_segments_of_one_layer_on_many_ranks_are_named_in_order(tmp_path: Path) -> None:
    graph = graph_of(
        tmp_path, network([node("Conv", ["x", "w"], ["y"])], {"x": (1, 3, 4)}, ["y"], {"w": weight(24, 3, 1)})
    )
    cluster = platform(12)
    mapping = Mapping.of(Shard(0, 2 * i, 2 * i + 2, 11 - i) for i in range(12))
    write_bundle(graph, cluster, mapping, source(graph, False, {}), tmp_path / "out", force=False)
    assert (tmp_path / "out" / "rank_11.py").is_file()
    assert (tmp_path / "out" / "rank11" / "segment000.onnx").is_file()
    assert verify(tmp_path / "out", graph.path, frames=1).passed


def test_threads_cores_provider_and_arena_are_those_of_the_platform_file(tmp_path: Path) -> None:
    """From the file to the plan, the program and the rankfile."""
    graph = load(save(tmp_path, six_layers()))
    lines = ("pi, slots=2-3, threads=3, arena=off", "nx, gpu=V (CUDA), provider=TensorrtExecutionProvider")
    cluster = Platform.parse("\n".join(lines), "two.txt")
    mapping = Mapping.whole(graph, [0, 0, 0, 1, 1, 1])
    made = write_bundle(graph, cluster, mapping, source(graph, False, {}), tmp_path / "bundle", force=False)
    first, second = made.ranks
    assert (first.threads, first.cores, first.provider, first.arena) == (3, (2, 3), "CPUExecutionProvider", False)
    assert (second.threads, second.cores, second.provider, second.arena) == (1, (), "TensorrtExecutionProvider", True)
    places = [runpy.run_path(str(tmp_path / f"bundle/rank_0{r.rank}.py"))["PLACE"] for r in made.ranks]
    assert [(p.threads, p.provider, p.arena) for p in places] == [(r.threads, r.provider, r.arena) for r in made.ranks]
    assert (tmp_path / "bundle/rankfile").read_text().splitlines() == ["rank 0=pi slots=2,3", "rank 1=nx"]


@pytest.mark.mpi
@pytest.mark.parametrize("options", [Options(3), Options(3, barrier=True), Options(6, stream=True)])
def test_programs_need_no_buffers_of_mpi(options: Options, tmp_path: Path) -> None:
    """A synchronous send ends when its receive has begun: no message waits in a buffer of MPI's."""
    graph = graph_of(tmp_path, branches())
    for number in range(3):
        bundle = tmp_path / f"bundle{number}"
        mapping = random_mapping(random.Random(number), graph, 4, tiles=True)
        write_bundle(graph, platform(4), mapping, source(graph, False, {}), bundle, force=False)
        assert "Ssend_init" in (bundle / "runtime" / "mpi.py").read_text()
        run(bundle, options, timeout_s=60)
        assert verify(bundle, graph.path, frames=2).passed


def older(bundle: Path, name: str) -> None:
    """Have a file that other programs have made, with the hash of that."""
    (bundle / name).write_text((bundle / name).read_text() + "# as it was\n")
    body = json.loads((bundle / "bundle.json").read_text())
    body["files"][name] = file_hash(bundle / name)
    (bundle / "bundle.json").write_text(json.dumps(body))


@pytest.mark.parametrize(
    "change",
    [
        lambda bundle: older(bundle, "rank_00.py"),
        lambda bundle: older(bundle, "runtime/loop.py"),
        lambda bundle: (bundle / "rank_00.py").write_text("# mine\n"),
        lambda bundle: (bundle / "rank_00.py").unlink(),
        lambda bundle: next(bundle.glob("rank0*/segment*")).unlink(),
        lambda bundle: (bundle / "bundle.json").write_text("{}"),
        lambda bundle: (bundle / "bundle.json").write_text(
            (bundle / "bundle.json").read_text().replace('"cut_by": "', '"cut_by": "0')
        ),
    ],
    ids=[
        "older program",
        "older runtime",
        "changed by hand",
        "no program",
        "no segment",
        "no description",
        "cut before",
    ],
)
def test_what_is_there_is_just_what_would_be_made(
    change: Callable[[Path], object], graph: Graph, tmp_path: Path
) -> None:
    out, mapping, origin = tmp_path / "out", random_mapping(random.Random(0), graph, DEVICES), source(graph, False, {})
    assert not is_there(out, graph, CLUSTER, mapping, origin)
    write_bundle(graph, CLUSTER, mapping, origin, out, False)
    assert is_there(out, graph, CLUSTER, mapping, origin)
    change(out)
    assert not is_there(out, graph, CLUSTER, mapping, origin)


@pytest.mark.parametrize("join", JOINS)
def test_borders_are_part_of_what_a_bundle_is_made_from(join: str, graph: Graph, tmp_path: Path) -> None:
    mapping, origin = random_mapping(random.Random(0), graph, DEVICES), source(graph, False, {})
    form = Form(join, borders=(2, 3))
    made = write_bundle(graph, CLUSTER, mapping, origin, tmp_path / "out", False, form)
    assert read_bundle(tmp_path / "out")[1] == form
    assert is_there(tmp_path / "out", graph, CLUSTER, mapping, origin, form)
    assert not is_there(tmp_path / "out", graph, CLUSTER, mapping, origin, Form(join))
    begun = {run.parts[0].layer for rank in made.ranks for run in rank.runs}
    assert {graph.layers[i].name for i in form.borders} <= begun
    assert verify(tmp_path / "out", graph.path, frames=1).passed
