"""Limits of perfmodel.model.kernels, asserted as the docstrings state them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import kernels

sizes = st.floats(0, 1e13)
rates = st.floats(1e9, 1e13)


def test_sector_rounding() -> None:
    assert kernels.round_to_sectors([0, 1, 32, 33, 128], 32).tolist() == [0, 32, 32, 64, 128]


def test_row_bytes_limits() -> None:
    assert kernels.count_row_bytes([0, 1, 64, 128, 129, 512], 32, 128).tolist() == [
        0,
        128,
        128,
        128,
        160,
        512,
    ]
    assert kernels.count_row_bytes([0, 1, 33], 32, 0).tolist() == [0, 32, 64]


@given(st.floats(1.0, 4096.0), st.sampled_from([32, 64]))
def test_a_longer_row_never_moves_fewer_bytes(least: float, sector: int) -> None:
    row = np.arange(1, 1200, dtype=float)
    moved = kernels.count_row_bytes(row, sector, least)
    assert (np.diff(moved) >= 0).all() and (moved >= row).all()
    assert (np.diff(moved) <= sector).all()  # nothing jumps by more than a sector


def test_gather_bytes_limits() -> None:
    assert kernels.gather_bytes(0, 128, 8, 10, 136) == 1360
    assert kernels.gather_bytes(10, 128, 8, 0, 136) == 1360
    # 2 bags of 3 rows of 100 bytes: 6 * 108 read, 2 * 108 written
    assert kernels.gather_bytes(6, 100, 8, 2, 108) == 864


def test_limits_of_times() -> None:
    assert kernels.gather_pool_time(0, 0, 5e-6, 1e12, 2e12) == 5e-6
    assert kernels.gather_pool_time(1e9, 1e9, 5e-6, 1e12, np.inf) == pytest.approx(1.005e-3)
    assert kernels.gather_pool_time(0, 1e9, 5e-6, 1e12, 2e12) == pytest.approx(505e-6)
    assert kernels.stream_kernel_time(0, 9e-6, 1e12) == 9e-6
    assert kernels.stream_kernel_time(1e6, 9e-6, 1e12) == pytest.approx(10e-6)
    far = 1e20
    assert far / kernels.stream_kernel_time(far, 9e-6, 1e12) == pytest.approx(1e12)
    assert kernels.sort_floor(15e-6, 11e-6, 0) == 15e-6
    assert kernels.sort_floor(15e-6, 11e-6, 4) == pytest.approx(59e-6)


@given(sizes, sizes, rates, rates, st.floats(1.0, 10.0))
def test_gather_time_is_monotone_and_above_its_floor(
    dram: float, more: float, rate: float, l2_rate: float, factor: float
) -> None:
    t0 = 5e-6
    short = kernels.gather_pool_time(dram, dram, t0, rate, l2_rate)
    assert short >= t0
    assert kernels.gather_pool_time(dram + more, dram + more, t0, rate, l2_rate) >= short
    assert kernels.gather_pool_time(dram, dram, t0, rate * factor, l2_rate * factor) <= short


def test_factors_of_bands() -> None:
    assert kernels.compute_error_factor(0, 2) == 1
    assert kernels.compute_error_factor(0.2, 0) == 1
    assert kernels.compute_error_factor(1e-6, 2) - 1 == pytest.approx(2e-6 * np.sqrt(np.pi / 2), rel=1e-4)
    assert kernels.widen_factor(1.5, 0, 2) == pytest.approx(1.5)
    assert kernels.widen_factor(1, 0.3, 2) == pytest.approx(np.exp(0.6))
    assert kernels.widen_factor(np.exp(3), 2, 2) == pytest.approx(np.exp(5))


def test_error_factor_covers_what_it_says() -> None:
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
    assert kernels.compute_misses_of_all(
        kernels.compute_uniform_misses(10, 1000, 256, 1e9), 10, 1000
    ) == pytest.approx(0.01)
    assert kernels.compute_misses_of_all(0.7, 10, 1000) == 0.7  # a small cache: the drawn ones are more


def test_rows_of_host_memory() -> None:
    assert kernels.count_host_row_bytes([32, 128, 256], 128, 18, 0).tolist() == [50, 146, 292]
    assert kernels.count_host_row_bytes([128, 1024], 128, 18, 495).tolist() == [495, 1024 + 8 * 18]
    assert kernels.count_rows_in_flight(1e-6, 50e9, 500.0) == pytest.approx(100)
