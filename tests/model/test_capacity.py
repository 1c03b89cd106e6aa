"""GPUs and memory: limits of the equations, asserted as the docstrings state them."""

from __future__ import annotations

import pytest

from perfmodel.model import capacity


@pytest.mark.parametrize(
    ("table_bytes", "hbm_bytes", "reserve", "gpus"),
    [
        (80e9 + 1e3, 80e9, 0, 2),
        (0.3, 0.1, 0, 3),  # 0.3 / 0.1 is a hair below 3 in floats
    ],
)
def test_gpus_needed(table_bytes: float, hbm_bytes: float, reserve: float, gpus: int) -> None:
    assert capacity.gpus_needed(table_bytes, hbm_bytes, reserve) == gpus


def test_whole_nodes() -> None:
    assert capacity.round_to_nodes([1, 5, 8, 9, 125, 128], 8).tolist() == [1, 5, 8, 16, 128, 128]
    counts = [capacity.list_allowed_gpus(*ends, 8) for ends in ((6, 24), (9, 23), (2, 3), (9, 8))]
    assert counts == [[6, 7, 8, 16, 24], [16], [2, 3], []]


def test_bytes_of_rows_and_rooms() -> None:
    assert [capacity.compute_host_room(2e12, 8, 10e9, c) for c in (0, 0.01, 0.5)] == [250e9, 250e9, 20e9]
    assert capacity.count_buffer_bytes((100, 20), (60, 70)) == 130 and capacity.count_buffer_bytes() == 0
    assert capacity.check_fits(68e9 + 1, 68e9) and not capacity.check_fits(68.1e9, 68e9)


def test_tables_that_are_not_cut_are_even_on_a_multiple_of_their_number() -> None:
    assert capacity.list_even_gpus(153, 432, 20, 8) == [160] == capacity.list_even_gpus(160, 160, 20, 8)
    assert capacity.list_even_gpus(100, 432, 200, 8) == [200]
    assert capacity.list_even_gpus(150, 432, 156, 8) == [156, 312]
    assert capacity.list_even_gpus(152, 432, 1, 8) == capacity.list_even_gpus(16, 32, 99, 8) == []
