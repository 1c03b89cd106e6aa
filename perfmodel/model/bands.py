"""Intervals of sums and of ratios, when the errors of the terms share causes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def quadrature(a: ArrayLike, b: ArrayLike) -> Array:
    """Half-width of the sum of two numbers with independent errors.

        sqrt(a^2 + b^2)                                                       [as a and b]

    a, b   half-widths of the two numbers
    Source: variances of independent variables add
    Limits: b = 0 -> |a|;  a = b -> sqrt(2) a;  3, 4 -> 5
    """
    return np.hypot(_array(a), _array(b))


def sum_band(*parts: tuple[ArrayLike, ArrayLike, ArrayLike]) -> tuple[Array, Array, Array]:
    """(low, centre, high) of a sum of parts with independent errors.

        low = t - sqrt(sum (t_i - low_i)^2),   high = t + sqrt(sum (high_i - t_i)^2),   t = sum t_i     [s]

    parts  (low, centre, high) of each [s]
    Source: variances of independent variables add
    Limits: no parts -> 0;  one part -> that part;  errors of 3 and 4 -> 5
    """
    lows, centres, highs = (np.array([_array(part[at]) for part in parts]) for at in range(3))
    time = centres.sum(axis=0)
    down, up = (np.sqrt(np.sum((ends - centres) ** 2, axis=0)) for ends in (lows, highs))
    return time - down, time, time + up


Times = tuple[ArrayLike, ArrayLike, ArrayLike]


def slowdown_band(C: Times, *shared: tuple[Times, Times]) -> tuple[Array, Array]:
    """Interval of the slowdown s = (C + sum K_i) / sum b_i, from (low, centre, high) of each part.

        low  = s - sqrt(((C - C_low)/b)^2  + sum_i (s - (t + K_i,high - K_i)/(b + b_i,high - b_i))^2)     [-]
        high = s + sqrt(((C_high - C)/b)^2 + sum_i ((t + K_i,low - K_i)/(b + b_i,low - b_i) - s)^2)
        t = C + sum K_i,   b = sum b_i

    C      communication, which only the sharded pass has. Its steps share one cause of error (one library,
           one fabric), so their ends were added before; independent errors are combined by ``sum_band``
    shared  (K_i, b_i), pairs with one common error: kernels of the sharded pass, and of the local pass (the
            baseline); in a training step also their sorts of ids
    The same kernel model gives K and b, so its error moves both together: if all kernels are faster than
    assumed (K_low, b_low), communication is a larger share and the slowdown is higher. The causes are
    independent: the shifts of s combine in quadrature.
    Source: first-order propagation about the centre, group by group
    Limits: no communication and K = b -> low = high = 1;  no errors -> low = high = s;
            exact kernels -> (C_low + K)/b and (C_high + K)/b
    """
    c_low, c, c_high = (_array(x) for x in C)
    pairs = [tuple(tuple(_array(x) for x in part) for part in pair) for pair in shared]
    time = c + sum((k for (_, k, _), _ in pairs), np.zeros(()))
    base = sum((b for _, (_, b, _) in pairs), np.zeros(()))
    s = time / base
    down, up = (c - c_low) / base, (c_high - c) / base
    for (k_low, k, k_high), (b_low, b, b_high) in pairs:
        down = quadrature(down, s - (time - k + k_high) / (base - b + b_high))
        up = quadrature(up, (time - k + k_low) / (base - b + b_low) - s)
    return s - down, s + up
