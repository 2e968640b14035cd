"""Coefficients: what a layer costs on a unit, in JSON with units and provenance.

Time follows Eq. 4.7 of the thesis (hybrid CNN partitioning, 2023), ``time = MAC / (frequency * coefficient)``, with a
coefficient for each kind of layer and unit, two for convolutions (Winograd and im2col), and a fixed cost a layer.
Memory follows Eq. 4.9 with a coefficient of its own for weights, activations and message buffers. Energy follows
Eq. 4.10 with a power for each kind of layer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from model.graph import Graph, Layer
from model.macs import VIEWS
from runtime.errors import CleaveError

FORMAT = "cleave-coefficients"
VERSION = 1

KINDS = (
    *("conv_winograd", "conv_im2col", "fc", "pool", "norm", "lrn"),
    *("activation", "elementwise", "softmax", "move", "view", "other"),
)

_KIND_OF = {
    **dict.fromkeys(("Gemm", "MatMul", "QLinearMatMul", "MatMulInteger"), "fc"),
    **dict.fromkeys(("QLinearConv", "ConvInteger"), "conv_im2col"),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), "elementwise"),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), "pool"),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "ReduceMean"), "pool"),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), "norm"),
    "LRN": "lrn",
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Elu", "Sigmoid", "HardSigmoid"), "activation"),
    **dict.fromkeys(("HardSwish", "Tanh", "Clip", "Mish", "Gelu"), "activation"),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Mean", "Pow"), "elementwise"),
    **dict.fromkeys(("Softmax", "LogSoftmax"), "softmax"),
    **dict.fromkeys(("Concat", "Split", "Slice", "Pad", "Transpose", "Gather", "Upsample", "Resize"), "move"),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), "move"),
    **dict.fromkeys(VIEWS, "view"),
}


def kind(graph: Graph, layer: Layer) -> str:
    """Which coefficient prices the layer, one of ``KINDS``."""
    if layer.op in ("Conv", "ConvTranspose"):
        return "conv_winograd" if _winograd(graph, layer) else "conv_im2col"
    return _KIND_OF.get(layer.op, "other")


def _winograd(graph: Graph, layer: Layer) -> bool:
    """3x3 convolutions with stride 1 and no groups are what kernels compute by Winograd's algorithm."""
    a = layer.attributes
    ones = all(v == 1 for key in ("strides", "dilations") for v in a.get(key, ()))  # type: ignore[attr-defined]
    kernel = graph.tensors[layer.inputs[1]].shape[2:]
    return layer.op == "Conv" and kernel == (3, 3) and ones and a.get("group", 1) == 1


@dataclass(frozen=True)
class LayerCost:
    """One kind of layer on one unit.

    macs_per_cycle: the coefficient of Eq. 4.7, more than 0
    overhead_s: fixed time of one layer, whatever its size
    power_w:    drawn while it runs
    """

    macs_per_cycle: float
    overhead_s: float
    power_w: float


@dataclass(frozen=True)
class UnitCost:
    """One unit (a CPU or a GPU).

    frequency_hz: of Eq. 4.7
    threads:      the figures hold for so many threads; a device with fewer is slower in proportion
    layers:       by kind, all of ``KINDS``
    communication_w: drawn while sending, receiving and waiting at a join
    memory_weights, memory_activations, memory_buffers: resident bytes a byte of each
    memory_bias_bytes: of a rank that does nothing: interpreter, libraries
    send_s, receive_s: processor time of a message, LogGP's overhead; send_s_per_byte, receive_s_per_byte: of a byte
    gap_s: of the link, between two messages; 0: unknown, like the four before
    """

    frequency_hz: float
    threads: int
    layers: dict[str, LayerCost]
    communication_w: float
    memory_weights: float
    memory_activations: float
    memory_buffers: float
    memory_bias_bytes: float
    send_s: float = 0.0
    receive_s: float = 0.0
    send_s_per_byte: float = 0.0
    receive_s_per_byte: float = 0.0
    gap_s: float = 0.0


@dataclass(frozen=True)
class Coefficients:
    """A set for one kind of board. ``calibrated``: measured on the user's cluster, not fitted to published figures."""

    name: str
    calibrated: bool
    provenance: str
    units: dict[str, UnitCost]

    def unit(self, unit: str) -> UnitCost:
        """The figures of ``cpu`` or ``gpu``; ``CleaveError`` when the set has none."""
        if unit not in self.units:
            raise CleaveError(f"coefficients '{self.name}' have no figures for a {unit} (only {', '.join(self.units)})")
        return self.units[unit]


@cache
def load(name: str) -> Coefficients:
    """A shipped set by name (``jetson-xavier-nx``), or the set in a JSON file."""
    if name in shipped():
        text = (files("platforms") / "coefficients" / f"{name}.json").read_text()
        return parse(text, name)
    path = Path(name)
    if not path.is_file():
        raise CleaveError(f"coefficients '{name}' are neither shipped ({', '.join(shipped())}) nor a file")
    return parse(path.read_text(errors="replace"), name)


def shipped() -> list[str]:
    """Names of the sets that come with the distribution."""
    folder = files("platforms") / "coefficients"
    return sorted(e.name.removesuffix(".json") for e in folder.iterdir() if e.name.endswith(".json"))


def parse(text: str, where: str) -> Coefficients:
    """Read a set; ``CleaveError`` says what is missing, and where."""
    try:
        body = json.loads(text)
        if body["format"] != FORMAT or body["version"] != VERSION:
            raise CleaveError(f"{where}: is no {FORMAT} of version {VERSION}")
        units = {name: _unit(unit, f"{where}: {name}") for name, unit in body["units"].items()}
        return Coefficients(body["name"], bool(body["calibrated"]), body["provenance"], units)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CleaveError(f"{where}: is no coefficient file that this version can read ({error!r})") from error


def _unit(body: dict, where: str) -> UnitCost:
    missing = [k for k in KINDS if k not in body["layers"]]
    if missing:
        raise CleaveError(f"{where}: no coefficient for {', '.join(missing)}")
    layers = {k: LayerCost(**body["layers"][k]) for k in KINDS}
    rest = {key: value for key, value in body.items() if key != "layers"}
    unit = UnitCost(layers=layers, **rest)
    if min(unit.frequency_hz, unit.threads, *[c.macs_per_cycle for c in layers.values()]) <= 0:
        raise CleaveError(f"{where}: frequency_hz, threads and macs_per_cycle must be more than 0")
    return unit
