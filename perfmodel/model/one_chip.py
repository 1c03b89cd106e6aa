"""What the cores of a chip share, and what a core waits for: channels, cache, latency, partial bags.

``model.one_core`` has the ways to look up a table on one core; its rates are per core, here also for all
cores together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.recording import Number

Array = NDArray[np.float64]

_FAR, _POINTS = 6.0, 400
"""Integration over normal numbers: standard deviations to either side, and points."""

_MANY_BALLS = 1e3  # per bin: above, the number of balls in a bin is taken as normal


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def read_bytes(row: ArrayLike, access: ArrayLike) -> Array:
    """Bytes that one row takes from global memory, which delivers whole accesses.

        x = a ceil(row / a)                                                   [bytes]

    row  bytes of one row [bytes];  access  a, smallest read [bytes]
    Source: definition; rows begin at an access
    Limits: a = 1 -> row;  row = a -> a
    """
    smallest = _array(access)
    return smallest * np.ceil(_array(row) / smallest)


def issued_rate(row: ArrayLike, rate: ArrayLike, issue: ArrayLike) -> Array:
    """Rate at which a core copies rows that it requests one after the other.

        BW(row) = min(BW, row / i)                                            [bytes/s]

    row  bytes of one row [bytes];  rate  BW, of long reads [bytes/s];  issue  i, time to request a row [s]
    Source: definition: asking for the next row and copying this row overlap
    Limits: i = 0 -> BW;  row -> inf -> BW
    """
    with np.errstate(divide="ignore"):
        return np.minimum(_array(rate), _array(row) / _array(issue))


def row_latency(row: ArrayLike, first_byte: ArrayLike, *rates: ArrayLike) -> Array:
    """Time from a row's request to its last byte, without contention.

        t = t_0 + sum of row / BW                                             [s]

    row  bytes of one row [bytes];  first_byte  t_0 [s]
    rates  BW of each stage that it passes whole, one after the other: a cache slice, a channel [bytes/s]
    Source: definition
    Limits: row -> 0 -> t_0
    """
    return _array(first_byte) + sum((_array(row) / _array(rate) for rate in rates), _array(0.0))


@np.errstate(divide="ignore", invalid="ignore")
def gather_time(
    n: Number, row: Number, latency: Number, slowest: Number, in_flight: Number, peak: Number
) -> Number:
    """Time of one core to gather rows, several of which are in flight at once.

        t = max(n l / k, l_max + (n - 1) row / BW)   if n > 0                 [s]

    n  look-ups [-];  row  bytes of one row [bytes];  latency  l, mean latency of a row [s]
    slowest    l_max, latency of the slowest of the rows in flight at once [s]
    in_flight  k, rows requested and not yet there [-];  peak  BW, most that the core can receive [bytes/s]
    Source: Little's law, or one row after the other; and the first rows are waited for
    Limits: n = 0 -> 0;  n = 1 -> l_max;  k = 1, l = l_max -> n l;
            n -> inf -> n row / BW, or n l / k
    """
    waves = n / in_flight * latency
    lined_up = slowest + (n - 1) * row / peak
    return np.where(n > 0, np.maximum(waves, lined_up), 0)


def slowest_row(latency: Sequence[ArrayLike], share: Sequence[ArrayLike], rows: ArrayLike) -> Array:
    """Mean latency of the slowest of several rows, each of which is in one of several places.

        l = sum over places i of l_i (F_i^n - F_(i-1)^n),   F_i = h_1 + ... + h_i       [s]

    latency  l_i of a row in each place, nearest place first: caches, memory [s]
    share    h_i, share of the rows in each place but the last, which has all others [-]
    rows     n, rows in flight at once [-]
    Source: elementary probability: the slowest of n is no farther than i where all are
    Limits: n = 1 -> the mean;  h_1 = 1 -> l_1;  n -> inf -> the last, unless nothing is there
    """
    slowest, nearer = _array(0.0), _array(0.0)
    for each, upto in zip(latency, [*_summed(share), _array(1.0)], strict=True):
        all_here = upto ** _array(rows)
        slowest, nearer = slowest + _array(each) * (all_here - nearer), all_here
    return slowest


def gather_variance(
    n: ArrayLike,
    part: ArrayLike,
    latency: Sequence[ArrayLike],
    share: Sequence[ArrayLike],
    in_flight: ArrayLike,
) -> Array:
    """Variance of the time to gather rows, where latency determines it.

        v = n [sum over pairs i, j of h_i h_j (l_j - l_i)^2 + (1 - f) l^2] / k^2,  l = sum of h_i l_i    [s^2]

    n, in_flight  as in ``gather_time``, n the mean;  latency, share  as in ``slowest_row``
    part  f, share of the table's look-ups that fall into this part [-]
    Source: a binomial number of independent rows; k of them share the time
    Limits: f = 1, one place has all -> 0;  one latency l -> n (1 - f) (l / k)^2
    """
    of = [_array(a) for a in share]
    of.append(1 - sum(of, _array(0.0)))
    at = [_array(a) for a in latency]
    mean = sum((a * b for a, b in zip(of, at, strict=True)), _array(0.0))
    pairs = combinations(range(len(at)), 2)
    each = sum((of[i] * of[j] * (at[j] - at[i]) ** 2 for i, j in pairs), _array(0.0))
    return np.asarray(_array(n) * (each + (1 - _array(part)) * mean**2) / _array(in_flight) ** 2)


def _summed(share: Sequence[ArrayLike]) -> list[Array]:
    """Cumulative sums of the shares, at most 1."""
    return [np.minimum(sum((_array(a) for a in share[: at + 1]), _array(0.0)), 1) for at in range(len(share))]


def copies_read(copies: ArrayLike, kept: ArrayLike) -> Array:
    """Of k copies of a row by slices of a batch, the number that reads memory; the others hit the cache.

        r = 1 - (1 - f)^k + k (1 - f)^k                                       [-]

    copies  k, copies of the same row at random times of the batch [-], >= 1
    kept    f, how long a copied row stays in the cache, as a share of the batch [-]; above 1: all of it
    Source: of k times in a batch that are drawn evenly, the times with no other time up to f before
    Limits: k = 1 -> 1;  f = 0 (no cache) -> k;  f = 1 -> 1
    """
    many = _array(copies)
    alone = (1 - np.clip(_array(kept), 0, 1)) ** many
    return 1 - alone + many * alone


def most_of(count: float) -> float:
    """Expected maximum of n standard normal numbers, in standard deviations above the mean.

        z = Phi^-1((n - 3/8) / (n + 1/4))                                     [-]

    count  n, numbers [-], >= 1
    Source: Blom, Statistical Estimates and Transformed Beta-Variables (1958)
    Limits: n = 1 -> 0;  n -> inf -> sqrt(2 ln n)
    """
    return NormalDist().inv_cdf((count - 3 / 8) / (count + 1 / 4))


def slowest_core(mean: ArrayLike, variance: ArrayLike) -> float:
    """Expected time until the last of several cores is ready, when their times vary.

        t = max m + integral over x > max m of 1 - prod Phi((x - m) / s)
                  - integral over x < max m of prod Phi((x - m) / s)          [s]

    mean  m of each core [s];  variance  s^2 of each core [s^2]
    Source: mean of the largest of independent normal numbers, summed over a grid of points
    Limits: variance 0 -> the busiest;  one core far above the others -> that one;
            n alike -> m + s z(n), ``most_of``
    """
    times, deviations = np.atleast_1d(_array(mean)), np.sqrt(np.atleast_1d(_array(variance)))
    top = float(np.max(times, initial=0))
    varied = deviations > 0
    if not varied.any():
        return top
    still = float(np.max(times[~varied], initial=0))
    m, s = times[varied], deviations[varied]
    low, high = min(still, float(np.min(m - _FAR * s))), float(np.max(m + _FAR * s))
    edges = np.linspace(max(low, still), max(high, still), _POINTS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    above = 1 - np.exp(np.sum(_log_normal((middle[:, np.newaxis] - m) / s), axis=1))
    summed = float(edges[0] + np.sum(above) * (edges[1] - edges[0]))
    return max(top, summed)  # the mean of a maximum is no less; a sum over a grid may be


def _log_normal(x: Array) -> Array:
    """Logarithm of the normal distribution function at x."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(x))


