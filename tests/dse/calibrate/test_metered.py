"""Hosts with a meter are calibrated with what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dse.calibrate.command import SAMPLES
from dse.calibrate.samples import opened
from model.cluster import coefficients
from model.cluster.coefficients import UnitCost
from model.cluster.platform import Platform
from model.cost.priced import priced
from model.cost.samples import SEGMENT, Arrival, Footing, PartOf, Run, Sample
from model.cost.segment_time import Network
from model.fit.energy import metered
from model.mappings.mapping import Mapping
from model.network import layer_kinds
from model.network.load import load
from tests.command import done
from tests.dse.calibrate.test_calibrate import furnished
from tests.model.fit.test_fitting import DECLARED
from tests.tiny_cnn import graph_of, six_layers

WATTS = 5.0


@contextmanager
def logged(file: Path) -> Iterator[None]:
    """An external meter that always reads the same, while this lasts."""
    stop = threading.Event()

    def log() -> None:
        with file.open("w", buffering=1) as text:
            text.write("time_s,power_W\n")
            while not stop.wait(0.02):
                text.write(f"{time.time():.6f},{WATTS}\n")

    meter = threading.Thread(target=log)
    meter.start()
    try:
        yield
    finally:
        stop.set()
        meter.join()


@pytest.mark.mpi
def test_power_that_a_meter_reads_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    furnished(tmp_path)
    Path("p.txt").write_text(f"a, address=localhost, slots=0, meter=csv:{tmp_path}/power.csv\n")
    with logged(tmp_path / "power.csv"):
        done("calibrate", "--cnn", "six.onnx", "--platform", "p.txt", "--out", "out", "--budget", 0.1)
    with opened(Path("out", SAMPLES)) as store:
        assert all(run.ranks[0].energy_j for run in store.runs)
    unit = coefficients.load("out/a.json").unit("cpu")
    assert unit.idle_w is not None
    assert unit.idle_w <= WATTS * 1.01
    assert unit.layers["conv_winograd"].power_w == pytest.approx(WATTS, rel=0.1)
    graph = load(Path("six.onnx"))
    price = priced(graph, Platform.from_file("out/p.txt"), Mapping.whole(graph, [0] * len(graph.layers)))
    assert price.energy_j == pytest.approx(WATTS * price.latency_s, rel=0.1)


def test_an_energy_is_of_all_devices_of_a_host_and_of_what_crosses_its_border(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, six_layers())
    network, units = Network(graph), dict[str, UnitCost].fromkeys("abc", DECLARED)
    hosts = {"a": 0, "b": 0, "c": 2}
    ranks = [Footing(device, 0.0, 0.0, 0.0, 0.0, 1, 0, None, 0.0) for device in "bc"]
    told = Footing("a", 0.0, 0.0, 0.0, 0.0, 1, 0, None, 0.0, energy_j=3.0, energy_time_s=2.0)
    parts = [PartOf(layer, 1, 0, 1) for layer in range(3)]
    samples = [
        Sample(SEGMENT, d, "six", (part,), (s,)) for d, part, s in zip("abc", parts, (1.0, 2.0, 4.0), strict=True)
    ]
    arrivals = [Arrival("a", "b", 7, None, None), Arrival("b", "c", 20, None, None), Arrival("c", "a", 300, None, None)]
    run = Run("k", "a", "six", "python", "h", "w", "now", "first", "x", {}, (7.0,), (told, *ranks), tuple(samples),
              tuple(arrivals))  # fmt: skip
    ((device, found),) = metered(run, network, units, hosts)
    assert (device, found.energy_j, found.time_s) == ("a", 3.0, 2.0)
    assert (found.sent_bytes, found.received_bytes) == (20, 300)
    nothing = replace(run, ranks=(replace(told, energy_j=0.0), *ranks))
    assert not list(metered(nothing, network, units, hosts))
    kinds = [layer_kinds.kind(graph, layer) for layer in graph.layers]
    assert sum(found.busy_s.values()) == pytest.approx(3.0)
    assert found.busy_s[kinds[1]] >= 2.0
