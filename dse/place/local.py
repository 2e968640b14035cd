"""Local search: from a random split, always the best move of one node to another device, until none helps.

The paper's baseline; splits are not contiguous. Loads are kept up, so that trying a move costs as much as the node
has nets. What is tried leaves no trace, and after a move they are summed anew: an error that builds up would count as
an improvement, without end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.place import stages
from dse.place.clock import due, now
from dse.place.period import rules_of
from dse.place.pipeline import costs, floor
from dse.place.placed import Options, Placed, check, judged
from dse.place.reduced import Reduced, contracted
from dse.place.spare import without_spare
from dse.place.workload import Workload
from model.compiled import inlined, kernel
from model.mappings.arrays import Floats, Ints, ix
from runtime.errors import CleaveError

RESTARTS = 10
BETTER = 1 - 1e-9
"""What is less by this factor at least is less."""


class State(NamedTuple):
    """device: (n,) of nodes; kind: (D,) class of a device; here: (N, D) nodes of nets; the rest: (D,) as in ``Load``"""

    device: Ints
    kind: Ints
    here: Ints
    compute: Floats
    into: Floats
    out: Floats
    held: Floats


@without_spare
def local_search(on: Workload, options: Options) -> Placed:
    """The best local optimum of some random splits."""
    check(on, options, contiguous=False)
    of = contracted(on, on.color, on.edge[:0])
    on_it, rng, end = costs(of.on, rules_of(options)), np.random.default_rng(options.seed), _end(options)
    found = []
    for done in range(RESTARTS):
        options.watch(done, RESTARTS, "restarts")
        state = _state(of.on, _random(of.on, rng))
        while _improve(on_it, state) and now() < end:
            state = _state(of.on, state.device)
        found.append((_excess(on_it, state), _load(on_it, state), done, state.device))
        if now() > end:
            break
    best = min(found, key=lambda row: row[:3])
    if best[0] > 0:
        raise CleaveError("local search finds no split that fits into the memory of the accelerators")
    return judged(on, options, best[3][of.part], floor(of.on, rules_of(options)))


def _end(options: Options) -> float:
    return due(options.limit_s)


def _random(on: Reduced, rng: np.random.Generator) -> Ints:
    """(n,) any device that runs a node."""
    kind = _kinds(on)
    runs = np.isfinite(on.time[:, kind])
    return np.argmax(np.where(runs, rng.random(runs.shape), -1), axis=1).astype(np.int32)


def _kinds(on: Reduced) -> Ints:
    return np.repeat(np.arange(len(on.counts), dtype=np.int32), on.counts)


def _state(on: Reduced, device: Ints) -> State:
    kind = _kinds(on)
    devices = len(kind)
    here = np.zeros((len(on.source), devices), dtype=np.int32)
    net = np.repeat(np.arange(len(on.source)), np.diff(on.pin_ptr))
    np.add.at(here, (net, device[on.pin]), 1)
    made_at, pins = device[on.source], np.diff(on.pin_ptr)
    own = made_at[:, None] == np.arange(devices)
    cost = on.cost[:, kind]
    into = np.where(~own & (here > 0), cost, 0.0).sum(axis=0)
    out = np.where(own & (here < pins[:, None]), cost, 0.0).sum(axis=0)
    time_at = on.time[np.arange(len(device)), kind[device]]
    compute, held = (np.bincount(device, of, devices).astype(np.float64) for of in (time_at, on.size))
    return State(device, kind, here, compute, into, out, held)


@kernel()
def _improve(on: stages.Costs, s: State) -> bool:
    """The best move; whether there is one. Where all fits, it moves a node from or to the device with most to do."""
    excess, load = _excess(on, s), _load(on, s)
    rounding = (1 - BETTER) * _on_limited(on, s)
    most = _most(on, s, load) if excess == 0 else np.int64(-1)
    node_best = to_best = np.int64(-1)
    for node in range(len(s.device)):
        home = s.device[ix(node)]
        for to in range(len(s.kind)):
            if (
                to == home
                or (most >= 0 and home != most and to != most)
                or on.time[ix(node), ix(s.kind[ix(to)])] == np.inf
            ):
                continue
            then, value = _tried(on, s, node, to)
            if then < excess - rounding or (then <= excess and value < load * BETTER):
                excess, load, node_best, to_best = then, value, np.int64(node), np.int64(to)
    if node_best >= 0:
        _move(on, s, node_best, to_best)
    return bool(node_best >= 0)


@kernel()
def _tried(on: stages.Costs, s: State, node: int, to: int) -> tuple[float, float]:
    """Bytes that do not fit, and the largest load, if a node moved."""
    home = s.device[ix(node)]
    at_home, at_to = _quantities(s, home), _quantities(s, to)
    _move(on, s, node, to)
    found = _excess(on, s), _load(on, s)
    _move(on, s, node, home)
    _set(s, home, at_home)
    _set(s, to, at_to)
    return found


@inlined
def _quantities(s: State, d: int) -> tuple[float, float, float, float]:
    return s.compute[ix(d)], s.into[ix(d)], s.out[ix(d)], s.held[ix(d)]


@inlined
def _set(s: State, d: int, to: tuple[float, float, float, float]) -> None:
    s.compute[ix(d)], s.into[ix(d)], s.out[ix(d)], s.held[ix(d)] = to


@kernel()
def _load(on: stages.Costs, s: State) -> float:
    found = 0.0
    for d in range(len(s.kind)):
        found = max(found, stages.busy(on.mode, s.compute[ix(d)], s.into[ix(d)], s.out[ix(d)]))
    return found


@kernel()
def _most(on: stages.Costs, s: State, load: float) -> int:
    """The first device with that load."""
    for d in range(len(s.kind)):
        if stages.busy(on.mode, s.compute[ix(d)], s.into[ix(d)], s.out[ix(d)]) == load:
            return d
    return -1


@kernel()
def _excess(on: stages.Costs, s: State) -> float:
    """Bytes that do not fit."""
    found = 0.0
    for d in range(len(s.kind)):
        found += max(0.0, s.held[ix(d)] - on.memory[ix(s.kind[ix(d)])])
    return found


@kernel()
def _on_limited(on: stages.Costs, s: State) -> float:
    """Bytes on devices that have an end."""
    found = 0.0
    for d in range(len(s.kind)):
        if on.memory[ix(s.kind[ix(d)])] < np.inf:
            found += s.held[ix(d)]
    return found


@kernel()
def _move(on: stages.Costs, s: State, node: int, to: int) -> None:
    """Other devices than these two notice nothing: whoever reads of them, or is read, is still elsewhere."""
    home = s.device[ix(node)]
    _change(on, s, node, home, -1)
    _change(on, s, node, to, 1)
    s.device[ix(node)] = to
    for k in range(on.net_ptr[ix(node)], on.net_ptr[ix(node + 1)]):
        net = on.net[ix(k)]
        makes = on.source[ix(net)] == node
        source = home if makes else s.device[ix(on.source[ix(net)])]
        _pay(on, s, net, source, home, -1)
        _pay(on, s, net, source, to, -1)
        s.here[ix(net), ix(home)] -= 1
        s.here[ix(net), ix(to)] += 1
        source = to if makes else source
        _pay(on, s, net, source, home, 1)
        _pay(on, s, net, source, to, 1)


@inlined
def _change(on: stages.Costs, s: State, node: int, d: int, sign: int) -> None:
    s.compute[ix(d)] += sign * on.time[ix(node), ix(s.kind[ix(d)])]
    s.held[ix(d)] += sign * on.size[ix(node)]


@inlined
def _pay(on: stages.Costs, s: State, net: int, source: int, d: int, sign: int) -> None:
    """Add or take what a net that is made on ``source`` costs a device."""
    cost = sign * on.cost[ix(net), ix(s.kind[ix(d)])]
    if d == source:
        if s.here[ix(net), ix(d)] < on.pins[ix(net)]:
            s.out[ix(d)] += cost
    elif s.here[ix(net), ix(d)] > 0:
        s.into[ix(d)] += cost