def hottest_share(top: ArrayLike, rows: ArrayLike, parts: ArrayLike) -> Array:
    """Share of the look-ups that goes to the part (of memory or table) with the hottest row.

        q = p + (1 - p) (ceil(m / C) - 1) / (m - 1)                           [-]

    top  p, share of the look-ups that ask for the hottest row [-];  rows  m, rows of the table [-]
    parts  C, channels, slices or chunks to which rows are dealt in turn [-]
    Source: rows of any popularity at any place: ceil(m / C) - 1 of the m - 1 others are with the hottest one
    Limits: p = 1 -> 1;  C = 1 -> 1;  p = 1/m, m a multiple of C -> 1/C;  m <= C -> p;
            m -> inf -> p + (1 - p) / C
    """
    share, every = _array(top), _array(rows)
    others = (np.ceil(every / _array(parts)) - 1) / np.maximum(every - 1, 1)
    return share + (1 - share) * others


def uneven(spread: ArrayLike, parts: ArrayLike, cubes: float = 0.0) -> Array:
    """Bytes that the fullest of several parts has above the mean, where requests are dealt at random.

        x = z(C) sqrt(s_2 / C)                                s_3 = 0, or J / C is large           [bytes]
        x = w (M(J, C) - J / C),   w = min(s_3 / s_2, sqrt(s_2)),   J = s_2 / w^2                  [bytes]

    w  weight: bytes of a request, or of all look-ups of a row;  z  ``most_of``;  M  ``most_balls``
    spread  s_2, sum of w^2 over the requests or rows [bytes^2];  parts  C [-]
    cubes   s_3, sum of w^3 of the rows, if few of them weigh much [bytes^3]; else 0
    Source: ``most_of`` of the parts: what a request of w adds to one of them has a variance of w^2 / C; few
            heavy rows, as J of one weight with the same s_2 and s_3: ``most_balls``;  no row weighs more than
            all of them, so that J >= 1
    Limits: C = 1 -> 0;  s_2 = 0 -> 0;  n requests of w: x / (n w / C) -> 0 as n -> inf;
            one heavy row -> w (1 - 1/C)
    """
    many, square = _array(parts), _array(spread)
    if cubes > 0 and float(many) > 1 and float(square) > 0:
        size = float(np.sqrt(square))
        share = min(cubes / float(square) / size, 1.0)
        if share**2 * float(many) * _MANY_BALLS > 1:
            heavy = share**-2
            return _array(share * size * (most_balls(heavy, float(many)) - heavy / float(many)))
    above = np.vectorize(most_of, otypes=[float])(many)
    return np.asarray(above * np.sqrt(square / many))


