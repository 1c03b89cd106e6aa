"""Patterns of collectives: who holds what, exact sums, and that one wrong element is seen."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate import patterns
from calibrate.patterns import BufferLayout, layout
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES


def sent(one: BufferLayout, salt: int, row: int = 0) -> np.ndarray:
    buffer = np.full(one.send_elements, patterns.POISON, np.float32)
    patterns.fill(buffer, patterns.send_pieces(one, salt), row)
    return buffer


def received(members: list[BufferLayout], buffers: list[np.ndarray]) -> list[np.ndarray]:
    """The collective, done by slow and plain means."""
    one = members[0]
    ranks, operation = one.ranks, one.operation
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
        results = received(members, [sent(one, 11, row) for one in members])
        for one, result in zip(members, results, strict=True):
            expected = patterns.list_expected_pieces(one, 11)
            assert result.size == one.recv_elements
            assert patterns.count_wrong(result, expected, row) == 0
            if result.size:
                assert patterns.count_wrong(result, expected, row + 1) > result.size // 4
                assert (
                    patterns.count_wrong(result, patterns.list_expected_pieces(one, 12), row)
                    > result.size // 4
                )


def test_one_wrong_element_is_counted() -> None:
    one = layout("all_to_all", 100_000, 2, 0)
    buffer = np.empty(one.recv_elements, np.float32)
    patterns.fill(buffer, patterns.list_expected_pieces(one, 3))
    for at in (0, 12_499, 12_500, 24_999):
        spoilt = buffer.copy()
        spoilt[at] += 1
        assert patterns.count_wrong(spoilt, patterns.list_expected_pieces(one, 3)) == 1
    assert (
        patterns.count_wrong(np.full_like(buffer, patterns.POISON), patterns.list_expected_pieces(one, 3))
        == 25_000
    )


def test_sums_over_1024_ranks_are_exact() -> None:
    one = layout("all_reduce", 64_000, 1024, 0)
    values = np.concatenate([piece.doubled for piece in patterns.list_expected_pieces(one, 1)])
    assert values.max() <= 2**24
    assert len(np.unique(values)) > 4
    in_order = np.zeros(one.elements, np.float32)
    backwards = np.zeros(one.elements, np.float32)
    for rank in range(1024):
        in_order += sent(layout("all_reduce", 64_000, 1024, rank), 1)
        backwards += sent(layout("all_reduce", 64_000, 1024, 1023 - rank), 1)
    assert patterns.count_wrong(in_order, patterns.list_expected_pieces(one, 1)) == 0
    assert np.array_equal(in_order, backwards)


def test_counts_that_a_human_can_divide() -> None:
    # 1200 B of fp32 over 3 ranks: 300 elements, 100 a peer
    one = layout("all_to_all", 1200, 3, 1)
    assert (one.block, one.send_elements, one.recv_elements, one.bytes_sent) == (100, 300, 300, 800)
    one = layout("reduce_scatter", 1200, 3, 1)
    assert (one.send_elements, one.recv_elements, one.bytes_sent) == (300, 100, 800)
    one = layout("all_gather", 1200, 3, 1)
    assert (one.send_elements, one.recv_elements, one.bytes_sent) == (100, 300, 400)
    one = layout("all_reduce", 1200, 3, 1)
    assert (one.send_elements, one.recv_elements, one.bytes_sent) == (300, 300, 1200)
    root, other = layout("broadcast", 1200, 3, 0), layout("broadcast", 1200, 3, 1)
    assert (root.send_elements, root.recv_elements, root.bytes_sent) == (300, 0, 1200)
    assert (other.send_elements, other.recv_elements, other.bytes_sent) == (0, 300, 0)
    assert root.sender_bytes == other.sender_bytes == 1200


@pytest.mark.parametrize(
    ("operation", "payload_bytes", "a_peer", "smallest"),
    [
        ("all_to_all", 31, 1, "32 B"),
        ("reduce_scatter", 4, 1, "32 B"),
        ("all_gather", 127, 16, "128 B"),
        ("all_reduce", 3, 1, "4 B"),
        ("broadcast", 15, 16, "16 B"),
    ],
)
def test_sizes_that_send_nothing_are_refused(
    operation: str, payload_bytes: int, a_peer: int, smallest: str
) -> None:
    with pytest.raises(BadInputError, match=f"the smallest size is {smallest}"):
        layout(operation, payload_bytes, 8, 0, bytes_a_peer=a_peer)
    least = int(smallest.split()[0])
    assert layout(operation, least, 8, 0, bytes_a_peer=a_peer).payload_bytes == least
