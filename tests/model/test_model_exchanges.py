"""Equations of shards and exchanges, with numbers that divide by hand."""

from __future__ import annotations

from perfmodel.model import exchanges as ex


def test_filled_share() -> None:
    assert [round(128 * float(ex.filled_share(128, L))) for L in (32, 4)] == [28, 4]  # as published


def test_the_widest_part_counts_for_all() -> None:
    assert [float(ex.count_part_elements(128, c)) for c in (1, 3, 4)] == [128, 43, 32]  # 43 + 43 + 42
    for D in (1, 7, 65, 128):
        for c in range(1, D + 1):
            surplus = c * ex.count_part_elements(D, c) - D
            assert 0 <= surplus < c and (surplus == 0) == (D % c == 0)
