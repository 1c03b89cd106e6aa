"""The curve family: how the time of one measured cell depends on its size.

A *cell* is one (library, collective, GPUs, GPUs per node, clock). Floor and bandwidth are separate
parameters, and nothing ever scales both at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfmodel.model.recording import Number, equation

Floats = npt.NDArray[np.float64]

_LEAST = float(np.finfo(float).tiny)  # so that 0 / 0 gives 0
_FLAT = float(np.finfo(float).eps) * 2**10  # rise of ln t that may be rounding alone


@equation
def hockney_time(S: npt.ArrayLike, alpha: npt.ArrayLike, beta: npt.ArrayLike, p: npt.ArrayLike) -> Floats:
    """Generalised Hockney curve: latency floor and bandwidth joined by a knee of sharpness p.

        t(S) = (alpha^p + (S / beta)^p)^(1/p)                                   [s]

    S      payload [bytes], any shape, broadcast against the parameters
    alpha  floor: the time of an empty message [s], > 0
    beta   asymptotic algorithm bandwidth S / t [bytes/s], > 0
    p      sharpness of the knee [-], > 0: 1 is the alpha-beta model of Hockney (1994), infinity is max()
    Source: R. W. Hockney, Parallel Computing 20 (1994), for p = 1; its p-norm: docs/model.md#curves
    Limits: S = 0 -> alpha;  S -> inf -> S/beta;  S = alpha*beta -> alpha * 2^(1/p);  p = 1 -> alpha + S/beta
    """
    moved = np.asarray(S, float) / np.asarray(beta, float)
    return np.asarray(join_power(np.asarray(alpha, float), moved, np.asarray(p, float)))


def take_larger(first: Number, second: Number) -> Number:
    """The larger of two, element by element; two floats are compared without numpy, which is slower."""
    if isinstance(first, float) and isinstance(second, float):
        return max(first, second)
    return np.maximum(first, second)


def take_smaller(first: Number, second: Number) -> Number:
    """The smaller of two, element by element; as ``take_larger``."""
    if isinstance(first, float) and isinstance(second, float):
        return min(first, second)
    return np.minimum(first, second)


def join_power(first: Number, second: Number, p: Number) -> Number:
    """p-norm of two non-negative terms, without overflow.

        (first^p + second^p)^(1/p)

    first, second  terms in one unit, any shapes that broadcast;  p > 0 [-]
    Source: definition
    Limits: one is 0 -> the other;  p = 1 -> their sum;  p -> inf -> the larger;  equal -> 2^(1/p) of one
    """
    high = take_larger(first, second)
    ratio = take_smaller(first, second) / take_larger(high, _LEAST)
    return high * (1 + ratio**p) ** (1 / p)


@equation
def time_between_anchors(t_i: Number, t_j: Number, w: Number) -> Number:
    """Time between two measured sizes i and j of a cell.

        t = t_i (t_j / t_i)^w                                                   [s]

    t_i  measured time of the next smaller size [s];  t_j  of the next larger one [s]
    w    part of the way from i to j along the fitted curve c [-]: ln c(S)/c(S_i) over ln c(S_j)/c(S_i)
    Source: docs/model.md#curves
    Limits: w = 0 -> t_i;  w = 1 -> t_j
    """
    return np.exp(np.log(t_i) + w * (np.log(t_j) - np.log(t_i)))


@equation
def time_beyond_anchors(c: Number, t_end: Number, c_end: Number) -> Number:
    """Time of a cell below its smallest or above its largest measured size: its curve, shifted to meet it.

        t = c t_end / c_end                                                     [s]

    c      time of the fitted curve (``hockney_time``) [s];  c_end  the same at the last measured size [s]
    t_end  measured time of that size [s]
    Source: docs/model.md#curves
    Limits: c = c_end -> t_end
    """
    return np.exp(np.log(c) + (np.log(t_end) - np.log(c_end)))


@equation
def time_between_counts(t_a: Number, t_b: Number, G: Number, a: Number, b: Number) -> Number:
    """Time on G ranks of a domain, between cells that were measured on fewer and on more: ln t linear in G.

        t = t_a (t_b / t_a)^((G - a) / (b - a))                                 [s]

    G    ranks [-];  a  the next fewer that were measured [-];  b  the next more [-]
    t_a  time on a ranks [s];  t_b  time on b ranks [s]
    Source: docs/model.md#how-a-time-is-found
    Limits: G = a -> t_a;  G = b -> t_b
    """
    return t_a * (t_b / t_a) ** ((G - a) / (b - a))


def interpolate_anchors(
    payload_bytes: npt.ArrayLike,
    alpha_s: float,
    beta_bytes_per_s: float,
    p: float,
    anchor_bytes: Floats,
    anchor_times_s: Floats,
) -> Floats:
    """Time of a cell: interpolated between measured anchors inside their range, its curve outside.

        between anchors i and i+1:   ln t = ln t_i + w (ln t_{i+1} - ln t_i),
                                     w = (c(S) - c(S_i)) / (c(S_{i+1}) - c(S_i)),   c = ln hockney_time
        outside:                     ln t = c(S) + (ln t_end - c(S_end))

    payload_bytes    S [bytes], any shape
    alpha, beta, p   the fitted curve (``hockney_time``)
    anchor_bytes     measured sizes, strictly increasing [bytes], length n >= 1
    anchor_times_s   medians made non-decreasing (isotonic), length n [s]
    Source: docs/model.md#curves; interpolating along the fitted curve keeps the knee between two sizes
    Limits: S = anchor -> its time;  non-decreasing in S;  S -> inf -> shifted curve;  n = 1 -> shifted curve
    """
    size = np.asarray(payload_bytes, float)
    curve = hockney_time(size, alpha_s, beta_bytes_per_s, p)
    ends = np.asarray(hockney_time(anchor_bytes, alpha_s, beta_bytes_per_s, p))
    if anchor_bytes.size == 1:
        return np.asanyarray(time_beyond_anchors(curve, anchor_times_s[0], ends[0]))
    at_anchors = np.log(ends)
    left = np.clip(np.searchsorted(anchor_bytes, size, side="right") - 1, 0, anchor_bytes.size - 2)
    span = at_anchors[left + 1] - at_anchors[left]
    # Where the curve is flat between two anchors, w is linear in ln S instead.
    linear = np.log(np.maximum(size, anchor_bytes[left]) / anchor_bytes[left]) / np.log(
        anchor_bytes[left + 1] / anchor_bytes[left]
    )
    flat = span <= _FLAT
    weight = np.where(flat, linear, (np.log(curve) - at_anchors[left]) / np.where(flat, np.inf, span))
    before, after = anchor_times_s[left], anchor_times_s[left + 1]
    inside = time_between_anchors(before, after, np.clip(weight, 0, 1))
    below = time_beyond_anchors(curve, anchor_times_s[0], ends[0])
    above = time_beyond_anchors(curve, anchor_times_s[-1], ends[-1])
    return np.where(size < anchor_bytes[0], below, np.where(size > anchor_bytes[-1], above, inside))
