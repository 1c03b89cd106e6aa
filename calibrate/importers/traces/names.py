"""Meanings of names in a trace: collectives of NCCL and gloo, datatypes, kernels of an embedding pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from perfmodel.schema.traces import KernelFamily


class Datatype(NamedTuple):
    """An element type: its bytes, and its name in nccl-tests."""

    item_bytes: int
    name: str


_COLLECTIVES = {
    **dict.fromkeys(("allreduce", "all_reduce", "allreduce_coalesced", "allreduce_"), "all_reduce"),
    **dict.fromkeys(
        ("allgather", "all_gather", "allgather_base", "all_gather_base", "all_gather_into_tensor",
         "allgather_into_tensor_coalesced", "all_gather_into_tensor_coalesced", "allgather_coalesced"),
        "all_gather",
    ),
    **dict.fromkeys(
        ("reduce_scatter", "reducescatter", "reduce_scatter_base", "reduce_scatter_tensor",
         "reduce_scatter_tensor_coalesced"),
        "reduce_scatter",
    ),
    **dict.fromkeys(
        ("alltoall", "all_to_all", "all_to_allv", "alltoallv", "alltoall_base", "all_to_all_single"),
        "all_to_all",
    ),
    **dict.fromkeys(("broadcast", "broadcast_oop"), "broadcast"),
}  # fmt: skip

_FLOAT, _HALF, _BF16 = Datatype(4, "float"), Datatype(2, "half"), Datatype(2, "bfloat16")
_INT64, _INT32, _INT16 = Datatype(8, "int64"), Datatype(4, "int32"), Datatype(2, "int16")
_INT8, _UINT8, _FP8 = Datatype(1, "int8"), Datatype(1, "uint8"), Datatype(1, "fp8")
_DATATYPES = {
    **dict.fromkeys(("float", "float32"), _FLOAT),
    **dict.fromkeys(("half", "float16", "c10::half"), _HALF),
    **dict.fromkeys(("bfloat16", "c10::bfloat16"), _BF16),
    **dict.fromkeys(("double", "float64"), Datatype(8, "double")),
    **dict.fromkeys(("long", "long int", "int64"), _INT64),
    **dict.fromkeys(("int", "int32"), _INT32),
    **dict.fromkeys(("short", "short int", "int16"), _INT16),
    **dict.fromkeys(("char", "signed char", "int8"), _INT8),
    **dict.fromkeys(("byte", "unsigned char", "uint8", "bool"), _UINT8),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), _FP8),
}
"""Datatypes by PyTorch's, C++'s and numpy's names, in lower case."""

_FAMILIES = (
    (KernelFamily.BUCKETIZE, re.compile(r"bucketize_sparse_features|bucketize_pos|populate_bucketized")),
    (
        KernelFamily.PERMUTE,
        re.compile(
            r"permute_(?:1D|2D)_|permute_pooled_embs|permute_embeddings|permute_sequence|recat_embedding|"
            r"permute_sparse|expand_into_jagged_permute|invert_permute",
            re.IGNORECASE,
        ),
    ),
    (
        KernelFamily.BACKWARD,
        re.compile(
            r"embedding\w*backward|SplitLookupFunction|embedding_bag_backward|dense_backward|"
            r"EmbeddingBag_accGradParameters|split_embedding_\w*(?:adagrad|sgd|adam|lamb|lars)\w*(?:_kernel|_cpu)"
            r"|embedding_dense_backward|linearize_index|transpose_embedding_input",
            re.IGNORECASE,
        ),
    ),
    (
        KernelFamily.GATHER_POOL,
        re.compile(
            r"embedding\w*forward|embedding_bag|EmbeddingBag_updateOutputKernel|embedding_codegen_lookup|"
            r"int_nbit_split_embedding|embedding_lookup",
            re.IGNORECASE,
        ),
    ),
    (
        KernelFamily.DENSE,
        re.compile(
            r"gemm|cutlass|cublas|sm\d+_xmma|ampere_|volta_|aten::(?:addmm|mm|bmm|linear|matmul)|convolve|nvjet",
            re.IGNORECASE,
        ),
    ),
    (KernelFamily.COPY, re.compile(r"^Mem(?:cpy|set)\b|aten::copy_$")),
)
"""Families of kernels by a pattern for names. The first match counts: FBGEMM's backward kernels lack
"forward", but some contain "embedding"."""

_NCCL = re.compile(r"nccl(?:Dev)?Kernel|^rccl|ncclSymk?", re.IGNORECASE)
_MOST_ELEMENTS = 2**53
_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")


def consecutive(numbers: Sequence[int]) -> list[list[int]]:
    """Rising ``numbers`` in lists of neighbours: 1, 2, 5 -> [1, 2], [5]."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def collective_of(name: str) -> str:
    """This program's name for ``_allgather_base``, ``c10d::alltoall_base_`` …; empty for other names"""
    bare = name.rpartition(":")[2].strip("_").lower()
    return _COLLECTIVES.get(bare, "")


def datatype_of(name: str) -> Datatype | None:
    """Type for ``Float``, ``long int``, ``c10::BFloat16`` …; None for an unknown name."""
    return _DATATYPES.get(name.strip().lower())


@lru_cache(maxsize=16)
def all_ranks(size: int) -> tuple[int, ...]:
    """The ranks 0 to size - 1. Every call returns the same object, to save memory."""
    return tuple(range(size))


@lru_cache(maxsize=1 << 16)
def is_nccl_kernel(name: str) -> bool:
    """Whether a kernel of a GPU belongs to NCCL or RCCL."""
    return _NCCL.search(name) is not None


@lru_cache(maxsize=1 << 16)
def kernel_family(name: str, category: str = "kernel") -> KernelFamily:
    """Family of a kernel of a GPU, or of an operator of PyTorch."""
    if category in _COPIES:
        return KernelFamily.COPY
    for family, pattern in _FAMILIES:
        if pattern.search(name):
            return family
    return KernelFamily.OTHER


def payload_bytes(collective: str, in_bytes: int, out_bytes: int) -> int:
    """Bytes of one rank's buffer as nccl-tests counts it, from the bytes that it sends and receives.

    Limits: all_gather -> the receive buffer;  any other -> the send buffer
    """
    return out_bytes if collective == "all_gather" else in_bytes


def received_bytes(collective: str, in_bytes: int, ranks: int) -> int:
    """Bytes of the receive buffer, from the bytes of the send buffer, if all ranks send equally much."""
    if collective == "all_gather":
        return in_bytes * ranks
    return in_bytes // ranks if collective == "reduce_scatter" else in_bytes


def elements(shapes: object) -> int:
    """Number of elements in tensors of these shapes: ``[64, 8]``, or nested lists of such lists.

    Limits: [] -> 0, as recorded shapes use it for non-tensors;  more than any memory holds -> 0
    """
    if not isinstance(shapes, Sequence) or isinstance(shapes, str) or not shapes:
        return 0
    if all(isinstance(one, int) for one in shapes):
        product = 1
        for one in shapes:
            if (product := product * int(one)) > _MOST_ELEMENTS:
                return 0
        return max(product, 0)
    return sum(elements(one) for one in shapes)
