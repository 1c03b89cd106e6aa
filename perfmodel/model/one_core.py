"""Four ways to look a table up on one core that has a memory of its own: what they move, and least times.

    GM     rows are gathered from global memory, several at a time
    L1     the table is copied into the core's memory once, and gathered there
    GM-UB  the table streams, in chunks, past bags that stay in the core's memory
    L1-UB  the same, with h of its rows kept in the core's memory

m rows of one table, n look-ups (bags times look-ups of a bag), row bytes of one row; every rate is that of
one core. What all four pay, ids read and bags written, is ``ids_and_bags_time``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.recording import Number, over_arrays

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


@over_arrays
def gm_time(n: Number, row: Number, gm_rate: Number) -> Number:
    """GM: every look-up fetches its row.

        t = n row / BW_GM                                                     [s]

    n  look-ups [-];  row  bytes of one row [bytes];  gm_rate  BW_GM, of rows of that size [bytes/s]
    Source: arXiv 2507.01676, inferred
    Limits: n = 0 -> 0;  the same for every m
    """
    return n * row / gm_rate


def passes(bags: ArrayLike, at_once: ArrayLike) -> Array:
    """Times that a table streams past.

        p = ceil(bags / at_once)                                              [-]

    bags  bags in all [-];  at_once  bags whose sums the core's memory holds [-]
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
    """Least time of passes past a table, some rows of which stay.

        t = kept + p l + c e + max(copied, g)                                 [s]

    p  passes, each of which waits for its ids [-];  latency  l, of ids [s]
    chunks  c, parts in which rows are looked up, those that stay as one [-];  scan  e, of all ids once [s]
    kept    copies of the rows that stay, 0 where they stay from batch to batch [s]
    copied  of rows that do not stay, in all passes [s];  gather  g, of all look-ups [s]
    Source: every part scans every id for its own rows; copies of a pass hide behind its look-ups at best
    Limits: all rows stay -> kept + p l + e + g
    """
    hidden = np.maximum(_array(copied), _array(gather))
    return _array(kept) + _array(p) * _array(latency) + _array(chunks) * _array(scan) + hidden


def table_bytes(m: ArrayLike, h: ArrayLike, row: ArrayLike, p: ArrayLike = 1) -> Array:
    """Bytes of the table that L1, GM-UB and L1-UB read from global memory; GM reads n row.

        x = row [h + p (m - h)]                                               [bytes]

    m  rows [-];  h  resident rows [-]: m in L1, 0 in GM-UB;  row  bytes of a row [bytes];  p  ``passes`` [-]
    Source: definition
    Limits: h = m -> m row;  h = 0 -> p m row;  p = 1 -> m row: resident rows save later passes only
    """
    return _array(row) * (_array(h) + _array(p) * (_array(m) - _array(h)))


@over_arrays
def ids_and_bags_time(
    n: Number, id_bytes: Number, bags: Number, bag_bytes: Number, gm_rate: Number
) -> Number:
    """What every way pays: ids and offsets read, bags written.

        t = (n id + bags o) / BW                                              [s]

    n  look-ups [-];  id_bytes  id, of one id [bytes]
    bags  [-];  bag_bytes  o, of one bag and its offset [bytes]
    gm_rate  BW, of global memory, in long accesses [bytes/s]
    Source: definition
    Limits: n = 0 -> bags o / BW
    """
    return (n * id_bytes + bags * bag_bytes) / gm_rate
