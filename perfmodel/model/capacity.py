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


def usable_host_bytes(host_bytes: ArrayLike, reserve: ArrayLike) -> Array:
    """Host memory of one node that tables may use: the operating system and the job need the rest.

        U_host = host_bytes (1 - reserve)                                     [bytes]

    host_bytes  memory of one node's hosts [bytes];  reserve  the same part as of the HBM [-], 0 <= r < 1
    Source: assumed, as for the HBM. TorchRec's planner keeps none of it: ``_reserve_storage_percentage`` and
        ``_reserve_storage_absolute`` (torchrec/distributed/planner/storage_reservations.py) lower ``hbm``
        alone; ``ddr`` stays whole, but for dense parameters and inputs where the device is the CPU
    Limits: reserve = 0 -> host_bytes;  2 TB, 15 % -> 1.7 TB
    """
    return np.asarray(host_bytes, dtype=np.float64) * (1 - np.asarray(reserve, dtype=np.float64))


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


def cache_bytes(
    X: ArrayLike, slot: ArrayLike, per_slot: ArrayLike, E: ArrayLike, per_row: ArrayLike
) -> Array:
    """HBM that a cache of rows needs, for its slots and for its bookkeeping per slot and per row.

        C = X (b + s) + E e                                                   [bytes]

    X     slots [rows];  slot  b, bytes of the widest row that a slot may hold [bytes]
    E     rows of the cached tables, in the cache or not [rows]
    per_slot  s, to note the row in a slot and its last use;  per_row  e, to note a row's table [bytes]
    Source: FBGEMM 1.8, ``_apply_cache_state``; TorchRec 1.8, ``_calculate_cache_aux_state_sizes``, has it too
    Limits: X = 0 -> E e;  s = e = 0 -> the rows alone
    """
    of = (np.asarray(value, dtype=np.float64) for value in (X, slot, per_slot, E, per_row))
    slots, row, each_slot, rows, each_row = of
    return np.asarray(slots * (row + each_slot) + rows * each_row)


def fits(needed_bytes: ArrayLike, usable: ArrayLike) -> NDArray[np.bool_]:
    """Whether the bytes that a GPU needs fit, with a tolerance for rounding.

        needed <= U (1 + sqrt(eps))                                           [-]

    needed_bytes  rows, optimizer state and buffers of a GPU [bytes];  usable  U [bytes]
    Source: eps, the spacing of floats at 1: a kilobyte of 68 GB
    Limits: needed = U -> True;  needed > U -> False
    """
    rounding = np.sqrt(np.finfo(np.float64).eps)
    return np.asarray(np.asarray(needed_bytes) <= np.asarray(usable) * (1 + rounding))
