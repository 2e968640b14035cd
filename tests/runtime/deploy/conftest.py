"""Fixtures of deployment: SSH servers, and a bundle with a rank on each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.bundle import source, write_bundle
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from model.network.load import load
from tests.runtime.deploy.sshd import Server, standing
from tests.tiny_cnn import network, node, save, weight

NAMES = ["a", "b", "c"]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Three SSH servers; skips where there is no sshd."""
    with standing(tmp_path_factory.mktemp("sshds"), NAMES) as found:
        yield found


@pytest.fixture
def sshds(servers: list[Server]) -> list[Server]:
    """The same, their homes empty."""
    for server in servers:
        shutil.rmtree(server.home)
        server.home.mkdir()
    return servers


PLATFORM = "a, slots=0\nb, slots=0\nc, slots=0\n"


def make_bundle(folder: Path, platform: str = PLATFORM, last: int = 3) -> Path:
    """A bundle of three dense layers, a host each: 1 MB, 4 MB and 40 kB of weights. last: seed of the third's"""
    nodes = [node("Gemm", [a, w], [b], b) for a, w, b in (("x", "u", "p"), ("p", "v", "q"), ("q", "w", "y"))]
    weights = {"u": weight(256, 1024), "v": weight(1024, 1024, seed=2) / 32, "w": weight(1024, 10, seed=last)}
    path = save(folder, network(nodes, {"x": (1, 256)}, ["y"], weights), "cnn.onnx")
    graph, cluster = load(path), Platform.parse(platform, "three.txt")
    devices = len(cluster.devices)
    mapping = Mapping.whole(graph, [i % devices for i in range(len(graph.layers))])
    write_bundle(graph, cluster, mapping, source(graph, False, {}), folder / "bundle", force=True)
    return folder / "bundle"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path)
