"""Differences and ratios of two times with bands: numbers that a person can check, and their limits."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model.bands import log_span, ratio_band, shared_difference_band

WIDE, NARROW = (7.0, 10.0, 14.0), (3.0, 6.0, 9.0)


def test_a_ratio_turned_around_is_its_inverse() -> None:
    low, middle, high = ratio_band(WIDE, NARROW)
    other = ratio_band(NARROW, WIDE)
    assert [float(v) for v in other] == pytest.approx([1 / float(v) for v in (high, middle, low)])
    assert 0 < float(low) < float(middle) == pytest.approx(10 / 6)
    exact = ratio_band((8, 8, 8), (2, 2, 2))
    assert [float(v) for v in exact] == [4, 4, 4]
    spread = ratio_band((5.0, 10.0, 20.0), (1.0, 1.0, 1.0))  # twice either way stays twice either way
    assert [float(v) for v in spread] == pytest.approx([5, 10, 20])


def difference(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float]:
    """Of two times whose errors have different causes."""
    low, middle, high = shared_difference_band({"a": a}, {"b": b})  # type: ignore[dict-item]
    return float(low), float(middle), float(high)


def test_errors_of_a_difference_add_as_squares() -> None:
    assert difference((97.0, 100.0, 106.0), (52.0, 60.0, 64.0)) == pytest.approx((40 - 5, 40, 40 + 10))


def test_a_difference_from_nothing_is_the_time_itself() -> None:
    assert difference(WIDE, (0.0, 0.0, 0.0)) == pytest.approx((7, 10, 14))
    assert difference((5.0, 5.0, 5.0), (3.0, 3.0, 3.0)) == (2, 2, 2)
    low, middle, high = difference(WIDE, WIDE)
    assert low < 0 == middle < high


def test_the_interval_of_a_ratio_leaves_out_one_as_that_of_the_difference_leaves_out_zero() -> None:
    """10 +- 3 and 6 +- 2: bands overlap, but hypot(3, 2) < 4; 10 +- 3 and 7 +- 2: hypot(3, 2) > 3."""
    a = (7.0, 10.0, 13.0)
    b = (np.array([4.0, 5.0, 12.0]), np.array([6.0, 7.0, 14.0]), np.array([8.0, 9.0, 16.0]))
    low, _, high = ratio_band(a, b)
    assert ((low > 1) == [True, False, False]).all() and ((high < 1) == [False, False, True]).all()


def test_an_interval_of_a_logarithm_is_even_in_ratios() -> None:
    assert [float(v) for v in log_span(6.0, np.log(2) / 1.96)] == pytest.approx([3, 6, 12])
    assert [float(v) for v in log_span(6.0, 0.0)] == [6, 6, 6]


def test_one_rule_for_differences_and_ratios() -> None:
    rng = np.random.default_rng(3)
    middle = rng.uniform(1, 3, (2, 1000))
    a, b = ((m * rng.uniform(0.3, 1, 1000), m, m * rng.uniform(1, 4, 1000)) for m in middle)
    low, ratio, high = ratio_band(a, b)
    assert ((low < ratio) & (ratio < high)).all()
    for first, second, least, most in zip(np.transpose(a), np.transpose(b), low, high, strict=True):
        below, _, above = difference(first, second)
        assert (below > 0, above < 0) == (least > 1, most < 1)
