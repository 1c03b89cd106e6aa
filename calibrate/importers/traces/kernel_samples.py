"""Embedding operators of traces as samples of kernels: the look-ups of a call, the time of its kernels.

The shapes and scalars of their inputs (record_shapes=True) show what FBGEMM's operators look up. All its
look-up functions have these seven arguments in a row: D_offsets (tables + 1), total_D, max_D,
hash_size_cumsum (tables + 1), total_hash_size_bits, indices, offsets (bags + 1); and before them the weights.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from calibrate.importers.traces.kineto_events import whole
from calibrate.importers.traces.names import datatype_of, kernel_family
from perfmodel.schema.evidence import Clock
from perfmodel.schema.traces import KernelFamily, RankTrace, TracedKernel

if TYPE_CHECKING:
    import pandas as pd

_ID_BYTES = (4, 8)
_AT_ONCE_S = 10e-6
_DTYPES = {"float": "fp32", "half": "fp16"}
"""Row types in the kernel model, by the trace's datatypes."""

_BUCKETIZE, _EMBEDDING_BAG = (
    "block_bucketize_sparse_features",
    ("aten::embedding_bag", "aten::_embedding_bag"),
)


class _Looked(NamedTuple):
    """The look-ups of one call on one rank; the fields are columns of kernel samples."""

    operation: str
    implementation: str
    dtype: str
    batch: int
    tables: int
    pooling: float
    dim: int
    rows: int
    id_bytes: int
    shards: int


