"""A calibration for processors of the speed that they have now: hotter, at another clock, with others beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from dse.calibrate import boards as kinds
from dse.calibrate.boards import DRIFT
from dse.calibrate.check import Drift
from dse.inputs import Cnn
from model.cluster.platform import PLATFORMS, Device, Platform
from model.cluster.platform_edit import edited
from model.cluster.platform_file import SLOWDOWN
from model.cost.priced import priced
from model.mappings.mapping import Mapping
from runtime.frames import save_text


def adjusted(file: Path, cnns: Sequence[Cnn], found: Sequence[Drift]) -> dict[str, float]:
    """Write into a calibrated platform file how many times as long its devices take to compute as its coefficients say.

    found: whole networks on single devices, measured now, among others
    Device → its slowdown; those of a type of which none was measured stay as they are
    """
    text = PLATFORMS.text_of(file)
    platform = Platform.parse(text, str(file))
    own = _own(platform, cnns, found)
    changes: dict[int, dict[str, str]] = {}
    slowdowns: dict[str, float] = {}
    for board in kinds.boards(text, platform):
        for device in (platform.devices[d] for d in board.devices):
            alike = [own[d.name] for d in platform.devices if d.name in own and _type(d) == _type(device)]
            if alike:
                slowdowns[device.name] = round(_usual(own.get(device.name), median(alike)), 3)
                changes.setdefault(board.number, {})[SLOWDOWN[device.unit]] = f"{slowdowns[device.name]:g}"
    save_text(str(file), edited(text, changes))
    return slowdowns


def _own(platform: Platform, cnns: Sequence[Cnn], found: Sequence[Drift]) -> dict[str, float]:
    """Device that was measured → its slowdown, the median over networks."""
    usual, graphs = platform.slowed([1.0] * len(platform.devices)), {cnn.graph.name: cnn.graph for cnn in cnns}
    ratios = defaultdict[str, list[float]](list)
    names = {device.name for device in platform.devices}
    for each in (each for each in found if each.device in names):
        graph = graphs[each.network]
        mapping = Mapping.whole(graph, [platform.index(each.device)] * len(graph.layers))
        ratios[each.device].append(each.now_s / priced(graph, usual, mapping).latency_s)
    return {device: median(of) for device, of in ratios.items()}


def _type(device: Device) -> tuple[str, str]:
    return device.coefficients, device.unit


def _usual(own: float | None, alike: float) -> float:
    """That of devices that are alike, so that they stay it, unless it is another one's by more than a drift."""
    return alike if own is None or abs(own / alike - 1) <= DRIFT else own
