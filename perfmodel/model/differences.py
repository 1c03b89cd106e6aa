"""Two times with their bands: their difference, their ratio, and whether they can be told apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.bands import Array, quadrature

Span = tuple[ArrayLike, ArrayLike, ArrayLike]
"""Low end, middle and high end of a time [s]."""


def difference_band(A: Span, B: Span) -> tuple[Array, Array, Array]:
    """Interval of A - B when their errors are independent.

        low  = (A - B) - hypot(A - A_low, B_high - B)                         [s]
        high = (A - B) + hypot(A_high - A, B - B_low)

    A, B   (low, middle, high) [s]
    Source: variances of independent variables add (``bands.quadrature``)
    Limits: no errors -> low = high = A - B;  B = 0 without error -> the interval of A;  A = B -> holds 0
    """
    (a_low, a, a_high), (b_low, b, b_high) = _arrays(A), _arrays(B)
    middle = a - b
    return middle - quadrature(a - a_low, b_high - b), middle, middle + quadrature(a_high - a, b - b_low)


def ratio_band(A: Span, B: Span) -> tuple[Array, Array, Array]:
    """Interval of A / B when their errors are independent: in logarithms, so that it stays above 0.

        ln low  = ln(A / B) - hypot(ln(A / A_low), ln(B_high / B))             [-]
        ln high = ln(A / B) + hypot(ln(A_high / A), ln(B / B_low))

    A, B   (low, middle, high), above 0 [s]
    Source: variances of independent variables add (``bands.quadrature``)
    Limits: no errors -> low = high = A / B;  A and B exchanged -> 1/high, B/A, 1/low
    """
    (a_low, a, a_high), (b_low, b, b_high) = _arrays(A), _arrays(B)
    down = quadrature(np.log(a / a_low), np.log(b_high / b))
    up = quadrature(np.log(a_high / a), np.log(b / b_low))
    return a / b * np.exp(-down), a / b, a / b * np.exp(up)


def apart(A: Span, B: Span) -> NDArray[np.int8]:
    """Which of two times is the smaller beyond both of their bands: -1 for A, 1 for B, 0: they overlap.

    A, B   (low, middle, high) [s]
    Source: stricter than an interval of the difference that leaves out 0: it needs no independent errors
    Limits: the same times -> 0;  ends that touch -> 0;  A and B exchanged -> the other sign
    """
    (a_low, _, a_high), (b_low, _, b_high) = _arrays(A), _arrays(B)
    return (a_low > b_high).astype(np.int8) - (a_high < b_low).astype(np.int8)


def _arrays(span: Span) -> tuple[Array, Array, Array]:
    low, middle, high = (np.asarray(value, dtype=np.float64) for value in span)
    return low, middle, high