def kernel_samples(
    traces: Sequence[RankTrace], dim: int | None = None
) -> tuple[pd.DataFrame, dict[str, int]]:
    """(table of samples, number of unused calls by reason).

    The table has the columns that kernel samples of a calibration have, and one row for all calls with equal
    look-ups. Its time is the median over these calls of the time of all kernels that a call launched.
    dim  columns of every table, for traces that do not hold it (before PyTorch recorded scalars)
    Limits: no embedding operator -> no row
    """
    import pandas as pd

    times: dict[_Looked, list[float]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for trace in traces:
        for kernels in _calls(trace):
            looked = _looked(kernels[0], dim)
            if isinstance(looked, str):
                left_out[looked] += 1
            elif any(kernel.overlapped for kernel in kernels):
                left_out["work of another stream ran beside it"] += 1
            else:
                times[looked].append(sum(kernel.time_s for kernel in kernels))
    ranks = max((trace.world_size for trace in traces), default=1)
    rows = [
        {
            "key": "", "backend": "", "clock": str(Clock.TRACE), "variant": "default",
            "gpus": max(ranks, 1), "nodes": 1, "gpus_per_node": max(ranks, 1), "distribution": "uniform",
            "payload_bytes": 0, "held_out": False, "low_s": min(own), "high_s": max(own), "flag": "ok",
            **looked._asdict(), "time_s": float(pd.Series(own).median()), "calls": len(own),
        }
        for looked, own in sorted(times.items())
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(_COLUMNS)), dict(left_out)


class HostTimes(NamedTuple):
    """How the host launched the kernels of an embedding pass; times are medians over kernels [s].

    kernels   number of these kernels
    launch_s  time of the host's launch call;  queue_s  from its end to the kernel's start
    dry       kernels that began within ``_AT_ONCE_S`` of their launch: the GPU was waiting for the host
    """

    kernels: int
    launch_s: float
    queue_s: float
    dry: int


def host_times(traces: Sequence[RankTrace]) -> HostTimes | None:
    """How the host launched the kernels of an embedding pass. Limits: no launch recorded -> None"""
    known = [
        (kernel.launch_s, kernel.queue_s)
        for trace in traces
        for kernel in trace.kernels
        if kernel.launch_s is not None and kernel.queue_s is not None
    ]
    if not known:
        return None
    launches, queues = zip(*known, strict=True)
    dry = sum(queue < _AT_ONCE_S for queue in queues)
    return HostTimes(len(known), median(launches), median(queues), dry)


_COLUMNS = (
    "key", "operation", "backend", "implementation", "clock", "variant", "gpus", "nodes", "gpus_per_node",
    "dtype", "batch", "tables", "pooling", "dim", "rows", "id_bytes", "distribution", "shards",
    "payload_bytes", "held_out", "time_s", "low_s", "high_s", "flag", "calls",
)  # fmt: skip


def _calls(trace: RankTrace) -> list[list[TracedKernel]]:
    """Kernels of look-ups and bucketizations; each inner list has the kernels of an operator call."""
    by_call: dict[int, list[TracedKernel]] = defaultdict(list)
    for kernel in trace.kernels:
        if kernel.call is not None and _wanted(kernel.op):
            by_call[kernel.call].append(kernel)
    return [by_call[call] for call in sorted(by_call)]


def _wanted(op: str) -> bool:
    family = kernel_family(op)
    return family is KernelFamily.GATHER_POOL or (family is KernelFamily.BUCKETIZE and _BUCKETIZE in op)


def _looked(kernel: TracedKernel, dim: int | None) -> _Looked | str:
    """The look-ups of the call of ``kernel``, or why they are unknown. dim  columns, if not in the trace"""
    if not kernel.shapes:
        return "its shapes are not recorded: profile with record_shapes=True"
    if _BUCKETIZE in kernel.op:
        return _bucketized(kernel)
    if kernel.op in _EMBEDDING_BAG:
        return _bag_of_torch(kernel)
    return _bags_of_fbgemm(kernel, dim)


def _bags_of_fbgemm(kernel: TracedKernel, dim: int | None) -> _Looked | str:
    shapes = kernel.shapes
    for i in range(1, len(shapes) - 6):
        one, total, most, other, bits, ids, offsets = shapes[i : i + 7]
        tables = one[0] - 1 if len(one) == 1 else 0
        plain = total == most == bits == () and one == other and len(ids) == len(offsets) == 1
        if plain and tables > 0 and offsets[0] > 1 and (offsets[0] - 1) % tables == 0:
            break
    else:
        return "no look-up function of FBGEMM that is known"
    sizes = [shape[0] for shape in shapes[:i] if len(shape) == 1]
    numbers = max(sizes, default=0)
    wide = _count(kernel.scalars, i + 1) or (dim or 0) * tables
    if not wide:
        return "the columns of its tables are not recorded: give --model"
    weights = next(k for k, shape in enumerate(shapes) if shape == (numbers,))
    bags, looked_up = offsets[0] - 1, ids[0]
    if not looked_up or not numbers:
        return "nothing was looked up"
    return _checked(
        "gather_pool", "fbgemm", _type(kernel, weights), bags // tables, tables, looked_up / bags,
        wide // tables, max(numbers // wide, 1), _type(kernel, i + 5),
    )  # fmt: skip


def _bag_of_torch(kernel: TracedKernel) -> _Looked | str:
    weights, ids, offsets = (*kernel.shapes, (), (), ())[:3]
    if len(weights) != 2 or len(ids) != 1 or len(offsets) != 1 or not ids[0] or not offsets[0]:
        return "no bags of one table"
    return _checked(
        "gather_pool", "torch", _type(kernel, 0), offsets[0], 1, ids[0] / offsets[0], weights[1], weights[0],
        _type(kernel, 1),
    )  # fmt: skip


def _bucketized(kernel: TracedKernel) -> _Looked | str:
    lengths, ids, _, _, blocks, _ = (*kernel.shapes, *[()] * 6)[:6]
    owners = _count(kernel.scalars, 5)
    if len(lengths) != 1 or len(ids) != 1 or len(blocks) != 1 or not blocks[0] or not ids[0]:
        return "nothing was bucketized"
    if not owners:
        return "how many ranks ids were dealt to is not recorded"
    tables = blocks[0]
    return _checked(
        "bucketize", "fbgemm", "float", max(lengths[0] // tables, 1), tables,
        ids[0] / max(lengths[0], 1), 32, 1, _type(kernel, 1), owners,
    )  # fmt: skip


def _checked(
    operation: str, implementation: str, dtype: str, batch: int, tables: int, pooling: float, dim: int,
    rows: int, id_type: str, shards: int = 1,
) -> _Looked | str:  # fmt: skip
    kind, id_kind = datatype_of(dtype), datatype_of(id_type)
    if kind is None or kind.name not in _DTYPES:
        return f"tables of {dtype or 'a type that is not recorded'}: no kernel model"
    if id_kind is None or id_kind.item_bytes not in _ID_BYTES:
        return f"ids of {id_type or 'a type that is not recorded'}"
    return _Looked(
        operation,
        implementation,
        _DTYPES[kind.name],
        batch,
        tables,
        pooling,
        dim,
        rows,
        id_kind.item_bytes,
        shards,
    )


def _type(kernel: TracedKernel, place: int) -> str:
    return kernel.types[place] if place < len(kernel.types) else ""


def _count(scalars: Sequence[str], place: int) -> int:
    """The recorded scalar number ``place`` as a count; 0 if it was not recorded."""
    text = scalars[place] if place < len(scalars) else ""
    return max(whole(text), 0)
