"""Exact integer patterns: what each rank sends, and what it must receive, element by element.

A pattern is a table of PERIOD integers, read cyclically from a start that depends on sender, receiver,
salt and send buffer: element i of a block is ``table[(start + i) mod PERIOD]``. Filling and comparing are
strided copies, and the sum over ranks is again such a table. The numbers are below PERIOD, so fp32 sums over
up to MOST_RANKS ranks are exact. PERIOD is prime: data shifted by a power of two differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER

PERIOD = 8191
MOST_RANKS = 1024
POISON = -1
"""Written into outputs before a visit; no pattern and no sum of patterns contains it."""

ELEMENT_BYTES = 4
"""Bytes of an fp32 number, the datatype of all collectives that are timed."""

Floats = NDArray[np.float32]

_SUMS = ("reduce_scatter", "all_reduce")
_MULTIPLIER = 3571  # coprime to PERIOD: neighbours in a table differ
_SENDER_STEP = 1009
_PEER_STEP = 97
_SALT_STEP = 53
_ROW_STEP = 7
_VALUES = np.arange(PERIOD, dtype=np.int64) * _MULTIPLIER % PERIOD
_TABLE: Floats = np.tile(_VALUES, 2).astype(np.float32)


@dataclass(frozen=True)
class BufferLayout:
    """Sizes of one rank's buffers in one call of a collective; ``index`` is the rank's number in the group.

    elements   length of the buffer that ``payload_bytes`` describes; whole elements per peer, rounded down
    """

    operation: str
    ranks: int
    index: int
    elements: int

    @property
    def block(self) -> int:
        """Elements of one rank's part of the buffer."""
        return self.elements // self.ranks

    @property
    def send_elements(self) -> int:
        """Elements that this rank sends; 0 if it only receives."""
        if self.operation == "broadcast" and self.index:
            return 0
        return self.block if self.operation == "all_gather" else self.elements

    @property
    def recv_elements(self) -> int:
        """Elements that this rank receives; 0 on the root of a broadcast."""
        if self.operation == "broadcast" and not self.index:
            return 0
        return self.block if self.operation == "reduce_scatter" else self.elements

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to other ranks; the block that it keeps is not counted."""
        kept_here = self.block if self.operation in ("all_to_all", "reduce_scatter") else 0
        return (self.send_elements - kept_here) * ELEMENT_BYTES

    @property
    def sender_bytes(self) -> int:
        """Bytes of a sender's send buffer, on receivers too, so that all ranks rotate as many buffers."""
        return (self.block if self.operation == "all_gather" else self.elements) * ELEMENT_BYTES

    @property
    def payload_bytes(self) -> int:
        """Bytes of the buffer as nccl-tests counts them: the requested payload, rounded down."""
        return self.elements * ELEMENT_BYTES


@dataclass(frozen=True)
class PatternPiece:
    """Expected contents of ``count`` elements of a buffer, from element ``begin`` on.

    doubled  the table of PERIOD integers, twice in a row;  start  where in it the piece begins
    """

    begin: int
    count: int
    doubled: Floats
    start: int


