"""A user's own frames: run, kept, compared and timed, each as a command; and what is wrong with them in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from codegen.bundle import source, write_bundle
from codegen.verify import run_whole
from model.mappings.mapping import Mapping
from model.network.load import load
from tests.command import done, dse, files
from tests.tiny_cnn import network, node, platform, save, weight

NORMAL = ("--mean", "100,110,120", "--scale", "0.01,0.02,0.03", "--channels", "bgr")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of two ranks for images of 8 x 6 pixels, and two images, one of them of another size."""
    monkeypatch.chdir(tmp_path)
    nodes = [node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["y"], "relu")]
    path = save(tmp_path, network(nodes, {"x": (1, 3, 6, 8)}, ["y"], {"w": weight(4, 3, 3, 3)}), "cnn.onnx")
    graph = load(path)
    write_bundle(graph, platform(2), Mapping.whole(graph, [0, 1]), source(graph, False, {}), tmp_path / "b", False)
    (tmp_path / "images").mkdir()
    random = np.random.default_rng(0)
    for name, size in (("frame10.png", (6, 8)), ("frame9.png", (12, 9))):
        Image.fromarray(random.integers(0, 256, (*size, 3)).astype(np.uint8)).save(tmp_path / "images" / name)
    return tmp_path


def by_hand(name: str) -> np.ndarray:
    """An image as ``NORMAL`` says."""
    with Image.open(Path("images") / name) as image:
        pixels = np.asarray(image.resize((8, 6), Image.Resampling.BILINEAR), np.float32)[..., ::-1]
    values = (pixels - np.float32([100, 110, 120])) * np.float32([0.01, 0.02, 0.03])
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])


def refused(*words: object) -> str:
    """The one sentence of a command that must be refused and must not write."""
    before = files(Path())
    said = dse(*words)
    assert (said.code, said.out) == (2, ""), said
    assert files(Path()) == before
    (sentence,) = said.sentences
    return sentence


@pytest.mark.mpi
def test_images_go_in_and_the_whole_models_answers_come_out(here: Path) -> None:
    said = done("infer", "b", "--input", "images", "--output", "out.npz", *NORMAL)
    assert said.startswith("output 'y': float32 (2, 1, 4, 4, 6)\nout.npz: 2 frames in ")
    wanted = run_whole(here / "cnn.onnx", [{"x": by_hand(name)} for name in ("frame9.png", "frame10.png")])
    with np.load("out.npz") as found:
        assert found.files == ["y"]
        np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-4, atol=1e-5)
    assert np.abs(wanted["y"][0] - wanted["y"][1]).max() > 0.1


@pytest.mark.mpi
def test_every_kind_of_file_gives_the_same_answers() -> None:
    frames = np.stack([by_hand("frame9.png"), by_hand("frame10.png")])
    np.savez("in.npz", x=frames)
    np.save("in.npy", frames)
    Path("in.raw").write_bytes(frames.astype("<f4").tobytes())
    Path("folder").mkdir()
    np.save("folder/1.npy", frames[0])
    Path("folder/02.bin").write_bytes(frames[1].astype("<f4").tobytes())
    done("infer", "b", "--input", "images", "--output", "wanted.npz", *NORMAL)
    for name in ("in.npz", "in.npy", "in.raw", "folder"):
        body = json.loads(done("infer", "b", "--input", name, "--output", "out.npz", "--json", "--force"))
        assert (body["frames"], body["outputs"][0]["name"]) == (2, "y")
        with np.load("wanted.npz") as wanted, np.load("out.npz") as found:
            assert np.array_equal(found["y"], wanted["y"])


@pytest.mark.mpi
def test_verify_compares_on_the_users_frames_all_of_them() -> None:
    assert "(2 frames, " in done("verify", "b", "--input", "images", *NORMAL)
    body = json.loads(done("verify", "b", "--input", "images/frame9.png", "--frames", 4, "--json", *NORMAL))
    assert (body["passed"], body["frames"]) == (True, 4)


@pytest.mark.mpi
def test_bench_runs_on_the_users_frames() -> None:
    body = json.loads(done("bench", "b", "--input", "images", "--frames", 3, "--warmup", 1, "--json", *NORMAL))
    assert len(body["latencies_s"]) == 3


@pytest.mark.mpi
def test_bench_on_a_platform_that_is_this_machine_needs_no_ssh(here: Path) -> None:
    """And compares all of the user's frames."""
    (here / "p.txt").write_text("h0, address=localhost, slots=0\nh1, address=localhost, slots=0\n")
    done("generate", "--cnn", "cnn.onnx", "--platform", "p.txt", "--mapping", "b/mapping.json", "--out", "local")
    words = ("bench", "local", "--platform", "p.txt", "--input", "images", "--frames", 3, *NORMAL)
    body = json.loads(done(*words, "--json"))
    assert len(body["latencies_s"]) == 3
    assert (body["verification"]["passed"], body["verification"]["frames"]) == (True, 2)
    (here / "p.txt").write_text("h0, address=localhost, slots=0, arena=off\nh1, address=localhost, slots=0\n")
    said = done(*words)
    assert "output 'y': the same" in said
    assert "the platform file says something else now of h0_cpu0 (arena); generate the bundle again" in said


