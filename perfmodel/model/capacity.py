"""Whether tables and exchange buffers fit the memory of a GPU, for projections and for plans."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.recording import Array


def usable_bytes(hbm_bytes: ArrayLike, reserve: ArrayLike) -> Array:
    """Memory of one GPU that tables and exchanges may use.

        U = hbm_bytes (1 - reserve)                                           [bytes]

    hbm_bytes  memory of one GPU [bytes];  reserve  share kept for CUDA, NCCL and dense layers [-], 0 <= r < 1
    Source: TorchRec's planner keeps 15 % (HeuristicalStorageReservation); the part is ours to choose
    Limits: reserve = 0 -> hbm_bytes;  80 GB, 15 % -> 68 GB
    """
    return np.asarray(hbm_bytes, dtype=np.float64) * (1 - np.asarray(reserve, dtype=np.float64))


def count_buffer_bytes(*exchanges: tuple[ArrayLike, ArrayLike]) -> Array:
    """Send and receive buffer of the largest exchange: an exchange's buffers are freed when it is done.

        b = max over exchanges of (sent + received)                           [bytes]

    exchanges  (sent, received) of one rank in each [bytes], arrays that broadcast
    Source: PyTorch's caching allocator gives a freed block to the next tensor that fits. Its all-reduce
        "operates in-place" (``torch.distributed.all_reduce``): NCCL gets one buffer. What NCCL keeps itself,
        ``NCCL_BUFFSIZE`` (4 MiB) for a channel and a peer, does not depend on S and is in the reserve
    Limits: no exchange -> 0;  a reduce-scatter or all-gather of S over G ranks -> S (1 + 1/G);  an all-reduce
        of S, (S, 0) -> S: the gradient itself
    """
    largest = np.zeros(())
    for sent, received in exchanges:
        largest = np.maximum(
            largest, np.asarray(sent, dtype=np.float64) + np.asarray(received, dtype=np.float64)
        )
    return largest


def check_fits(needed_bytes: ArrayLike, usable: ArrayLike) -> NDArray[np.bool_]:
    """Whether the bytes that a GPU needs fit, with a tolerance for rounding.

        needed <= U (1 + sqrt(eps))                                           [-]

    needed_bytes  rows, optimizer state and buffers of a GPU [bytes];  usable  U [bytes]
    Source: eps, the spacing of floats at 1; sqrt(eps) of 68 GB is a kilobyte
    Limits: needed = U -> True;  needed > U (1 + sqrt(eps)) -> False
    """
    rounding = np.sqrt(np.finfo(np.float64).eps)
    return np.asarray(np.asarray(needed_bytes) <= np.asarray(usable) * (1 + rounding))


def compute_host_room(H: float, g: int, M: float, c: float) -> float:
    """Bytes of rows for which one GPU has memory, of host and HBM together.

        min(H / g, M / c)                                                     [bytes]

    H  memory of the hosts of a node [bytes];  g  GPUs of a node [-];  M  HBM of a GPU [bytes]
    c  share of the rows that the HBM caches [-], 0 to 1
    Source: derived: the GPUs of a node share its memory equally, and each caches a share of its rows
    Limits: c = 0 -> H / g;  c = 1 -> the smaller of the two;  H -> inf -> M / c
    """
    return min(H / g, M / c) if c else H / g


def gpus_needed(table_bytes: ArrayLike, hbm_bytes: ArrayLike, reserve: ArrayLike) -> Array:
    """GPUs whose memory together holds the tables.

        n = ceil(table_bytes / (hbm_bytes (1 - reserve)))                     [-]

    table_bytes  bytes of all tables [bytes];  hbm_bytes  memory of one GPU [bytes]
    reserve      fraction of the memory kept free for everything else [-], 0 <= reserve < 1
    Source: arXiv 2512.05831: G = table bytes / HBM bytes
    Limits: table_bytes <= hbm_bytes -> 1;  10 TB over 80 GB -> 125
    """
    ratio = np.asarray(table_bytes, dtype=np.float64) / usable_bytes(hbm_bytes, reserve)
    rounding = 2 * np.finfo(np.float64).eps  # a ratio just above a whole number counts as whole
    return np.maximum(np.ceil(ratio * (1 - rounding)), 1)


def round_to_nodes(n: ArrayLike, g: ArrayLike) -> Array:
    """GPUs allocated when n are needed: n inside one node, whole nodes beyond.

        G = n if n <= g;   ceil(n / g) g otherwise                            [-]

    n      GPUs needed [-];  g  GPUs of one node [-]
    Source: clusters are handed out in whole nodes (125 -> 128 with 8 GPUs per node)
    Limits: n <= g -> n;  n a multiple of g -> n;  never more than n + g - 1
    """
    needed = np.asarray(n, dtype=np.float64)
    node = np.asarray(g, dtype=np.float64)
    return np.where(needed // node, np.ceil(needed / node) * node, needed)


def list_allowed_gpus(n: int, m: int, g: int) -> list[int]:
    """Numbers of GPUs that can be allocated, from n to m: any number inside one node, whole nodes beyond.

        n, n + 1, ... g, 2 g, 3 g, ...                                        [-]

    n, m   least and most GPUs [-];  g  GPUs of one node [-]
    Source: as ``round_to_nodes``
    Limits: m < n -> none;  n > g -> multiples of g alone;  each is its own ``round_to_nodes``
    """
    return [*range(n, min(g, m + 1)), *range(-(-max(n, g) // g) * g, m + 1, g)]


def list_even_gpus(n: int, m: int, t: int, g: int) -> list[int]:
    """Numbers of GPUs, from n to m, that t tables share evenly: each table has as many GPUs.

        t, and the least multiple of lcm(t, g) that is not below n            [-]

    n, m   least and most GPUs [-];  t  tables [-];  g  GPUs of one node [-]
    They are tried beside round numbers, for a plan in which no GPU has more than others may be faster there.
    Limits: t divides g -> t alone, for all whole nodes are even;  t above m -> none
    """
    shared = math.lcm(t, g)
    even = {t} if shared == g else {t, shared * -(-n // shared)}
    return sorted(count for count in even if n <= count <= m)


def pad_row_bytes(D: ArrayLike, w: ArrayLike, s: ArrayLike, a: ArrayLike) -> Array:
    """Bytes of a row in memory: its elements, then its own scale and bias, padded.

        b = a ceil((D w + s) / a)                                             [bytes]

    D  elements of the row [-];  w  bytes of an element [bytes];  a  alignment of rows [bytes]
    s  bytes of scale and bias in the row, 0 if its elements are floats [bytes]
    Source: FBGEMM, ``rounded_row_size_in_bytes`` of its inference kernels (a = 16, and s = 4 of int8), and
            ``construct_split_state`` of its training kernels (a = 1, and s = INT8_EMB_ROW_DIM_OFFSET = 8)
    Limits: s = 0, a = 1 -> D w;  16 int8 -> 32 to infer, 24 to train;  4 fp16 -> 16 and 8
    """
    size = np.asarray(D, dtype=np.float64) * np.asarray(w) + np.asarray(s)
    step = np.asarray(a)
    return np.asarray(np.ceil(size / step) * step)
