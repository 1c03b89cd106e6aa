"""What the cores of one chip share, and what a core waits for: channels, cache, latency, partial bags.

The ways to look a table up on one core are in ``model.one_core``; rates there are those of a core, here also
those of all cores together.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_FAR, _POINTS = 6.0, 400
"""Of the sum over normal numbers: standard deviations to either side, and points."""


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def read_bytes(row: ArrayLike, access: ArrayLike) -> Array:
    """Bytes that one row takes from global memory, which gives whole accesses.

        x = a ceil(row / a)                                                   [bytes]

    row  bytes of one row [bytes];  access  a, smallest read [bytes]
    Source: definition; rows begin at an access
    Limits: a = 1 -> row;  row = a -> a
    """
    smallest = _array(access)
    return smallest * np.ceil(_array(row) / smallest)


def issued_rate(row: ArrayLike, rate: ArrayLike, issue: ArrayLike) -> Array:
    """Rate of rows that a core asks for one after the other.

        BW(row) = min(BW, row / i)                                            [bytes/s]

    row  bytes of one row [bytes];  rate  BW, of long reads [bytes/s];  issue  i, to ask for one row [s]
    Source: definition: asking for the next row and copying this one overlap
    Limits: i = 0 -> BW;  row -> inf -> BW
    """
    with np.errstate(divide="ignore"):
        return np.minimum(_array(rate), _array(row) / _array(issue))


def row_latency(row: ArrayLike, first_byte: ArrayLike, *rates: ArrayLike) -> Array:
    """Time from a row's request to its last byte, where nobody else is served.

        t = t_0 + sum of row / BW                                             [s]

    row  bytes of one row [bytes];  first_byte  t_0 [s]
    rates  BW of what it passes whole, one after the other: a cache slice, a channel [bytes/s]
    Source: definition
    Limits: row -> 0 -> t_0
    """
    return _array(first_byte) + sum((_array(row) / _array(rate) for rate in rates), _array(0.0))


def gather_time(
    n: ArrayLike,
    row: ArrayLike,
    latency: ArrayLike,
    slowest: ArrayLike,
    in_flight: ArrayLike,
    peak: ArrayLike,
) -> Array:
    """Time of one core to gather rows, some of which are on their way at once.

        t = max(n l / k, l_max + (n - 1) row / BW)   if n > 0                 [s]

    n  look-ups [-];  row  bytes of one row [bytes];  latency  l, of one row, mean [s]
    slowest    l_max, of the slowest of the rows that are on their way at once [s]
    in_flight  k, rows requested and not yet there [-];  peak  BW, what the core can take [bytes/s]
    Source: Little's law, or one row after the other; and the first rows are waited for
    Limits: n = 0 -> 0;  n = 1 -> l_max;  k = 1, l = l_max -> n l;
            n -> inf -> ``one_core.gm_time`` by ``one_core.row_rate``
    """
    draws = _array(n)
    waves = draws / _array(in_flight) * _array(latency)
    lined_up = _array(slowest) + (draws - 1) * _array(row) / _array(peak)
    return np.where(draws > 0, np.maximum(waves, lined_up), 0)


def slowest_row(near: ArrayLike, far: ArrayLike, hit: ArrayLike, rows: ArrayLike) -> Array:
    """Mean latency of the slowest of several rows, each of which is in the cache or not.

        l = near h^n + far (1 - h^n)                                          [s]

    near, far  latency of a row of the cache, of the memory [s];  hit  h, share of the former [-]
    rows  n, that are on their way at once [-]
    Source: elementary probability
    Limits: n = 1 -> the mean;  h = 1 -> near;  n -> inf -> far, unless h = 1
    """
    all_near = _array(hit) ** _array(rows)
    return _array(near) * all_near + _array(far) * (1 - all_near)


def gather_variance(
    n: ArrayLike, share: ArrayLike, near: ArrayLike, far: ArrayLike, hit: ArrayLike, in_flight: ArrayLike
) -> Array:
    """Variance of the time to gather rows, where latency decides it.

        v = n [h (1 - h) (far - near)^2 + (1 - f) l^2] / k^2,   l = h near + (1 - h) far      [s^2]

    n, in_flight  as in ``gather_time``, n the mean;  near, far, hit  as in ``slowest_row``
    share  f, of the look-ups that fall into the part of the table [-]
    Source: a binomial number of independent rows; k of them share the time
    Limits: f = 1, h = 0 or 1 -> 0;  near = far = l -> n (1 - f) (l / k)^2
    """
    kept, close, away = _array(hit), _array(near), _array(far)
    mean = kept * close + (1 - kept) * away
    each = kept * (1 - kept) * (away - close) ** 2 + (1 - _array(share)) * mean**2
    return np.asarray(_array(n) * each / _array(in_flight) ** 2)


def most_of(count: float) -> float:
    """How far the largest of several normal numbers is above their mean, in standard deviations.

        z = Phi^-1((n - 3/8) / (n + 1/4))                                     [-]

    count  n, numbers [-], >= 1
    Source: Blom, Statistical Estimates and Transformed Beta-Variables (1958)
    Limits: n = 1 -> 0;  n -> inf -> sqrt(2 ln n)
    """
    return NormalDist().inv_cdf((count - 3 / 8) / (count + 1 / 4))


def slowest_core(mean: ArrayLike, variance: ArrayLike) -> float:
    """Time until the last of several cores is ready, whose times vary.

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
    return max(top, summed)  # the mean of a maximum is no less than the maximum of means; a grid may be


