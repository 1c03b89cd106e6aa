"""Bands of sums, ratios and differences: numbers that a person can check, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import bands
from perfmodel.model.bands import compute_difference_band, compute_ratio_band

WIDE, NARROW = (7.0, 10.0, 14.0), (3.0, 6.0, 9.0)


def test_independent_errors_add_as_squares() -> None:
    assert bands.sum_band((7, 10, 13), (6, 10, 14)) == (15, 20, 25)
    assert bands.sum_band((1, 2, 3)) == (1, 2, 3)


def test_slowdown_band_limits() -> None:
    exact, kernels = (10.0, 10.0, 10.0), ((5, 10, 20), (5, 10, 20))
    assert bands.compute_slowdown_band((0.0, 0.0, 0.0), kernels) == (1, 1)
    assert bands.compute_slowdown_band((30.0, 30.0, 30.0), (exact, exact)) == (4, 4)
    assert bands.compute_slowdown_band((20.0, 30.0, 60.0), (exact, exact)) == (3, 7)
    # all kernels twice as fast: communication 30 over a baseline of 5, (30 + 5) / 5 = 7 against 4
    assert bands.compute_slowdown_band((30, 30, 30), kernels) == (2.5, 7)


@given(st.floats(0, 1), st.floats(1, 3), st.floats(1, 3))
def test_a_band_brackets_the_centre(comm: float, factor: float, of_kernels: float) -> None:
    kernels = (1 / of_kernels, 1, of_kernels)
    low, high = bands.compute_slowdown_band((comm / factor, comm, comm * factor), (kernels, kernels))
    assert 0 <= low <= comm + 1 <= high


def difference(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float]:
    """Of two times whose errors have different causes."""
    low, middle, high = compute_difference_band({"a": a}, {"b": b})  # type: ignore[dict-item]
    return float(low), float(middle), float(high)


def test_errors_of_a_difference() -> None:
    assert difference((97.0, 100.0, 106.0), (52.0, 60.0, 64.0)) == pytest.approx((40 - 5, 40, 40 + 10))
    assert difference(WIDE, (0.0, 0.0, 0.0)) == pytest.approx((7, 10, 14))
    assert difference((5.0, 5.0, 5.0), (3.0, 3.0, 3.0)) == (2, 2, 2)


def test_a_shared_cause_moves_both() -> None:
    a, b = {"x": (8.0, 10.0, 14.0)}, {"x": (7.0, 9.0, 13.0)}
    assert compute_difference_band(a, b) == (1, 1, 1)
    assert compute_difference_band(a, a) == (0, 0, 0)
    low, middle, high = compute_difference_band(a, {"y": (7.0, 9.0, 12.0)})
    assert (low, middle, high) == pytest.approx((1 - np.hypot(2, 3), 1, 1 + np.hypot(4, 2)))
    assert compute_difference_band({**a, "z": (1.0, 4.0, 5.0)}, b) == (2, 5, 6)  # z alone errs


def test_a_ratio_turned_around_is_its_inverse() -> None:
    low, middle, high = compute_ratio_band(WIDE, NARROW)
    other = compute_ratio_band(NARROW, WIDE)
    assert [float(v) for v in other] == pytest.approx([1 / float(v) for v in (high, middle, low)])
    assert 0 < float(low) < float(middle) == pytest.approx(10 / 6)
    assert [float(v) for v in compute_ratio_band((8, 8, 8), (2, 2, 2))] == [4, 4, 4]
    spread = compute_ratio_band((5.0, 10.0, 20.0), (1.0, 1.0, 1.0))  # twice either way stays twice either way
    assert [float(v) for v in spread] == pytest.approx([5, 10, 20])


def test_one_rule_for_differences_and_ratios() -> None:
    """The interval of a ratio leaves out 1 exactly where that of the difference leaves out 0."""
    rng = np.random.default_rng(3)
    middle = rng.uniform(1, 3, (2, 1000))
    a, b = ((m * rng.uniform(0.3, 1, 1000), m, m * rng.uniform(1, 4, 1000)) for m in middle)
    low, ratio, high = compute_ratio_band(a, b)
    assert ((low < ratio) & (ratio < high)).all()
    for first, second, least, most in zip(np.transpose(a), np.transpose(b), low, high, strict=True):
        below, _, above = difference(first, second)
        assert (below > 0, above < 0) == (least > 1, most < 1)
