"""Exact integer patterns: what each rank sends, and what it must receive, element by element.

A pattern is a table of PERIOD integers, read cyclically from a start that depends on sender, receiver,
salt and send buffer: element i of a block is ``table[(start + i) mod PERIOD]``. Filling and comparing are
strided copies, and the sum over ranks is again such a table. The numbers are so small that sums over up to
MOST_RANKS ranks are exact in every datatype. PERIOD is prime: data shifted by a power of two differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS

PERIOD = 8191
MOST_RANKS = 1024
POISON = -1
"""Written into outputs before a visit; no pattern and no sum of patterns contains it."""

DTYPES = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32, "int64": np.int64}
PER_PEER = ("all_to_all", "reduce_scatter", "all_gather")
"""Collectives whose buffer is cut into one block per rank."""

_SUMS = ("reduce_scatter", "all_reduce")
_MULTIPLIER = 3571  # coprime to PERIOD: neighbours in a table differ
_SENDER_STEP, _PEER_STEP, _SALT_STEP, _ROW_STEP = 1009, 97, 53, 7
_LARGEST_EXACT = {np.dtype(np.float16): 2**11, np.dtype(np.float32): 2**24}


@dataclass(frozen=True)
class BufferLayout:
    """Sizes of one rank's buffers in one call of a collective; ``index`` is the rank's number in the group.

    elements     length of the buffer that ``payload_bytes`` describes; whole elements per peer, rounded down
    send_counts  elements that this rank sends to each peer; a single number if it does not split its buffer
    recv_counts  elements that it receives from each peer; a single number if it receives one block
    """

    operation: str
    ranks: int
    index: int
    dtype: np.dtype[Any]
    elements: int
    send_counts: tuple[int, ...]
    recv_counts: tuple[int, ...]

    @property
    def send_elements(self) -> int:
        """Elements that this rank sends; 0 if it only receives."""
        return sum(self.send_counts)

    @property
    def recv_elements(self) -> int:
        """Elements that this rank receives; 0 on the root of a broadcast."""
        return sum(self.recv_counts)

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to other ranks; the block that it keeps is not counted."""
        own = self.send_counts[self.index] if self.operation in ("all_to_all", "reduce_scatter") else 0
        return (self.send_elements - own) * self.dtype.itemsize

    @property
    def sender_bytes(self) -> int:
        """Bytes of a sender's send buffer; receivers return the same value."""
        block = self.elements // self.ranks if self.operation == "all_gather" else self.elements
        return block * self.dtype.itemsize

    @property
    def payload_bytes(self) -> int:
        """Bytes of the buffer as nccl-tests counts them: the requested payload, rounded down."""
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class PatternPiece:
    """Expected contents of ``count`` elements of a buffer, from element ``begin`` on.

    doubled  the table of PERIOD integers, twice in a row;  start  where in it the piece begins
    """

    begin: int
    count: int
    doubled: NDArray[Any]
    start: int


def dtype_of(name: str) -> np.dtype[Any]:
    """The datatype of a name such as ``fp32``."""
    if name not in DTYPES:
        raise BadInputError(f"datatype {name!r} cannot be sent.", f"known: {', '.join(DTYPES)}.")
    return np.dtype(DTYPES[name])


