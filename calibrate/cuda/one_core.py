"""Looks up and sums bags by a list of work items for each core, in four ways: ``kernels/one_core.cu``."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from calibrate.cuda.device_tables import ROW_TYPES, DeviceTables
from calibrate.cuda.faults import new_faults, raise_faults
from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import launch
from calibrate.cuda.one_core_plan import WAYS, CorePlan, TableShape, check_covers
from perfmodel.errors import BadInputError

SOURCE = "one_core.cu"
ROWS = ("fp32", "fp16")
POOLINGS = ("sum", "mean")
GPU_THREADS = 512
CPU_THREADS = 64
DESK_BYTES = 128
"""Most bytes of a core's memory that the kernel uses itself."""

CPU_CORE_BYTES = 227 * 1024
"""Memory per core that a CPU is assumed to have: as on a Hopper GPU."""

MOST_IDS = 2**31 - 1

_ID_TYPES = {"torch.int32": "int", "torch.int64": "long long"}
_ITEM = np.dtype(
    [
        (name, np.int32)
        for name in (
            "table", "first_bag", "bags", "way", "first_column", "columns", "resident_rows", "chunk_rows",
            "pass_bags", "id_room",
        )
    ]
)  # fmt: skip


def kernels() -> list[Kernel]:
    """All kernels: for rows of fp32 and fp16, with ids of 4 and 8 bytes."""
    return [_kernel(rows, ids) for rows in ROWS for ids in _ID_TYPES]


def core_bytes(device: Any) -> int:
    """Memory of one core that a plan may use on ``device`` [bytes]: 227 KB on Hopper, 163 KB on A100."""
    if device.type == "cpu":
        return CPU_CORE_BYTES - DESK_BYTES
    import torch

    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin) - DESK_BYTES


def cores(device: Any) -> int:
    """Cores of ``device``: the SMs of a GPU. Limits: a CPU -> 3, so that cores take several turns"""
    if device.type == "cpu":
        return 3
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def shapes_of(tables: DeviceTables, pooling: float = 1.0) -> list[TableShape]:
    """The sizes of ``tables`` that a plan needs; all get ``pooling`` as their mean number of ids per bag."""
    return [
        TableShape(rows.shape[0], dim, rows.element_size(), pooling)
        for rows, dim in zip(tables.rows, tables.dims, strict=True)
    ]


