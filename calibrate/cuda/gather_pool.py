"""Gather and pool: rows of many tables are looked up and summed into bags, with a launch per class of tables.

Tables whose rows are read in the same way (``RowAccess``) form a class. ``gather_pool`` prepares and
launches; ``GatherPool`` is prepared once and then only launches, as CUDA graphs and timings need.

Order of bags: ``kernels/tables.cuh``. Specification: ``tests/oracles/kernels/gather_pool.py``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.cuda.device_tables import DESCRIPTOR, ROW_TYPES, DeviceTables
from calibrate.cuda.faults import new_faults, raise_faults
from calibrate.cuda.gather_layout import THREADS, GatherLayout, RowAccess, access_width, choose, shape_of
from calibrate.cuda.gather_variants import ASSUMED, GatherShape, GatherVariant, best_variant, known_table
from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import blocks_at_once, launch
from perfmodel.errors import BadInputError

SOURCE = "gather_pool.cu"
OUT_TYPES = {"fp32": "float", "fp16": "pm::f16", "bf16": "pm::bf16"}
ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
_ID_TYPES = {4: "pm::i32", 8: "pm::i64"}
_MOST = 2**31 - 2
"""Most ids, and most bags, of a call: positions are 31-bit numbers."""
_CPU_THREADS, _CPU_MULTIPROCESSORS = 64, 1

PIECE = np.dtype(
    [
        ("table", DESCRIPTOR),
        ("number", np.int32),
        ("tail_at", np.int32),
        ("reports", np.int32),
        ("padding", np.int32),
    ]
)
"""``pm::Piece`` of kernels/row_stream.cuh."""


@dataclass(frozen=True)
class GatherOptions:
    """Options of a look-up besides its tables.

    id_bytes   bytes of an id and of an offset, 4 or 8
    out_dtype  fp32, fp16 or bf16;  layout  order of the bags, as in ``DeviceTables.out_shape``
    """

    id_bytes: int = 8
    out_dtype: str = "fp32"
    layout: str = "sample"

    def kernel(
        self, shape: RowAccess, dtype: str, variant: GatherVariant = ASSUMED, *, long: bool = False
    ) -> Kernel:
        """The kernel that looks up rows of ``dtype``, read as ``shape`` says.

        variant  which of several kernels with equal results;  long  whether a block takes one bag
        """
        shape, element = variant.access(shape), ELEMENT_BYTES[dtype]
        types = f"{ROW_TYPES[dtype]}, {_ID_TYPES[self.id_bytes]}, {OUT_TYPES[self.out_dtype]}"
        sizes = f"{shape.lanes}, {shape.chunks}, {shape.width}, {shape.depth}"
        near = "true" if variant.near else "false"
        return Kernel(
            SOURCE,
            f"pm::gather_pool{'_long' if long else ''}<{types}, {sizes}, {near}, "
            f"{variant.blocks(shape, element)}>",
            variant.shared_bytes(self.shared_bytes(shape, dtype, THREADS, long=long)[1], shape, element),
        )

    def shared_bytes(self, shape: RowAccess, dtype: str, threads: int, *, long: bool) -> tuple[int, int]:
        """Dynamic shared memory of a block [bytes]: (for rows that are being read, in total)."""
        stream = shape.stream_bytes(threads, self.id_bytes, int8=dtype == "int8")
        return stream, stream + shape.more_bytes(threads, ELEMENT_BYTES[dtype], long=long)


@dataclass(frozen=True)
class Class:
    """Pieces of tables whose rows are read in the same way, and which one launch looks up.

    pieces  ``pm::Piece`` of each, on the device;  count  number of pieces
    wide    whether bags can be written in wide accesses if the output is aligned to 16 bytes
    shared_bytes  dynamic shared memory of a block;  shared_before  its part for rows that are being read
    """

    shape: RowAccess
    plan: GatherLayout
    kernel: Kernel
    pieces: Any
    count: int
    wide: bool
    shared_bytes: int
    shared_before: int


class GatherPool:
    """Looks up rows for ``batch`` samples, as often as it is called; everything else is prepared here once.

    batch    B, samples of a call;  pooling  expected ids per bag: determines the layout on the GPU
    plan     layout to use for all tables; None: by ``choose``
    variant  kernel to use for all tables; None: the fastest that was timed (``best_variant``)
    Limits: D and B as large as memory; any number of rows, less than 4 GiB apart, and at most 2^31 - 2 ids
            and bags; unknown options -> BadInputError
    """

    def __init__(
        self,
        tables: DeviceTables,
        batch: int,
        options: GatherOptions,
        pooling: float = 1.0,
        plan: GatherLayout | None = None,
        variant: GatherVariant | None = None,
    ) -> None:
        _require(options, tables, batch)
        self.tables, self.batch, self.options = tables, batch, options
        self.bags = len(tables.rows) * batch
        self._given, self._variant = plan, variant
        self.classes = [
            self._class(shape, pieces, pooling) for shape, pieces in _pieces(tables, batch, options).items()
        ]

    def __call__(self, ids: Any, offsets: Any, out: Any, faults: Any = None) -> None:
        """Queue the launches, without allocation, checks or waits.

        ids      [n] on the tables' device
        offsets  [T B + 1] of the type of ids: bag i has the ids offsets[i] .. offsets[i + 1]
        out      of ``new_out``'s shape and type
        faults   tensor of ``new_gather_faults``, to which the call adds wrong ids and offsets
        """
        wide_out = out.data_ptr() % 16 == 0
        for each in self.classes:
            plan = each.plan
            arguments = (
                each.pieces,
                ctypes.c_int32(each.count),
                ctypes.c_int32(self.batch),
                ctypes.c_int32(plan.run),
                ctypes.c_int32(each.shared_before),
                ids,
                ctypes.c_int32(ids.numel()),
                offsets,
                out,
                ctypes.c_int32(each.wide and wide_out),
                faults,
            )
            launch(each.kernel, self.tables.device, plan.blocks, plan.threads, arguments, each.shared_bytes)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the bags."""
        return self.tables.out_shape(self.batch, self.options.layout)

    @property
    def out_type(self) -> Any:
        """torch.dtype of the bags."""
        import torch

        return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[self.options.out_dtype]

    def new_out(self) -> Any:
        """Uninitialised memory for the bags."""
        import torch

        return torch.empty(self.out_shape, dtype=self.out_type, device=self.tables.device)

    def _class(self, shape: RowAccess, pieces: Any, pooling: float) -> Class:
        import torch

        device, dtype, options = self.tables.device, self.tables.dtype, self.options
        cpu, element = device.type == "cpu", ELEMENT_BYTES[dtype]
        most = _CPU_THREADS if cpu else THREADS
        row_bytes = int(pieces["table"]["dim"].max()) * element
        variant = self._variant or self._fastest(pieces, row_bytes, pooling)
        shape = variant.access(shape)
        plan = self._given or choose(
            self.batch * len(pieces),
            pooling,
            row_bytes,
            shape,
            *self._room(shape, variant, most),
            most,
        )
        before, shared_bytes = options.shared_bytes(shape, dtype, plan.threads, long=plan.long)
        out_bytes = ELEMENT_BYTES[options.out_dtype]
        store = min(16, shape.width // element * out_bytes)
        starts = [*pieces["table"]["out_at"].tolist(), *pieces["table"]["out_stride"].tolist()]
        return Class(
            shape,
            plan,
            options.kernel(shape, dtype, variant, long=plan.long),
            torch.from_numpy(pieces.view(np.uint8).copy()).to(device),
            len(pieces),
            all(start * out_bytes % store == 0 for start in starts),
            shared_bytes,
            before,
        )

    def _room(self, shape: RowAccess, variant: GatherVariant, threads: int) -> tuple[int, int]:
        """(number of multiprocessors, blocks of ``threads`` threads that run at once on all of them)."""
        import torch

        device, options, dtype = self.tables.device, self.options, self.tables.dtype
        kernel, shared = (
            options.kernel(shape, dtype, variant),
            options.shared_bytes(shape, dtype, threads, long=False),
        )
        blocks = blocks_at_once(kernel, device, threads, shared[1])
        if device.type == "cpu":
            return _CPU_MULTIPROCESSORS, blocks
        count = int(torch.cuda.get_device_properties(device).multi_processor_count)
        return count, min(blocks, count * variant.blocks(shape, ELEMENT_BYTES[dtype]))

    def _fastest(self, pieces: Any, row_bytes: int, pooling: float) -> GatherVariant:
        """The fastest variant in timings on this GPU for a look-up most like this one."""
        shape = GatherShape(
            self.tables.dtype,
            self.options.id_bytes,
            row_bytes,
            int((pieces["table"]["row_count"] * row_bytes).sum()),
            max(1, self.batch * len(pieces)),
            max(pooling, 1.0),
        )
        return best_variant(_gpu_name(self.tables.device), shape, known_table())


def _gpu_name(device: Any) -> str:
    """Name of a GPU; "" for a CPU."""
    import torch

    return "" if device.type == "cpu" else str(torch.cuda.get_device_name(device))


def _pieces(tables: DeviceTables, batch: int, options: GatherOptions) -> dict[RowAccess, Any]:
    """Pieces of the tables as arrays of ``PIECE``, by how their rows are read."""
    element = ELEMENT_BYTES[tables.dtype]
    described = tables.descriptors(batch, options.layout).cpu().numpy().view(DESCRIPTOR)
    found: dict[RowAccess, list[Any]] = {}
    for number, table in enumerate(described):
        row = int(table["dim"]) * element
        width = access_width(int(table["rows"]), int(table["row_bytes"]), row)
        shape, count = shape_of(row, width, element)
        columns = shape.row_bytes // element
        for index in range(count):
            first = index * columns
            piece = np.zeros((), PIECE)
            piece["table"] = table
            piece["table"]["rows"] += np.uint64(first * element)
            piece["table"]["out_at"] += first
            piece["table"]["dim"] = min(columns, int(table["dim"]) - first)
            piece["number"], piece["reports"] = number, index == 0
            piece["tail_at"] = row - first * element
            found.setdefault(shape, []).append(piece)
    return {shape: np.array(pieces) for shape, pieces in found.items()}


def gather_pool(tables: DeviceTables, ids: Any, offsets: Any) -> Any:
    """Bags of looked-up rows, summed in fp32: a new tensor [B, sum D]. It waits for the device.

    ids       [n] int32 or int64, rows of their tables
    offsets   [T B + 1] of the same type: the ids of bag t B + b are offsets[t B + b] .. offsets[t B + b + 1];
              ``offsets_of`` makes them from lengths
    Source: torch.nn.functional.embedding_bag, FBGEMM's table-batched embedding
    Limits: a bag of no ids -> 0;  an id out of range, or offsets that fall or lie outside 0 .. n
            -> BadInputError
    """
    _require_ids(tables, ids, offsets)
    batch = (offsets.numel() - 1) // len(tables.rows)
    pooling = ids.numel() / max(1, batch * len(tables.rows))
    prepared = GatherPool(tables, batch, GatherOptions(ids.element_size()), pooling)
    bags, faults = prepared.new_out(), new_gather_faults(ids.device)
    prepared(ids, offsets, bags, faults)
    raise_gather_faults(faults)
    return bags


def offsets_of(lengths: Any, dtype: Any = None) -> Any:
    """Offsets [bags + 1] of bags with these ``lengths`` [bags]; ``dtype`` is their type, None: int64."""
    import torch

    offsets = torch.zeros(lengths.numel() + 1, dtype=dtype or torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets


def new_gather_faults(device: Any) -> Any:
    """A tensor for faults, int64 [4]: number of wrong ids, position of the first, both for offsets, too."""
    return new_faults(device).repeat(2)


def raise_gather_faults(faults: Any) -> None:
    """Wait for the device; raise BadInputError for wrong ids or offsets."""
    raise_faults(
        faults[2:], "offsets fall or lie outside the ids", "offsets rise from 0 to the number of ids."
    )
    raise_faults(faults[:2], "ids lie outside their tables", "an id is a row of its table: 0 .. E - 1.")


def _require(options: GatherOptions, tables: DeviceTables, batch: int) -> None:
    for value, known, what in (
        (options.out_dtype, tuple(OUT_TYPES), "type of the bags"),
        (options.id_bytes, tuple(_ID_TYPES), "bytes of an id"),
    ):
        if value not in known:
            raise BadInputError(f"{what} {value!r} is unknown.", f"known: {', '.join(map(str, known))}.")
    if batch < 0 or batch * len(tables.rows) > _MOST or max(tables.row_bytes) >= 2**32:
        raise BadInputError(
            f"{len(tables.rows)} tables of rows {max(tables.row_bytes)} bytes apart, {batch} samples: "
            "too much, or less than nothing.",
            f"at most {_MOST} bags, and rows less than 4 GiB apart.",
        )


def _require_ids(tables: DeviceTables, ids: Any, offsets: Any) -> None:
    import torch

    count = len(tables.rows)
    flat = all(
        one.ndim == 1 and one.is_contiguous() and one.device == tables.device for one in (ids, offsets)
    )
    if not flat or ids.dtype not in (torch.int32, torch.int64) or offsets.dtype != ids.dtype:
        raise BadInputError(
            f"ids {ids.dtype} {tuple(ids.shape)} and offsets {offsets.dtype} {tuple(offsets.shape)} "
            "do not fit each other or the tables.",
            f"both are one-dimensional int32 or int64 on {tables.device}.",
        )
    if offsets.numel() < 1 or (offsets.numel() - 1) % count or ids.numel() > _MOST:
        raise BadInputError(
            f"{offsets.numel()} offsets of {ids.numel()} ids do not fit {count} tables.",
            f"T B + 1 offsets are expected, and at most {_MOST} ids.",
        )
