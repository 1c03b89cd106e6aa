"""Whether tables and exchange buffers fit the memory of a GPU, for projections and for plans."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def usable_bytes(hbm_bytes: ArrayLike, reserve: ArrayLike) -> Array:
    """Memory of one GPU that tables and exchanges may use.

        U = hbm_bytes (1 - reserve)                                           [bytes]

    hbm_bytes  memory of one GPU [bytes];  reserve  share kept for CUDA, NCCL and dense layers [-], 0 <= r < 1
    Source: TorchRec's planner keeps 15 % (HeuristicalStorageReservation); the part is ours to choose
    Limits: reserve = 0 -> hbm_bytes;  80 GB, 15 % -> 68 GB
    """
    return np.asarray(hbm_bytes, dtype=np.float64) * (1 - np.asarray(reserve, dtype=np.float64))


def buffer_bytes(*exchanges: tuple[ArrayLike, ArrayLike]) -> Array:
    """Send and receive buffer of the largest exchange: an exchange's buffers are freed when it is done.

        b = max over exchanges of (sent + received)                           [bytes]

    exchanges  (sent, received) of one rank in each [bytes], arrays that broadcast
    Source: PyTorch's caching allocator gives a freed block to the next tensor that fits. Its all-reduce
        "operates in-place" (``torch.distributed.all_reduce``): NCCL gets one buffer. What NCCL keeps itself,
        ``NCCL_BUFFSIZE`` (4 MiB) for a channel and a peer, does not depend on S and is in the reserve
    Limits: no exchange -> 0;  a reduce-scatter or all-gather of S over G ranks -> S (1 + 1/G);  an all-reduce
        of S -> S: the gradient itself
    """
    most = np.zeros(())
    for sent, received in exchanges:
        most = np.maximum(most, np.asarray(sent, dtype=np.float64) + np.asarray(received, dtype=np.float64))
    return most


def fits(needed_bytes: ArrayLike, usable: ArrayLike) -> NDArray[np.bool_]:
    """Whether the bytes that a GPU needs fit, with a tolerance for rounding.

        needed <= U (1 + sqrt(eps))                                           [-]

    needed_bytes  rows, optimizer state and buffers of a GPU [bytes];  usable  U [bytes]
    Source: eps, the spacing of floats at 1: a kilobyte of 68 GB
    Limits: needed = U -> True;  needed > U -> False
    """
    rounding = np.sqrt(np.finfo(np.float64).eps)
    return np.asarray(np.asarray(needed_bytes) <= np.asarray(usable) * (1 + rounding))
