"""From seconds of segments to a table of kernels and of what neighbours gain.

All at once: the time of a segment (``model.cost.segment_time``) is linear in what layers take alone, whole or split,
and in what edges save, so one non-negative least squares finds them all. Every segment counts by the error of one that
takes as long as is found, not as was measured: a limited processor holds up few frames of a short segment, and where
the one with none held up counted more than the one with two, all would be told too short. Those that are far off, which
something has disturbed, count less and less; so do runs that are off as a whole, while another program ran beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from model.cluster.coefficients import MOST_GAINED, Kernel
from model.cost.edges import Edge
from model.cost.samples import Run, scatter_s
from model.cost.segment_time import InSegment, Network
from model.cost.vectors import is_single, quarter_of, vector_of, whole_filled
from model.fit.least_squares import nonnegative
from model.mappings.arrays import Floats, Ints
from model.network.boxes import CHANNELS
from model.network.layer_kinds import PAIRS
from model.network.relayout import SINGLY

RELATIVE, ABSOLUTE_S = 0.02, 1e-6
"""Standard error of a time, at least."""
SHORTEST = 1 / 4
"""Part of what was measured that a segment is taken to last at least, where its error goes by what is found."""
TIE = 0.3
"""Relative error of taking a shard of nearly all of a layer for as slow as the layer."""
SINGLE, USUALLY, MOST_SINGLY = 1.0, 3.0, 16.0
"""Relative error of how many times as long channels take which are computed singly: small images have more to gain; and
as many, where no layer tells; and most, which are as many as the channels of the widest vectors."""
LIKE = 0.5
"""Part of what the shorter of its layers takes by which an edge may gain more or less than edges between such kinds do:
whether kernels fuse depends on more. A part of that and not of what it gains: what a whole network takes less than its
pieces would be laid on those edges that no piece has."""
FAR = 3.0
"""Segments so many times further off than usual count less."""
ROUNDS = 8
USUAL = 4
"""What edges gain on average counts so many times beside those of one pair of kinds: few tell little, and what whole
networks take less than all their pieces say would be laid on them."""
PACE, TELLING = 0.05, 8
"""A run of at least so many segments that together are slower or faster by more than that, and by more than their
frames scatter, was disturbed as a whole: it counts less."""


@dataclass(frozen=True)
class Table:
    """What was found: kernels by signature, seconds that measured edges gain by pair of signatures, the part of the
    shorter layer that edges do by pair of kinds, joins by axis, seconds a byte that keeps its layout, times as long as
    others that channels take which are computed singly."""

    kernels: dict[str, Kernel]
    gains: dict[str, float]
    parts: dict[str, float]
    joins: dict[int, float]
    relayout_s_per_byte: float
    singly: float


class Times(NamedTuple):
    """What was measured of all segments, (S,) each.

    seconds: what it took; parts: how many it has; run_of: number of its run
    scatter_s: of its run, as ``samples.scatter_s`` has it
    """

    seconds: Floats
    parts: Ints
    run_of: Ints
    scatter_s: Floats

    @staticmethod
    def of(runs: Sequence[Run]) -> Times:
        """Of all samples, in order."""
        samples, counts = [sample for run in runs for sample in run.samples], [len(run.samples) for run in runs]
        return Times(
            np.array([sample.time_s for sample in samples]),
            np.array([len(sample.parts) for sample in samples], dtype=np.int32),
            np.repeat(np.arange(len(runs), dtype=np.int32), counts),
            np.repeat([scatter_s(run.samples) for run in runs], counts),
        )

    def sigma(self, found: Floats) -> Floats:
        """Standard errors of segments that take so long: of means over frames, and what no number of frames takes away.

        A segment of several parts tells of them all, so that it counts like so many.
        """
        lasting = np.maximum(found, SHORTEST * self.seconds)
        alike_s = np.hypot(RELATIVE * lasting, ABSOLUTE_S) / np.sqrt(self.parts)
        return np.asarray(np.hypot(alike_s, np.sqrt(self.scatter_s * lasting)))


class Column(NamedTuple):
    """One number that is looked for. what: WHOLE, … of: signature, or pair of kinds or signatures; axis: of a split"""

    what: str
    of: str
    axis: int = -1


WHOLE, FIXED, SLOPE, JOIN = "whole", "fixed", "slope", "join"
EDGE, KEPT = "edge", "kept"

Row = list[tuple[Column, float]]
"""Numbers, and how often each counts. Seconds of a segment are such a row."""


def fit_table(networks: Mapping[str, Network], runs: Sequence[Run], vector: int) -> Table:
    """The table that explains the samples of all runs best. networks: by ``Run.network``; vector: of ``UnitCost``"""
    rows = [row for run in runs for row in _rows(networks[run.network], run, vector)]
    edges = {edge.name: edge for network in networks.values() for of in network.edges for edge in of}
    times = Times.of(runs)
    x = _solved(rows, edges, _wholes(networks, vector), times)
    gains = {column.of: x[column] for column in sorted(x) if column.what == EDGE}
    joins = {column.axis: x[column] for column in sorted(x) if column.what == JOIN}
    kernels, kept_s = _kernels(x, _errors(rows, times, x)), x.get(Column(KEPT, ""), 0.0)
    return Table(kernels, gains, _parts(_gained(x, edges), edges), joins, kept_s, _singly(x) if vector > 1 else 1.0)


class Whole(NamedTuple):
    """How a whole layer's channels are computed. singly: or by vectors; filled: how many times as many then"""

    singly: bool
    filled: float

    def times(self, kind: int, singly: float) -> float:
        """By how much a whole layer goes with what goes with the shares of its shards. singly: see ``UnitCost``"""
        if kind not in (CHANNELS, SINGLY):
            return 1.0
        by_vectors = singly if self.singly else self.filled
        return by_vectors if kind == CHANNELS else by_vectors / singly


