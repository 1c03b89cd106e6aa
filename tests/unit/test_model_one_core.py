"""Four ways to look a table up on one core: numbers that a human can divide."""

from __future__ import annotations

import pytest

from perfmodel.model import one_core


def test_gathered_rows_cost_the_same_from_any_table() -> None:
    # 1000 look-ups of 500 bytes at 5 GB/s
    assert one_core.gm_time(1000, 500, 5e9) == pytest.approx(100e-6)
    assert one_core.gm_time(0, 500, 5e9) == 0


def test_a_table_streams_once_a_pass() -> None:
    assert one_core.passes([0, 1, 100, 101], 100).tolist() == [0, 1, 1, 2]


def test_passes_cost_their_waits_and_parts_their_scans() -> None:
    stays = one_core.passes_time(3, 1, 2e-6, 0, 5e-6, 0.4e-6, 0.1e-6)
    assert stays == pytest.approx(2e-6 + 3 * 0.4e-6 + 0.1e-6 + 5e-6)
    streams = one_core.passes_time(1, 4, 0, 4e-6, 5e-6, 0.4e-6, 0.1e-6)
    assert streams == pytest.approx(0.4e-6 + 4 * 0.1e-6 + 5e-6)  # copies are hidden
    assert one_core.passes_time(1, 4, 0, 9e-6, 5e-6, 0.4e-6, 0.1e-6) == pytest.approx(streams + 4e-6)


def test_resident_rows_spare_later_passes_only() -> None:
    assert one_core.table_bytes(100, [0, 20, 100], 500, 3).tolist() == [150_000, 130_000, 50_000]
    assert one_core.table_bytes(100, [0, 20, 100], 500).tolist() == [50_000] * 3


def test_what_every_way_pays() -> None:
    # 1000 ids of 8 bytes, 100 bags of 520 bytes: 60 kB at 10 GB/s
    assert one_core.ids_and_bags_time(1000, 8, 100, 520, 10e9) == pytest.approx(6e-6)
