"""Limits of perfmodel.model.kernels, asserted as the docstrings state them."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model import kernels


def test_row_bytes_limits() -> None:
    rows = [0, 1, 64, 128, 129, 512]
    assert kernels.count_row_bytes(rows, 32, 128).tolist() == [0, 128, 128, 128, 160, 512]
    assert kernels.count_row_bytes([0, 1, 33], 32, 0).tolist() == [0, 32, 64]


def test_factors_of_bands() -> None:
    assert kernels.compute_error_factor(1e-6, 2) - 1 == pytest.approx(2e-6 * np.sqrt(np.pi / 2), rel=1e-4)

    rng = np.random.default_rng(3)
    log_error = rng.normal(0, np.sqrt(np.pi / 2) * 0.2, 100_000)
    assert np.mean(np.abs(log_error)) == pytest.approx(0.2, rel=0.01)
    inside = np.abs(log_error) <= np.log(kernels.compute_error_factor(0.2, 1.96))
    assert np.mean(inside) == pytest.approx(0.95, abs=0.005)


def test_traffic_with_uniform_ids() -> None:
    # 10 rows of 96 bytes (3 sectors of 32), ids of 8, 2 bags of 100; no cache: all of it passes DRAM and L2
    plain = kernels.count_traffic(
        kernels.compute_uniform_misses(1000, 10, 96, 0.0), 10, 96, 0.0, 32, 8, 2, 100
    )
    assert [float(part) for part in plain] == [10 * 104 + 200] * 2
    # rows of 100 bytes take 4 sectors, and 192 bytes at least
    missed = kernels.compute_uniform_misses(1000, 10, 100, 0.0)
    short = kernels.count_traffic(missed, 10, 100, 192.0, 32, 8, 2, 100)
    assert [float(part) for part in short] == [10 * 200 + 200, 10 * 200 + 200]
    # one row that stays: of 10 look-ups one misses
    kept = kernels.count_traffic(kernels.compute_uniform_misses(1, 10, 96, 1e6), 10, 96, 0.0, 32, 8, 2, 100)
    assert float(kept.dram_bytes) == pytest.approx(10 * (9.6 + 8) + 200)
    assert kernels.count_traffic(0, 10, 96, 0.0, 32, 8, 2, 100).dram_bytes == 10 * 8 + 200


def test_every_gradient_that_arrives_is_read_from_memory() -> None:
    """One look-up a bag: 1024 gradients of a rank, each read once, though 1024 draws would leave out 1/e."""
    miss = kernels.compute_uniform_misses(1024, 1024, 256, 1e9)
    assert miss == pytest.approx(1 - np.exp(-1), rel=1e-3)
    assert kernels.compute_misses_of_all(miss, 1024, 1024) == 1