def _wholes(networks: Mapping[str, Network], vector: int) -> dict[str, Whole]:
    """By signature."""
    layers = [(n.graph, *each) for n in networks.values() for each in zip(n.names, n.graph.layers, strict=True)]
    return {name: Whole(is_single(g, of, vector), whole_filled(g, of, vector)) for g, name, of in layers}


def _rows(network: Network, run: Run, vector: int) -> Iterator[Row]:
    divided, graph = network.divided(part for sample in run.samples for part in sample.parts), network.graph
    of = [(vector_of(graph, layer, vector), quarter_of(graph, layer, vector)) for layer in graph.layers]
    for sample in run.samples:
        inside = network.inside(sample.parts, divided)
        yield [t for p in inside for t in _terms(p, network.names[p.part.layer], *of[p.part.layer])]


def _terms(p: InSegment, name: str, vector: int, quarter: int) -> Iterator[tuple[Column, float]]:
    """What the seconds of a part are made of."""
    if p.share == 1:
        yield Column(WHOLE, name), 1.0
    else:
        kind, computed = p.split(vector, quarter)
        yield Column(FIXED, name, kind), 1.0
        yield Column(SLOPE, name, kind), computed
    for edge in p.saves:
        yield Column(EDGE, edge.name), -p.share
    if p.kept_bytes:
        yield Column(KEPT, ""), -p.share * p.kept_bytes
    for join in p.joins:
        yield Column(JOIN, "", join.axis), join.size_bytes


def _solved(
    rows: Sequence[Row], edges: Mapping[str, Edge], wholes: Mapping[str, Whole], times: Times
) -> dict[Column, float]:
    """The numbers. Rows that are far off get a larger standard error, and all is solved again."""
    columns = {column: k for k, column in enumerate(_columns(rows))}
    a, sigma = _matrix(rows, columns), times.sigma(times.seconds)
    x = nonnegative(_divided(a, sigma), times.seconds / sigma)
    for _ in range(ROUNDS):
        doubt = _doubt(a @ x, times)
        found = _named(columns, x)
        ties = [*_splits(found, wholes), *_alikes(_gained(found, edges), edges)]
        tied = _matrix([tie.row for tie in ties], columns)
        loose = np.maximum([tie.error_s for tie in ties], TIE * ABSOLUTE_S)
        both = scipy.sparse.vstack([_divided(a, doubt), _divided(tied, loose)])
        x = nonnegative(both, np.append(times.seconds / doubt, np.zeros(len(ties))), x)
    return _named(columns, x)


