"""From one measured cell to one curve: relative residuals, robust loss, intervals and leave-one-out error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from perfmodel.errors import BadInputError
from perfmodel.fit.robust import half_widths, solve
from perfmodel.model.curves import anchored_time, hockney_time

Floats = npt.NDArray[np.float64]

KNEE_BOUNDS = (0.3, 10.0)
"""Bounds of the knee's sharpness: below 0.3 a curve has neither floor nor slope; above 10 it is max()."""
_FIRST_KNEE = 1.3
_FARTHEST_LOG = 12.0  # a floor or bandwidth lies within e^12 of the samples' estimate
_FEWEST_POINTS = 3


@dataclass(frozen=True)
class CurveFit:
    """A fitted curve of a cell; ``*_interval`` is the 95 % interval (low, high) of a parameter.

    alpha_s, beta_bytes_per_s, p  floor, bandwidth and sharpness of the knee (docs/model.md#curves)
    anchor_bytes, anchor_times_s  measured sizes with their medians, made non-decreasing
    anchor_log_sd  standard deviation of ln t around the anchors;  at_bound  parameters that ended at a bound
    """

    alpha_s: float
    beta_bytes_per_s: float
    p: float
    alpha_interval: tuple[float, float]
    beta_interval: tuple[float, float]
    p_interval: tuple[float, float]
    anchor_bytes: Floats
    anchor_times_s: Floats
    anchor_log_sd: float
    at_bound: tuple[str, ...]

    def time(self, payload_bytes: npt.ArrayLike) -> Floats:
        """Time of a payload [s]: anchors inside the measured range, the curve outside (``anchored_time``)."""
        return anchored_time(
            payload_bytes,
            self.alpha_s,
            self.beta_bytes_per_s,
            self.p,
            self.anchor_bytes,
            self.anchor_times_s,
        )


def fit_curve(
    payload_bytes: npt.ArrayLike, time_s: npt.ArrayLike, sharpness: float | None = None
) -> CurveFit:
    """Fit the generalised Hockney curve to one cell.

    payload_bytes, time_s   arrays of equal length; repeats of a size are allowed and become their median
    sharpness               fixes p (1 is the alpha-beta model); None fits it if there are >= 4 sizes
    Minimises the soft-l1 loss of ln(t / t_fit) at scale 5 %. Raises BadInputError for empty, non-positive
    or non-finite input.
    """
    sizes, medians = _medians(payload_bytes, time_s)
    fixed = sharpness if sharpness is not None else (1.0 if sizes.size <= _FEWEST_POINTS else None)
    solution = _solve(sizes, np.log(medians), fixed)
    log_alpha, log_beta, log_p = solution.x if fixed is None else [*solution.x, np.log(fixed)]
    wide = half_widths(solution)
    wide = [*wide, 0.0] if fixed is not None else wide
    alpha, beta, knee = (
        (float(np.exp(v - e)), float(np.exp(v + e)))
        for v, e in zip((log_alpha, log_beta, log_p), wide, strict=True)
    )
    anchors = np.exp(isotonic_regression(np.log(medians)).x)
    raw_sizes, raw_times = np.asarray(payload_bytes, float), np.asarray(time_s, float)
    return CurveFit(
        alpha_s=float(np.exp(log_alpha)),
        beta_bytes_per_s=float(np.exp(log_beta)),
        p=float(np.exp(log_p)),
        alpha_interval=alpha,
        beta_interval=beta,
        p_interval=knee,
        anchor_bytes=sizes,
        anchor_times_s=np.asarray(anchors, float),
        anchor_log_sd=_anchor_spread(sizes, medians, raw_sizes, raw_times),
        at_bound=() if fixed is not None else _at_bound(float(np.exp(log_p))),
    )


