"""Closed forms of queues: each asserts the limits of a docstring, with numbers that a human can divide."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model import queueing as q


def test_capacity_and_utilisation() -> None:
    assert q.batch_capacity(1, 0.25) == 4.0
    assert q.batch_capacity(64, 0.5) == 128.0
    assert q.utilisation(0, 10) == 0.0
    assert q.utilisation(32, 128) == 0.25


def test_mean_wait_of_one_at_a_time() -> None:
    assert q.mean_wait(1e-9, 1.0) == pytest.approx(0, abs=1e-8)
    assert q.mean_wait(0.5, 1.0) == pytest.approx(0.5)  # rho t / (2 (1 - rho))
    assert q.mean_wait(0.5, 1.0, 1.0) == pytest.approx(1.0)  # exponential: twice
    assert q.mean_wait([0.5, 1.0, 2.0], 1.0).tolist() == [pytest.approx(0.5), np.inf, np.inf]


def test_wait_where_a_pass_takes_all() -> None:
    assert q.unlimited_batch_wait(1e-9, 2.0) == pytest.approx(0, abs=1e-8)
    assert q.unlimited_batch_wait(1e9, 2.0) == pytest.approx(1.0)
    assert q.unlimited_batch_wait(1.0, 1.0) == pytest.approx(0.5 / (1 + np.exp(-1)))


def test_filling_and_a_light_load() -> None:
    assert q.fill_time(1, 5.0, 1.0) == 0.0
    assert q.fill_time(11, 5.0, 1e9) == 2.0
    assert q.fill_time(11, 5.0, 1.5) == 1.5
    assert q.fill_time(11, 1e12, 1.5) == pytest.approx(0, abs=1e-9)
    assert q.light_load_latency([1, 8], 0.25, 2.0).tolist() == [2.0, 2.25]
    assert q.light_load_latency(8, 0.0, 2.0) == 2.0
    assert q.requests_inside(100, 0.02) == 2.0


def test_the_slowest_of_ranks() -> None:
    assert q.slowest_delay(3.0, 1) == pytest.approx(3.0)
    assert q.slowest_delay(1.0, 4) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4)
    assert q.slowest_delay(1.0, 1e6) == pytest.approx(np.log(1e6) + 0.5772156649, rel=1e-6)
    assert q.slowest_quantile(2.0, 1, 0.99) == pytest.approx(-2 * np.log(0.01))
    gumbel = np.log(1e6) - np.log(-np.log(0.99))
    assert q.slowest_quantile(1.0, 1e6, 0.99) == pytest.approx(gumbel, rel=1e-6)
    assert q.slowest_quantile(1.0, 8, 0.0) == 0.0
    assert q.delay_scale(1.0, 1) == pytest.approx(1.0)
    assert q.delay_scale(1.0, 1e9) == pytest.approx(np.sqrt(6) / np.pi)
    drawn = np.random.default_rng(1).standard_exponential((200_000, 16)).max(axis=1)
    assert q.slowest_delay(1.0, 16) == pytest.approx(drawn.mean(), rel=0.01)
    assert q.slowest_quantile(1.0, 16, 0.99) == pytest.approx(np.quantile(drawn, 0.99), rel=0.02)
    assert q.delay_scale(drawn.std(), 16) == pytest.approx(1.0, rel=0.02)
