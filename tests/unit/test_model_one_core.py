"""Four ways to look a table up on one core: numbers that a human can divide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import one_core

positive = st.floats(1e-3, 1e6)


def test_a_row_rate_is_rows_in_flight_over_their_latency_up_to_the_peak() -> None:
    # 8 rows of 500 bytes every microsecond are 4 GB/s; rows of 2000 bytes would be 16
    np.testing.assert_allclose(one_core.row_rate([500, 2000], 1e-6, 8, 10e9), [4e9, 10e9])
    assert one_core.row_rate(64, 1e-6, 1, 1e12) == pytest.approx(64e6)


def test_gathered_rows_cost_the_same_from_any_table() -> None:
    # 1000 look-ups of 500 bytes at 5 GB/s
    assert one_core.gm_time(1000, 500, 5e9) == pytest.approx(100e-6)
    assert one_core.gm_time(0, 500, 5e9) == 0


def test_a_resident_table_comes_once() -> None:
    # 100 rows of 500 bytes at 10 GB/s: 5 us; 1000 look-ups at 100 GB/s: 5 us
    assert one_core.l1_time(100, 1000, 500, 10e9, 100e9) == pytest.approx(10e-6)
    assert one_core.l1_time(0, 1000, 500, 10e9, 100e9) == pytest.approx(5e-6)


def test_a_table_streams_once_a_pass() -> None:
    assert one_core.passes([0, 1, 100, 101], 100).tolist() == [0, 1, 1, 2]
    # 3 passes of 100 rows of 500 bytes at 10 GB/s: 15 us, then 1000 look-ups at 50 GB/s: 10 us
    assert one_core.gm_ub_time(100, 1000, 500, 10e9, 50e9, 3) == pytest.approx(25e-6)
    assert one_core.gm_ub_time(100, 0, 500, 10e9, 50e9, 3, 5) == pytest.approx(15e-6)


def test_look_ups_hide_behind_the_stream() -> None:
    # five chunks, 15 us of stream, 10 us of look-ups: 3 us alone, 12 us together, 2 us alone
    assert one_core.two_stages(15, 10, 5) == pytest.approx(17)
    assert one_core.two_stages(15, 10, 1) == 25
    assert one_core.two_stages(15, 10, 1e12) == pytest.approx(15)
    assert one_core.two_stages(0, 10, 7) == pytest.approx(10)
    assert one_core.two_stages(15, 0, 7) == pytest.approx(15)


def test_passes_cost_their_waits_and_parts_their_scans() -> None:
    stays = one_core.passes_time(3, 1, 2e-6, 0, 5e-6, 0.4e-6, 0.1e-6)
    assert stays == pytest.approx(2e-6 + 3 * 0.4e-6 + 0.1e-6 + 5e-6)
    streams = one_core.passes_time(1, 4, 0, 4e-6, 5e-6, 0.4e-6, 0.1e-6)
    assert streams == pytest.approx(0.4e-6 + 4 * 0.1e-6 + 5e-6)  # copies are hidden
    assert one_core.passes_time(1, 4, 0, 9e-6, 5e-6, 0.4e-6, 0.1e-6) == pytest.approx(streams + 4e-6)


def test_resident_rows_spare_later_passes_only() -> None:
    # 20 of 100 rows stay: 1 us once; 80 stream 3 times: 12 us; look-ups 10 us
    got = one_core.l1_ub_time(100, 20, 1000, 500, 10e9, np.inf, 10e9, 50e9, 3)
    assert got == pytest.approx(23e-6)
    # a chip that moves them to where it gathers, at 100 GB/s: 3 passes of 0.1 us more
    got = one_core.l1_ub_time(100, 20, 1000, 500, 10e9, 100e9, 10e9, 50e9, 3)
    assert got == pytest.approx(23.3e-6)
    assert one_core.table_bytes(100, [0, 20, 100], 500, 3).tolist() == [150_000, 130_000, 50_000]
    assert one_core.table_bytes(100, [0, 20, 100], 500).tolist() == [50_000] * 3


@given(positive, positive, positive, positive, positive, positive, st.integers(1, 9), st.integers(1, 9))
def test_l1_ub_lies_between_the_ways_it_is_made_of(
    m: float, n: float, row: float, load: float, dma: float, vec: float, p: int, chunks: int
) -> None:
    nothing = one_core.l1_ub_time(m, 0, n, row, load, np.inf, dma, vec, p, chunks)
    assert nothing == pytest.approx(one_core.gm_ub_time(m, n, row, dma, vec, p, chunks))
    everything = one_core.l1_ub_time(m, m, n, row, load, np.inf, dma, vec, p, chunks)
    assert everything == pytest.approx(one_core.l1_time(m, n, row, load, vec))


def test_what_every_way_pays_and_the_search_for_ids() -> None:
    # 1000 ids of 8 bytes, 100 bags of 520 bytes: 60 kB at 10 GB/s
    assert one_core.ids_and_bags_time(1000, 8, 100, 520, 10e9) == pytest.approx(6e-6)
    # 1000 ids, each looked at for 5 chunks, 10 ids a nanosecond
    assert one_core.scan_time(1000, 5, 10e9) == pytest.approx(0.5e-6)
    assert one_core.scan_time(1000, 5, np.inf) == 0
