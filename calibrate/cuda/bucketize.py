"""Sorts the ids of bags by the rank, and the part of a table, that hold their rows (kernels/bucketize.cu)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from calibrate.cuda.faults import new_faults, on_device, raise_faults
from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import blocks_at_once, launch
from calibrate.cuda.scan import SCAN_LENGTHS, new_state, queue_scan
from calibrate.cuda.split import Split
from perfmodel.errors import BadInputError

SOURCE = "bucketize.cu"
LANES = (1, 4, 8, 32)
"""Numbers of lanes that may share a bag."""

ID_TYPES = {"torch.int32": "int", "torch.int64": "pm::i64"}

_THREADS = 128
_SHARED_BYTES = 48 * 1024
_TURNS = 8  # blocks per block that runs at once, because bags differ in length


@dataclass(frozen=True)
class Buckets:
    """Ids sorted into K buckets, one for each part of a table on a rank, with bags for B samples in each.

    The order is by bucket (rank, table, part), then sample, then position in the bag.
    ids        rows of the shards [n]; n = offsets[K B], beyond which old contents remain
    lengths    number of ids of each bag [K, B], int32
    offsets    where the ids of each bag begin [K B + 1], int64
    counts     number of ids for each rank [ranks], int64
    rank_offsets  where the ids of each rank begin [ranks + 1], int64
    """

    ids: Any
    lengths: Any
    offsets: Any
    counts: Any
    rank_offsets: Any

    @property
    def bucket_offsets(self) -> Any:
        """Where the ids of each bucket begin [K + 1], a view."""
        return self.offsets[:: self.lengths.shape[1]]


class Bucketizer:
    """Bucketizes ``ids`` ids of ``batch`` samples repeatedly: memory is allocated here, run() only queues.

    split      how the tables are split over ranks
    ids        number n of ids of a call;  id_type  torch.int32 or torch.int64
    lanes  number of lanes that share a bag, from LANES; None: by the average length of a bag
    shared_bytes  for the counts of a block [bytes]: parts that do not fit need further passes over the ids

    Attribute ``faults`` describes ids outside their tables since construction: number, first position, int64
    [2]. run() waits for nothing and can be captured in a graph. Its results are overwritten by the next
    run(). Reads each id twice and its bag's offsets; writes each id once for every column part.
    Limits: other types, no sample, ids of shards that overflow their type -> BadInputError;
            a bag has fewer than 2^31 ids
    """

    def __init__(
        self,
        split: Split,
        batch: int,
        ids: int,
        id_type: Any,
        device: Any,
        *,
        lanes: int | None = None,
        shared_bytes: int = _SHARED_BYTES,
    ) -> None:
        import torch

        self.split, self.batch, self.id_count, self.device = split, batch, ids, on_device(device)
        self.id_type = id_type
        _check_types(split, batch, id_type)
        self.lanes = lanes or _lanes(ids / (len(split.rows) * batch))
        tile_bags = max(32, _THREADS // self.lanes)
        row_bytes = 4 * (tile_bags + 1)
        window = max(1, min(max(split.parts), shared_bytes // row_bytes))
        self._shared_bytes = window * row_bytes
        self._splits = split.arguments(device, batch, tile_bags, window)
        self._count = Kernel(SOURCE, f"pm::count_ids<{ID_TYPES[str(id_type)]}, {self.lanes}>")
        self._scatter = Kernel(SOURCE, f"pm::scatter_ids<{ID_TYPES[str(id_type)]}, {self.lanes}>")
        most = _TURNS * blocks_at_once(self._count, device, _THREADS, self._shared_bytes)
        self._grid = min(most, len(split.rows) * -(-batch // tile_bags))
        self.faults = new_faults(device)
        self._state = new_state(len(split.shards) * batch, device)
        self.buckets = self._empty(torch)

    def _empty(self, torch: Any) -> Buckets:
        def empty(*shape: int, dtype: Any) -> Any:
            return torch.empty(shape, dtype=dtype, device=self.device)

        most, buckets, ranks = self.id_count * self.split.copies, len(self.split.shards), self.split.ranks
        return Buckets(
            ids=empty(most, dtype=self.id_type),
            lengths=empty(buckets, self.batch, dtype=torch.int32),
            offsets=empty(buckets * self.batch + 1, dtype=torch.int64),
            counts=empty(ranks, dtype=torch.int64),
            rank_offsets=empty(ranks + 1, dtype=torch.int64),
        )

    def run(self, ids: Any, offsets: Any) -> Buckets:
        """Queue a bucketize of ids [n] and offsets [T B + 1] (int64); see bucketize()."""
        self._check(ids, offsets)
        out = self.buckets
        launch(
            self._count,
            self.device,
            self._grid,
            _THREADS,
            [*self._splits, ids, offsets, out.lengths, self.faults],
            self._shared_bytes,
        )
        queue_scan(out.lengths, out.offsets, self._state)
        launch(
            self._scatter,
            self.device,
            self._grid,
            _THREADS,
            [
                *self._splits,
                ids,
                offsets,
                out.offsets,
                self._state,
                ctypes.c_int64(self._state.numel()),
                out.counts,
                out.rank_offsets,
                out.ids,
            ],
            self._shared_bytes,
        )
        return out

    def _check(self, ids: Any, offsets: Any) -> None:
        import torch

        bags = len(self.split.rows) * self.batch
        wanted = [("ids", ids, self.id_count, self.id_type), ("offsets", offsets, bags + 1, torch.int64)]
        for name, given, count, dtype in wanted:
            shape = tuple(given.shape), given.dtype
            if shape != ((count,), dtype) or not given.is_contiguous() or given.device != self.device:
                raise BadInputError(
                    f"{name} to bucketize are {shape}.",
                    f"({count},) of {dtype} on {self.device} are expected.",
                )


def bucketize(split: Split, batch: int, ids: Any, offsets: Any, *, check: bool = True) -> Buckets:
    """Bucketize the ids of bags for every rank and shard; ids of one bucket keep their order.

    split    how the T tables are split over ranks;  batch  B, number of samples
    ids      rows of their own table [n], int32 or int64, by table, then sample
    offsets  where the ids of each bag begin [T B + 1], int64
    check    wait for the device; ids outside their table -> BadInputError. False: they are dropped.
    Source: numpy specification in tests/oracles/kernels/bucketize.py
    Limits: as Bucketizer, which serves repeated calls without allocation; offsets rise from 0 to n
    """
    made = Bucketizer(split, batch, ids.numel(), ids.dtype, ids.device)
    buckets = made.run(ids, offsets)
    if check:
        raise_faults(made.faults, "ids are outside their tables", "see the rows of the split.")
    return buckets


def kernels() -> list[Kernel]:
    """Every kernel of bucketize.cu."""
    names = [
        f"pm::{step}_ids<{kind}, {lanes}>"
        for step in ("count", "scatter")
        for kind in ID_TYPES.values()
        for lanes in LANES
    ]
    return [SCAN_LENGTHS, *(Kernel(SOURCE, name) for name in names)]


def _lanes(length: float) -> int:
    """Number of lanes of a warp for bags of this average length: the fewest in LANES with an id per lane."""
    return next((lanes for lanes in LANES if length <= lanes), LANES[-1])


def _check_types(split: Split, batch: int, id_type: Any) -> None:
    import torch

    if str(id_type) not in ID_TYPES or batch < 1:
        raise BadInputError(
            f"{batch} samples with ids of {id_type} cannot be bucketized.",
            f"at least one sample, ids of one of {', '.join(ID_TYPES)} are expected.",
        )
    most = torch.iinfo(id_type).max
    held = [min(block, rows) for block, rows in zip(split.blocks, split.rows, strict=True)]
    last = max(shard.first_row + held[shard.table] for shard in split.shards) - 1
    if last > most:
        raise BadInputError(f"a shard's last row is {last}, above the {most} of {id_type}.", "use int64.")
