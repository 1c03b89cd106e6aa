"""Differences and ratios of two times with bands: numbers that a person can check, and their limits."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model.differences import apart, difference_band, ratio_band

WIDE, NARROW = (7.0, 10.0, 14.0), (3.0, 6.0, 9.0)


def test_errors_of_a_difference_add_as_squares() -> None:
    low, middle, high = difference_band((97.0, 100.0, 106.0), (52.0, 60.0, 64.0))
    assert (float(low), float(middle), float(high)) == pytest.approx((40 - 5, 40, 40 + 10))


def test_a_difference_from_nothing_is_the_time_itself() -> None:
    assert [float(v) for v in difference_band(WIDE, (0, 0, 0))] == pytest.approx([7, 10, 14])
    assert [float(v) for v in difference_band((5, 5, 5), (3, 3, 3))] == [2, 2, 2]
    low, middle, high = (float(v) for v in difference_band(WIDE, WIDE))
    assert low < 0 == middle < high


def test_a_ratio_turned_around_is_its_inverse() -> None:
    low, middle, high = ratio_band(WIDE, NARROW)
    other = ratio_band(NARROW, WIDE)
    assert [float(v) for v in other] == pytest.approx([1 / float(v) for v in (high, middle, low)])
    assert 0 < float(low) < float(middle) == pytest.approx(10 / 6)
    exact = ratio_band((8, 8, 8), (2, 2, 2))
    assert [float(v) for v in exact] == [4, 4, 4]
    spread = ratio_band((5.0, 10.0, 20.0), (1.0, 1.0, 1.0))  # twice either way stays twice either way
    assert [float(v) for v in spread] == pytest.approx([5, 10, 20])


def test_times_are_told_apart_beyond_both_bands_only() -> None:
    a = (np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0]), np.array([3.0, 3.0, 3.0]))
    b = (np.array([3.5, 3.0, 0.1]), np.array([4.0, 4.0, 0.5]), np.array([5.0, 5.0, 0.9]))
    assert apart(a, b).tolist() == [-1, 0, 1] and apart(b, a).tolist() == [1, 0, -1]
    assert int(apart(WIDE, WIDE)) == 0
