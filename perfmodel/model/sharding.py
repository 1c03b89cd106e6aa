"""How many GPUs a table needs, and how many rows a table has."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def gpus_needed(table_bytes: ArrayLike, hbm_bytes: ArrayLike, reserve: ArrayLike) -> Array:
    """GPUs whose memory together holds the tables.

        n = ceil(table_bytes / (hbm_bytes (1 - reserve)))                     [-]

    table_bytes  bytes of all tables [bytes];  hbm_bytes  memory of one GPU [bytes]
    reserve      fraction of the memory kept free for everything else [-], 0 <= reserve < 1
    Source: arXiv 2512.05831: G = table bytes / HBM bytes
    Limits: table_bytes <= hbm_bytes -> 1;  10 TB over 80 GB -> 125
    """
    usable = np.asarray(hbm_bytes, dtype=np.float64) * (1 - np.asarray(reserve, dtype=np.float64))
    ratio = np.asarray(table_bytes, dtype=np.float64) / usable
    rounding = 2 * np.finfo(np.float64).eps  # a ratio just above a whole number counts as whole
    return np.maximum(np.ceil(ratio * (1 - rounding)), 1)


def whole_nodes(n: ArrayLike, g: ArrayLike) -> Array:
    """GPUs allocated when n are needed: n inside one node, whole nodes beyond.

        G = n if n <= g;   ceil(n / g) g otherwise                            [-]

    n      GPUs needed [-];  g  GPUs of one node [-]
    Source: clusters are handed out in whole nodes (125 -> 128 with 8 GPUs per node)
    Limits: n <= g -> n;  n a multiple of g -> n;  never more than n + g - 1
    """
    needed, node = np.asarray(n, dtype=np.float64), np.asarray(g, dtype=np.float64)
    return np.where(needed <= node, needed, np.ceil(needed / node) * node)


def allowed_gpus(n: int, m: int, g: int) -> list[int]:
    """Numbers of GPUs that can be allocated, from n to m: any number inside one node, whole nodes beyond.

        n, n + 1, ... g, 2 g, 3 g, ...                                        [-]

    n, m   least and most GPUs [-];  g  GPUs of one node [-]
    Source: as ``whole_nodes``
    Limits: m < n -> none;  n > g -> multiples of g alone;  each is its own ``whole_nodes``
    """
    return [*range(n, min(g, m + 1)), *range(-(-max(n, g) // g) * g, m + 1, g)]


def rows_per_table(table_bytes: ArrayLike, T: ArrayLike, D: ArrayLike, w: ArrayLike) -> Array:
    """Rows of each of T equal tables that fill table_bytes together.

        E = table_bytes / (T D w), at least 1                                 [rows]

    T      tables [-];  D  elements per row [-];  w  bytes per element [bytes]
    Source: bytes = rows x columns x bytes per element
    Limits: T D w = table_bytes -> 1;  10 TB, one table, D = 32, w = 4 -> 7.8125e10
    """
    row = np.asarray(D, dtype=np.float64) * np.asarray(w, dtype=np.float64)
    return np.maximum(np.asarray(table_bytes, dtype=np.float64) / (np.asarray(T, dtype=np.float64) * row), 1)
