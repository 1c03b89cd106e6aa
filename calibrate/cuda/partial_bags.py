"""The sum of partial bags of several ranks (kernels/partial_bags.cu).

A partial bag is the sum of the rows that one rank holds of a bag.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import blocks_at_once, launch
from perfmodel.errors import BadInputError

SOURCE = "partial_bags.cu"
TYPES = {"torch.float32": "float", "torch.float16": "pm::f16", "torch.bfloat16": "pm::bf16"}
"""Element types of partial bags; sums are of the same type or fp32."""

THREADS, _WIDE_BYTES = 256, 16
_SIZES = {"float": 4, "pm::f16": 2, "pm::bf16": 2}


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


def kernels() -> list[Kernel]:
    """Every kernel of partial_bags.cu."""
    return [
        Kernel(SOURCE, f"pm::partial_sum<{kind}, {out}, {each}>")
        for kind in TYPES.values()
        for out in sorted({kind, "float"})
        for each in (1, _WIDE_BYTES // _SIZES[kind])
    ]


def _types(parts: Any, out: Any) -> tuple[str, str]:
    kinds = TYPES.get(str(parts.dtype)), TYPES.get(str(out.dtype))
    if None in kinds or kinds[1] not in (kinds[0], "float") or parts.device != out.device:
        raise BadInputError(
            f"bags of {parts.dtype} on {parts.device} cannot be added into {out.dtype} on {out.device}.",
            f"known: {', '.join(TYPES)}, into the same type or float32, on one device.",
        )
    return kinds  # type: ignore[return-value]


def _together(parts: Any, out: Any) -> bool:
    return bool(parts.ndim == 3 and out.is_contiguous() and (parts.numel() == 0 or parts[0].is_contiguous()))


def _wide(first: Any, second: Any, *sizes: int) -> bool:
    """Whether both tensors can be accessed 16 bytes at a time, in steps of these ``sizes`` [bytes]."""
    return all(number % _WIDE_BYTES == 0 for number in (first.data_ptr(), second.data_ptr(), *sizes))


def _grid(kernel: Kernel, device: Any, threads: int) -> int:
    return min(-(-threads // THREADS), _most_blocks(kernel, device))


@lru_cache
def _most_blocks(kernel: Kernel, device: Any) -> int:
    """Most blocks to launch: four times as many as run at once."""
    return 4 * blocks_at_once(kernel, device, THREADS)
