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


def row_bytes(D: ArrayLike, w: ArrayLike, s: ArrayLike, a: ArrayLike) -> Array:
    """Bytes of a row in memory: its elements, then its own scale and bias, padded.

        b = a ceil((D w + s) / a)                                             [bytes]

    D  elements of the row [-];  w  bytes of an element [bytes];  a  alignment of rows [bytes]
    s  bytes of scale and bias in the row, 0 if its elements are floats [bytes]
    Source: FBGEMM, ``rounded_row_size_in_bytes`` of its inference kernels (a = 16, and s = 4 of int8), and
            ``construct_split_state`` of its training kernels (a = 1, and s = INT8_EMB_ROW_DIM_OFFSET = 8)
    Limits: s = 0, a = 1 -> D w;  16 int8 -> 32 to infer, 24 to train;  4 fp16 -> 16 and 8
    """
    size, step = np.asarray(D, dtype=np.float64) * np.asarray(w) + np.asarray(s), np.asarray(a)
    return np.asarray(np.ceil(size / step) * step)


def rows_per_table(table_bytes: ArrayLike, T: ArrayLike, b: ArrayLike) -> Array:
    """Rows of each of T equal tables that fill table_bytes together.

        E = table_bytes / (T b), at least 1                                   [rows]

    T  tables [-];  b  ``row_bytes`` [bytes]
    Source: bytes = rows x bytes of a row
    Limits: T b = table_bytes -> 1;  10 TB, one table, b = 128 -> 7.8125e10
    """
    row = np.asarray(b, dtype=np.float64)
    return np.maximum(np.asarray(table_bytes, dtype=np.float64) / (np.asarray(T, dtype=np.float64) * row), 1)
