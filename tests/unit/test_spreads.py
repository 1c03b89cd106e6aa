"""Draws of a law's unknowns: the moments of their covariance, and no sign that a decomposition may choose."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.collectives.spreads import deviates, root_of
from perfmodel.collectives.stored import step_constants
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import list_calibrations, load_calibration
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import load_priors

LAWS = [(name, at) for name in list_calibrations() for at in range(len(load_calibration(name).laws))]


@pytest.mark.parametrize("count", [1, 2, 10, 27])
def test_draws_have_the_moments_of_the_standard_normal(count: int) -> None:
    draws = deviates(count)
    assert draws.mean(axis=0) == pytest.approx(np.zeros(count), abs=1e-15)
    assert draws.T @ draws / len(draws) == pytest.approx(np.eye(count), abs=1e-13)


def test_the_root_is_lower_triangular_with_no_sign_to_choose() -> None:
    """[4 2; 2 5] = [2 0; 1 2] [2 1; 0 2]."""
    assert root_of(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist() == [[2.0, 0.0], [1.0, 2.0]]


@pytest.mark.parametrize("other", [1.0, 1.00001, 3.0])
def test_an_unknown_that_follows_another_has_its_own_standard_deviation(other: float) -> None:
    """Of two unknowns whose correlation is 1, or is written as more, the second moves as the first does."""
    root = root_of(np.array([[1.0, 2 * other], [2 * other, 4.0]]))
    assert root == pytest.approx(np.array([[1.0, 0.0], [2.0, 0.0]]))


def test_an_unknown_without_variance_stays() -> None:
    root = root_of(np.array([[0.0, 1e-5, 0.0], [1e-5, 9.0, 0.0], [0.0, 0.0, 0.0]]))
    assert root == pytest.approx(np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]))


@pytest.mark.parametrize(("name", "law"), LAWS)
def test_draws_have_the_covariance_of_the_shipped_law(name: str, law: int) -> None:
    covariance = np.array(load_calibration(name).laws[law].log_covariance)
    draws = deviates(len(covariance)) @ root_of(covariance).T
    assert draws.T @ draws / len(draws) == pytest.approx(covariance, abs=1e-12)
    assert draws.std(axis=0) == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-12)


def test_few_draws_say_what_many_say() -> None:
    """The standard deviation of ln t of 48 pairs is that of 2 000 within 4 % (rms); unmatched draws: 10 %."""
    machine, calibration = load_machine("h100-sxm-ib"), load_calibration("h100-sxm-ib/nccl-2.29.2-stream")
    steps, sizes = step_constants(machine, load_priors()), np.geomspace(1e3, 1e9, 13)
    ratios = []
    for law in calibration.laws:
        half = np.random.default_rng(1).standard_normal((2000, len(law.values)))
        root = root_of(np.array(law.log_covariance))
        few, many = deviates(len(root)), np.concatenate([half, -half])
        for collective in law.collectives:
            for gpus in (8, 64):
                group, ln_sd = Group.of(gpus, 8), list[np.ndarray]()
                for draws in (few, many):
                    logs = np.log(np.array(law.values)) + draws @ root.T
                    times = LINK_LAWS[law.law].time_at(logs, steps, collective, group, sizes)
                    ln_sd.append(np.log(times).std(axis=0))
                ratios.append(ln_sd[0] / ln_sd[1])
    assert np.sqrt(np.mean((np.array(ratios) - 1) ** 2)) < 0.04
