"""A core that gathers rows through a cache of its own, which is empty at first: time, rate, who waits last.

What the cores of a chip share is in ``model.one_chip``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def passed_rate(rate: ArrayLike, out: ArrayLike, passed: ArrayLike) -> Array:
    """Rate of rows that a core gathers through a cache of its own, and what that does not have from outside.

        BW = min(BW_1, BW_out / m)                                            [bytes/s]

    rate  BW_1, of its cache [bytes/s];  out  BW_out, from outside [bytes/s]
    passed  m, share of the look-ups that its cache does not have [-]
    Source: definition: a row that its cache has does not wait for one that comes from outside
    Limits: m = 0 -> BW_1;  m = 1 -> min(BW_1, BW_out)
    """
    with np.errstate(divide="ignore"):
        return np.minimum(_array(rate), _array(out) / _array(passed))


def cold_gather_time(
    n: ArrayLike,
    row: ArrayLike,
    first: ArrayLike,
    slowest: ArrayLike,
    near: ArrayLike,
    missed: ArrayLike,
    misses: ArrayLike,
    in_flight: ArrayLike,
    peak: ArrayLike,
) -> Array:
    """Time of one core to gather rows through a cache of its own that is empty at first.

        t = max(l_1 + max(n - 2k, 0) s + l_0 + d, l_max + (n - 1) row / BW)                 n > k     [s]
        t = l_max + (n - 1) row / BW                                                        n <= k
        s = max(((n - k - m) l_0 + m l_m) / (n - k) / k, row / BW)

    n, row, in_flight k, peak BW  as in ``one_chip.gather_time``
    first      l_1, mean latency of the first k rows, slowest  l_max, of the slowest of them [s]
    near       l_0, of a row of the core's cache, missed  l_m, of one that it does not have [s]
    misses     m, of the look-ups after the first k [-];  d  as of ``last_wait``, of the last look-ups
    Source: the first k look-ups find nothing, or wait for a row that is on its way; the others as by Little's
            law, one every s; k of them begin at once, and the last ones are waited for
    Limits: all miss, l_1 = l_m -> ``one_chip.gather_time``;  m = 0, n -> inf -> n l_0 / k, or n row / BW
    """
    draws, k, hit, far, some = (_array(a) for a in (n, in_flight, near, missed, misses))
    later = np.maximum(draws - k, 1e-300)
    some = np.minimum(some, later)
    mean = hit + some / later * (far - hit)
    each = np.maximum(mean / k, _array(row) / _array(peak))
    more = np.maximum(far - hit, 0)
    tail = last_wait(more, some / later, np.minimum(later, more / each), each)
    waves = np.where(draws > k, _array(first) + np.maximum(draws - 2 * k, 0) * each + hit + tail, 0)
    lined_up = _array(slowest) + (draws - 1) * _array(row) / _array(peak)
    return np.where(draws > 0, np.maximum(waves, lined_up), 0)


def last_wait(more: ArrayLike, chance: ArrayLike, window: ArrayLike, each: ArrayLike) -> Array:
    """How much longer than the last of some look-ups it takes until all are there, as some take longer.

        d = l (1 - e^-x) - W s (1 - (1 + x) e^-x) / x,   x = q W              [s]

    more  l, longer than the others [s];  chance  q, of a look-up to do so [-];  each  s, between two [s]
    window  W, look-ups at the end that may count: no more than l / s, or than there are [-]
    Source: the last slow one is i look-ups before the end with q e^(-q i): mean of l - i s where i <= W
    Limits: q = 0 -> 0;  W = l / s, x -> inf -> l
    """
    long, ahead, apart = _array(more), _array(window), _array(each)
    x = np.maximum(_array(chance) * ahead, 1e-12)
    none = np.exp(-x)
    return np.asarray(np.maximum(long * (1 - none) - ahead * apart * (1 - (1 + x) * none) / x, 0))
