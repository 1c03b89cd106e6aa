"""Equations of shards and exchanges, with numbers that divide by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex


def test_shard_lookups() -> None:
    assert ex.shard_lookups(4, 10, 3, 2) == 4 * 10 * 3 / 2 == 60
    assert ex.shard_lookups(4, 10, 3, 4) == 10 * 3  # as many as without sharding


def test_filled_share() -> None:
    assert ex.filled_share(1, 7) == 1
    assert ex.filled_share(4, 1) == pytest.approx(0.25)
    assert ex.filled_share(2, 2) == pytest.approx(0.75)  # both rows elsewhere: 1/4
    assert [round(128 * float(ex.filled_share(128, L))) for L in (32, 4)] == [28, 4]  # as published
    assert ex.filled_share(1e12, 32) * 1e12 == pytest.approx(32, rel=1e-3)
    assert ex.filled_share(np.array([2, 4])[:, np.newaxis], np.array([1, 2, 3])).shape == (2, 3)


def test_part_elements() -> None:
    assert ex.part_elements(128, 1) == 128
    assert ex.part_elements(128, 4) == 32
    assert ex.part_elements(128, 3) == 43  # 43 + 43 + 42
    for D in (1, 7, 65, 128):
        for c in range(1, D + 1):
            too_many = c * ex.part_elements(D, c) - D
            assert 0 <= too_many < c and (too_many == 0) == (D % c == 0)


def test_holder_lengths() -> None:
    assert ex.holder_lengths_bytes(4, 10, 8) == 4 * 10 * 8
    # over the shards of a table, what all ranks send
    assert 4 * 2 * ex.holder_lengths_bytes(8, 10, 8) == 8 * eb.lengths_bytes(4 * 2, 10, 8)


def test_bag_bytes() -> None:
    assert ex.bag_bytes(32, 4) == 128
    assert ex.bag_bytes(32, 4, 4) == 132
    assert ex.bag_bytes(32, 1, 4) == 36


def test_bags_sent() -> None:
    assert ex.bags_sent_bytes(4, 10, 1, 128) == 5120
    assert ex.bags_sent_bytes(4, 10, 0.25, 128) == 1280
    assert ex.bags_sent_bytes(8, 10, 1, ex.bag_bytes(64, 4)) == 8 * 10 * 64 * 4
    assert ex.bags_sent_bytes(8, 10, 1, ex.bag_bytes(64, 4)) == eb.partial_bags_bytes(8, 10 * 64, 4)


def test_bags_received() -> None:
    assert ex.bags_received_bytes(10, 1, 1, 32, 4, 1, 0) == 10 * 128
    assert ex.bags_received_bytes(10, 4, 1, 32, 4, 1, 0) == 4 * 10 * 128
    assert ex.bags_received_bytes(10, 4, 0.5, 32, 4, 2, 4) == 10 * 2 * (128 + 8)


def test_what_all_send_is_what_all_receive() -> None:
    G, B, r, c, q = 8, 10, 4, 2, 0.5
    sent = r * c * ex.bags_sent_bytes(G, B, q, ex.bag_bytes(ex.part_elements(64, c), 4, 4))
    assert sent == G * ex.bags_received_bytes(B, r, q, 64, 4, c, 4)


def test_bag_sum() -> None:
    assert ex.bag_sum_bytes(10, 5120, 32, 4) == 5120 + 1280
    received = ex.bags_received_bytes(10, 8, 1, 32, 4, 1, 0)
    assert ex.bag_sum_bytes(10, received, 32, 4) == eb.local_sum_bytes(8, 320, 4)


def test_convert() -> None:
    assert ex.convert_bytes(10, 32, 2, 4) == 10 * 32 * 6
    assert ex.convert_bytes(10, 0, 1, 4) == 0


def test_across() -> None:
    assert ex.across_bytes(10, 16, 32, 4) == 16 * 10 * 128
    inside = ex.bags_sent_bytes(128, 10, 1, ex.bag_bytes(32, 4))
    assert ex.across_bytes(10, 128 / 8, 32, 4) == inside / 8
    assert ex.across_bytes(10, 16, 32, 4) == 16 * 10 * 32 * 4


def test_requests() -> None:
    assert ex.row_request_bytes(25, 2, 8) == 400
    assert ex.requested_rows(4, 25, 2) == 50
    assert ex.requested_rows(4, 10 * 3, 2) == ex.shard_lookups(4, 10, 3, 2)  # all ids distinct


def test_sorted() -> None:
    assert ex.sort_bytes(0, 8, 8, 4) == 0
    assert ex.sort_bytes(1, 8, 8, 4) == 200
    assert ex.sort_bytes(10, 1, 4, 0) == 10 * 3 * 4  # read to count, read and written once


def test_shard_memory() -> None:
    assert ex.shard_rows(10, 4) == 3
    for E in (5, 22, 1009):
        for r in (2, 3, 8):
            too_many = r * ex.shard_rows(E, r) - E
            assert 0 <= too_many < r and (too_many == 0) == (E % r == 0)
    assert ex.shard_bytes(10, 4, 32, 4, 0, 0) == 3 * 128
    assert ex.shard_bytes(10, 4, 32, 2, 0, 4) == 3 * (64 + 4)  # row-wise Adagrad
    assert ex.shard_bytes(10, 1, 32, 4, 8, 0) == 10 * 32 * 12  # Adam


def test_update_of_a_row() -> None:
    assert ex.update_row_bytes(32, 4, 0, 0) == 2 * 128
    assert ex.update_row_bytes(32, 2, 0, 4) == 2 * (64 + 4)  # row-wise Adagrad
    assert ex.update_row_bytes(32, 4, 8, 0) == 2 * 32 * 12  # Adam


def test_touched_rows() -> None:
    assert ex.touched_rows(100, 4) == 25


def test_copied_gradient() -> None:
    assert ex.copied_gradient_bytes(100, 8, 4) == 3200
