"""Rows in host memory: read in place over the link, or through a cache in the HBM of the last rows used.

FBGEMM calls the first MANAGED (TorchRec: ``fused_uvm``), the second MANAGED_CACHING (``fused_uvm_caching``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.model.access import characteristic_draws, touched_fraction, unique_rows
from perfmodel.model.recording import Array, Number, equation


def room_bytes(H: float, g: int, M: float, c: float) -> float:
    """Bytes of rows for which one GPU has memory, of host and HBM together.

        min(H / g, M / c)                                                     [bytes]

    H  memory of the hosts of a node [bytes];  g  GPUs of a node [-];  M  HBM of a GPU [bytes]
    c  share of the rows that the HBM caches [-], 0 to 1
    Source: derived: the GPUs of a node share its memory equally, and each caches a share of its rows
    Limits: c = 0 -> H / g;  c = 1 -> the smaller of the two;  H -> inf -> M / c
    """
    return min(H / g, M / c) if c else H / g


def wire_bytes(b: ArrayLike, a: float, h: float, m: float) -> Array:
    """Bytes of the link that reading one row of host memory takes.

        max(b + h ceil(b / a), m)                                             [bytes]

    b  bytes of the row, whole sectors [bytes], > 0;  a  longest read [bytes];  h  header of a read [bytes]
    m  what the link could carry while the address of another page is looked up [bytes]
    Source: Min et al., "EMOGI", VLDB 14 (2020): reads of at most 128 bytes, a header of 18 bytes each. On an
            H200 rows of 32 to 256 bytes take one time (data/measurements/kernels/h200-samples.csv)
    Limits: m = h = 0 -> b;  m -> inf -> m;  b = a, m = 0 -> a + h
    """
    size = np.asarray(b, dtype=np.float64)
    return np.asarray(np.maximum(size + h * np.ceil(size / a), m))


def rows_in_flight(latency: float, R: float, w: ArrayLike) -> Array:
    """Rows that are on their way over the link at any moment: a second read of one waits for the first.

        X = latency R / w                                                     [rows]

    latency  from a read to its data [s];  R  rate of the link [bytes/s];  w  ``wire_bytes`` [bytes]
    Source: Little's law; the link has no other cache: an LRU cache of X rows says which reads miss
    Limits: latency = 0 -> 0;  long rows -> 0
    """
    return np.asarray(latency * R / np.asarray(w, dtype=np.float64))


def cache_misses(p: ArrayLike, rows: ArrayLike, n: float, X: ArrayLike) -> Array:
    """Rows that a batch of n look-ups brings into a warm LRU cache of X rows, each once.

        m = sum over bins of rows (1 - (1 - p)^n) (1 - p)^T_c                 [rows]

    p, rows   as in ``access.unique_rows``;  X  rows that the cache holds [rows], any shape
    T_c  ``caching.characteristic_draws``: a row stays that long without a look-up
    Source: Che et al. (2002): a distinct row of the batch that was not asked for in the T_c draws before
    Limits: X = 0 -> U(n);  X >= all rows -> 0;  equal p -> U(n) (1 - X/E);  n = 1 -> ``caching.miss_ratio``
    """
    p, rows = np.asarray(p, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    stays = characteristic_draws(p, rows, X)[..., np.newaxis]
    with np.errstate(divide="ignore", invalid="ignore"):
        absent = np.exp(np.where(stays > 0, stays * np.log1p(-p), 0))
    return np.asarray(
        np.minimum(np.sum(rows * touched_fraction(p, n) * absent, axis=-1), unique_rows(p, rows, n))
    )


@equation
def read_bytes(x: Number, w: Number) -> Number:
    """Bytes of the link that x rows of host memory take.

        x w                                                                   [bytes]

    x  rows that are read: missing in the cache, or in place and not on their way already [rows]
    w  bytes of the link for one of them (``wire_bytes``) [bytes]
    Source: each row is read on its own
    Limits: x = 0 -> 0
    """
    return x * w


@equation
def index_bytes(u: Number, i: Number) -> Number:
    """Bytes of the indices that are looked up in the cache.

        u i                                                                   [bytes]

    u  distinct rows of the batch [rows];  i  bytes of an index [bytes]
    Source: FBGEMM's prefetch sorts the indices and keeps each once
    Limits: u = 0 -> 0
    """
    return u * i