def _log_normal(x: Array) -> Array:
    """Logarithm of the share of normal numbers below x."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(x))


def hottest_share(top: ArrayLike, rows: ArrayLike, parts: ArrayLike) -> Array:
    """Share of the look-ups that goes to the part of the memory, or of the table, that holds the hottest row.

        q = p + (1 - p) (ceil(m / C) - 1) / (m - 1)                           [-]

    top  p, share of the hottest row [-];  rows  m, of the table [-]
    parts  C, channels, slices or chunks that rows are dealt to in turn [-]
    Source: rows of any popularity at any place: ceil(m / C) - 1 of the m - 1 others are with the hottest one
    Limits: p = 1 -> 1;  C = 1 -> 1;  p = 1/m, m a multiple of C -> 1/C;  m <= C -> p;
            m -> inf -> p + (1 - p) / C
    """
    share, every = _array(top), _array(rows)
    others = (np.ceil(every / _array(parts)) - 1) / np.maximum(every - 1, 1)
    return share + (1 - share) * others


def uneven(spread: ArrayLike, parts: ArrayLike) -> Array:
    """Bytes of the fullest of several parts beyond an even share, where requests are dealt at random.

        x = z(C) sqrt(sum of w^2 / C)                                         [bytes]

    spread  sum of w^2 over the requests, or over rows with all their look-ups [bytes^2];  parts  C [-]
    Source: ``most_of`` of the parts: what a request of w adds to one of them has a variance of w^2 / C
    Limits: C = 1 -> 0;  n requests of w: x / (n w / C) -> 0 as n -> inf
    """
    many = _array(parts)
    above = np.vectorize(most_of, otypes=[float])(many)
    return np.asarray(above * np.sqrt(_array(spread) / many))


def touched_bags(bags: ArrayLike, pooling: ArrayLike, share: ArrayLike) -> Array:
    """Bags that have at least one look-up in a part of the rows.

        b (1 - (1 - f)^L)                                                     [-]

    bags  b [-];  pooling  L, look-ups of a bag [-];  share  f, of the look-ups that fall into the part [-]
    Source: elementary probability
    Limits: f = 1 -> b;  L = 1 -> b f;  f = 0 -> 0
    """
    with np.errstate(divide="ignore"):
        return -_array(bags) * np.expm1(_array(pooling) * np.log1p(-_array(share)))


def chunk_times(
    stream: ArrayLike,
    gather: ArrayLike,
    chunks: ArrayLike,
    hottest: ArrayLike,
    latency: ArrayLike,
    scan: ArrayLike = 0,
) -> Array:
    """One pass of a table past two buffers that take turns, one chunk of which has more look-ups.

        t = l + s + f(e + q g) + (c - 2) f(e + r) + e + r,   r = (1 - q) g / (c - 1)      c > 1    [s]
        t = l + s + e + g                                                                 c = 1
        f(g) = max(s, g, (s + g + l) / 2)

    stream  s, of one chunk alone [s];  gather  g, of all chunks alone [s];  chunks  c [-], >= 1
    hottest  q, share of the look-ups in the hottest chunk [-];  latency  l, of a copy [s]
    scan  e, to find the ids of a chunk among those of the pass [s]
    Source: pipeline of two stages; a buffer is filled, waited for and looked up, and there are two of them
    Limits: q = 1/c, l = e = 0 -> ``one_core.two_stages``;  q = 1 -> nothing of g overlaps but one chunk
    """
    s, g, c, q, wait, each = (_array(a) for a in (stream, gather, chunks, hottest, latency, scan))
    rest = each + (1 - q) * g / np.maximum(c - 1, 1)

    def slot(of: Array) -> Array:
        return np.maximum(np.maximum(s, of), (s + of + wait) / 2)

    several = slot(each + q * g) + np.maximum(c - 2, 0) * slot(rest) + rest
    return wait + s + np.where(c > 1, several, each + g)


def chip_time(wait: ArrayLike, core: ArrayLike, even: ArrayLike, fullest: ArrayLike) -> Array:
    """Time of work that all cores do side by side, in steps that all of them are at together.

        t = max(sum of max(core, wait + even), sum of wait + fullest)         [s]

    wait     of each step, until what is shared has something to do [s], shape [..., steps]
    core     of each step, of its busiest core if it were alone, waiting included [s]
    even     of each step, bytes over rate of memory, cache, or what has the hottest row: the longest [s]
    fullest  of all steps, bytes over rate of the channel or slice to which chance deals most [s]
    Source: definition: what is busiest decides; no core waits for others between steps, and chance picks
            another channel in the next one
    Limits: one of them far above the others -> that one;  several alike -> up to their sum is possible
    """
    waits = _array(wait)
    steps = np.sum(np.maximum(_array(core), waits + _array(even)), axis=-1)
    return np.asarray(np.maximum(steps, np.sum(waits, axis=-1) + _array(fullest)))


def in_order_time(steps: ArrayLike, hottest: ArrayLike, wait: ArrayLike, fullest: ArrayLike) -> Array:
    """Time of tables that all cores go through in one order, none of which waits for the others in between.

        t = max(steps + hottest, wait + fullest)                              [s]

    steps    sum over the steps of all tables of max(core, wait + even), hottest parts left out [s]
    hottest  how much longer the part with the hottest row of a table takes than its step does otherwise, of
             the table where that is most [s];  wait, fullest  as in ``chip_time``, over all tables [s]
    Source: flow shop of equal jobs: the sum of one job's times, and the longest station once for every other
            job; the stations are hottest parts, the jobs cores
    Limits: hottest = 0 -> steps;  one table -> about ``chip_time``. Where cores arrive at a hottest part
            together, other tables wait too, and it is up to half too short (benchmarks/one_chip.py)
    """
    return np.asarray(np.maximum(_array(steps) + _array(hottest), _array(wait) + _array(fullest)))
