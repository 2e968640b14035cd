"""Fit the shipped Jetson Xavier NX coefficients to Table 2 of the thesis, and print what they give.

    python -m tests.reference.table2 [--write]

Table 2 (hybrid CNN partitioning, 2023) has three networks on one 6-core CPU: latency, energy and peak memory. Three
figures fix three unknowns each, so the fit is exact for these networks and says nothing about any other:

* time: the rates of Winograd convolutions, of fully connected layers, and of everything that touches elements;
* energy: the power drawn in convolutions, in fully connected layers, and in the rest;
* memory: resident bytes a byte of weights, a byte of activations, and of a rank that does nothing.

What three figures cannot fix is assumed, and written down as assumed: ``IM2COL``, ``OVERHEAD_S``, and the whole GPU.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from codegen import zoo
from model.cluster import coefficients
from model.cluster.platform import Platform
from model.cost.ledger import ACTIVATIONS
from model.cost.priced import Priced, priced
from model.mappings.mapping import Mapping
from model.network import layer_kinds
from model.network.graph import Graph
from model.network.load import load

TABLE2 = {"alexnet": (28.3e-3, 0.352, 152.746e6), "vgg16": (122.46e-3, 1.959, 446.852e6)}
TABLE2["densenet121"] = (138.68e-3, 1.026, 95.969e6)
"""Network: seconds, joules, bytes (MB read as 10**6)."""

IM2COL = 3.0
"""An im2col convolution takes so many times longer a MAC than a Winograd one (which does 2.25 to 4 times fewer)."""
OVERHEAD_S = 5e-6
FREQUENCY_HZ = 1.4e9
"""Six Carmel cores at 1.4 GHz: the 15 W, 6-core mode of the board."""

GPU = {"speed": 3.0, "fc_speed": 1.5, "overhead_s": 30e-6, "power": 1.2, "bias_bytes": 250e6}
"""Assumed for the Volta GPU against the CPU; the thesis gives no figure for a network on the GPU alone."""

GROUP = {"conv_winograd": 0, "conv_im2col": 0, "fc": 1}
OUT = Path(__file__).parents[2] / "platforms" / "coefficients" / "jetson-xavier-nx.json"
PROVENANCE = (
    "Not calibrated: not measured on any board. The CPU's figures are fitted so that AlexNet, VGG-16 and DenseNet-121, "
    "unpartitioned on one 6-core CPU, give Table 2 of the thesis on hybrid CNN partitioning (2023). Assumed: im2col "
    "convolutions 3 times slower a MAC than Winograd ones, 5 us a layer, communication at the power of small layers, "
    "and every figure of the GPU (3 times the CPU's speed, 1.5 times in fully connected layers, 30 us a layer, 1.2 "
    "times its power, 250 MB for its libraries). Run a calibration before trusting a number."
)


def work(graph: Graph) -> tuple[np.ndarray, float]:
    """MACs of convolutions (im2col weighted), of fully connected layers, of the rest; and the fixed seconds."""
    row = np.zeros(3)
    for layer in graph.layers:
        kind = layer_kinds.kind(graph, layer)
        row[GROUP.get(kind, 2)] += layer.macs * (IM2COL if kind == "conv_im2col" else 1.0)
    return row, OVERHEAD_S * len(graph.layers)


def fit(graphs: dict[str, Graph]) -> dict:
    """The coefficient file's body."""
    works = [work(graph) for graph in graphs.values()]
    macs, fixed = np.array([w for w, _ in works]), np.array([f for _, f in works])
    table = np.array([TABLE2[name] for name in graphs])
    seconds = np.linalg.solve(macs, table[:, 0] - fixed)
    layers = np.array([_seconds_by_group(g, seconds) for g in graphs.values()])
    watts = np.linalg.solve(layers, table[:, 1])
    resident = np.array([[_weights(g), _activations(g), 1.0] for g in graphs.values()])
    memory = np.linalg.solve(resident, table[:, 2])
    if min(seconds.min(), watts.min(), memory.min()) <= 0:
        raise SystemExit(f"the fit has a negative coefficient: {seconds}, {watts}, {memory}")
    return _body(seconds, watts, memory)


def _seconds_by_group(graph: Graph, seconds: np.ndarray) -> np.ndarray:
    row = np.zeros(3)
    for layer in graph.layers:
        kind = layer_kinds.kind(graph, layer)
        weight = IM2COL if kind == "conv_im2col" else 1.0
        row[GROUP.get(kind, 2)] += layer.macs * weight * seconds[GROUP.get(kind, 2)] + OVERHEAD_S
    return row


def _weights(graph: Graph) -> float:
    return float(sum(graph.weight_bytes(layer) for layer in graph.layers))


def _activations(graph: Graph) -> float:
    """Peak of the activations alive, which does not depend on any coefficient."""
    return float(_priced(graph, Platform.parse("nx, arm, slots=0-5", "nx.txt")).account[0, ACTIVATIONS])


def _priced(graph: Graph, platform: Platform) -> Priced:
    return priced(graph, platform, Mapping.whole(graph, [0] * len(graph.layers)))


def _body(seconds: np.ndarray, watts: np.ndarray, memory: np.ndarray) -> dict:
    def unit(speed: float, fc: float, overhead: float, power: float, bias: float) -> dict:
        layers = {}
        for kind in layer_kinds.KINDS:
            group = GROUP.get(kind, 2)
            per_mac = seconds[group] * (IM2COL if kind == "conv_im2col" else 1.0) / (fc if kind == "fc" else speed)
            layers[kind] = {
                "macs_per_cycle": float(f"{1 / (FREQUENCY_HZ * per_mac):.6g}"),
                "overhead_s": overhead,
                "power_w": float(f"{watts[group] * power:.6g}"),
            }
        return {
            "frequency_hz": FREQUENCY_HZ,
            "threads": 6,
            "layers": layers,
            "communication_w": float(f"{watts[2] * power:.6g}"),
            "memory_weights": float(f"{memory[0]:.6g}"),
            "memory_activations": float(f"{memory[1]:.6g}"),
            "memory_buffers": 1.0,
            "memory_bias_bytes": float(f"{bias:.6g}"),
        }

    gpu = unit(GPU["speed"], GPU["fc_speed"], GPU["overhead_s"], GPU["power"], memory[2] + GPU["bias_bytes"])
    return {
        "format": coefficients.FORMAT,
        "version": coefficients.VERSION,
        "name": "jetson-xavier-nx",
        "calibrated": False,
        "provenance": PROVENANCE,
        "units": {"cpu": unit(1.0, 1.0, OVERHEAD_S, 1.0, memory[2]), "gpu": gpu},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {OUT.name}")
    arguments = parser.parse_args()
    graphs = {name: load(zoo.cached(name)) for name in TABLE2}
    if arguments.write:
        OUT.write_text(json.dumps(fit(graphs), indent=1) + "\n")
    jetson = Platform.parse("nx, arm, slots=0-5, coefficients=jetson-xavier-nx", "nx.txt")
    print(f"{'':12} {'latency ms':>18} {'energy J':>16} {'memory MB':>18}   (model / Table 2)")
    for name, graph in graphs.items():
        found = _priced(graph, jetson)
        t, e, m = TABLE2[name]
        print(
            f"{name:12} {found.latency_s * 1e3:8.2f} / {t * 1e3:7.2f} {found.energy_j:7.3f} / {e:6.3f}"
            f" {found.memory_bytes / 1e6:8.1f} / {m / 1e6:7.1f}"
        )


if __name__ == "__main__":
    main()