def leave_one_out(
    payload_bytes: npt.ArrayLike, time_s: npt.ArrayLike, sharpness: float | None = None, anchored: bool = True
) -> Floats:
    """Relative error of each size when it is left out of the fit: |t_fit / t - 1|, one value per size.

    anchored   predict from the anchors (as ``CurveFit.time``) or from the bare curve
    Limits: fewer than 4 sizes -> empty
    """
    sizes, medians = _medians(payload_bytes, time_s)
    if sizes.size <= _FEWEST_POINTS:
        return np.empty(0)
    errors = np.empty(sizes.size)
    for i in range(sizes.size):
        rest = np.arange(sizes.size) != i
        fit = fit_curve(sizes[rest], medians[rest], sharpness)
        predicted = (
            fit.time(sizes[i])
            if anchored
            else hockney_time(sizes[i], fit.alpha_s, fit.beta_bytes_per_s, fit.p)
        )
        errors[i] = abs(float(predicted) / medians[i] - 1)
    return errors


def local_spread(errors: Floats) -> Floats:
    """For each size, root mean square of the leave-one-out errors there and at two sizes on either side.

    errors   relative errors in the order of the sizes, as ``leave_one_out`` returns them
    Limits: constant errors -> that constant;  one jump -> affects two sizes on either side;  empty -> empty
    """
    reach = 2
    squares = np.pad(errors**2, reach, mode="edge") if errors.size else errors
    windows = [squares[i : i + 2 * reach + 1].mean() for i in range(errors.size)]
    return np.asarray(np.sqrt(np.array(windows, float)))


def _medians(payload_bytes: npt.ArrayLike, time_s: npt.ArrayLike) -> tuple[Floats, Floats]:
    sizes = np.asarray(payload_bytes, float).ravel()
    times = np.asarray(time_s, float).ravel()
    if sizes.size == 0 or sizes.size != times.size:
        raise BadInputError(
            f"a curve needs equally many sizes and times; got {sizes.size} and {times.size}.",
            "give one time for each size.",
        )
    bad = ~(np.isfinite(sizes) & np.isfinite(times) & (sizes > 0) & (times > 0))
    if bad.any():
        i = int(np.argmax(bad))
        raise BadInputError(
            f"sample {i}: {sizes[i]:g} bytes in {times[i]:g} s cannot be fitted.",
            "sizes and times must be finite and above 0.",
        )
    unique, first, where = np.unique(sizes, return_index=True, return_inverse=True)
    if unique.size == sizes.size:
        return unique, times[first]
    return unique, np.array([np.median(times[where == i]) for i in range(unique.size)])


def _solve(sizes: Floats, logs: Floats, fixed: float | None) -> Any:
    head = float(np.median(logs[: max(1, logs.size // 5)]))
    tail = float(np.log(sizes[-1]) - logs[-1])
    alphas = (logs.min() - _FARTHEST_LOG, logs.max() + _FARTHEST_LOG)
    betas = ((np.log(sizes) - logs).min() - _FARTHEST_LOG, (np.log(sizes) - logs).max() + _FARTHEST_LOG)
    knees = (np.log(KNEE_BOUNDS[0]), np.log(KNEE_BOUNDS[1]))

    def residual(q: Floats) -> Floats:
        p = fixed if fixed is not None else float(np.exp(q[2]))
        return np.asarray(np.log(hockney_time(sizes, np.exp(q[0]), np.exp(q[1]), p)) - logs)

    free = 2 if fixed is not None else 3
    return solve(residual, [head, tail, np.log(_FIRST_KNEE)][:free], [alphas, betas, knees][:free])


def _anchor_spread(sizes: Floats, medians: Floats, raw_sizes: Floats, raw_times: Floats) -> float:
    """Standard deviation of ln t between repeats of a size, and against the isotonic anchors."""
    raw_sizes, raw_times = raw_sizes.ravel(), raw_times.ravel()
    centre = np.log(medians)[np.searchsorted(sizes, raw_sizes)]
    repeats = np.abs(np.log(raw_times) - centre)
    steps = np.abs(isotonic_regression(np.log(medians)).x - np.log(medians))
    return float(max(1.4826 * np.median(repeats), np.mean(repeats), np.mean(steps)))


def _at_bound(p: float) -> tuple[str, ...]:
    low, high = KNEE_BOUNDS
    return ("p",) if p < low * 1.001 or p > high / 1.001 else ()
