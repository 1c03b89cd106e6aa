"""What cores share and wait for: numbers that a human can divide, limits, and chance against draws."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model import one_chip


def test_a_row_takes_whole_accesses() -> None:
    np.testing.assert_array_equal(one_chip.read_bytes([1, 32, 33, 100], 32), [32, 32, 64, 128])
    assert one_chip.read_bytes(100, 1) == 100


def test_asking_for_rows_one_by_one_limits_the_rate() -> None:
    assert one_chip.issued_rate(100, 32e9, 10e-9) == pytest.approx(10e9)
    assert one_chip.issued_rate(1000, 32e9, 10e-9) == pytest.approx(32e9)
    assert one_chip.issued_rate(100, 32e9, 0) == 32e9


def test_a_row_passes_slice_and_channel_whole() -> None:
    assert one_chip.row_latency(500, 1e-6, 5e9, 10e9) == pytest.approx(1.15e-6)
    assert one_chip.row_latency(0, 1e-6, 5e9) == 1e-6


def test_gathering_is_waves_of_latencies_or_rows_in_line() -> None:
    assert one_chip.gather_time(0, 500, 1e-6, 1e-6, 4, 10e9) == 0
    assert one_chip.gather_time(1, 500, 1e-6, 1e-6, 4, 10e9) == pytest.approx(1e-6)
    assert one_chip.gather_time(10, 500, 1e-6, 1e-6, 1, 10e9) == pytest.approx(10e-6)
    assert one_chip.gather_time(40, 500, 1e-6, 1e-6, 4, 10e9) == pytest.approx(10e-6)
    assert one_chip.gather_time(101, 500, 1e-6, 1e-6, 1e9, 10e9) == pytest.approx(6e-6)
    many = one_chip.gather_time(1e9, 500, 1e-6, 1e-6, 4, 10e9)
    assert many == pytest.approx(1e9 * 1e-6 / 4, rel=1e-6)  # four on their way


def test_the_slowest_of_some_rows_is_soon_one_from_memory() -> None:
    assert one_chip.slowest_row([200, 400], [0.5], 1) == pytest.approx(300)
    assert one_chip.slowest_row([200, 400], [0.5], 2) == pytest.approx(350)
    assert one_chip.slowest_row([200, 400], [1], 9) == 200
    assert one_chip.slowest_row([200, 400], [0], 9) == 400
    assert one_chip.slowest_row([300], [], 9) == 300
    assert one_chip.slowest_row([20, 200, 400], [0, 0.5], 2) == pytest.approx(350)
    assert one_chip.slowest_row([20, 200, 400], [0.5, 0.25], 1) == pytest.approx(160)
    assert one_chip.slowest_row([20, 200, 400], [0.5, 0.5], 99) == pytest.approx(200)
    drawn = np.random.default_rng(3).choice([20.0, 200.0, 400.0], (20_000, 4), p=[0.7, 0.2, 0.1])
    slowest = one_chip.slowest_row([20, 200, 400], [0.7, 0.2], 4)
    assert drawn.max(axis=1).mean() == pytest.approx(float(slowest), rel=0.01)


def test_variance_of_gathering_is_that_of_draws() -> None:
    assert one_chip.gather_variance(100, 1, [200, 400], [0], 2) == 0
    assert one_chip.gather_variance(100, 1, [300, 300], [0.5], 2) == 0
    assert one_chip.gather_variance(100, 1, [300], [], 2) == 0
    assert one_chip.gather_variance(100, 1, [200, 400], [0.5], 2) == pytest.approx(100 * 100**2 / 4)
    assert one_chip.gather_variance(100, 0.3, [300, 300], [0.5], 2) == pytest.approx(100 * 0.7 * 150**2)
    of, far = [0.7, 0.2, 0.1], np.array([20.0, 200.0, 400.0])
    spread = np.dot(of, far**2) - np.dot(of, far) ** 2
    assert one_chip.gather_variance(9, 1, far, of[:2], 3) == pytest.approx(spread)
    random = np.random.default_rng(1)
    rows = random.binomial(1000, 0.3, 20_000)
    near = random.binomial(rows, 0.6)
    times = (near * 200 + (rows - near) * 400) / 2
    expected = one_chip.gather_variance(300, 0.3, [200, 400], [0.6], 2)
    assert np.var(times) == pytest.approx(float(expected), rel=0.05)


@pytest.mark.parametrize("count", [1, 2, 8, 32, 132])
def test_the_largest_of_normal_numbers(count: int) -> None:
    drawn = np.random.default_rng(2).normal(size=(20_000, count)).max(axis=1).mean()
    assert one_chip.most_of(count) == pytest.approx(drawn, abs=0.03)


def test_the_slowest_core_is_that_of_draws() -> None:
    assert one_chip.slowest_core([1, 5, 2], [0, 0, 0]) == 5
    assert one_chip.slowest_core([], []) == 0
    assert one_chip.slowest_core([1, 50, 2], [1, 1, 1]) == pytest.approx(50, abs=0.05)
    assert one_chip.slowest_core([5] * 32, [4] * 32) == pytest.approx(5 + 2 * one_chip.most_of(32), rel=5e-3)
    assert one_chip.slowest_core([5, 9], [1, 0]) == pytest.approx(9, abs=0.01)
    mean, deviation = np.array([20.0, 21.0, 17.0, 20.5]), np.array([2.0, 0.0, 3.0, 0.5])
    drawn = np.random.default_rng(4).normal(mean, deviation, (200_000, 4)).max(axis=1).mean()
    assert one_chip.slowest_core(mean, deviation**2) == pytest.approx(drawn, rel=2e-3)


def test_the_part_with_the_hottest_row() -> None:
    assert one_chip.hottest_share(1, 1000, 32) == 1
    assert one_chip.hottest_share(0.3, 1000, 1) == pytest.approx(1)
    assert one_chip.hottest_share(1 / 64, 64, 32) == pytest.approx(1 / 32)
    assert one_chip.hottest_share(1 / 16, 16, 32) == pytest.approx(1 / 16)
    assert one_chip.hottest_share(0.1, 1e12, 10) == pytest.approx(0.19)


def test_chance_fills_parts_unevenly() -> None:
    assert one_chip.uneven(100.0, 1) == 0
    random = np.random.default_rng(3)
    fullest = random.multinomial(5000, [1 / 80] * 80, size=3000).max(axis=1).mean()
    assert 5000 / 80 + one_chip.uneven(5000, 80) == pytest.approx(fullest, rel=0.02)


def test_bags_with_a_look_up_in_a_part() -> None:
    assert one_chip.touched_bags(100, 1, 0.3) == pytest.approx(30)
    assert one_chip.touched_bags(100, 2, 0.5) == pytest.approx(75)
    assert one_chip.touched_bags(100, 5, 1) == 100
    assert one_chip.touched_bags(100, 5, 0) == 0


def test_even_chunks_without_latency_are_two_stages() -> None:
    for stream, gather, chunks in (
        (1.0, 20.0, 10),
        (1.0, 5.0, 10),
        (3.0, 12.0, 4),
        (2.0, 7.0, 1),
        (2.0, 7.0, 2),
    ):
        got = one_chip.chunk_times(stream, gather, chunks, 1 / chunks, 0)
        beside = max(stream * chunks, gather)
        assert got == pytest.approx(stream + (1 - 1 / chunks) * beside + gather / chunks)


def test_one_chunk_with_all_look_ups_overlaps_with_one_other() -> None:
    assert one_chip.chunk_times(1, 20, 10, 1, 0) == pytest.approx(1 + 20 + 8)
    assert one_chip.chunk_times(1, 20, 10, 0.1, 3) == pytest.approx(3 + 1 + 9 * 3 + 2)
    assert one_chip.chunk_times(1, 20, 10, 1, 0, 0.5) == pytest.approx(1 + 20.5 + 8 + 0.5)
    assert one_chip.chunk_times(1, 20, 1, 1, 0, 0.5) == pytest.approx(1 + 20.5)


def test_a_chip_takes_what_is_busiest_in_each_step() -> None:
    assert one_chip.chip_time([0], [5], [3], 4) == 5
    assert one_chip.chip_time([1], [2], [3], 0) == 4
    assert one_chip.chip_time([1, 0], [5, 1], [3, 2], 0) == 7
    assert one_chip.chip_time([1, 0], [5, 1], [3, 2], 9) == 10


def test_tables_in_one_order_wait_for_the_hottest_part_once() -> None:
    assert one_chip.in_order_time(10, 0, 1, 2) == 10
    assert one_chip.in_order_time(10, 5, 1, 2) == 15
    assert one_chip.in_order_time(10, 0, 4, 9) == 13