class OneCore:
    """Tables and a plan on their device, ready for look-ups of ``batch`` samples.

    Limits: rows other than fp32 and fp16; a plan that does not cover every look-up exactly once, or that
            needs more memory than a core has -> BadInputError
    """

    def __init__(self, tables: DeviceTables, plan: CorePlan, batch: int, pooling: str = "sum") -> None:
        if tables.dtype not in ROWS or pooling not in POOLINGS:
            raise BadInputError(
                f"rows of {tables.dtype} cannot be pooled as {pooling} by work lists.",
                f"rows: {', '.join(ROWS)}; pooling: {', '.join(POOLINGS)}.",
            )
        shapes = shapes_of(tables)
        check_covers(plan, shapes, batch)
        self.tables, self.plan, self.batch = tables, plan, batch
        self.shared_bytes = plan.shared_bytes(shapes)
        if self.shared_bytes > core_bytes(tables.device):
            raise BadInputError(
                f"the plan needs {self.shared_bytes} bytes of a core's memory, which has "
                f"{core_bytes(tables.device)}.",
                "make it with core_bytes of this device.",
            )
        if max(tables.row_bytes) > MOST_IDS:
            raise BadInputError("rows of 2 GiB cannot be looked up.", "cut the tables into columns.")
        rows = max(shape.rows for shape in shapes)
        if rows > MOST_IDS:
            raise BadInputError(
                f"a table of {rows} rows cannot be looked up by work lists.",
                f"at most {MOST_IDS} rows of a table; gather_pool takes more.",
            )
        self._pooling = POOLINGS.index(pooling)
        self._descriptors = tables.descriptors(batch)
        self._items, self._starts = _work_list(plan, tables.device)

    def __call__(
        self,
        ids: Any,
        offsets: Any,
        out: Any = None,
        *,
        faults: Any = None,
        threads: int | None = None,
        check: bool = True,
    ) -> Any:
        """Look up and sum bags: returns [B, sum D] of fp32 (B samples, D columns of each table).

        ids      [N] int32 or int64, N < 2^31
        offsets  [T B + 1] int64: the ids of bag t B + b begin at offsets[t B + b]; rising, 0 to N
        out      output tensor (None: a new one);  threads  threads of a block, a multiple of 32, at most 512
        check    wait, and raise BadInputError for ids out of range, which add nothing; False: they are in
                 ``faults`` (number, position of the first)
        Limits: an empty bag -> 0;  mean -> over all ids of the bag
        """
        import torch

        device = self.tables.device
        out_shape = self.tables.out_shape(self.batch)
        if out is None:
            out = torch.empty(out_shape, dtype=torch.float32, device=device)
        self._check(ids, offsets, out, out_shape)
        if faults is None:
            faults = new_faults(device)
        block = threads or (CPU_THREADS if device.type == "cpu" else GPU_THREADS)
        if block % 32 or not 0 < block <= GPU_THREADS:
            raise BadInputError(f"blocks of {block} threads cannot run.", "32, 64, 96 .. 512 can.")
        arguments = [self._descriptors, self._items, self._starts, ids, offsets, out, faults]
        arguments += [ctypes.c_int32(self.batch), ctypes.c_int32(self._pooling)]
        kernel = _kernel(self.tables.dtype, str(ids.dtype))
        launch(kernel, device, len(self.plan.cores), block, arguments, self.shared_bytes)
        if check:
            raise_faults(faults, "ids outside their tables", "ids must be 0 .. rows - 1.")
        return out

    def _check(self, ids: Any, offsets: Any, out: Any, out_shape: tuple[int, ...]) -> None:
        bags = len(self.tables.dims) * self.batch
        wrong = (
            str(ids.dtype) not in _ID_TYPES
            or ids.ndim != 1
            or ids.numel() > MOST_IDS
            or str(offsets.dtype) != "torch.int64"
            or tuple(offsets.shape) != (bags + 1,)
            or str(out.dtype) != "torch.float32"
            or tuple(out.shape) != out_shape
            or not (ids.is_contiguous() and offsets.is_contiguous() and out.is_contiguous())
            or {ids.device, offsets.device, out.device} != {self.tables.device}
        )
        if wrong:
            raise BadInputError(
                f"ids {tuple(ids.shape)} of {ids.dtype}, offsets {tuple(offsets.shape)} of {offsets.dtype} "
                f"and bags {tuple(out.shape)} of {out.dtype} are not what {bags} bags need.",
                f"give ids [N] of int32 or int64, offsets [{bags + 1}] of int64 and bags {out_shape} of "
                f"float32, each contiguous, on {self.tables.device}.",
            )


def _kernel(rows: str, ids: str) -> Kernel:
    return Kernel(SOURCE, f"pm::one_core<{ROW_TYPES[rows]}, {_ID_TYPES[ids]}>")


def _work_list(plan: CorePlan, device: Any) -> tuple[Any, Any]:
    import torch

    every = [item for items in plan.cores for item in items]
    made = np.zeros(len(every), _ITEM)
    for name in _ITEM.names or ():
        values = [getattr(item, name) for item in every]
        made[name] = [WAYS.index(value) for value in values] if name == "way" else values
    starts = np.cumsum([0, *(len(items) for items in plan.cores)]).astype(np.int32)
    on_device = [torch.from_numpy(one).to(device) for one in (made.view(np.uint8), starts)]
    return on_device[0], on_device[1]
