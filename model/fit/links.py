"""What messages cost, from probes of links: the parameters of LogGP as ``model.simulator.simulation`` charges them.

A message of ``n`` bytes takes, one after the other (Alexandrov et al., LogGP, 1995): ``o + n O`` of the sender's
processor, ``L + n G + g`` of the link, ``o' + n O'`` of the receiver's processor. Each is taken from the probe that
shows it (``model.fit.link_costs``), none from what all others leave over, so that a bad moment of one does not spread;
only the latency is what is left of small messages, and the bandwidth what is left of large ones. Whether ``L`` and ``n
G`` come one after the other or at once (``model.cost.message_time``) is said by those between.

A size's time is the median of its frames: other programs, and a share of a processor that is used up, disturb single
frames and a lot. Intervals come from drawing frames again (Efron's bootstrap), so they say how far the measurement is
repeatable; how far the straight line holds between the sizes is said by the errors of each size.

Latencies are means of both directions: clocks of two hosts are compared by messages, which cannot tell them apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median

import numpy as np
import scipy

from model.cost.message_time import lag_s
from model.fit.link_costs import (
    BOTH,
    BURST,
    COVERED,
    FASTEST_BYTES_PER_S,
    LATE,
    TWO,
    WAY,
    Estimate,
    LinkCosts,
    LinkSample,
    Overheads,
    Path,
    Sharing,
)
from model.mappings.arrays import Floats
from runtime.communicator import EAGER_BYTES
from runtime.errors import CleaveError

ALIKE_BYTES = 2**16
"""Messages up to this size take as long there as back."""
SMALL_BYTES = 64
"""Up to this size a message's time is its latency."""
ROUNDS = 3
"""Of bandwidth and latency in turn, each without the other's part."""
SCALE = 1e-9
"""Seconds a byte are fitted in nanoseconds, so that both columns are of one size."""
OVERLAPS, AS_GOOD = (0.0, 0.25, 0.5, 0.75, 1.0), 1.05
"""Parts of what bytes take that come while the latency passes; how much more may be off by one that is as good."""
SPREAD = 16
"""Sizes down to this part of the largest show the bandwidth."""
SURELY = 1.5
"""A message is there after so many times what one of its size takes."""
DRAWS = 200
"""Repetitions of the fit with frames drawn anew."""

Pair = tuple[str, str]
WayTimes = Mapping[Pair, Mapping[int, float]]
"""From one device to another, size → median seconds of a message, as clocks tell."""


@dataclass(frozen=True)
class _Figures:
    """A fit as plain figures.

    overheads: type → (6,) in the order of `Overheads`; paths: (3,) as in `Path`; shares: (1,); errors: as in `Path`
    """

    overheads: dict[str, Floats]
    paths: dict[Pair, Floats]
    shares: dict[tuple[str, str, str, str], Floats]
    errors: dict[Pair, dict[int, float]]

    @staticmethod
    def of(samples: Sequence[LinkSample], types: Mapping[str, str]) -> _Figures:
        times = way_times(samples)
        overheads = {
            kind: _overheads(samples, types, kind, times) for kind in dict.fromkeys(types[s.source] for s in samples)
        }
        local = {(s.source, s.target): s.local for s in samples}
        away = {p: [overheads[types[name]] for name in p] for p in times if not local[p]}
        for kind in overheads:
            overheads[kind][-1] = _overlap(times, {p: ends for p, ends in away.items() if types[p[1]] == kind})
        paths, errors = {}, {}
        for pair in times:
            ends = [overheads[types[name]] for name in pair]
            paths[pair] = _path(pair, times, local[pair], *ends)
            errors[pair] = _errors(pair, times, paths[pair], *ends)
        shares = {(s.kind, s.source, s.target, s.also): _share(s, times) for s in samples if s.kind in (BOTH, TWO)}
        return _Figures(overheads, paths, shares, errors)


