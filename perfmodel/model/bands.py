"""Intervals of sums and of ratios, when the errors of the terms share causes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.model.recording import Array, as_array


def add_in_quadrature(a: ArrayLike, b: ArrayLike) -> Array:
    """Half-width of the sum of two numbers with independent errors.

        sqrt(a^2 + b^2)

    a, b   half-widths of the two numbers
    Source: variances of independent variables add
    Limits: b = 0 -> |a|;  a = b -> sqrt(2) a;  3, 4 -> 5
    """
    return np.hypot(as_array(a), as_array(b))


def sum_band(*parts: tuple[ArrayLike, ArrayLike, ArrayLike]) -> tuple[Array, Array, Array]:
    """(low, centre, high) of a sum of parts with independent errors.

        low = t - sqrt(sum (t_i - low_i)^2),   high = t + sqrt(sum (high_i - t_i)^2),   t = sum t_i     [s]

    parts  (low, centre, high) of each [s]
    Source: variances of independent variables add
    Limits: no parts -> 0;  one part -> that part;  errors of 3 and 4 -> 5
    """
    lows = np.array([as_array(low) for low, _, _ in parts])
    centres = np.array([as_array(centre) for _, centre, _ in parts])
    highs = np.array([as_array(high) for _, _, high in parts])
    time = centres.sum(axis=0)
    down = np.sqrt(np.sum((lows - centres) ** 2, axis=0))
    up = np.sqrt(np.sum((highs - centres) ** 2, axis=0))
    return time - down, time, time + up


Span = tuple[ArrayLike, ArrayLike, ArrayLike]
"""(low, middle, high) of a time [s]."""


def compute_slowdown_band(C: Span, *shared: tuple[Span, Span]) -> tuple[Array, Array]:
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
    c_low, c, c_high = _make_arrays(C)
    pairs = [(_make_arrays(kernel), _make_arrays(local)) for kernel, local in shared]
    time = c + sum((k for (_, k, _), _ in pairs), np.zeros(()))
    base = sum((b for _, (_, b, _) in pairs), np.zeros(()))
    s = time / base
    down = (c - c_low) / base
    up = (c_high - c) / base
    for (k_low, k, k_high), (b_low, b, b_high) in pairs:
        down = add_in_quadrature(down, s - (time - k + k_high) / (base - b + b_high))
        up = add_in_quadrature(up, (time - k + k_low) / (base - b + b_low) - s)
    return s - down, s + up


def compute_difference_band(A: Mapping[str, Span], B: Mapping[str, Span]) -> tuple[Array, Array, Array]:
    """Interval of A - B, where errors with the same cause shift A and B together.

        low  = (A - B) - hypot(over causes c of both: max(down_A - down_B, up_B - up_A, 0);
                               sum of down_A, of causes of A alone;  sum of up_B, of causes of B alone)   [s]
        high = the same of A and B exchanged, with the other sign;   up = high_c - t_c,  down = t_c - low_c

    A, B   by cause of error, (low, middle, high) of the part of the time with that cause [s]
    Source: of a shared cause only the difference is left, causes are independent of each other, and causes
            that only one has add up as in its own band
    Limits: A = B -> low = high = 0;  no cause in common, one each -> errors add as squares;
            B = 0 -> A's own errors
    """
    zero = (0.0, 0.0, 0.0)
    lows = []  # of shared causes, what is left of the errors
    highs = []
    alone = [np.zeros(4)]  # of each other cause (down_A, up_B, up_A, down_B)
    for cause in sorted(A.keys() | B.keys()):
        a_low, a, a_high = _make_arrays(A.get(cause, zero))
        b_low, b, b_high = _make_arrays(B.get(cause, zero))
        if cause not in A or cause not in B:
            alone.append(np.array([a - a_low, b_high - b, a_high - a, b - b_low]))
            continue
        down = (a - a_low) - (b - b_low)
        up = (a_high - a) - (b_high - b)
        lows.append(max(down, -up, 0.0))
        highs.append(max(up, -down, 0.0))
    a_down, b_up, a_up, b_down = np.sum(alone, axis=0)
    middle = sum((_make_arrays(x)[1] for x in A.values()), np.zeros(())) - sum(
        _make_arrays(x)[1] for x in B.values()
    )
    return (
        middle - np.hypot.reduce([*lows, a_down, b_up]),
        middle,
        middle + np.hypot.reduce([*highs, a_up, b_down]),
    )


def compute_ratio_band(A: Span, B: Span) -> tuple[Array, Array, Array]:
    """Interval of A / B with independent errors: every r for which the interval of A - r B contains 0.

        low  = A / B (1 - u^2) / (1 + sqrt(u^2 + v^2 - u^2 v^2))               [-]
               with u = (A - A_low) / A and v = (B_high - B) / B
        high = A / B (1 + sqrt(u^2 + v^2 - u^2 v^2)) / (1 - v^2)
               with u = (A_high - A) / A and v = (B - B_low) / B

    A, B   (low, middle, high), above 0 [s]
    Source: Donner and Zou, Closed-form confidence intervals for functions of the normal mean and standard
            deviation, Stat. Methods Med. Res. 21, 2012 (MOVER for a ratio)
    Limits: no errors -> low = high = A / B;  A and B exchanged -> 1/high, B/A, 1/low;  it contains 1 exactly
            where the interval of A - B contains 0
    """
    a_low, a, a_high = _make_arrays(A)
    b_low, b, b_high = _make_arrays(B)
    u, v = 1 - a_low / a, b_high / b - 1
    low = a / b * (1 - u**2) / (1 + np.sqrt(u**2 + v**2 - (u * v) ** 2))
    u, v = a_high / a - 1, 1 - b_low / b
    high = a / b * (1 + np.sqrt(u**2 + v**2 - (u * v) ** 2)) / (1 - v**2)
    return low, a / b, high


def _make_arrays(span: Span) -> tuple[Array, Array, Array]:
    """(low, middle, high) as arrays of floats."""
    low, middle, high = span
    return as_array(low), as_array(middle), as_array(high)
