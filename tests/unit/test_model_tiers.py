"""Host memory, links and SSDs: the limits that docstrings state, in numbers that one can divide."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model import tiers


def test_reads_in_flight_are_rate_times_latency() -> None:
    assert tiers.rows_in_flight(1e-6, 50e9, [100, 500]) == pytest.approx([500, 100])
    assert tiers.rows_in_flight(0, 50e9, 100) == 0


def test_each_packet_of_a_row_has_a_header() -> None:
    assert tiers.wire_bytes([0, 32, 128, 512], 128, 18, 0) == pytest.approx([0, 50, 146, 584])
    assert tiers.wire_bytes([0, 32, 128, 512], 128, 18, 500) == pytest.approx([0, 500, 500, 584])


def test_the_slower_of_link_and_shared_memory_counts() -> None:
    assert tiers.row_rate(60e9, 0.5, 100, 120, 400e9, 8) == pytest.approx(25e9)
    assert tiers.row_rate(450e9, 1, 100, 100, 500e9, 2) == pytest.approx(250e9)


def test_a_link_takes_its_latency_and_its_bytes() -> None:
    assert tiers.link_time(np.array([0, 50e3]), 1e-6, 50e9) == pytest.approx([0, 2e-6])


def test_looking_up_costs_a_floor_and_each_row() -> None:
    assert tiers.cache_lookup_time(np.array([0, 1000]), 1e-4, 5e-9) == pytest.approx([1e-4, 1.05e-4])


def test_a_prefetch_hides_behind_what_runs_beside_it() -> None:
    assert tiers.exposed_time([3.0, 1.0], [2.0, 2.0]) == pytest.approx([1, 0])


def test_ssds_read_as_queue_rate_and_iops_allow() -> None:
    reads = tiers.ssd_reads_per_s(
        8e6, np.array([100, 1000, 1e6, 1e6]), 100e-6, np.array([1e12, 1e12, 1e12, 4e9]), 4096
    )
    assert reads == pytest.approx([1e6, 8e6, 8e6, 4e9 / 4096])
    assert tiers.ssd_time(np.array([0, 1, 1000]), 1e6, 100e-6) == pytest.approx([0, 101e-6, 1.1e-3])
    assert np.all(np.diff(tiers.ssd_time(np.arange(5.0), 1e6, 1e-4)) > 0)
