"""From one measured cell to one curve: relative residuals, robust loss, intervals and leave-one-out error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression, least_squares
from scipy.special import stdtrit

from perfmodel.model.curves import hockney_time, interpolate_anchors

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
        """Time of a payload [s] (``interpolate_anchors``)."""
        shape = self.alpha_s, self.beta_bytes_per_s, self.p
        return interpolate_anchors(payload_bytes, *shape, self.anchor_bytes, self.anchor_times_s)


def fit_curve(
    payload_bytes: npt.ArrayLike, time_s: npt.ArrayLike, sharpness: float | None = None
) -> CurveFit:
    """Fit the generalised Hockney curve t = (alpha^p + (S / beta)^p)^(1/p) of payload S to one cell.

    payload_bytes, time_s   arrays of equal length, above 0; repeats of a size become their median
    sharpness               fixes p (1 is the alpha-beta model); None fits it if there are >= 4 sizes
    Minimises the soft-l1 loss of ln(t / t_fit) at scale 5 %. Anchors are the medians, made non-decreasing.
    """
    sizes, medians = _take_medians(payload_bytes, time_s)
    if sharpness is None and sizes.size <= _FEWEST_POINTS:
        sharpness = 1.0
    logs = np.log(medians)
    fixed = [] if sharpness is None else [np.log(sharpness)]

    def residual(q: Floats) -> Floats:
        """ln(t_fit / t) of each size; q  ln of alpha, beta and, unless it is fixed, p."""
        alpha, beta, p = np.exp([*q, *fixed])
        return np.asarray(np.log(hockney_time(sizes, alpha, beta, p)) - logs)

    # a floor like the shortest time, the highest rate, a usual knee
    start = [float(np.min(logs)), float(np.max(np.log(sizes) - logs)), float(np.log(_FIRST_KNEE))]
    bounds = [(centre - _FARTHEST_LOG, centre + _FARTHEST_LOG) for centre in start]
    bounds[2] = tuple(np.log(KNEE_BOUNDS).tolist())
    free = 3 - len(fixed)
    solution = solve(residual, start[:free], bounds[:free])
    wide = [*half_widths(solution.fun, solution.jac), *[0.0 for _ in fixed]]
    fitted = zip([*solution.x, *fixed], wide, strict=True)
    alpha, beta, knee = [(float(np.exp(v - e)), float(np.exp(v)), float(np.exp(v + e))) for v, e in fitted]
    anchors = isotonic_regression(logs).x
    # ln of each sample over the median of its size; 1.4826 times its median size is a standard deviation
    off = np.log(np.ravel(time_s)) - logs[np.searchsorted(sizes, np.ravel(payload_bytes))]
    repeats = np.abs(off)
    steps = np.abs(anchors - logs)
    at_bound = np.isclose(knee[1], KNEE_BOUNDS, rtol=1e-3).any()
    return CurveFit(
        alpha_s=alpha[1],
        beta_bytes_per_s=beta[1],
        p=knee[1],
        alpha_interval=alpha[::2],
        beta_interval=beta[::2],
        p_interval=knee[::2],
        anchor_bytes=sizes,
        anchor_times_s=np.asarray(np.exp(anchors), float),
        anchor_log_sd=float(max(1.4826 * np.median(repeats), np.mean(repeats), np.mean(steps))),
        at_bound=("p",) if at_bound else (),
    )


def leave_one_out(payload_bytes: npt.ArrayLike, time_s: npt.ArrayLike) -> Floats:
    """Relative error of each size when it is left out of the fit: |t_fit / t - 1|, one value per size.

    Limits: fewer than 4 sizes -> empty
    """
    sizes, medians = _take_medians(payload_bytes, time_s)
    if sizes.size <= _FEWEST_POINTS:
        return np.empty(0)
    rests = [np.arange(sizes.size) != i for i in range(sizes.size)]
    fits = [fit_curve(sizes[remaining], medians[remaining]) for remaining in rests]
    times = np.array([float(fit.time(size)) for fit, size in zip(fits, sizes, strict=True)])
    return np.abs(times / medians - 1)


def local_spread(errors: Floats) -> Floats:
    """For each size, root mean square of the leave-one-out errors there and at two sizes on either side.

    errors   relative errors in the order of the sizes, as ``leave_one_out`` returns them
    Limits: constant errors -> that constant;  one jump -> affects two sizes on either side;  empty -> empty
    """
    reach = 2
    squares = np.pad(errors**2, reach, mode="edge") if errors.size else errors
    windows = [squares[i : i + 2 * reach + 1].mean() for i in range(errors.size)]
    return np.asarray(np.sqrt(np.array(windows, float)))


def _take_medians(payload_bytes: npt.ArrayLike, time_s: npt.ArrayLike) -> tuple[Floats, Floats]:
    """(the different sizes, increasing [bytes]; the median time of each [s])."""
    sizes = np.asarray(payload_bytes, float).ravel()
    times = np.asarray(time_s, float).ravel()
    unique, where = np.unique(sizes, return_inverse=True)
    return unique, np.array([np.median(times[where == i]) for i in range(unique.size)])


LOG_SCALE = 0.05
"""Residual of ln t above which a sample counts less: 5 %."""
WIDEST_LOG = 20.0
"""An interval of e^20 means that the samples do not determine a parameter."""


def solve(
    residual: Callable[[Floats], Floats], start: Sequence[float], bounds: Sequence[tuple[float, float]]
) -> Any:
    """Parameters with the least soft-l1 loss of a residual; the result of ``scipy.optimize.least_squares``.

    residual  function of the parameters: differences of ln t
    start, bounds   one value and one (low, high) per parameter; a start outside is moved inside
    """
    lower = np.array([low for low, _ in bounds], float)
    upper = np.array([high for _, high in bounds], float)
    inside = np.clip(start, lower + 1e-9, upper - 1e-9)
    return least_squares(
        residual, inside, loss="soft_l1", f_scale=LOG_SCALE, bounds=(lower, upper), xtol=1e-12
    )


def half_widths(residuals: Floats, jacobian: Floats) -> list[float]:
    """Half-widths of the 95 % intervals of the parameters, by Student's t with n - k degrees of freedom.

        cov = K^2 [sum psi_i^2 / (n - k)] / mean(psi')^2 (X^T X)^-1,   K = 1 + (k/n) var(psi') / mean(psi')^2

    n points, k parameters; X Jacobian of the residuals r; psi = r / sqrt(1 + z), psi' = (1 + z)^-1.5 with z =
    (r / scale)^2: first and second derivative of the soft-l1 loss. Source: P. J. Huber, Robust Statistics
    (1981), 7.6. With few residuals, their median is too small as a scale (they are smaller than the noise by
    (n - k) / n) and 1.96 as a quantile: such intervals of 6 sizes held the truth in 75 of 100 cases.
    Limits: residuals far below the scale -> ordinary least squares;  n <= k -> a factor of 4 either way
    """
    points, parameters = jacobian.shape
    free = points - parameters
    if free <= 0:
        return [float(np.log(4.0))] * parameters
    z = (residuals / LOG_SCALE) ** 2
    slope = (1 + z) ** -1.5
    plain = jacobian / np.sqrt(slope)[:, np.newaxis]  # scipy returns sqrt(psi') X
    scatter = float(np.sum(residuals**2 / (1 + z))) / free / float(slope.mean()) ** 2
    few = 1 + parameters / points * float(slope.var()) / float(slope.mean()) ** 2
    information = plain.T @ plain + 1e-9 * np.eye(parameters)
    errors = few * np.sqrt(scatter * np.diag(np.linalg.inv(information)))
    quantile = float(stdtrit(free, 0.975))
    return [min(quantile * float(error), WIDEST_LOG) for error in errors]