def most_balls(balls: float, bins: float) -> float:
    """Expected number of balls in the fullest bin, when each ball falls into a random bin.

        M = 1 + sum over j >= 1 of 1 - F(j)^C,   F of Poisson with a mean of J / C               [-]

    balls  J [-], >= 1;  bins  C [-]
    Source: mean of the largest of independent numbers; the first one is 1 at least
    Limits: J = 1 -> about 1;  J / C -> inf -> J / C + z(C) sqrt(J / C), ``most_of``
    """
    from scipy.special import pdtr

    mean = balls / bins
    number = np.arange(1, np.ceil(mean + 10 * np.sqrt(mean) + 20))
    return float(1 + np.sum(1 - pdtr(number, mean) ** bins))


def touched_bags(bags: ArrayLike, pooling: ArrayLike, share: ArrayLike) -> Array:
    """Bags that have at least one look-up in a given part of the rows.

        b (1 - (1 - f)^L)                                                     [-]

    bags  b [-];  pooling  L, look-ups of a bag [-];  share  f, of the look-ups that fall into the part [-]
    Source: elementary probability
    Limits: f = 1 -> b;  L = 1 -> b f;  f = 0 -> 0
    """
    with np.errstate(divide="ignore"):
        return -_array(bags) * np.expm1(_array(pooling) * np.log1p(-_array(share)))


@np.errstate(divide="ignore", invalid="ignore")
def chunk_times(
    stream: Number, gather: Number, chunks: Number, hottest: Number, latency: Number, scan: Number = 0
) -> Number:
    """Time of one pass over a table with double buffering, when one chunk has more look-ups than the others.

        t = l + s + f(e + q g) + (c - 2) f(e + r) + e + r,   r = (1 - q) g / (c - 1)      c > 1    [s]
        t = l + s + e + g                                                                 c = 1
        f(g) = max(s, g, (s + g + l) / 2)

    stream  s, of one chunk alone [s];  gather  g, of all chunks alone [s];  chunks  c [-], >= 1
    hottest  q, share of the look-ups in the hottest chunk [-];  latency  l, of a copy [s]
    scan  e, time to find the ids of a chunk among all ids of the pass [s]
    Source: pipeline of two stages; a buffer is filled, waited for and looked up, and there are two of them
    Limits: q = 1/c, l = e = 0 -> s + (c - 1) max(s, g/c) + g/c;  q = 1 -> nothing of g overlaps but one chunk
    """
    s, g, c, q, wait, each = stream, gather, chunks, hottest, latency, scan

    def slot(of: Number) -> Number:
        return np.maximum(np.maximum(s, of), (s + of + wait) / 2)

    rest = (1 - q) * g / np.maximum(c - 1, 1)
    first = slot(each + q * g)
    other = slot(each + rest)
    return wait + s + np.where(c > 1, first + np.maximum(c - 2, 0) * other + (each + rest), each + g)