@pytest.mark.mpi
def test_what_was_measured_is_told_though_answers_cannot_be_compared(here: Path) -> None:
    """A frame that is not timed, and cannot be read when all are compared."""
    (here / "p.txt").write_text("h0, address=localhost, slots=0\nh1, address=localhost, slots=0\n")
    done("generate", "--cnn", "cnn.onnx", "--platform", "p.txt", "--mapping", "b/mapping.json", "--out", "local")
    (here / "images" / "frame11.png").write_bytes(b"no image")
    words = ("bench", "local", "--platform", "p.txt", "--input", "images", "--frames", 1, "--warmup", 1, *NORMAL)
    said = dse(*words, "--json")
    body = json.loads(said.out)
    assert (said.code, body["verification"], len(body["latencies_s"])) == (2, None, 1)
    assert "frame11.png" in said.sentences[-1]
    assert "verification" not in json.loads(done(*words, "--json", "--no-verify"))


@pytest.mark.mpi
def test_a_benchmark_compares_as_many_frames_as_count(here: Path) -> None:
    """Of an input with more of them; 20 at least."""
    (here / "p.txt").write_text("h0, address=localhost, slots=0\nh1, address=localhost, slots=0\n")
    done("generate", "--cnn", "cnn.onnx", "--platform", "p.txt", "--mapping", "b/mapping.json", "--out", "local")
    np.save("many.npy", np.random.default_rng(1).standard_normal((40, 1, 3, 6, 8)).astype(np.float32))
    for frames, compared in ((2, 20), (23, 23), (50, 40)):
        words = ("bench", "local", "--platform", "p.txt", "--input", "many.npy", "--frames", frames, "--json")
        assert json.loads(done(*words))["verification"]["frames"] == compared


@pytest.mark.mpi
def test_results_of_a_platform_that_is_this_machine(here: Path) -> None:
    (here / "p.txt").write_text("h0, address=localhost, slots=0\nh1, address=localhost, slots=0\n")
    done("generate", "--cnn", "cnn.onnx", "--platform", "p.txt", "--mapping", "b/mapping.json", "--out", "local")
    words = ("infer", "local", "--input", "images", *NORMAL)
    done(*words, "--output", "here.npz")
    body = json.loads(done(*words, "--output", "there.npz", "--platform", "p.txt", "--json"))
    assert (body["bundle"], body["frames"], body["output"]) == ("local", 2, "there.npz")
    with np.load("here.npz") as wanted, np.load("there.npz") as found:
        assert np.array_equal(found["y"], wanted["y"])


def test_ways_to_hosts_want_a_platform() -> None:
    words = ("infer", "b", "--input", "images", "--output", "o.npz", *NORMAL)
    assert refused(*words, "--head", "h0") == "--head: goes with --platform"


def test_answers_that_are_more_than_ranks_can_hand_in_are_refused() -> None:
    sentence = refused("infer", "b", "--input", "images", "--frames", 10_000_000, "--output", "out.npz", *NORMAL)
    assert sentence == (
        "the answers to 10000000 frames take 3.8 GB, and ranks can hand in 2 GB; take at most 5589674 frames at a time "
        "(--frames, or less of --input)"
    )


@pytest.mark.mpi
def test_a_frame_that_is_torn_ends_the_run_with_its_name(here: Path) -> None:
    """Its first bytes are right, so it is found when it is read."""
    path = here / "images" / "frame10.png"
    path.write_bytes(path.read_bytes()[:-60])
    for words in (("infer", "b", "--input", "images", "--output", "o.npz"), ("bench", "b", "--input", "images")):
        sentence = refused(*words)
        assert sentence.startswith("rank 0 of 2 on ")
        assert "images/frame10.png: is no whole image that Pillow can read: " in sentence


@pytest.mark.parametrize(
    "words", [("verify", "b"), ("bench", "b"), ("infer", "b", "--output", "o.npz")], ids=lambda words: words[0]
)
def test_what_does_not_fit_is_said_before_a_rank_starts(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", "/nowhere/python")  # no mpirun
    np.save("wrong.npy", np.zeros((2, 3), np.float32))
    wanted = "needed is float32 (frames, 1, 3, 6, 8)"
    assert refused(*words, "--input", "wrong.npy") == f"wrong.npy: is float32 (2, 3), {wanted}"
    assert refused(*words, "--input", "none") == "none: there is no such file or folder"
    given = (*words, "--input", "images")
    assert refused(*given, "--mean", "1,2") == "--mean has 2 numbers, the input 3 channels: give one or each"
    assert refused(*given, "--scale", "x").startswith("--scale: 'x' is not a number, or some between commas")
    assert refused(*given, "--channels", "rbg") == "--channels rbg: must be one of rgb, bgr"


def test_a_dry_run_looks_and_writes_nothing(here: Path) -> None:
    before = files(here)
    said = done("infer", "b", "--input", "images", "--output", "o.npz", "--dry-run")
    assert said == "dry run: 2 frames fit the network; would write o.npz\n"
    assert files(here) == before


def test_results_have_a_place_before_anything_runs(here: Path) -> None:
    words = ("infer", "b", "--input", "images", "--output")
    assert refused(*words, "o.txt") == "o.txt: results are written as .npz; give a name that ends so"
    assert refused(*words, "no/o.npz") == "no/o.npz: cannot be written: no is no folder that can be written to"
    (here / "o.npz").write_text("mine")
    assert refused(*words, "o.npz") == "o.npz: exists already; use --force to replace it, or choose another place"