def fit(samples: Sequence[LinkSample], types: Mapping[str, str], seed: int = 0) -> LinkCosts:
    """The figures behind samples. types: device → its type; devices of one type are taken together.

    ``CleaveError`` where there are none.
    """
    if not any(sample.kind == WAY for sample in samples):
        raise CleaveError("no message was measured on any link: measure again")
    best, random = _Figures.of(samples, types), np.random.default_rng(seed)
    drawn = [_Figures.of([_redrawn(sample, random) for sample in samples], types) for _ in range(DRAWS)]
    local = {(sample.source, sample.target): sample.local for sample in samples}
    paths = []
    for pair, values in best.paths.items():
        rate, latency, step = _estimates(values, [d.paths[pair] for d in drawn])
        paths.append(Path(*pair, local[pair], rate, latency, step, best.errors[pair]))
    return LinkCosts(
        {k: Overheads(*_estimates(v, [d.overheads[k] for d in drawn])) for k, v in best.overheads.items()},
        tuple(paths),
        tuple(Sharing(*k, *_estimates(v, [d.shares[k] for d in drawn])) for k, v in best.shares.items()),
    )


def one_way_s(links: LinkCosts, way: tuple[float, float], source: str, target: str, size: int) -> float:
    """Seconds of a message between devices of two types, one of them waiting and nothing else under way.

    way: bytes/s and seconds of latency. Of a type that was not measured: that of those that were which takes longest.
    """
    ends = product(_ends(links, source), _ends(links, target))
    return max(_one_way(size, np.array(way), own, other) for own, other in ends)


def _ends(links: LinkCosts, kind: str) -> list[Floats]:
    """(6,) overheads of a type of device; of all that were measured where it was not."""
    found = [links.devices[kind]] if kind in links.devices else links.devices.values()
    return [np.array([estimate.value for estimate in vars(overheads).values()]) for overheads in found]


