"""Equations of shards and exchanges, with numbers that divide by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model import exchanges as ex

BAG = ex.bag_bytes(64, 4)


@pytest.mark.parametrize(
    ("value", "by_hand"),
    [
        (ex.splits_bytes(128, 3, 8), 3072),  # TorchRec on 128 fake ranks: N = 128, B = 64, L = 10, D = 32
        (ex.lengths_bytes(128, 64, 8), 8 * 128 * 64),
        (ex.ids_bytes(64 * 10, 8), 8 * 64 * 10),
        (ex.bags_sent_bytes(128, 64, 1, ex.bag_bytes(32, 4)), 4 * 128 * 64 * 32),
        (ex.lengths_bytes(1, 10, 4), 40),
        (ex.shard_lookups(4, 10, 3, 2), 60),
        (ex.shard_lookups(4, 10, 3, 4), 10 * 3),  # as many as without sharding
        (ex.holder_lengths_bytes(4, 10, 8), 320),
        (
            4 * 2 * ex.holder_lengths_bytes(8, 10, 8),
            8 * ex.lengths_bytes(4 * 2, 10, 8),
        ),  # what all ranks send
        (ex.bag_bytes(32, 4, 4), 132),
        (ex.bags_sent_bytes(4, 10, 0.25, 128), 1280),
        (ex.bags_received_bytes(10, 4, 1, 32, 4, 1, 0), 4 * 10 * 128),
        (ex.bags_received_bytes(10, 4, 0.5, 32, 4, 2, 4), 10 * 2 * (128 + 8)),
        (ex.bag_sum_bytes(10, 8 * 10 * 128, 32, 4), (8 + 1) * 10 * 128),
        (ex.convert_bytes(10, 32, 2, 4), 10 * 32 * 6),
        (ex.across_bytes(10, 16, 32, 4), 16 * 10 * 128),
        (ex.across_bytes(10, 128 / 8, 64, 4), ex.bags_sent_bytes(128, 10, 1, BAG) / 8),
        (ex.row_request_bytes(25, 2, 8), 400),
        (ex.requested_rows(4, 25, 2), 50),
        (ex.requested_rows(4, 10 * 3, 2), ex.shard_lookups(4, 10, 3, 2)),  # all ids distinct
        (ex.sort_bytes(0, 8, 8, 4), 0),
        (ex.sort_bytes(1, 8, 8, 4), 200),
        (ex.sort_bytes(10, 1, 4, 0), 10 * 3 * 4),  # read to count, read and written once
        (ex.placed_bytes(10, 128), 2 * 10 * 128),
        (ex.count_shard_bytes(10, 4, 32, 4, 0, 0), 3 * 128),
        (ex.count_shard_bytes(10, 4, 32, 2, 0, 4), 3 * (64 + 4)),  # row-wise Adagrad
        (ex.count_shard_bytes(10, 1, 32, 4, 8, 0), 10 * 32 * 12),  # Adam
        (ex.update_row_bytes(32, 2, 0, 4), 2 * (64 + 4)),
        (ex.update_row_bytes(32, 4, 8, 0), 2 * 32 * 12),
        (ex.copied_gradient_bytes(100, 8, 4), 3200),
    ],
)
def test_bytes_by_hand(value: float, by_hand: float) -> None:
    assert value == by_hand


def test_digits_number_the_rows_of_a_rank() -> None:
    assert ex.sort_digits(np.array([255, 256, 2**32 - 1, 2**32])).tolist() == [1, 2, 4, 5]


def test_filled_share() -> None:
    assert ex.filled_share(1, 7) == 1
    assert ex.filled_share(4, 1) == pytest.approx(0.25)
    assert ex.filled_share(2, 2) == pytest.approx(0.75)  # both rows elsewhere: 1/4
    assert [round(128 * float(ex.filled_share(128, L))) for L in (32, 4)] == [28, 4]  # as published
    assert ex.filled_share(1e12, 32) * 1e12 == pytest.approx(32, rel=1e-3)
    assert ex.filled_share(1, 2, 0.5) == pytest.approx(0.75)  # not both of two look-ups are hot
    assert ex.filled_share(4, 1, 0.5) == pytest.approx(1 / 8)
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
