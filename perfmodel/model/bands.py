"""Intervals of sums and of ratios, when the errors of the terms share causes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def quadrature(a: ArrayLike, b: ArrayLike) -> Array:
    """Half-width of the sum of two independent errors.

        sqrt(a^2 + b^2)                                                       [as a and b]

    a, b   half-widths of the two
    Source: variances of independent variables add
    Limits: b = 0 -> |a|;  a = b -> sqrt(2) a;  3, 4 -> 5
    """
    return np.hypot(_array(a), _array(b))


def sum_band(*parts: tuple[ArrayLike, ArrayLike, ArrayLike]) -> tuple[Array, Array, Array]:
    """(low, centre, high) of a sum of parts, each with a cause of error of its own.

        low = t - sqrt(sum (t_i - low_i)^2),   high = t + sqrt(sum (high_i - t_i)^2),   t = sum t_i     [s]

    parts  (low, centre, high) of each [s]
    Source: variances of independent variables add
    Limits: no parts -> 0;  one part -> that part;  errors of 3 and 4 -> 5
    """
    lows, centres, highs = (np.array([_array(part[at]) for part in parts]) for at in range(3))
    time = centres.sum(axis=0)
    down, up = (np.sqrt(np.sum((ends - centres) ** 2, axis=0)) for ends in (lows, highs))
    return time - down, time, time + up


def slowdown_band(
    C: tuple[ArrayLike, ArrayLike, ArrayLike],
    K: tuple[ArrayLike, ArrayLike, ArrayLike],
    b: tuple[ArrayLike, ArrayLike, ArrayLike],
) -> tuple[Array, Array]:
    """Interval of the slowdown (C + K) / b from (low, centre, high) of each part.

        low  = s - hypot((C - C_low)/b,  s - (C + K_high)/b_high)             [-]
        high = s + hypot((C_high - C)/b, (C + K_low)/b_low - s),   s = (C + K)/b

    C      all communication steps; they share one cause (one library on one fabric), so the lows and the
           highs of the steps were added before, as if fully correlated, and what errs apart by ``sum_band``
    K      the kernels of the sharded pass, added in the same way;  b  the local kernel (the baseline)
    The same kernel model gives K and b, so its error moves both at once: were all kernels faster than
    thought (K_low, b_low), the unchanged communication would weigh more and the slowdown would be higher.
    Communication and kernels have separate causes: the two shifts of s combine in quadrature.
    Source: first-order propagation about the centre, group by group
    Limits: no communication and K = b -> low = high = 1;  no errors -> low = high = s;
            exact kernels -> (C_low + K)/b and (C_high + K)/b
    """
    (c_low, c, c_high), (k_low, k, k_high), (b_low, base, b_high) = (
        tuple(_array(x) for x in part) for part in (C, K, b)
    )
    s = (c + k) / base
    down = quadrature((c - c_low) / base, s - (c + k_high) / b_high)
    up = quadrature((c_high - c) / base, (c + k_low) / b_low - s)
    return s - down, s + up
