"""Costs of samples: the limits that docstrings state, in numbers that one can divide."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model import serving_cost


def test_samples_and_hours() -> None:
    assert serving_cost.samples_per_s(400, 0.5) == pytest.approx(800)
    assert serving_cost.hours_paid(3600, 7, 7, 1) == pytest.approx(1)
    assert serving_cost.hours_paid(1e-3, 1000, 1e9, 8) == pytest.approx(8 * 1e9 * 1e-6 / 3600)
    assert serving_cost.hours_paid(2, 7, 7, 1) == serving_cost.hours_paid(1, 7, 7, 2)


def test_energy_and_money() -> None:
    assert serving_cost.energy_kwh(1, 1000) == pytest.approx(1)
    assert serving_cost.storage_cost(1e12, 730, 25) == pytest.approx(25)


def test_a_step_that_much_faster_ends_with_the_other() -> None:
    factor = serving_cost.speedup_to_match([6.0, 6.0, 2.0], [10.0, 10.0, 10.0], [7.0, 3.0, 10.0])
    assert factor == pytest.approx([2, np.inf, 1])  # 4 + 6/2 = 7; 4 is above 3; the same


def test_lines_cross_where_both_take_as_long() -> None:
    batch = serving_cost.crossing_batch(10, 1, 2, 3)
    assert batch == pytest.approx(4) and 10 + 4 * 1 == 2 + 4 * 3
    assert np.isnan(serving_cost.crossing_batch([1, 1], [1, 2], [2, 1], [1, 1])).all()


def test_machines_that_copies_take() -> None:
    in_use, copies = serving_cost.machines_in_use, serving_cost.copies_in_machine
    assert in_use(2, 16, 8, True) == in_use(2, 16, 8, False) == 4
    assert (in_use(10, 1, 8, True), in_use(10, 1, 8, False)) == (10, 2)
    assert (copies(3, 8, False), in_use(5, 3, 8, False)) == (2, 3)  # 2 GPUs stay idle
    assert (copies(1, 8, True), copies(12, 8, False)) == (1, 1)
    assert in_use(2, 12, 8, False) == 4
