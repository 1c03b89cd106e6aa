"""Curve family and its fit: the docstrings' limits, monotone everywhere, known curves recovered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.fit.curve_fits import KNEE_BOUNDS, LOG_SCALE, fit_curve, half_widths, leave_one_out, solve
from perfmodel.model.curves import hockney_time, interpolate_anchors

SIZES = 2.0 ** np.arange(9, 30)


def test_anchors_are_met_and_ends_follow_the_curve() -> None:
    sizes, times = np.array([1e3, 1e6]), np.array([20e-6, 40e-6])
    read = interpolate_anchors([1e3, 1e6, 1e9, 2e9], 10e-6, 100e9, 1.0, sizes, times)
    assert read[:2] == pytest.approx(times)
    assert read[3] / read[2] == pytest.approx(2, rel=1e-2)
    single = interpolate_anchors([0, 1e6], 10e-6, 100e9, 1.0, np.array([1e6]), np.array([40e-6]))
    assert single == pytest.approx([20e-6, 40e-6])
    # a rate without end: of 8 B in 10 us and 128 B in 40 us, 32 B are half-way, in 20 us; below, 10 us
    flat = interpolate_anchors(
        [1, 8, 32, 128], 10e-6, 1e30, 2.0, np.array([8.0, 128.0]), np.array([10e-6, 40e-6])
    )
    assert flat == pytest.approx([10e-6, 10e-6, 20e-6, 40e-6])


@given(
    steps=st.lists(st.floats(1, 3), min_size=2, max_size=12),
    alpha=st.floats(1e-6, 1e-3),
    beta=st.floats(1e8, 1e12),
    p=st.floats(*KNEE_BOUNDS),
)
def test_anchored_time_never_falls(steps: list[float], alpha: float, beta: float, p: float) -> None:
    anchors = 2.0 ** np.arange(10, 10 + len(steps))
    times = 1e-6 * np.cumprod(steps)
    grid = np.exp2(np.linspace(0, 40, 400))
    read = interpolate_anchors(grid, alpha, beta, p, anchors, times)
    assert (np.diff(np.log(read)) >= -1e-9).all()
    assert (read > 0).all()


@pytest.mark.parametrize("p", [0.7, 1.0, 2.0])
def test_fit_recovers_a_known_curve(p: float) -> None:
    fit = fit_curve(SIZES, hockney_time(SIZES, 12e-6, 150e9, p))
    assert fit.alpha_s == pytest.approx(12e-6, rel=1e-3)
    assert fit.beta_bytes_per_s == pytest.approx(150e9, rel=1e-3)
    assert fit.p == pytest.approx(p, rel=1e-2)
    assert fit.at_bound == ()


def test_non_monotone_samples_give_monotone_anchors() -> None:
    fit = fit_curve([1e3, 2e3, 4e3, 8e3], [10e-6, 14e-6, 12e-6, 20e-6])
    assert fit.anchor_times_s == pytest.approx([10e-6, *[(14 * 12) ** 0.5 * 1e-6] * 2, 20e-6])
    repeated = fit_curve([1e3, 1e3, 1e3, 1e6], [10e-6, 11e-6, 50e-6, 60e-6])
    assert repeated.anchor_times_s[0] == pytest.approx(11e-6)  # their median
    assert [fit.anchor_log_sd, repeated.anchor_log_sd] == pytest.approx([np.log(14 / 12) / 4, np.log(5) / 4])


def test_leave_one_out_of_a_perfect_curve_is_small_and_of_noise_is_not() -> None:
    perfect = hockney_time(SIZES, 12e-6, 150e9, 1.3)
    assert np.median(leave_one_out(SIZES, perfect)) < 1e-3
    jagged = perfect * np.where(np.arange(SIZES.size) % 2, 1.2, 1.0)
    assert np.median(leave_one_out(SIZES, jagged)) > 0.05


@settings(max_examples=50)
@given(times=st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=22))
def test_any_positive_times_give_a_finite_curve(times: list[float]) -> None:
    """Falling, flat or wild samples: numbers without warnings, whatever they mean."""
    sizes = 2.0 ** np.arange(9, 9 + len(times))
    with np.errstate(all="raise", under="ignore"):
        fit = fit_curve(sizes, times)
        read = fit.time(np.exp2(np.linspace(0, 45, 100)))
    numbers = [*fit.alpha_interval, *fit.beta_interval, *fit.p_interval]
    assert np.isfinite(numbers).all() and min(numbers) > 0
    assert (np.diff(np.log(read)) >= -1e-9).all()


@pytest.mark.parametrize("start", [-99.0, 1.0, 3.0, 99.0])
def test_a_start_outside_its_bounds_is_moved_inside(start: float) -> None:
    assert solve(lambda q: q - 1.5, [start], [(1.0, 3.0)]).x == pytest.approx([1.5])


def test_scatter_of_half_widths_is_hubers_by_hand() -> None:
    """The mean of eight values, two of them a scale off: t(7) K sqrt(scatter / 8), each term by hand.

    z = 1 for those two, so psi^2 = scale^2 / 2 and psi' = 2^-1.5; the others have psi = 0 and psi' = 1.
    """
    off = 2**-1.5
    slopes = np.array([1.0] * 6 + [off] * 2)
    residuals = np.array([0.0] * 6 + [LOG_SCALE, -LOG_SCALE])
    jacobian = np.sqrt(slopes)[:, np.newaxis]  # as scipy scales the ones of a mean
    (half,) = half_widths(residuals, jacobian)
    mean = (6 + 2 * off) / 8
    scatter = 2 * (LOG_SCALE**2 / 2) / 7 / mean**2
    k = 1 + (1 / 8) * (6 * (1 - mean) ** 2 + 2 * (off - mean) ** 2) / 8 / mean**2
    assert half == pytest.approx(2.364624251592785 * k * (scatter / 8) ** 0.5, rel=1e-6)
    assert half_widths(np.array([1e-6, -1e-6]), np.ones((2, 1))) == pytest.approx([12.7062e-6], rel=1e-4)
    assert half_widths(np.zeros(1), np.ones((1, 1))) == [np.log(4)]
