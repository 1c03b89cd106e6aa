"""Distinct ids of each bucket, and the index of each id among them (kernels/unique.cu)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from calibrate.cuda.faults import new_faults, on_device, raise_faults
from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import blocks_at_once, launch
from perfmodel.errors import BadInputError

SOURCE = "unique.cu"
TILE, THREADS = 1024, 256
"""Values that a block of so many threads takes."""

_KEYS = ("pm::u32", "pm::u64")
"""Ids as the kernels see them: of 4 and of 8 bytes."""

_BY_KEY = ("clear_slots", "insert_ids", "number_ids")


@dataclass(frozen=True)
class Unique:
    """Distinct ids of K buckets, bucket by bucket; in a bucket, in order of first occurrence.

    ids      the distinct ids [u], then old contents: u = offsets[K]
    offsets  where the distinct ids of each bucket begin [K + 1];  counts  their number [K], int64
    inverse  for each of the n input ids, its index among its bucket's distinct ids [n], int32; -1: a fault.
             ids[offsets[bucket] + inverse[i]] is input id i
    """

    ids: Any
    inverse: Any
    counts: Any
    offsets: Any


class Uniquer:
    """Finds the distinct ids of each of ``buckets`` buckets (ranges of up to ``ids`` ids), on a GPU.

    id_type  torch.int32 or torch.int64
    faults   negative ids, and ends of buckets beyond the ids, so far: number, first position, int64 [2]

    All memory is allocated here: for each id two slots of a hash table (an id and a position each) and two
    more positions, 32 bytes for int64. Slots are accessed at random places, all else in order.
    run() only queues the kernels, and can be captured in a graph. The next run() overwrites its results.
    Limits: another type, no bucket, 2^30 ids and more -> BadInputError
    """

    def __init__(self, buckets: int, ids: int, id_type: Any, device: Any) -> None:
        import torch

        if id_type not in (torch.int32, torch.int64) or buckets < 1 or ids >= 2**30:
            raise BadInputError(
                f"{ids} ids of {id_type} in {buckets} buckets cannot be told apart.",
                "fewer than 2^30 of torch.int32 or torch.int64, and at least one bucket are expected.",
            )

        def empty(count: int, dtype: Any) -> Any:
            return torch.empty(count, dtype=dtype, device=device)

        self.buckets, self.ids, self.id_type = buckets, ids, id_type
        self.device = on_device(device)
        position = torch.int32
        self._keys, self._first = empty(2 * ids, id_type), empty(2 * ids, position)
        self._slot_of, self._rank = empty(ids, position), empty(ids + 1, position)
        self._state = torch.zeros(1 + _tiles(ids), dtype=torch.int64, device=device)  # of a scan in blocks
        self.faults = new_faults(device)
        key = _KEYS[id_type == torch.int64]
        self._clear, self._insert, self._number = [Kernel(SOURCE, f"pm::{name}<{key}>") for name in _BY_KEY]
        self._invert = Kernel(SOURCE, "pm::invert_ids")
        self._grid = min(_tiles(2 * ids), 4 * blocks_at_once(self._clear, device, THREADS))
        self.unique = Unique(
            ids=empty(ids, id_type),
            inverse=empty(ids, position),
            counts=torch.zeros(buckets, dtype=torch.int64, device=device),
            offsets=torch.zeros(buckets + 1, dtype=torch.int64, device=device),
        )

    def run(self, ids: Any, offsets: Any) -> Unique:
        """Queue the search among ids [n]; the ids of bucket k begin at offsets[k], offsets [K + 1] int64."""
        self._check(ids, offsets)
        out = self.unique
        if not self.ids:
            out.counts.zero_()
            out.offsets.zero_()
            return out
        i64, device, grid = ctypes.c_int64, self.device, _tiles(self.ids)
        buckets = [i64(self.ids), offsets, i64(offsets.stride(0)), i64(self.buckets)]
        launch(self._clear, device, self._grid, THREADS, [self._keys, self._first, i64(2 * self.ids)])
        slots = [self._first, self._slot_of]
        launch(self._insert, device, grid, THREADS, [ids, *buckets, self._keys, *slots, self.faults])
        arguments = [ids, *buckets, *slots, self._state, self._rank, out.ids]
        launch(self._number, device, grid, THREADS, arguments)
        arguments = [*buckets, *slots, self._rank, self._state, i64(self._state.numel())]
        launch(self._invert, device, grid, THREADS, [*arguments, out.inverse, out.counts, out.offsets])
        return out

    def _check(self, ids: Any, offsets: Any) -> None:
        import torch

        given = (tuple(ids.shape), ids.dtype), (tuple(offsets.shape), offsets.dtype)
        wanted = ((self.ids,), self.id_type), ((self.buckets + 1,), torch.int64)
        if given != wanted or not ids.is_contiguous():
            raise BadInputError(
                f"ids {given[0]} and offsets {given[1]} were given.", f"{wanted} are expected."
            )
        if {ids.device, offsets.device} != {self.device}:
            raise BadInputError(
                f"ids are on {ids.device}, offsets on {offsets.device}.", f"{self.device} is expected."
            )


def unique(ids: Any, offsets: Any) -> Unique:
    """The distinct ids of each bucket, in order of first occurrence, and each id's index among them.

    ids      [n] by bucket, int32 or int64, not negative; ids after the last bucket are ignored
    offsets  where each bucket begins [K + 1], int64, rising from 0; equal ids of two buckets are different
    Source: numpy specification in tests/oracles/kernels/unique.py
    Limits: as Uniquer, which serves repeated calls without allocation; a negative id, offsets beyond the ids
            -> BadInputError
    """
    made = Uniquer(offsets.numel() - 1, ids.numel(), ids.dtype, ids.device)
    found = made.run(ids, offsets)
    raise_faults(made.faults, "ids are negative or not there", "see the ids and the offsets of the buckets.")
    return found


def _tiles(count: int) -> int:
    """Number of blocks that take ``count`` values."""
    return -(-count // TILE)


def kernels() -> list[Kernel]:
    """Every kernel of unique.cu."""
    names = [f"pm::{name}<{key}>" for name in _BY_KEY for key in _KEYS]
    return [Kernel(SOURCE, name) for name in (*names, "pm::invert_ids")]
