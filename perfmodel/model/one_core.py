"""Four ways to look a table up on one core that has a memory of its own: time and bytes, and who wins.

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

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def row_rate(row: ArrayLike, latency: ArrayLike, in_flight: ArrayLike, peak: ArrayLike) -> Array:
    """Rate at which one core gathers rows, a limited number of which are on their way.

        BW(row) = min(peak, in_flight row / latency)                          [bytes/s]

    row      bytes of one row [bytes];  latency  from a row's request to its arrival [s]
    in_flight  rows requested and not yet there [-];  peak  what the core can take [bytes/s]
    Source: Little's law
    Limits: row -> inf -> peak;  latency -> 0 -> peak;  in_flight = 1 -> one row a latency
    """
    return np.minimum(_array(peak), _array(in_flight) * _array(row) / _array(latency))


def gm_time(n: ArrayLike, row: ArrayLike, gm_rate: ArrayLike) -> Array:
    """GM: every look-up fetches its row.

        t = n row / BW_GM                                                     [s]

    n  look-ups [-];  row  bytes of one row [bytes];  gm_rate  BW_GM, as by ``row_rate`` [bytes/s]
    Source: arXiv 2507.01676, inferred
    Limits: n = 0 -> 0;  the same for every m
    """
    return _array(n) * _array(row) / _array(gm_rate)


def l1_time(m: ArrayLike, n: ArrayLike, row: ArrayLike, load_rate: ArrayLike, l1_rate: ArrayLike) -> Array:
    """L1: the table comes once, look-ups stay inside the core.

        t = m row / BW_load + n row / BW_L1                                   [s]

    m  rows of the table [-];  n  look-ups [-];  row  bytes of one row [bytes]
    load_rate, l1_rate  BW_load of the copy, BW_L1 of gathering from the core's memory [bytes/s]
    Source: arXiv 2507.01676, inferred; the copy added
    Limits: n -> inf -> n row / BW_L1;  m = 0 -> n row / BW_L1;  the table must fit the core's memory
    """
    return _array(row) * (_array(m) / _array(load_rate) + _array(n) / _array(l1_rate))


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


def two_stages(stream: ArrayLike, gather: ArrayLike, chunks: ArrayLike) -> Array:
    """Two buffers take turns: one chunk is looked up while the next one streams.

        t = s / c + (1 - 1/c) max(s, g) + g / c                               [s]

    stream, gather  s and g, times of all chunks alone [s];  chunks  c, equal chunks of a pass [-], >= 1
    Source: pipeline of two stages: the first chunk streams alone, the last one is looked up alone
    Limits: c = 1 -> s + g;  c -> inf -> max(s, g);  s = 0 -> g;  g = 0 -> s
    """
    s, g, c = _array(stream), _array(gather), _array(chunks)
    return s / c + (1 - 1 / c) * np.maximum(s, g) + g / c


def gm_ub_time(
    m: ArrayLike,
    n: ArrayLike,
    row: ArrayLike,
    dma_rate: ArrayLike,
    vec_rate: ArrayLike,
    p: ArrayLike = 1,
    chunks: ArrayLike = 1,
) -> Array:
    """GM-UB: the table streams p times, look-ups find their rows in the chunks.

        t = two_stages(p m row / BW_DMA, n row / BW_vec, chunks)              [s]

    m  rows of the table [-];  n  look-ups [-];  row  bytes of one row [bytes]
    dma_rate, vec_rate  BW_DMA of streaming, BW_vec of gathering from a chunk [bytes/s]
    p  ``passes`` [-];  chunks  of one pass [-]
    Source: arXiv 2507.01676, inferred: m row / BW_DMA + n row / BW_vec; passes and overlap derived
    Limits: p = chunks = 1 -> that sum;  n = 0 -> p m row / BW_DMA;  never depends on which ids are drawn
    """
    stream = _array(p) * _array(m) * _array(row) / _array(dma_rate)
    return two_stages(stream, _array(n) * _array(row) / _array(vec_rate), chunks)


def l1_ub_time(
    m: ArrayLike,
    h: ArrayLike,
    n: ArrayLike,
    row: ArrayLike,
    load_rate: ArrayLike,
    l1_ub_rate: ArrayLike,
    dma_rate: ArrayLike,
    vec_rate: ArrayLike,
    p: ArrayLike = 1,
    chunks: ArrayLike = 1,
) -> Array:
    """L1-UB: h rows stay in the core's memory, the others stream past p times.

        t = h row / BW_load + two_stages(p row [h / BW_L1UB + (m - h) / BW_DMA], n row / BW_vec, chunks)   [s]

    m  rows of the table [-];  h  of them resident [-];  n  look-ups [-];  row  bytes of one row [bytes]
    load_rate  BW_load of the copy of h rows, once [bytes/s]
    l1_ub_rate  BW_L1UB from the core's memory to where it gathers [bytes/s], inf: it gathers in place (a GPU)
    dma_rate, vec_rate, p, chunks  as in ``gm_ub_time``
    Source: arXiv 2507.01676, inferred for h = m: m row / BW_L1UB + n row / BW_vec; the rest derived
    Limits: h = 0 -> ``gm_ub_time``;  h = m, p = 1, BW_L1UB -> inf -> ``l1_time`` with BW_L1 = BW_vec
    """
    rows, kept, bytes_of, turns = _array(m), _array(h), _array(row), _array(p)
    stream = turns * bytes_of * (kept / _array(l1_ub_rate) + (rows - kept) / _array(dma_rate))
    gather = _array(n) * bytes_of / _array(vec_rate)
    return kept * bytes_of / _array(load_rate) + two_stages(stream, gather, chunks)


def table_bytes(m: ArrayLike, h: ArrayLike, row: ArrayLike, p: ArrayLike = 1) -> Array:
    """Bytes of the table that L1, GM-UB and L1-UB read from global memory; GM reads n row.

        x = row [h + p (m - h)]                                               [bytes]

    m  rows [-];  h  resident rows [-]: m in L1, 0 in GM-UB;  row  bytes of a row [bytes];  p  ``passes`` [-]
    Source: definition
    Limits: h = m -> m row;  h = 0 -> p m row;  p = 1 -> m row: resident rows save later passes only
    """
    return _array(row) * (_array(h) + _array(p) * (_array(m) - _array(h)))


def ids_and_bags_time(
    n: ArrayLike, id_bytes: ArrayLike, bags: ArrayLike, bag_bytes: ArrayLike, gm_rate: ArrayLike
) -> Array:
    """What every way pays: ids and offsets read, bags written.

        t = (n id + bags o) / BW                                              [s]

    n  look-ups [-];  id_bytes  id, of one id [bytes]
    bags  [-];  bag_bytes  o, of one bag and its offset [bytes]
    gm_rate  BW, of global memory, in long accesses [bytes/s]
    Source: definition
    Limits: n = 0 -> bags o / BW
    """
    return (_array(n) * _array(id_bytes) + _array(bags) * _array(bag_bytes)) / _array(gm_rate)


def scan_time(n: ArrayLike, parts: ArrayLike, scan_rate: ArrayLike) -> Array:
    """For every chunk, and for the resident rows, a core looks through the ids of a pass for those it holds.

        t = n parts / R_scan                                                  [s]

    n  look-ups [-];  parts  chunks of a pass, and one for resident rows [-]
    scan_rate  R_scan, ids looked at [1/s], inf: ids are sorted by chunk
    Source: kernels/one_core.cu
    Limits: R_scan -> inf -> 0;  parts = 1 -> one look at every id
    """
    return _array(n) * _array(parts) / _array(scan_rate)
