"""Partial bags of several ranks: their sum, and packing of the bags that are not empty.

A partial bag is the sum of the rows that one rank holds of a bag. The kernels are in kernels/partial_bags.cu.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from calibrate.cuda.faults import new_faults, on_device, raise_faults
from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import blocks_at_once, launch
from calibrate.cuda.scan import THREADS, new_state, reciprocal, tiles
from perfmodel.errors import BadInputError

SOURCE = "partial_bags.cu"
TYPES = {"torch.float32": "float", "torch.float16": "pm::f16", "torch.bfloat16": "pm::bf16"}
"""Element types of partial bags; sums are of the same type or fp32."""

_WIDE_BYTES = 16
_PIECES = {_WIDE_BYTES: "pm::Words<16>", 4: "pm::u32", 2: "pm::u16"}
"""Unit in which rows are packed, by its bytes; widest first."""

_SIZES = {"float": 4, "pm::f16": 2, "pm::bf16": 2}
_PACK_BAGS = Kernel(SOURCE, "pm::pack_bags")
_CLEAR = Kernel(SOURCE, "pm::clear_table")
_PLACE = Kernel(SOURCE, "pm::place_rows")


def partial_sum(parts: Any, out: Any) -> Any:
    """Queue out = sum over sources of partial bags; returns ``out``.

    parts  [G, bags, D] of G sources, fp32, fp16 or bf16; [bags, D] is contiguous, the sources need not be
    out    [bags, D] in the type of the parts or fp32
    Each sum is computed in fp32, adds sources in rising order and is rounded once. Accesses have 16 bytes if
    the sources are aligned to 16 bytes, else one element.
    It neither allocates nor waits: it can be captured in a graph.
    Source: numpy specification in tests/oracles/kernels/partial_bags.py
    Limits: other types or shapes, more than one device, no source -> BadInputError
    """
    kind, out_kind = _types(parts, out)
    sources = parts.shape[0]
    if sources < 1 or tuple(parts.shape[1:]) != tuple(out.shape) or not _together(parts, out):
        raise BadInputError(
            f"partial bags {tuple(parts.shape)} with strides {parts.stride()} cannot be added into "
            f"{tuple(out.shape)} with strides {out.stride()}.",
            "[G, bags, D] into [bags, D] is expected, each bag after the other, G at least 1.",
        )
    bytes_apart = (parts.stride(0) if sources > 1 else 0) * parts.element_size()
    wide = _wide(parts, out, bytes_apart, out.numel() * parts.element_size())
    each = _WIDE_BYTES // parts.element_size() if wide else 1
    kernel = Kernel(SOURCE, f"pm::partial_sum<{kind}, {out_kind}, {each}>")
    stride, count = ctypes.c_int64(parts.stride(0)), ctypes.c_int64(out.numel())
    grid = _grid(kernel, out.device, out.numel() // each)
    launch(kernel, out.device, grid, THREADS, [parts, stride, ctypes.c_int32(sources), count, out])
    return out


@dataclass(frozen=True)
class Packed:
    """Partial bags that are not empty, in the order destination, bag, for G destinations.

    rows         sums of the bags [n, D], then old contents: n = sum of counts = offsets[G bags]
    bag_numbers  number of each row's bag at its destination [n], int32
    counts       number of rows for each destination [G], int64
    offsets      number of packed rows before each bag [G bags + 1], int64
    """

    rows: Any
    bag_numbers: Any
    counts: Any
    offsets: Any


class Packer:
    """Packs partial bags [G, bags, D] of one shape repeatedly: run() only queues, without allocation.

    run() does not wait and can be captured in a graph. Its results are overwritten by the next run().
    Limits: no destination, bag or column, 2^31 bags of one destination, an unknown type -> BadInputError
    """

    def __init__(self, destinations: int, bags: int, dim: int, dtype: Any, device: Any) -> None:
        import torch

        if min(destinations, bags, dim) < 1 or bags >= 2**31 or str(dtype) not in TYPES:
            raise BadInputError(
                f"{destinations} x {bags} bags of {dim} columns of {dtype} cannot be packed.",
                f"at least one of each, fewer than 2^31 bags, one of {', '.join(TYPES)} are expected.",
            )
        self.destinations, self.bags, self.dim, self.dtype = destinations, bags, dim, dtype
        self.device = on_device(device)
        slots = destinations * bags
        self._state = new_state(slots, device)
        self.packed = Packed(
            rows=torch.empty(slots, dim, dtype=dtype, device=device),
            bag_numbers=torch.empty(slots, dtype=torch.int32, device=device),
            counts=torch.empty(destinations, dtype=torch.int64, device=device),
            offsets=torch.empty(slots + 1, dtype=torch.int64, device=device),
        )

    def run(self, lengths: Any, bags: Any) -> Packed:
        """Queue the packing of ``bags`` [G, bags, D]; ``lengths``: number of ids of each, 0: left out."""
        import torch

        _check_tensors(
            self.device,
            ("lengths", lengths, (self.destinations, self.bags), torch.int32),
            ("bags", bags, (self.destinations, self.bags, self.dim), self.dtype),
        )
        out, i32, i64 = self.packed, ctypes.c_int32, ctypes.c_int64
        slots, each = i64(self.destinations * self.bags), i64(self.bags)
        arguments = [lengths, slots, each, ctypes.c_uint64(reciprocal(self.bags)), self._state]
        arguments += [out.offsets, out.bag_numbers]
        launch(_PACK_BAGS, self.device, tiles(slots.value), THREADS, arguments)
        row_bytes = self.dim * bags.element_size()
        width = next(width for width in _PIECES if row_bytes % width == bags.data_ptr() % width == 0)
        lanes = _lanes_log2(row_bytes // width)
        kernel = Kernel(SOURCE, f"pm::pack_rows<{_PIECES[width]}>")
        sizes = [i32(self.destinations), each, i32(row_bytes // width), i32(lanes)]
        state = [self._state, i64(self._state.numel())]
        grid = _grid(kernel, self.device, slots.value << lanes)
        arguments = [bags, out.offsets, *sizes, *state, out.counts, out.rows]
        launch(kernel, self.device, grid, THREADS, arguments)
        return out


class SparseSum:
    """Sums packed partial bags of several sources repeatedly: run() only queues, without allocation.

    sources    G, number of sources;  rows  largest number of packed rows per call
    bags, dim  shape of the sum [bags, D]
    dtype, out_dtype  torch types of the rows and of the sum: equal, or fp32

    Attribute ``faults`` describes rows with an invalid bag, or a second row for a bag from one source, and
    rows announced beyond ``rows``, since construction: number, first row, int64 [2]. run() does not wait and
    can be captured in a graph. Its result is overwritten by the next run().
    Limits: no source, bag or column, 65536 sources, 2^31 rows or bags, an unknown type -> BadInputError
    """

    def __init__(
        self, sources: int, bags: int, dim: int, rows: int, dtype: Any, device: Any, *, out_dtype: Any = None
    ) -> None:
        import torch

        if min(sources, bags, dim) < 1 or sources > 65535 or max(rows, bags) >= 2**31:
            raise BadInputError(
                f"{rows} packed rows of {sources} sources cannot be added into {bags} bags of {dim} columns.",
                "at least one of each, fewer than 65536 sources and 2^31 rows or bags are expected.",
            )
        self.sources, self.bags, self.dim, self.rows = sources, bags, dim, rows
        self.device = on_device(device)
        self.out = torch.empty(bags, dim, dtype=out_dtype or dtype, device=device)
        self.dtype = dtype
        self._kinds = _types(torch.empty(0, dtype=dtype, device=device), self.out)
        self._row_of = torch.empty(sources, bags, dtype=torch.int32, device=device)
        self.faults = new_faults(device)

    def run(self, rows: Any, bag_numbers: Any, counts: Any) -> Any:
        """Queue the sum [bags, D] of packed rows [n, D], bag numbers [n] (int32), counts [G] (int64)."""
        import torch

        _check_tensors(
            self.device,
            ("rows", rows, (self.rows, self.dim), self.dtype),
            ("bag numbers", bag_numbers, (self.rows,), torch.int32),
            ("counts", counts, (self.sources,), torch.int64),
        )
        i32, i64, device = ctypes.c_int32, ctypes.c_int64, self.device
        slots, bags = self.sources * self.bags, i64(self.bags)
        launch(_CLEAR, device, _grid(_CLEAR, device, slots), THREADS, [self._row_of, i64(slots)])
        grid = max(1, _grid(_PLACE, device, -(-self.rows // self.sources))), self.sources
        arguments = [bag_numbers, counts, i64(self.rows), bags, self._row_of, self.faults]
        launch(_PLACE, device, grid, THREADS, arguments)
        row_bytes = self.dim * rows.element_size()
        each = _WIDE_BYTES // rows.element_size() if _wide(rows, self.out, row_bytes) else 1
        lanes = _lanes_log2(self.dim // each)
        kernel = Kernel(SOURCE, f"pm::sum_rows<{self._kinds[0]}, {self._kinds[1]}, {each}>")
        arguments = [rows, self._row_of, i32(self.sources), bags, i32(self.dim // each), i32(lanes), self.out]
        launch(kernel, device, _grid(kernel, device, self.bags << lanes), THREADS, arguments)
        return self.out


def pack(lengths: Any, bags: Any) -> Packed:
    """The partial bags that are not empty, in the order destination, bag.

    lengths  number of ids of each partial bag [G, bags], int32; 0: empty
    bags     [G, bags, D] for G destinations, fp32, fp16 or bf16
    Source: numpy specification in tests/oracles/kernels/partial_bags.py
    Limits: as Packer, which serves repeated calls without allocation
    """
    destinations, count, dim = bags.shape
    return Packer(destinations, count, dim, bags.dtype, bags.device).run(lengths, bags)


def sparse_sum(
    rows: Any, bag_numbers: Any, counts: Any, bags: int, *, out_dtype: Any = None, check: bool = True
) -> Any:
    """Sum [bags, D] of packed partial bags; bags without a source are 0. Equals partial_sum bit for bit.

    rows    [n, D] in the order of G sources
    bag_numbers  number of each row's bag [n], int32, each at most once per source
    counts  number of rows of each source [G], int64;  out_dtype  the type of the rows, or torch.float32
    check   wait for the device; an invalid bag, or a bag twice from a source -> BadInputError
    Source: numpy specification in tests/oracles/kernels/partial_bags.py
    Limits: as SparseSum, which serves repeated calls without allocation
    """
    made = SparseSum(
        counts.numel(), bags, rows.shape[1], rows.shape[0], rows.dtype, rows.device, out_dtype=out_dtype
    )
    out = made.run(rows, bag_numbers, counts)
    if check:
        what = "packed rows have no bag, a bag that came already, or are missing"
        raise_faults(made.faults, what, f"bags are 0 .. {bags - 1}, each once a source.")
    return out


def kernels() -> list[Kernel]:
    """Every kernel of partial_bags.cu."""
    pairs = [(kind, out) for kind in TYPES.values() for out in sorted({kind, "float"})]
    sums = [
        f"pm::{name}<{kind}, {out}, {each}>"
        for name in ("partial_sum", "sum_rows")
        for kind, out in pairs
        for each in (1, _WIDE_BYTES // _SIZES[kind])
    ]
    packs = [f"pm::pack_rows<{piece}>" for piece in _PIECES.values()]
    return [_PACK_BAGS, _CLEAR, _PLACE, *(Kernel(SOURCE, name) for name in (*packs, *sums))]


def _types(parts: Any, out: Any) -> tuple[str, str]:
    kinds = TYPES.get(str(parts.dtype)), TYPES.get(str(out.dtype))
    if None in kinds or kinds[1] not in (kinds[0], "float") or parts.device != out.device:
        raise BadInputError(
            f"bags of {parts.dtype} on {parts.device} cannot be added into {out.dtype} on {out.device}.",
            f"known: {', '.join(TYPES)}, into the same type or float32, on one device.",
        )
    return kinds  # type: ignore[return-value]


def _check_tensors(device: Any, *wanted: tuple[str, Any, tuple[int, ...], Any]) -> None:
    for name, given, shape, dtype in wanted:
        if (tuple(given.shape), given.dtype) != (shape, dtype) or not given.is_contiguous():
            raise BadInputError(
                f"{name} are {tuple(given.shape)} of {given.dtype}.",
                f"{shape} of {dtype}, contiguous, is expected.",
            )
        if given.device != device:
            raise BadInputError(f"{name} are on {given.device}.", f"{device} is expected.")


def _together(parts: Any, out: Any) -> bool:
    return bool(parts.ndim == 3 and out.is_contiguous() and (parts.numel() == 0 or parts[0].is_contiguous()))


def _wide(first: Any, second: Any, *sizes: int) -> bool:
    """Whether both tensors can be accessed 16 bytes at a time, in steps of these ``sizes`` [bytes]."""
    return all(number % _WIDE_BYTES == 0 for number in (first.data_ptr(), second.data_ptr(), *sizes))


def _lanes_log2(accesses: int) -> int:
    """Log2 of the number of lanes that share a row of ``accesses`` accesses; at most a warp."""
    return min(5, (accesses - 1).bit_length())


def _grid(kernel: Kernel, device: Any, threads: int) -> int:
    return min(-(-threads // THREADS), _most_blocks(kernel, device))


@lru_cache
def _most_blocks(kernel: Kernel, device: Any) -> int:
    """Most blocks to launch: four times as many as run at once."""
    return 4 * blocks_at_once(kernel, device, THREADS)