def smallest_payload_bytes(operation: str, ranks: int, dtype: str = "fp32", bytes_a_peer: int = 1) -> int:
    """The smallest payload in which every peer gets one element and at least ``bytes_a_peer`` bytes."""
    itemsize = dtype_of(dtype).itemsize
    least = -(-bytes_a_peer // itemsize) * itemsize
    return least * ranks if operation in PER_PEER else least


def whole_payload_bytes(operation: str, payload_bytes: int, ranks: int, dtype: str = "fp32") -> int:
    """The largest payload up to ``payload_bytes`` that is a whole number of elements per peer."""
    step = smallest_payload_bytes(operation, ranks, dtype)
    return payload_bytes // step * step


def split_uneven(elements: int, ranks: int) -> tuple[int, ...]:
    """Number of elements for each peer in the uneven all-to-all; the number falls linearly with the peer.

    Each peer gets one element, and a share of the rest in proportion to ranks, ranks - 1, ..., 1. Every rank
    splits in the same way, so the first peer receives about 2 ranks/(ranks + 1) times the mean. This imitates
    tables of which the first rank owns the most popular rows.
    Limits: the parts sum to ``elements``; elements = ranks -> 1 each; one rank -> all
    """
    rest = elements - ranks
    total = ranks * (ranks + 1) // 2
    bounds = [rest * (total - (ranks - p) * (ranks - p + 1) // 2) // total for p in range(ranks + 1)]
    return tuple(1 + high - low for low, high in itertools.pairwise(bounds))


def layout(
    operation: str,
    payload_bytes: int,
    ranks: int,
    index: int,
    *,
    dtype: str = "fp32",
    variant: str = "default",
    bytes_a_peer: int = 1,
) -> BufferLayout:
    """The buffer sizes of rank ``index`` in one call of ``operation`` over ``ranks`` ranks.

    payload_bytes  defined as in ``perfmodel.schema.samples``
    variant        uneven: an all-to-all with parts of ``split_uneven``; others have equal parts
    bytes_a_peer   least bytes for each peer that the library allows
    Limits: fewer than one element or than ``bytes_a_peer`` bytes per peer, fewer than 2 ranks, more than
    MOST_RANKS, unknown names -> BadInputError that names the smallest size
    """
    kind = dtype_of(dtype)
    _check(operation, payload_bytes, ranks, dtype, variant, bytes_a_peer)
    elements = whole_payload_bytes(operation, payload_bytes, ranks, dtype) // kind.itemsize
    block = elements // ranks
    even = (block,) * ranks
    send: tuple[int, ...] = even
    recv: tuple[int, ...] = even
    if operation == "all_to_all" and variant == "uneven":
        send = split_uneven(elements, ranks)
        recv = (send[index],) * ranks
    elif operation == "reduce_scatter":
        recv = (block,)
    elif operation == "all_gather":
        send = (block,)
    elif operation == "broadcast":
        send, recv = ((elements,), (0,)) if index == 0 else ((0,), (elements,))
    elif operation in ("all_reduce", "sendrecv"):
        send = recv = (elements,)
    return BufferLayout(operation, ranks, index, kind, elements, send, recv)


def _check(
    operation: str, payload_bytes: int, ranks: int, dtype: str, variant: str, bytes_a_peer: int
) -> None:
    if operation not in SAMPLE_OPERATIONS:
        raise BadInputError(f"unknown collective {operation!r}.", f"known: {', '.join(SAMPLE_OPERATIONS)}.")
    known = ("default", "after_kernel", *(("uneven",) if operation == "all_to_all" else ()))
    if variant not in known:
        raise BadInputError(f"{operation} has no variant {variant!r}.", f"it has: {', '.join(known)}.")
    if not 2 <= ranks <= MOST_RANKS:
        raise BadInputError(
            f"a collective of {ranks} ranks cannot be timed.", f"use 2 to {MOST_RANKS} ranks."
        )
    smallest = smallest_payload_bytes(operation, ranks, dtype, bytes_a_peer)
    if payload_bytes < smallest:
        unit = f"one {dtype} element" if bytes_a_peer <= dtype_of(dtype).itemsize else f"{bytes_a_peer} bytes"
        whom = "for every peer" if operation in PER_PEER else "to send"
        raise BadInputError(
            f"{operation} of {payload_bytes} B over {ranks} ranks has less than {unit} {whom}.",
            f"the smallest size is {smallest} B.",
        )


def send_pieces(layout: BufferLayout, salt: int) -> list[PatternPiece]:
    """Contents of this rank's send buffer."""
    if layout.operation == "all_to_all":
        starts = [_start(layout.index, peer, salt) for peer in range(layout.ranks)]
        return _pieces(layout.send_counts, starts, _table(layout))
    return _pieces([layout.send_elements], [_start(layout.index, 0, salt)], _table(layout))


def expected_pieces(layout: BufferLayout, salt: int) -> list[PatternPiece]:
    """Required contents of this rank's receive buffer after the call."""
    me, ranks = layout.index, layout.ranks
    if layout.operation in _SUMS:
        begin = me * layout.recv_elements if layout.operation == "reduce_scatter" else 0
        table = _sum_table(layout.dtype, ranks, salt % PERIOD)
        return _pieces([layout.recv_elements], [begin % PERIOD], table)
    if layout.operation == "all_to_all":
        starts = [_start(source, me, salt) for source in range(ranks)]
    elif layout.operation == "all_gather":
        starts = [_start(source, 0, salt) for source in range(ranks)]
    else:
        source = 0 if layout.operation == "broadcast" else (me - 1) % ranks
        starts = [_start(source, 0, salt)]
    return _pieces(layout.recv_counts, starts, _table(layout))


def fill(buffer: Any, pieces: Sequence[PatternPiece], row: int = 0) -> None:
    """Write ``pieces`` into a 1-D buffer, numpy or torch; each send buffer ``row`` has its own pattern."""
    for piece in pieces:
        block = buffer[piece.begin : piece.begin + piece.count]
        for part, values in _tiles(block, piece, row):
            part[...] = values


def fill_rows(rows: NDArray[Any], pieces: Sequence[PatternPiece]) -> None:
    """Write rotating send buffers, one per row: row k as ``fill(rows[k], pieces, k)`` would write it."""
    for piece in pieces:
        block = rows[:, piece.begin : piece.begin + piece.count]
        if 0 < piece.count <= PERIOD:
            windows = np.lib.stride_tricks.sliding_window_view(piece.doubled, piece.count)
            block[...] = windows[(piece.start + _ROW_STEP * np.arange(len(rows))) % PERIOD]
        else:
            for row in range(len(rows)):
                for part, values in _tiles(block[row], piece, row):
                    part[...] = values


def count_wrong(buffer: Any, pieces: Sequence[PatternPiece], row: int = 0) -> int:
    """Number of elements of a buffer that differ from ``pieces``; ``row`` as in ``fill``."""
    wrong = 0
    for piece in pieces:
        block = buffer[piece.begin : piece.begin + piece.count]
        for part, values in _tiles(block, piece, row):
            wrong += int((part != values).sum())
    return wrong


def _tiles(block: Any, piece: PatternPiece, row: int) -> list[tuple[Any, Any]]:
    """(part of ``block``, its expected values): whole periods as rows of a matrix, then the rest."""
    start = (piece.start + _ROW_STEP * row) % PERIOD
    values: Any = piece.doubled[start : start + PERIOD]
    if not isinstance(block, np.ndarray):
        import torch

        values = torch.from_numpy(values).to(block.device)
    whole = piece.count // PERIOD * PERIOD
    tiles = [(block[:whole].reshape(-1, PERIOD), values)] if whole else []
    rest = piece.count - whole
    return [*tiles, (block[whole:], values[:rest])] if rest else tiles


def _pieces(counts: Sequence[int], starts: Sequence[int], doubled: NDArray[Any]) -> list[PatternPiece]:
    begins = [0, *np.cumsum(counts).tolist()]
    return [
        PatternPiece(begin, count, doubled, start)
        for begin, count, start in zip(begins, counts, starts, strict=False)
        if count
    ]


def _start(sender: int, peer: int, salt: int) -> int:
    return (sender * _SENDER_STEP + peer * _PEER_STEP + salt * _SALT_STEP) % PERIOD


def _table(layout: BufferLayout) -> NDArray[Any]:
    return _value_table(layout.dtype, layout.ranks if layout.operation in _SUMS else 1)


@lru_cache(maxsize=16)
def _value_table(dtype: np.dtype[Any], summands: int) -> NDArray[Any]:
    """A rank's table, twice in a row; its values are so small that sums of ``summands`` tables are exact."""
    most = min(PERIOD, _LARGEST_EXACT.get(dtype, 2**31) // summands)
    values = np.arange(PERIOD, dtype=np.int64) * _MULTIPLIER % PERIOD % most
    return np.tile(values, 2).astype(dtype)


@lru_cache(maxsize=8)
def _sum_table(dtype: np.dtype[Any], ranks: int, salt: int) -> NDArray[Any]:
    """Sum of the tables of all ranks, each read from that rank's start; repeated twice in a row."""
    one = _value_table(dtype, ranks)[:PERIOD].astype(np.int64)
    total = np.zeros(PERIOD, np.int64)
    for rank in range(ranks):
        total += np.roll(one, -_start(rank, 0, salt))
    return np.tile(total, 2).astype(dtype)
