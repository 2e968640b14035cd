"""What methods that place a workload take, and what they give: a split, what it is worth, and how far that is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.place import split
from dse.place.workload import MARGIN, Workload
from model.mappings.arrays import Ints
from runtime.errors import CleaveError


def _quiet(_done: int, _of: int, _text: str) -> None:
    pass


@dataclass(frozen=True)
class Options:
    """mode: of ``split.MODES``; contiguous: whether the split must be; limit_s: time after which the best so far is the
    answer; watch: told how much of how much is done, and of what; bandwidth: see ``pipeline.Rules``; subgraphs: an
    accelerator's, for latency; machines, slow: see ``split.load``"""

    mode: str = split.SUM
    contiguous: bool = True
    limit_s: float | None = None
    seed: int = 0
    watch: Callable[[int, int, str], None] = _quiet
    bandwidth: float | None = None
    subgraphs: int = 1
    machines: int = 1
    slow: float = 1.0


@dataclass(frozen=True, eq=False)
class Placed:
    """A split. device: (n,); value: the objective, by ``split``; bound: nothing is better, as far as the method knows;
    optimal: of the splits that were asked for; note: what a person should know of it; ideals: where there were any;
    copies: (devices,) how many share the part of a device, that and the next ones, None: each is alone;
    slot: (n,) as ``latency`` has it, None: each device has one subgraph"""

    device: Ints
    value: float
    bound: float
    optimal: bool
    note: str = ""
    ideals: int | None = None
    copies: Ints | None = None
    slot: Ints | None = None


Method = Callable[[Workload, Options], Placed]


def judged(on: Workload, options: Options, device: Ints, bound: float, **more: Any) -> Placed:
    """A split with its period as ``split`` has it; ``CleaveError`` where it may not be.

    more: other fields of ``Placed``
    """
    found = split.faults(on, device)
    if found:
        raise CleaveError(f"the split that this method makes is none that may be: {found[0]}")
    value = worth(on, options, device, more.get("copies"))
    return Placed(device, value, min(bound, value), value <= bound * MARGIN, **more)


def worth(on: Workload, options: Options, device: Ints, copies: Ints | None = None) -> float:
    """The period of a split."""
    loads = split.load(on, device, options.machines, options.slow)
    return float(loads.shared(options.mode, copies, options.bandwidth).max())


def check(
    on: Workload,
    options: Options,
    contiguous: bool = True,
    machines: bool = False,
    copies: bool = False,
    subgraphs: bool = False,
) -> None:
    """``CleaveError`` for a node that no device runs, or where more is asked of a method than it has.

    contiguous: it has such splits alone; machines: it knows of more than one; copies: of parts that devices share;
    subgraphs: of several of an accelerator
    """
    if options.bandwidth is not None and not copies:
        raise CleaveError(
            "this method knows no parts that devices share: leave --replicate out, or take --objective period "
            "--method dp"
        )
    if options.subgraphs > 1 and not subgraphs:
        raise CleaveError("for the period an accelerator runs all it has in turn anyway: leave --subgraphs out")
    if options.machines > 1:
        _check_machines(on, options, machines)
    if contiguous and not options.contiguous:
        raise CleaveError("this method finds contiguous splits alone: leave --non-contiguous out, or take another one")
    nowhere = np.isinf(on.acc)
    if on.cpus == 0 and nowhere.any():
        node = on.ids[np.argmax(nowhere)]
        raise CleaveError(f"node {node} can run nowhere: no accelerator supports it, and there is no CPU")


def _check_machines(on: Workload, options: Options, known: bool) -> None:
    if not known:
        raise CleaveError(
            "this method knows of one machine alone: leave --machines out, or take --objective period --method dp"
        )
    if options.bandwidth is not None:
        raise CleaveError("--replicate is for devices of one machine: leave --machines out")
    for count, what in ((on.accelerators, "accelerators"), (on.cpus, "CPUs")):
        if count % options.machines:
            raise CleaveError(f"--machines {options.machines}: {count} {what} cannot be spread over them evenly")
