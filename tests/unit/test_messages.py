"""Limits of perfmodel.model.messages, asserted as the docstrings state them."""

from __future__ import annotations

import numpy as np

from perfmodel.model import embedding_bag as eb
from perfmodel.model import messages


def test_lengths_and_ids() -> None:
    assert messages.routed_lengths_bytes(1, 6, 8) == 48
    assert np.array_equal(
        messages.routed_lengths_bytes(np.array([8, 128]), 6, 8), eb.lengths_bytes(np.array([8, 128]), 6, 8)
    )
    assert messages.routed_ids_bytes(1, 24, 8) == eb.ids_bytes(24, 8) == 192
    assert messages.routed_ids_bytes(2, 24, 4) == 192
    assert messages.routed_ids_bytes(2, 0, 8) == 0
