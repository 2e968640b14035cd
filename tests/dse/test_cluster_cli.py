"""A lost host, AutoDiCE's files and a user's frames, on a cluster in a box."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from codegen.bundle import source, write_bundle
from codegen.verify import run_whole
from dse.cli.access import without
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from model.network.load import load
from runtime.deploy.target import DeployError
from tests.cluster import Cluster
from tests.command import SMALL, done, dse, files
from tests.tiny_cnn import network, node, save, weight


def words(testbed: Cluster) -> list[object]:
    """How to get to the hosts, with this machine's Python on them."""
    return ["--key", testbed.key, "--known-hosts", testbed.known_hosts, "--python", testbed.testbed.python]


TWICE = ("--frames", 2, "--warmup", 1)
"""So few frames are timed."""


def network_of_two(folder: Path) -> Path:
    """Convolutions, the second split by AutoDiCE's users, and a large dense layer: memory wants several devices."""
    nodes = [
        node("Conv", ["x", "u"], ["conv1"], "conv1", pads=[1, 1, 1, 1]),
        node("Relu", ["conv1"], ["relu1"], "relu1"),
        node("Conv", ["relu1", "v"], ["conv2"], "conv2", strides=[4, 4]),
        node("Flatten", ["conv2"], ["flat"], "flat"),
        node("Gemm", ["flat", "w"], ["dense"], "dense"),
        node("Gemm", ["dense", "z"], ["y"], "last"),
    ]
    weights = {"u": weight(16, 3, 3, 3) / 3, "v": weight(32, 16, 4, 4) / 16}
    weights |= {"w": weight(2048, 1024) / 32, "z": weight(1024, 512) / 32}
    return save(folder, network(nodes, {"x": (1, 3, 32, 32)}, ["y"], weights), "cnn.onnx")


@contextmanager
def pulled(testbed: Cluster, host: str) -> Iterator[None]:
    """A host that is gone while the block lasts."""
    testbed.pull(host)
    try:
        yield
    finally:
        testbed.plug(host)


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_a_run_goes_on_without_a_host_that_is_lost(
    testbed: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done("run", "--cnn", network_of_two(tmp_path), "--platform", testbed.platform, "--out", "run", *SMALL)
    hosts = [rank["host"] for rank in json.loads(Path("run/best-memory/plan.json").read_text())["ranks"]]
    assert len(hosts) > 1, "the best in memory takes several hosts"
    lost = hosts[-1]
    how = ["bench", "run/best-memory", "--platform", testbed.platform, *words(testbed), *TWICE]
    with pulled(testbed, lost):
        said = dse(*how)
        assert said.code == 2
        assert said.sentences[0].startswith(f"{lost}: does not answer at ")
        assert said.sentences[-1] == f"to go on without {lost}, add --exclude {lost} --replan"
        body = json.loads(done(*how, "--exclude", lost, "--replan", "--json"))
    assert body["verification"]["passed"]
    assert body["bundle"] == f"run/best-memory-without-{lost}"
    assert (body["replanned"]["objective"], body["replanned"]["without"]) == ("memory_bytes", [lost])
    assert lost not in {host["host"] for host in body["hosts"]} | {r["device"].split("_")[0] for r in body["ranks"]}


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_autodices_files_are_run_by_one_command(
    testbed: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cnn = network_of_two(tmp_path)
    lines = [f"{host}:{testbed.testbed.address(host)}, user=cleave" for host in testbed.hosts[:3:2]]
    Path("platform.txt").write_text("\n".join(lines) + "\n")
    mapping = {"pi0": ["conv1", "relu1", "conv2"], "pi2_cpu0": ["conv2", "flat", "dense", "last"]}
    Path("mapping.json").write_text(json.dumps(mapping))
    Path("horizontal.json").write_text(json.dumps({"conv2": ["lop", [12, 65535], ["pi0", "pi2_cpu0"]]}))
    how = ["new", "--cnn", cnn, "--platform", "platform.txt", "--mapping", "mapping.json"]
    how += ["--horizontal", "horizontal.json", *words(testbed)]
    said = done("bench", *how, *TWICE)
    assert said.startswith("wrote new\n")
    assert said.splitlines()[-1] == "new: gives the whole model's answer (3 frames, tolerance 0.0001)"
    again = done("deploy", *how)
    assert again.startswith("new is there already, made of the same\n")
    assert again.count("sent 0 files, 0.00 MB") == 2


@pytest.mark.cluster
@pytest.mark.usefixtures("hurried")
def test_frames_go_to_the_hosts_and_their_answers_come_back(
    testbed: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cnn = network_of_two(tmp_path)
    graph = load(cnn)
    platform, mapping = Platform.from_file(testbed.platform), Mapping.whole(graph, [0, 0, 1, 1, 2, 0])
    write_bundle(graph, platform, mapping, source(graph, False, {}), Path("b"), False)
    frames = np.random.default_rng(0).standard_normal((5, 1, 3, 32, 32)).astype(np.float32)
    np.save("frames.npy", frames)
    how = ["infer", "b", "--input", "frames.npy", "--platform", testbed.platform, *words(testbed)]
    said = done(*how, "--output", "answers.npz")
    assert said.startswith("output 'y': float32 (5, 1, 512)\nanswers.npz: 5 frames in ")
    wanted = run_whole(cnn, [{"x": frame} for frame in frames])
    with np.load("answers.npz") as found:
        np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-4, atol=1e-5)
    lost = testbed.hosts[1]
    before = files(tmp_path)
    with pulled(testbed, lost):
        said = dse(*how, "--output", "more.npz")
    assert (said.code, files(tmp_path)) == (2, before)
    (sentence,) = said.sentences
    assert sentence.startswith(f"{lost}: does not answer at ")


@pytest.mark.parametrize(
    ("failed", "sentences"),
    [
        ({"a": ["is off"]}, ["to go on without a, add --exclude a --replan"]),
        ({"a": ["is off"], "b": ["is off"]}, ["to go on without a, b, add --exclude a --exclude b --replan"]),
        ({"a": ["?"], "b": ["?"], "c": ["?"]}, []),
        ({"head": ["is off"]}, []),
    ],
)
def test_hosts_that_failed_alone_can_be_done_without(failed: dict[str, list[str]], sentences: list[str]) -> None:
    assert without({"a", "b", "c"}, DeployError(failed)) == sentences