def _redrawn(sample: LinkSample, random: np.random.Generator) -> LinkSample:
    """The same probe with its frames drawn anew."""
    chosen = random.integers(len(sample.times_s), size=len(sample.times_s)).tolist()

    def drawn(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(map(values.__getitem__, chosen)) if values else ()

    return replace(sample, send_s=drawn(sample.send_s), times_s=drawn(sample.times_s), there_s=drawn(sample.there_s))


def _estimates(values: Floats, drawn: Sequence[Floats]) -> list[Estimate]:
    low, high = np.quantile(np.array(drawn), [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return [Estimate(float(v), float(min(a, v)), float(max(b, v))) for v, a, b in zip(values, low, high, strict=True)]


def _overheads(samples: Sequence[LinkSample], types: Mapping[str, str], kind: str, times: WayTimes) -> Floats:
    """``(6,)`` of a type, from messages to and from other hosts; where there are none, from those on its host. The
    last, the overlap, is 0 yet.

    The gap is no more than a small message leaves for it. On one host it is all of that: it stands for the latency, of
    which a platform knows none there.
    """
    sent, bursts = (_of(samples, probe, types, kind) for probe in (WAY, BURST))
    taken = _of(samples, LATE, types, kind, received=True)

    def whole(s: LinkSample) -> float:
        return times.get((s.source, s.target), {}).get(s.size_bytes, np.inf)

    def sending(probes: Sequence[LinkSample]) -> Floats:
        return _line([(s.size_bytes, median(s.send_s), whole(s)) for s in probes])

    come = _of(samples, WAY, types, kind, received=True)
    sends = {name: sending(_of(samples, WAY, types, name)) for name in {kind, *(types[s.source] for s in come)}}
    send = sends[kind]
    spent = [float(sends[types[s.source]] @ [1.0, s.size_bytes]) for s in come]
    receive = _line(_taken(taken, times))
    receive = _at_most(receive, [(s.size_bytes, whole(s) - each) for s, each in zip(come, spent, strict=True)])
    gaps = [_gap(s, whole(s), send, receive) for s in bursts if np.isfinite(whole(s))]
    rest = max(median([whole(s) for s in sent if s.size_bytes <= SMALL_BYTES] or [0.0]) - send[0] - receive[0], 0.0)
    gap = min(median(gaps or [0.0]), rest) if any(not s.local for s in sent) else rest
    return np.array([*send, *receive, gap, 0.0])


def _of(
    samples: Sequence[LinkSample], probe: str, types: Mapping[str, str], kind: str, received: bool = False
) -> list[LinkSample]:
    """The probes that show what a type of device takes, as the sender, or as the receiver."""
    mine = [s for s in samples if s.kind == probe and types[s.target if received else s.source] == kind]
    return [s for s in mine if not s.local] or mine


def _line(points: Sequence[tuple[int, float, float]]) -> Floats:
    """``(2,)`` seconds, and seconds a byte, neither negative, through (size, seconds, seconds of the whole message).

    An error counts by the part of the message's time that it is: what copying takes before a small message leaves
    tells nothing of a large one, of which only the request is sent. One that took no time tells nothing, as in
    ``by_size``.
    """
    told = [point for point in points if point[2] > 0]
    if not told:
        return np.zeros(2)
    size, seconds, whole = np.array(told, dtype=np.float64).T
    found, _ = scipy.optimize.nnls(np.stack([1 / whole, size / whole * SCALE], axis=1), seconds / whole)
    return np.array([found[0], found[1] * SCALE])


def _taken(samples: Sequence[LinkSample], times: WayTimes) -> list[tuple[int, float, float]]:
    """What it took to take messages that were surely there, a point a size as ``_line`` has them; where there are few,
    none.

    The lower quartile of all frames of a size: a busy host may not be done with a message that should be there, and
    waiting is no taking. One whose share of a processor is used up waits in each of the few frames of a pair. From
    other hosts only what goes unasked: the rest of a large one comes at whatever pace a busy receiver has for it.
    """
    alike: dict[int, list[tuple[LinkSample, float]]] = defaultdict(list)
    for s in samples:
        known = by_size((s.source, s.target), times)
        if s.size_bytes in known and (s.local or s.size_bytes <= EAGER_BYTES):
            alike[s.size_bytes].append((s, known[s.size_bytes]))
    points = []
    for size, probes in alike.items():
        frames = [
            (t, there > SURELY * whole) for s, whole in probes for t, there in zip(s.times_s, s.there_s, strict=True)
        ]
        seen = [t for t, surely in frames if surely]
        if 2 * len(seen) > len(frames):
            points.append((size, float(np.quantile(seen, 0.25)), median([whole for _, whole in probes])))
    return points


def _at_most(receive: Floats, left: Sequence[tuple[int, float]]) -> Floats:
    """No more than messages to a rank that waits for them leave: one that has computed finds its caches cold.

    left: sizes, and seconds that sending leaves of a message
    """
    small = [seconds for size, seconds in left if size <= SMALL_BYTES]
    large = [seconds / size for size, seconds in left if size > EAGER_BYTES]
    return np.array(
        [min(r, max(median(most), 0.0)) if most else r for r, most in zip(receive, (small, large), strict=True)]
    )


def _gap(burst: LinkSample, one_s: float, send: Floats, receive: Floats) -> float:
    """Seconds that a link takes for each more message, unless handing it over takes as long."""
    more = (median(burst.times_s) - one_s) / (burst.count - 1) - receive[0]
    return max(more, 0.0) if more > send[0] else 0.0


def _path(pair: Pair, times: WayTimes, local: bool, own: Floats, other: Floats) -> Floats:
    """``(3,)`` bytes/s, latency and step of a way. own, other: overheads of its two devices. ``CleaveError`` where no
    message took any time.
    """
    rest = {size: t - _overhead(size, own, other) for size, t in by_size(pair, times).items()}
    if not rest:
        raise CleaveError(f"no message from {' to '.join(pair)} took any time by their clocks: measure again")
    small = [size for size in rest if size <= SMALL_BYTES] or [min(rest)]
    large = [size for size in rest if size >= max(rest) / SPREAD]
    latency, per_byte, overlap = 0.0, 0.0, float(other[5])
    for _ in range(ROUNDS):
        lags = [(lag_s(latency, overlap, per_byte * size), size) for size in large]
        per_byte = max(median([(rest[size] - lag) / size for lag, size in lags]), 1 / FASTEST_BYTES_PER_S)
        lag = median([rest[size] - (1 - overlap) * per_byte * size for size in small])
        latency = 0.0 if local else max(lag, 0.0)
    return np.array([1 / per_byte, latency, _step(rest, per_byte)])


def _overlap(times: WayTimes, pairs: Mapping[Pair, Sequence[Floats]]) -> float:
    """Which of ``OVERLAPS`` leaves messages of all sizes the least off: the smallest of those that are as good.

    pairs: with the overheads of both ends
    """
    off: list[float] = []
    for overlap in OVERLAPS:
        ends = {pair: (own, np.array([*other[:-1], overlap])) for pair, (own, other) in pairs.items()}
        found = [_errors(pair, times, _path(pair, times, False, *of), *of) for pair, of in ends.items()]
        off.append(sum(abs(error) for errors in found for error in errors.values()))
    return next(overlap for overlap, each in zip(OVERLAPS, off, strict=True) if each <= AS_GOOD * min(off))


def way_times(samples: Iterable[LinkSample]) -> WayTimes:
    """Of messages that nothing else was under way beside."""
    found: dict[Pair, dict[int, float]] = defaultdict(dict)
    for s in samples:
        if s.kind == WAY:
            found[s.source, s.target][s.size_bytes] = median(s.times_s)
    return found


def by_size(pair: Pair, times: WayTimes) -> dict[int, float]:
    """Size → seconds one way; of small messages the mean of there and back, which no clock has a part in. One that took
    no time, as clocks that were disturbed have it, tells nothing and is left out."""
    there, back = (times.get(each, {}) for each in (pair, pair[::-1]))
    known = {n: (t + back[n]) / 2 if n <= ALIKE_BYTES and n in back else t for n, t in there.items()}
    return {n: t for n, t in known.items() if t > 0}


def _overhead(size: int, own: Floats, other: Floats) -> float:
    """Seconds of a message besides latency and bytes: both processors, and the gap of the link that it comes in by."""
    return float(own[0] + own[1] * size + other[4] + other[2] + other[3] * size)


def _one_way(size: int, path: Floats, own: Floats, other: Floats) -> float:
    """Seconds of a message by the figures, as ``model.simulator.simulation`` has it where nothing else is under way."""
    return float(_overhead(size, own, other) + lag_s(path[1], other[5], size / path[0]) + size / path[0])


def _errors(pair: Pair, times: WayTimes, path: Floats, own: Floats, other: Floats) -> dict[int, float]:
    """``Path.errors``."""
    return {size: _one_way(size, path, own, other) / time_s - 1 for size, time_s in by_size(pair, times).items()}


def _step(rest: Mapping[int, float], per_byte: float) -> float:
    """Between the largest message that goes unasked and the smallest that asks."""
    unasked = [size for size in rest if size <= EAGER_BYTES]
    asking = [size for size in rest if size > EAGER_BYTES]
    if not unasked or not asking:
        return 0.0
    more = min(asking) - max(unasked)
    return max(rest[min(asking)] - rest[max(unasked)] - per_byte * more, 0.0)


def _share(sample: LinkSample, times: WayTimes) -> Floats:
    """``(1,)`` how far two messages hold one another up; NaN where they were not measured apart, or took no time."""
    second = (sample.target, sample.source) if sample.kind == BOTH else (sample.also, sample.target)
    one, two = (times.get(p, {}).get(sample.size_bytes, np.nan) for p in ((sample.source, sample.target), second))
    return np.array([(median(sample.times_s) - max(one, two)) / min(one, two) if min(one, two) > 0 else np.nan])
