"""The slowest of many cores, most of which do the same."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model.one_chip import slowest_core
from perfmodel.model.slowest import slowest_of_alike


def test_groups_of_one_core_are_single_cores() -> None:
    mean, variance = np.array([1.0, 3.0, 2.5]), np.array([0.1, 0.2, 0.0])
    assert slowest_of_alike(mean, variance, [1, 1, 1]) == pytest.approx(
        slowest_core(mean, variance), rel=1e-3
    )


def test_a_group_without_cores_is_not_there() -> None:
    """The absent group would be the slowest by far."""
    found = slowest_of_alike([[1.0, 9.0]], [[0.04, 1.0]], [3, 0])
    assert found == pytest.approx(slowest_of_alike([[1.0]], [[0.04]], [3]))
    assert float(found[0]) == pytest.approx(
        1 + 0.2 * 0.8463, rel=1e-3
    )  # mean of the largest of three normals


def test_one_case_has_no_axis_before_its_groups() -> None:
    assert float(slowest_of_alike([1.0, 2.0], [0.0, 0.0], [4, 5])) == 2
    alone, first = slowest_of_alike([1.0], [0.04], [3]), slowest_of_alike([[1.0]], [[0.04]], [3])[0]
    assert alone.shape == () and float(alone) == float(first)