def _named(columns: Mapping[Column, int], x: Floats) -> dict[Column, float]:
    return {column: float(x[k]) for column, k in columns.items()}


def _columns(rows: Sequence[Row]) -> dict[Column, None]:
    """What rows are made of, and what that is tied to."""
    found = dict.fromkeys(column for row in rows for column, _ in row)
    wholes = dict.fromkeys(Column(WHOLE, column.of) for column in found if column.what == FIXED)
    return found | wholes


def _doubt(found: Floats, times: Times) -> Floats:
    """Standard errors, larger for what is far off, and for runs that are off as a whole."""
    doubt = times.sigma(found) * _off_as_a_whole(found, times)
    off = np.abs(found - times.seconds) / doubt
    return doubt * np.sqrt(np.maximum(1.0, off / (FAR * max(1.0, float(np.median(off))))))


def _off_as_a_whole(found: Floats, times: Times) -> Floats:
    """For each segment how many times less its run is believed."""
    factor = np.ones(len(found))
    for run in np.unique(times.run_of):
        mine = times.run_of == run
        if mine.sum() >= TELLING:
            seconds = times.seconds[mine]
            usual = np.hypot(PACE, np.sqrt(times.scatter_s[mine][0] / seconds.sum()))
            factor[mine] = max(1.0, abs(pace(found[mine], seconds)) / usual)
    return factor


def pace(found: Floats, times: Floats) -> float:
    """By how much segments are slower than expected, together; relative."""
    return float(times.sum() / max(float(found.sum()), ABSOLUTE_S)) - 1


class Tie(NamedTuple):
    """Terms whose sum is about 0. error_s: what is left"""

    row: Row
    error_s: float


def _splits(x: Mapping[Column, float], wholes: Mapping[str, Whole]) -> Iterator[Tie]:
    """``fixed + slope - whole``, in proportion to what they say on either side; of channels as they are computed. What
    is computed singly starts as other shards do, and takes about so many times as long as in all layers."""
    singly = _singly(x)
    for fixed in (column for column in x if column.what == FIXED):
        slope, whole, of = Column(SLOPE, fixed.of, fixed.axis), Column(WHOLE, fixed.of), wholes[fixed.of]
        times = of.times(fixed.axis, singly)
        start, other = fixed._replace(axis=CHANNELS), slope._replace(axis=CHANNELS)
        if fixed.axis == SINGLY and not of.singly and start in x:
            yield _tie(x, [(fixed, 1.0), (start, -1.0)], TIE)
            yield _tie(x, [(slope, 1.0), (other, -singly)], SINGLE)
        else:
            yield _tie(x, [(fixed, 1.0), (slope, times), (whole, -1.0)], TIE)


def _tie(x: Mapping[Column, float], row: Row, error: float) -> Tie:
    """error: relative, to what there is on either side"""
    return Tie(row, error * sum(x[column] * abs(often) for column, often in row) / 2)


def _singly(x: Mapping[Column, float]) -> float:
    """Times as long that channels take which are computed singly, of all layers of which some are and some are not: no
    more than as if a kernel had a vector's worth of them otherwise."""
    singly = {column.of: slope_s for column, slope_s in x.items() if column.what == SLOPE and column.axis == SINGLY}
    others = {name: x.get(Column(SLOPE, name, CHANNELS), 0.0) for name in singly}
    both = [name for name in singly if others[name] > 0]
    if not both:
        return USUALLY
    return min(max(1.0, sum(singly[name] for name in both) / sum(others[name] for name in both)), MOST_SINGLY)