def layout(
    operation: str, payload_bytes: int, ranks: int, index: int, *, bytes_a_peer: int = ELEMENT_BYTES
) -> BufferLayout:
    """The buffer sizes of rank ``index`` in one call of ``operation`` over ``ranks`` ranks.

    payload_bytes  defined as in ``perfmodel.schema.samples``
    bytes_a_peer   least bytes for each peer that the library allows
    Limits: less than one element or than ``bytes_a_peer`` bytes per peer, fewer than 2 ranks, more than
    MOST_RANKS, an unknown name -> BadInputError that names the smallest size
    """
    if operation not in COLLECTIVES:
        raise BadInputError(f"unknown collective {operation!r}.", f"known: {', '.join(COLLECTIVES)}.")
    if not 2 <= ranks <= MOST_RANKS:
        raise BadInputError(
            f"a collective of {ranks} ranks cannot be timed.", f"use 2 to {MOST_RANKS} ranks."
        )
    peers = ranks if operation in PER_PEER else 1
    smallest = max(bytes_a_peer, ELEMENT_BYTES) * peers
    if payload_bytes < smallest:
        whom = "for every peer" if operation in PER_PEER else "to send"
        raise BadInputError(
            f"{operation} of {payload_bytes} B over {ranks} ranks: less than {smallest // peers} B {whom}.",
            f"the smallest size is {smallest} B.",
        )
    return BufferLayout(operation, ranks, index, payload_bytes // (ELEMENT_BYTES * peers) * peers)


def send_pieces(layout: BufferLayout, salt: int) -> list[PatternPiece]:
    """Contents of this rank's send buffer, block by block. salt  number of the visit: each sends others"""
    if layout.operation == "all_to_all":
        starts = [_start(layout.index, peer, salt) for peer in range(layout.ranks)]
        return _pieces(layout.block, starts, _TABLE)
    return _pieces(layout.send_elements, [_start(layout.index, 0, salt)], _TABLE)


def list_expected_pieces(layout: BufferLayout, salt: int) -> list[PatternPiece]:
    """Required contents of this rank's receive buffer after a call with the pattern of ``salt``."""
    me, ranks = layout.index, layout.ranks
    if layout.operation in _SUMS:  # every rank sends one run of its table, whose parts the ranks sum
        begin = me * layout.recv_elements if layout.operation == "reduce_scatter" else 0
        return _pieces(layout.recv_elements, [begin % PERIOD], _sum_table(ranks, salt % PERIOD))
    if layout.operation == "broadcast":
        return _pieces(layout.recv_elements, [_start(0, 0, salt)], _TABLE)
    peer = me if layout.operation == "all_to_all" else 0
    return _pieces(layout.block, [_start(source, peer, salt) for source in range(ranks)], _TABLE)


def fill(buffer: Any, pieces: Sequence[PatternPiece], row: int = 0) -> None:
    """Write ``pieces`` into a 1-D buffer, numpy or torch; each send buffer ``row`` has its own pattern."""
    for piece in pieces:
        block = buffer[piece.begin : piece.begin + piece.count]
        for tile, values in _tiles(block, piece, row):
            tile[...] = values


def fill_rows(rows: Floats, pieces: Sequence[PatternPiece]) -> None:
    """Write rotating send buffers, one per row: row k as ``fill(rows[k], pieces, k)`` would write it."""
    for piece in pieces:
        # windows[place]: the values of the piece, if it began at this place of the table
        values = np.resize(piece.doubled, PERIOD + piece.count)
        windows = np.lib.stride_tricks.sliding_window_view(values, piece.count)
        starts = (piece.start + _ROW_STEP * np.arange(len(rows))) % PERIOD
        rows[:, piece.begin : piece.begin + piece.count] = windows[starts]


def count_wrong(buffer: Any, pieces: Sequence[PatternPiece], row: int = 0) -> int:
    """Number of elements of a buffer that differ from ``pieces``; ``row`` as in ``fill``."""
    wrong = 0
    for piece in pieces:
        block = buffer[piece.begin : piece.begin + piece.count]
        for tile, values in _tiles(block, piece, row):
            wrong += int((tile != values).sum())
    return wrong


def _tiles(block: Any, piece: PatternPiece, row: int) -> list[tuple[Any, Any]]:
    """(part of ``block``, its expected values): whole periods as rows of a matrix, then the rest."""
    start = (piece.start + _ROW_STEP * row) % PERIOD
    values: Any = piece.doubled[start : start + PERIOD]
    if not isinstance(block, np.ndarray):
        import torch

        values = torch.from_numpy(values).to(block.device)
    covered = piece.count // PERIOD * PERIOD
    tiles = [(block[:covered].reshape(covered // PERIOD, PERIOD), values)] if covered else []
    left = piece.count - covered
    return [*tiles, (block[covered:], values[:left])] if left else tiles


def _pieces(count: int, starts: Sequence[int], doubled: Floats) -> list[PatternPiece]:
    """Blocks of ``count`` elements in a row; block k begins at ``starts[k]`` of the table. count 0 -> none"""
    pieces = [PatternPiece(place * count, count, doubled, start) for place, start in enumerate(starts)]
    return pieces if count else []


def _start(sender: int, peer: int, salt: int) -> int:
    """Where in the table the block from rank ``sender`` to rank ``peer`` begins, in the visit of ``salt``."""
    return (sender * _SENDER_STEP + peer * _PEER_STEP + salt * _SALT_STEP) % PERIOD


@lru_cache(maxsize=8)
def _sum_table(ranks: int, salt: int) -> Floats:
    """Sum of the tables of all ranks, each read from that rank's start; repeated twice in a row."""
    total = np.zeros(PERIOD, np.int64)
    for rank in range(ranks):
        total += np.roll(_VALUES, -_start(rank, 0, salt))
    return np.tile(total, 2).astype(np.float32)
