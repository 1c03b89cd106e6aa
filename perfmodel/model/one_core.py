"""Four ways to look up a table on a core with its own memory: bytes moved, and least times.

    GM     rows are gathered from global memory, several at a time
    L1     the table is copied into the core's memory once, and gathered there
    GM-UB  the table streams, in chunks, past bags that stay in the core's memory
    L1-UB  as GM-UB, with h of the table's rows kept in the core's memory

m rows of a table, n look-ups (bags times look-ups per bag), row bytes per row; every rate is per core.
``ids_and_bags_time`` is paid by all four: reading ids and writing bags.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.recording import Number

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


@np.errstate(divide="ignore", invalid="ignore")
def gm_time(n: Number, row: Number, gm_rate: Number) -> Number:
    """GM: every look-up fetches its row.

        t = n row / BW_GM                                                     [s]

    n  look-ups [-];  row  bytes of one row [bytes];  gm_rate  BW_GM, of rows of that size [bytes/s]
    Source: arXiv 2507.01676, inferred
    Limits: n = 0 -> 0;  the same for every m
    """
    return n * row / gm_rate


def passes(bags: ArrayLike, at_once: ArrayLike) -> Array:
    """Number of times that a table streams past.

        p = ceil(bags / at_once)                                              [-]

    bags  all bags [-];  at_once  bags whose sums fit the core's memory [-]
    Source: definition
    Limits: bags = 0 -> 0;  at_once >= bags -> 1
    """
    return np.ceil(_array(bags) / _array(at_once))


def passes_time(
    p: ArrayLike,
    chunks: ArrayLike,
    kept: ArrayLike,
    copied: ArrayLike,
    gather: ArrayLike,
    latency: ArrayLike,
    scan: ArrayLike,
) -> Array:
    """Least time of several passes over a table, some of whose rows stay in the core's memory.

        t = kept + p l + c e + max(copied, g)                                 [s]

    p  passes, each of which waits for its ids [-];  latency  l, of a read of ids [s]
    chunks  c, parts of the table that are looked up one after the other; all resident rows are one part [-]
    scan    e, time to go once through all ids, which each part does to find its own [s]
    kept    time to copy the resident rows; 0 if they stay from batch to batch [s]
    copied  time to copy all other rows, in all passes [s];  gather  g, of all look-ups [s]
    Source: every part scans every id for its own rows; copies of a pass hide behind its look-ups at best
    Limits: all rows stay -> kept + p l + e + g
    """
    hidden = np.maximum(_array(copied), _array(gather))
    return _array(kept) + _array(p) * _array(latency) + _array(chunks) * _array(scan) + hidden


def table_bytes(m: ArrayLike, h: ArrayLike, row: ArrayLike, p: ArrayLike = 1) -> Array:
    """Bytes of the table that L1, GM-UB and L1-UB read from global memory. (GM reads a row per look-up.)

        x = row [h + p (m - h)]                                               [bytes]

    m  rows [-];  h  resident rows [-]: m in L1, 0 in GM-UB;  row  bytes of a row [bytes];  p  ``passes`` [-]
    Source: definition
    Limits: h = m -> m row;  h = 0 -> p m row;  p = 1 -> m row: resident rows save later passes only
    """
    return _array(row) * (_array(h) + _array(p) * (_array(m) - _array(h)))


@np.errstate(divide="ignore", invalid="ignore")
def ids_and_bags_time(
    n: Number, id_bytes: Number, bags: Number, bag_bytes: Number, gm_rate: Number
) -> Number:
    """Time that every way pays: reading ids and offsets, writing bags.

        t = (n id + bags o) / BW                                              [s]

    n  look-ups [-];  id_bytes  id, of one id [bytes]
    bags  number of bags [-];  bag_bytes  o, of one bag and its offset [bytes]
    gm_rate  BW, of global memory, in long accesses [bytes/s]
    Source: definition
    Limits: n = 0 -> bags o / BW
    """
    return (n * id_bytes + bags * bag_bytes) / gm_rate
