"""The curve family: how the time of one measured cell depends on its size.

A *cell* is one (library, collective, GPUs, GPUs per node, clock). Floor and bandwidth are separate
parameters, and nothing ever scales both at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfmodel.model.recording import POWER, Number, maximum, minimum, operation

Floats = npt.NDArray[np.float64]

_LEAST = float(np.finfo(float).tiny)  # so that 0 / 0 gives 0


def hockney_time(
    payload_bytes: npt.ArrayLike, alpha_s: npt.ArrayLike, beta_bytes_per_s: npt.ArrayLike, p: npt.ArrayLike
) -> Floats:
    """Generalised Hockney curve: latency floor and bandwidth joined by a knee of sharpness p.

        t(S) = (alpha^p + (S / beta)^p)^(1/p)                                   [s]

    S      payload_bytes [bytes], any shape, broadcast against the parameters
    alpha  floor: the time of an empty message [s], > 0
    beta   asymptotic algorithm bandwidth S / t [bytes/s], > 0
    p      sharpness of the knee [-], > 0: 1 is the alpha-beta model of Hockney (1994), infinity is max()
    Source: R. W. Hockney, Parallel Computing 20 (1994), for p = 1; its p-norm: docs/model.md#curves
    Limits: S = 0 -> alpha;  S -> inf -> S/beta;  S = alpha*beta -> alpha * 2^(1/p);  p = 1 -> alpha + S/beta
    """
    moved = np.asarray(payload_bytes, float) / np.asarray(beta_bytes_per_s, float)
    return np.asarray(join_power(np.asarray(alpha_s, float), moved, np.asarray(p, float)))


@operation("({0}^{2} + {1}^{2})^(1/{2})", alike=2, inner=POWER)
def join_power(first: Number, second: Number, p: Number) -> Number:
    """p-norm of two non-negative terms, without overflow.

        (a^p + b^p)^(1/p)

    a, b   terms in one unit, any shapes that broadcast;  p > 0 [-]
    Source: definition
    Limits: b = 0 -> a;  p = 1 -> a + b;  p -> inf -> max(a, b);  a = b -> a * 2^(1/p)
    """
    high = maximum(first, second)
    ratio = minimum(first, second) / maximum(high, _LEAST)
    return high * (1 + ratio**p) ** (1 / p)


def anchored_time(
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
    curve = np.log(hockney_time(size, alpha_s, beta_bytes_per_s, p))
    at_anchors = np.log(hockney_time(anchor_bytes, alpha_s, beta_bytes_per_s, p))
    logs = np.log(anchor_times_s)
    if anchor_bytes.size == 1:
        return np.asarray(np.exp(curve + (logs[0] - at_anchors[0])))
    left = np.clip(np.searchsorted(anchor_bytes, size, side="right") - 1, 0, anchor_bytes.size - 2)
    span = at_anchors[left + 1] - at_anchors[left]
    linear = np.log(np.maximum(size, 1) / anchor_bytes[left]) / np.log(
        anchor_bytes[left + 1] / anchor_bytes[left]
    )
    flat = span <= np.finfo(float).eps * 2**10
    weight = np.where(flat, linear, (curve - at_anchors[left]) / np.where(flat, 1, span))
    inside = logs[left] + np.clip(weight, 0, 1) * (logs[left + 1] - logs[left])
    below = curve + (logs[0] - at_anchors[0])
    above = curve + (logs[-1] - at_anchors[-1])
    result = np.where(size < anchor_bytes[0], below, np.where(size > anchor_bytes[-1], above, inside))
    return np.asarray(np.exp(result))
