"""The equations of one chip at their limits, with numbers to divide by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.chip import equations as eq


def array(*values: float) -> np.ndarray:
    return np.array(values)


def test_gathered_rows_wait_for_the_first_and_then_come_in_waves() -> None:
    """1 µs a row, two under way: 0.5 µs each; 100 GB/s: a row of 500 bytes in 5 ns."""
    time_s = eq.gm_time(array(0, 1, 2, 1000), 500, array(1e-6), 1e-6, 2, 100e9, 0)
    assert time_s == pytest.approx([0, 1e-6, 1.005e-6, 500e-6])
    for rows, waves, request_s, want in ((1000, 1, 0, 1e-3), (1001, 1e9, 0, 6e-6), (1001, 1e9, 2e-8, 21e-6)):
        time_s = eq.gm_time(array(rows), 500, array(1e-6), 1e-6, waves, 100e9, request_s)
        assert time_s == pytest.approx([want])


def test_a_streamed_table_is_copied_and_looked_up_in_turn() -> None:
    """1 MB at 100 GB/s: 10 µs; 1000 rows of 400 bytes at 100 GB/s: 4 µs."""

    def time_s(chunks: float, scan: float = 0, latency: float = 0) -> float:
        found = eq.gm_ub_time(array(1e6), array(1000), 400, array(chunks), array(scan), latency, 100e9, 100e9)
        return float(found[0])

    assert time_s(1) == pytest.approx(14e-6), "one chunk: no overlap"
    assert time_s(10) == pytest.approx(10.4e-6), "ten chunks: all but the look-ups of the last overlap"
    assert time_s(1e6) == pytest.approx(10e-6, rel=1e-4)
    assert time_s(10, scan=1e-6) == pytest.approx(14e-6 + 1e-6), "ids are searched in each chunk: 1.4 µs each"
    assert time_s(10, latency=4e-6) == pytest.approx(1.4e-6 + 9 * 2.7e-6), "two buffers hide half of a wait"


def test_a_resident_table_streams_inside_the_core_or_is_read_in_place() -> None:
    assert eq.l1_time(array(0, 1000), 500, 50e9, 0) == pytest.approx([0, 10e-6])
    assert eq.l1_time(array(1000), 500, 50e9, 20e-9) == pytest.approx([20e-6]), "requests, not bytes"
    arguments = array(1e6), array(1000), 400, array(10)
    inside = eq.l1_ub_time(*arguments, array(0), 200e9, 100e9)
    assert inside == pytest.approx([5e-6 + 0.4e-6])
    in_place = eq.l1_ub_time(*arguments, array(1e-6), 0, 100e9)
    assert in_place == pytest.approx([4e-6 + 10e-6])
    same = eq.l1_time(array(1000), 400, 100e9, 0)
    assert eq.l1_ub_time(*arguments, array(0), 0, 100e9) == pytest.approx(same)


def test_a_row_is_missed_once_and_again_after_it_has_left() -> None:
    p = array(0, 0.5, 1)
    assert eq.row_misses(p, 4, np.inf) == pytest.approx([0, 1 - 0.5**4, 1])
    assert eq.row_misses(p, 4, 0) == pytest.approx([0, 2, 4]), "no cache: every look-up"
    assert eq.row_misses(p, 4, 2) == pytest.approx([0, 0.75 + 2 * 0.5 * 0.25, 1])


def test_the_slice_of_the_hottest_row_serves_one_after_the_other() -> None:
    even = eq.slice_time(array(800), array(0), 100, 8, 80e9)
    hot = eq.slice_time(array(800), array(800), 100, 8, 80e9)
    assert even == pytest.approx([1e-6]) and hot == pytest.approx([8e-6])


def test_no_table_is_faster_than_its_fastest_piece_and_cores_share_the_work() -> None:
    works, held, longest = [array(8.0, 4.0)], [array(0.0, 100.0)], [array(8.0, 4.0)]
    assert eq.lower_bound(2 * works, 2 * held, [*longest, array(1.0)], 4, np.inf) == (4.0, 0.0)
    works, longest = 8 * works, 8 * [array(2.0, 1.0)]
    assert eq.lower_bound(works, 8 * held, longest, 4, np.inf)[0] == pytest.approx(8.0), "8 x 4 on 4 cores"
    bound, price = eq.lower_bound(works, 8 * held, longest, 4, 100.0)
    assert bound == pytest.approx(12.0, rel=0.03), "4 of 8 tables have room: 4 x 4 and 4 x 8 on 4 cores"
    assert bound <= 12 and price > 0
