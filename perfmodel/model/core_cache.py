"""A core that gathers rows through its own, initially empty cache: rate, time, wait for the last rows.

``model.one_chip`` has the resources that all cores share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.recording import Number

Array = NDArray[np.float64]

_MOST_STEPS = 60
_CLOSE = 1e-9


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def passed_rate(rate: ArrayLike, out: ArrayLike, passed: ArrayLike) -> Array:
    """Rate at which a core gathers rows through its own cache, limited by the cache or by its misses.

        BW = min(BW_1, BW_out / m)                                            [bytes/s]

    rate  BW_1, rate of its cache [bytes/s];  out  BW_out, rate from outside the core [bytes/s]
    passed  m, share of the look-ups that miss its cache [-]
    Source: definition: a row that its cache has does not wait for one that comes from outside
    Limits: m = 0 -> BW_1;  m = 1 -> min(BW_1, BW_out)
    """
    with np.errstate(divide="ignore"):
        return np.minimum(_array(rate), _array(out) / _array(passed))


@np.errstate(divide="ignore", invalid="ignore")
def cold_gather_time(
    n: Number,
    row: Number,
    first: Number,
    slowest: Number,
    near: Number,
    missed: Number,
    misses: Number,
    in_flight: Number,
    peak: Number,
) -> Number:
    """Time of one core to gather rows through its own cache, which is empty at first.

        t = max(l_1 + max(n - 2k, 0) s + l_0 + d, l_max + (n - 1) row / BW)                 n > k     [s]
        t = l_max + (n - 1) row / BW                                                        n <= k
        s = max(((n - k - u) l_0 + u l_u) / (n - k) / k, row / BW)

    n, row, in_flight k, peak BW  as in ``one_chip.gather_time``
    first      l_1, mean latency of the first k rows;  slowest  l_max, latency of the slowest of them [s]
    near       l_0, latency of a row in the core's cache;  missed  l_u, of a row that misses it [s]
    misses     u, misses among the look-ups after the first k [-];  d  ``last_wait`` of the last look-ups
    Source: the first k look-ups find nothing, or wait for a row that is on its way; the others as by Little's
            law, one every s; k of them begin at once, and the last ones are waited for
    Limits: all miss, l_1 = l_u -> ``one_chip.gather_time``;  u = 0, n -> inf -> n l_0 / k, or n row / BW
    """
    k = in_flight
    later = np.maximum(n - k, 1e-300)
    share = np.minimum(misses, later) / later
    mean = near + share * (missed - near)
    each = np.maximum(mean / k, row / peak)
    more = np.maximum(missed - near, 0)
    tail = last_wait(more, share, np.minimum(later, more / each), each)
    waves = np.where(n > k, first + np.maximum(n - 2 * k, 0) * each + near + tail, 0)
    lined_up = slowest + (n - 1) * row / peak
    return np.where(n > 0, np.maximum(waves, lined_up), 0)


@np.errstate(divide="ignore", invalid="ignore")
def last_wait(more: Number, chance: Number, window: Number, each: Number) -> Number:
    """Extra wait for the last of a sequence of look-ups, when a share of them is slower than the rest.

        d = l (1 - e^-x) - W s (1 - (1 + x) e^-x) / x,   x = q W              [s]

    more  l, extra time of a slow look-up [s];  chance  q, that a look-up is slow [-]
    each  s, time between look-ups [s];  window  W, last look-ups that may matter: at most l / s, or all
    Source: the last slow one is i look-ups before the end with q e^(-q i): mean of l - i s where i <= W
    Limits: q = 0 -> 0;  W = l / s, x -> inf -> l
    """
    x = np.maximum(chance * window, 1e-12)
    none = np.exp(-x)
    return np.maximum(more * (1 - none) - window * each * (1 - (1 + x) * none) / x, 0)


def unique_of_pieces(p: Array, rows: Array, draws: Array) -> Array:
    """Distinct rows that each of P pieces of a table is asked for: sum over bins of rows (1 - (1 - p)^draws).

    p      probability of a row in each bin [bins], as ``access.unique_rows`` has it
    rows   rows of each piece in each bin [P, bins];  draws  look-ups of each piece [P]
    """
    return np.asarray(np.sum(rows * -np.expm1(draws[:, np.newaxis] * np.log1p(-p)), axis=1))


def stays_in_core(p: Array, rows: Array, draws: Array, held: Array) -> Array:
    """Draws after which each of P pieces of a table has filled the core's cache; inf if they never fill it.

    T_c solves U(T_c) = held, where U is ``unique_of_pieces``.
    p  probability of a row in each bin [bins];  rows  of a piece in each bin [P, bins]
    draws  look-ups of each piece [P];  held  rows of each piece that the cache has space for [P]
    Newton's method for log U over log T, which is concave: iterates rise from below and do not overshoot.
    Limits: less than one row held -> 0
    """
    falls = np.log1p(-p)
    out = np.where(unique_of_pieces(p, rows, draws) <= held, np.inf, 0.0)
    short = (out == 0) & (held >= 1)
    of, room = rows[short], held[short]
    times = room.copy()
    for _ in range(_MOST_STEPS if room.size else 0):
        kept = np.exp(times[:, np.newaxis] * falls)
        asked = np.sum(of * (1 - kept), axis=1)
        slope = times * np.sum(of * -falls * kept, axis=1) / asked
        step = np.log(room / asked) / slope
        times = times * np.exp(step)
        if np.max(np.abs(step)) < _CLOSE:
            break
    out[short] = times
    return out