def _alikes(gained: Mapping[str, Gained], edges: Mapping[str, Edge]) -> Iterator[Tie]:
    """What an edge gains, less the part of the shorter layer that such edges do."""
    parts = _parts(gained, edges)
    for name, of in gained.items():
        row = [(Column(EDGE, name), 1.0), (Column(WHOLE, of.shorter), -parts[edges[name].pair] * of.counts)]
        yield Tie(row, LIKE * of.alone_s)


class Gained(NamedTuple):
    """What an edge gains as a part of ``alone_s``, what the shorter of its layers takes; shorter: its signature;
    counts: the part of that layer that goes with the edge"""

    part: float
    shorter: str
    counts: float
    alone_s: float


def _gained(x: Mapping[Column, float], edges: Mapping[str, Edge]) -> dict[str, Gained]:
    """By edge, where both layers are known."""
    alone_s = {column.of: seconds for column, seconds in x.items() if column.what == WHOLE and seconds > 0}
    found = {}
    for column in (column for column in x if column.what == EDGE):
        ends = [end for end in column.of.split(">") if end in alone_s]
        if len(ends) == 2:
            ways = zip(ends, (1.0, edges[column.of].part), strict=True)
            seconds, counts, shorter = min((alone_s[end] * counts, counts, end) for end, counts in ways)
            found[column.of] = Gained(min(MOST_GAINED, x[column] / seconds), shorter, counts, seconds)
    return found


def _parts(gained: Mapping[str, Gained], edges: Mapping[str, Edge]) -> dict[str, float]:
    """Of all pairs of kinds, what their edges gain of what the shorter of both layers takes, all together; one that no
    segment had gains what edges do on average, for no session starts there either."""
    found: dict[str, list[Gained]] = {pair: [] for pair in PAIRS}
    for name, of in gained.items():
        found[edges[name].pair].append(of)
    own = {pair: _part(of) for pair, of in found.items() if of}
    if not own:
        return {}
    usual = float(np.average([*own.values()], weights=[len(found[pair]) for pair in own]))
    return {pair: (len(of) * own.get(pair, 0.0) + USUAL * usual) / (len(of) + USUAL) for pair, of in found.items()}


def _part(of: Sequence[Gained]) -> float:
    return sum(edge.part * edge.alone_s for edge in of) / sum(edge.alone_s for edge in of)


def _matrix(rows: Sequence[Row], columns: Mapping[Column, int]) -> scipy.sparse.csr_array:
    """``(rows, columns)``; equal terms of a row are added."""
    values = [value for row in rows for _, value in row]
    at = [columns[column] for row in rows for column, _ in row]
    ends = np.cumsum([0, *map(len, rows)])
    found = scipy.sparse.csr_array((values, at, ends), (len(rows), len(columns)), dtype=np.float64)
    found.sum_duplicates()
    return found


def _divided(rows: scipy.sparse.csr_array, by: Floats) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(rows * (1 / by)[:, None])


def _kernels(x: Mapping[Column, float], errors: Mapping[str, float]) -> dict[str, Kernel]:
    """By signature, in its order."""
    splits: dict[str, dict[int, tuple[float, float]]] = {}
    for what, name, axis in sorted(x):
        if what == FIXED:
            splits.setdefault(name, {})[axis] = (x[Column(FIXED, name, axis)], x[Column(SLOPE, name, axis)])
    wholes = sorted(column.of for column in x if column.what == WHOLE)
    return {
        name: Kernel(name.rpartition("-")[0], x[Column(WHOLE, name)], splits.get(name, {}), errors.get(name))
        for name in wholes
    }


def _errors(rows: Sequence[Row], times: Times, x: Mapping[Column, float]) -> dict[str, float]:
    """By signature, how far samples of it alone lie from what was found, or how well they are known; relative."""
    off: dict[str, list[float]] = {}
    found = np.array([sum(x[column] * often for column, often in row) for row in rows])
    for row, error_s in zip(rows, np.maximum(np.abs(times.seconds - found), times.sigma(found)), strict=True):
        first = row[0][0]
        if len(row) == 1 and first.what == WHOLE and x[first] > 0:
            off.setdefault(first.of, []).append(float(error_s) / x[first])
    return {name: float(np.mean(values)) for name, values in off.items()}