def chip_time(wait: ArrayLike, core: ArrayLike, even: ArrayLike, fullest: ArrayLike) -> Array:
    """Time of work that all cores do in parallel, in steps with a common start.

        t = max(sum of max(core, wait + even), sum of wait + fullest)         [s]

    wait     per step, until the shared resource has work [s], shape [..., steps]
    core     per step, time of its busiest core if it were alone, with its waits [s]
    even     per step, bytes over rate of memory, cache, or the part with the hottest row: the longest [s]
    fullest  over all steps, bytes over rate of the channel or slice that gets most by chance [s]
    Source: definition: what is busiest decides; no core waits for others between steps, and chance picks
            another channel in the next one
    Limits: one of them far above the others -> that one;  several alike -> up to their sum is possible
    """
    waits = _array(wait)
    steps = np.sum(np.maximum(_array(core), waits + _array(even)), axis=-1)
    return np.asarray(np.maximum(steps, np.sum(waits, axis=-1) + _array(fullest)))


def queue_waits(arrive: ArrayLike, service: ArrayLike) -> Array:
    """Waiting time of each arrival at one queue, first come first served.

        w_j = d_j - s_j - a_j,   d_j = max(a_j, d_(j-1)) + s_j                [s]

    arrive  a, time of each arrival [s];  service  s, its service time [s]; arrays of one shape
    Source: Lindley (1952)
    Limits: one -> 0;  all at once -> the sum of earlier service times;  far apart -> 0
    """
    come, takes = _array(arrive), _array(service)
    order = np.argsort(come, kind="stable")
    at, each = come[order], takes[order]
    summed = np.cumsum(each)
    waits = np.zeros_like(come)
    waits[order] = np.maximum.accumulate(at - (summed - each)) + (summed - each) - at
    return np.maximum(waits, 0)


def staggered_time(steps: ArrayLike, core: ArrayLike, late: ArrayLike) -> Array:
    """Time until the last core is ready, if all cores queue for one hot row and leave the queue one by one.

        t = max over steps s of (sum of steps before s + late_s + sum of core after s),  late_s > 0       [s]

    steps  time of each step as in ``chip_time``, without that queue [s]
    core   time of each step on a core that runs alone [s]
    late   per step, time that the last core waits in the queue [s]; 0: the step has no such queue
    Source: flow shop: all jobs up to the longest station, all of them there, and the last one after it
    Limits: no queue -> 0;  the last step has it -> all before, and it
    """
    each, own, queue = _array(steps), _array(core), _array(late)
    before = np.cumsum(each, axis=-1) - each
    after = np.sum(own, axis=-1, keepdims=True) - np.cumsum(own, axis=-1)
    return np.asarray(np.max(np.where(queue > 0, before + queue + after, 0), axis=-1, initial=0))


def in_order_time(steps: ArrayLike, hottest: ArrayLike, wait: ArrayLike, fullest: ArrayLike) -> Array:
    """Time of tables that all cores process in one order, without waiting for each other in between.

        t = max(steps + hottest, wait + fullest)                              [s]

    steps    sum over the steps of all tables of max(core, wait + even), without the parts with a hottest row
             [s]
    hottest  by how much the part with a table's hottest row takes longer than the table's step: the largest
             excess of all tables [s];  wait, fullest  as in ``chip_time``, over all tables [s]
    Source: flow shop of equal jobs: the sum of one job's times, and the longest station once for every other
            job; the stations are hottest parts, the jobs cores
    Limits: hottest = 0 -> steps;  one table -> about ``chip_time``. Where cores reach a hottest part
            together, other tables wait too, and the time is up to half too short (benchmarks/one_chip.py)
    """
    return np.asarray(np.maximum(_array(steps) + _array(hottest), _array(wait) + _array(fullest)))
