"""Equations of shards and exchanges, with numbers that divide by hand."""

from __future__ import annotations

import pytest

from perfmodel.model import exchanges as ex


def test_filled_share() -> None:
    assert [round(128 * float(ex.filled_share(128, L))) for L in (32, 4)] == [28, 4]  # as published
    assert ex.filled_share(1e12, 32) * 1e12 == pytest.approx(32, rel=1e-3)
    assert ex.filled_share(4, 3, 0) == 0 and ex.filled_share(4, 3, 1) == ex.filled_share(4, 3)


def test_the_widest_part_counts_for_all() -> None:
    assert [float(ex.count_part_elements(128, c)) for c in (1, 3, 4)] == [128, 43, 32]  # 43 + 43 + 42
    for D in (1, 7, 65, 128):
        for c in range(1, D + 1):
            surplus = c * ex.count_part_elements(D, c) - D
            assert 0 <= surplus < c and (surplus == 0) == (D % c == 0)


def test_what_all_send_is_what_all_receive() -> None:
    G, B, r, c, q = 8, 10, 4, 2, 0.5
    sent = r * c * ex.bags_sent_bytes(G, B, q, ex.bag_bytes(ex.count_part_elements(64, c), 4, 4))
    assert sent == G * ex.bags_received_bytes(B, r, q, 64, 4, c, 4)
