"""Limits of perfmodel.model.messages, asserted as the docstrings state them."""

from __future__ import annotations

import numpy as np

from perfmodel.model import embedding_bag as eb
from perfmodel.model import messages


def test_lengths_and_ids() -> None:
    assert messages.routed_lengths_bytes(1, 6, 8) == 48
    assert np.array_equal(messages.routed_lengths_bytes([8, 128], 6, 8), eb.lengths_bytes([8, 128], 6, 8))
    assert messages.routed_ids_bytes(1, 24, 8) == eb.ids_bytes(24, 8) == 192
    assert messages.routed_ids_bytes(2, 24, 4) == 192
    assert messages.routed_ids_bytes(2, 0, 8) == 0


def test_pooled_bags() -> None:
    # 3 samples a rank, a table of 10 columns on this rank, 4 ranks: 3 10 4 bytes to each
    assert messages.pooled_exchange_bytes(4, 30, 4) == 480
    assert messages.pooled_exchange_bytes(4, 0, 4) == 0
    owned = np.array([30, 30, 0, 60])  # 4 tables of 10 columns over 4 ranks
    assert messages.pooled_exchange_bytes(4, owned, 4).sum() == 4 * (3 * 4 * 10) * 4


def test_table_row_wise_goes_through_the_node() -> None:
    assert messages.node_reduce_scatter_bytes(16, 30, 4) == eb.partial_bags_bytes(16, 30, 4) == 1920
    assert messages.node_exchange_bytes(2, 30, 4) == 1920 / 8  # two nodes of 8: each rank keeps an eighth
    assert messages.node_exchange_bytes(1, 30, 4) == 120
    assert messages.node_reduce_scatter_bytes(16, 0, 4) == messages.node_exchange_bytes(2, 0, 4) == 0
