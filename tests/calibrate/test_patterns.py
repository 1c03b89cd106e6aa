"""Patterns of collectives: who holds what, exact sums, and that one wrong element is seen."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate import patterns
from calibrate.patterns import BufferLayout, layout
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES


def fill_sent(of_rank: BufferLayout, salt: int, row: int = 0) -> np.ndarray:
    buffer = np.full(of_rank.send_elements, patterns.POISON, np.float32)
    patterns.fill(buffer, patterns.send_pieces(of_rank, salt), row)
    return buffer


def count_wrong(of_rank: BufferLayout, buffer: np.ndarray, salt: int, row: int = 0) -> int:
    return patterns.count_wrong(buffer, patterns.list_expected_pieces(of_rank, salt), row)


def exchange(operation: str, ranks: int, buffers: list[np.ndarray]) -> list[np.ndarray]:
    """The collective, done by slow and plain means."""
    if operation == "all_to_all":
        cut = [np.split(buffer, ranks) for buffer in buffers]
        return [np.concatenate([cut[source][me] for source in range(ranks)]) for me in range(ranks)]
    if operation == "all_gather":
        return [np.concatenate(buffers)] * ranks
    if operation == "broadcast":
        return [buffers[0][:0], *[buffers[0]] * (ranks - 1)]
    total = np.sum(np.stack(buffers).astype(np.float64), axis=0).astype(np.float32)
    return [total] * ranks if operation == "all_reduce" else np.split(total, ranks)


@pytest.mark.parametrize("operation", COLLECTIVES)
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("payload_bytes", [64, 1000, 200_000])
def test_expected_is_what_the_collective_brings(operation: str, ranks: int, payload_bytes: int) -> None:
    members = [layout(operation, payload_bytes, ranks, me) for me in range(ranks)]
    for row in (0, 5):
        results = exchange(operation, ranks, [fill_sent(of_rank, 11, row) for of_rank in members])
        for of_rank, result in zip(members, results, strict=True):
            assert result.size == of_rank.recv_elements
            assert count_wrong(of_rank, result, 11, row) == 0
            for salt, other in ((11, row + 1), (12, row)):
                assert result.size == 0 or count_wrong(of_rank, result, salt, other) > result.size // 4


def test_one_wrong_element_is_counted() -> None:
    of_rank = layout("all_to_all", 100_000, 2, 0)
    buffer = np.empty(of_rank.recv_elements, np.float32)
    patterns.fill(buffer, patterns.list_expected_pieces(of_rank, 3))
    for place in (0, 12_499, 12_500, 24_999):
        spoilt = buffer.copy()
        spoilt[place] += 1
        assert count_wrong(of_rank, spoilt, 3) == 1
    assert count_wrong(of_rank, np.full_like(buffer, patterns.POISON), 3) == 25_000
    sent = patterns.send_pieces(layout("all_to_all", 1000, 4, 3), 5)
    assert sent[2].start == 3 * 1009 + 2 * 97 + 5 * 53


def test_sums_over_1024_ranks_are_exact() -> None:
    first = layout("all_reduce", 64_000, 1024, 0)
    values = np.concatenate([piece.doubled for piece in patterns.list_expected_pieces(first, 1)])
    assert patterns.MOST_RANKS * (patterns.PERIOD - 1) <= 2**24 and len(np.unique(values)) > 4
    total = np.sum([fill_sent(layout("all_reduce", 64_000, 1024, rank), 1) for rank in range(1024)], axis=0)
    assert count_wrong(first, total, 1) == 0


def test_counts_that_a_human_can_divide() -> None:
    """1200 B of fp32 over 3 ranks: 300 elements, 100 a peer."""
    counts = {
        "all_to_all": (300, 300, 800, 1200),
        "reduce_scatter": (300, 100, 800, 1200),
        "all_gather": (100, 300, 400, 400),
        "all_reduce": (300, 300, 1200, 1200),
        "broadcast": (0, 300, 0, 1200),
    }
    for operation, wanted in counts.items():
        of_rank = layout(operation, 1200, 3, 1)
        seen = of_rank.send_elements, of_rank.recv_elements, of_rank.bytes_sent, of_rank.sender_bytes
        assert seen == wanted, operation
    root = layout("broadcast", 1200, 3, 0)
    assert (root.send_elements, root.recv_elements, root.bytes_sent) == (300, 0, 1200)


@pytest.mark.parametrize(
    ("operation", "a_peer", "least"),
    [
        ("all_to_all", 1, 32),
        ("reduce_scatter", 1, 32),
        ("all_gather", 16, 128),
        ("all_reduce", 1, 4),
        ("broadcast", 16, 16),
    ],
)
def test_sizes_that_send_nothing_are_refused(operation: str, a_peer: int, least: int) -> None:
    with pytest.raises(BadInputError, match=f"the smallest size is {least} B"):
        layout(operation, least - 1, 8, 0, bytes_a_peer=a_peer)
    assert layout(operation, least, 8, 0, bytes_a_peer=a_peer).payload_bytes == least
