"""The equations of one chip: four ways to look up a table on a core, caches, and a bound.

Letters: n look-ups and m rows of the piece of a table that a core has; row, bytes of a row as read; BW, a
rate of one core. Times are of one core, for one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.engine.tables import Array
from perfmodel.model.access import compute_touched_share


def gm_time(
    n: Array, row: float, mean: Array, first: float, in_flight: float, rate: ArrayLike, issue: float
) -> Array:
    """GM: rows are gathered from global memory, k of them under way.

        t = max(n l / k, l_1 + (n - 1) max(row / BW, i))   if n > 0, else 0   [s]

    n  look-ups [-];  row  bytes of a row [bytes];  in_flight  k [-]
    mean  l, latency of a row, over hits and misses [s];  first  l_1, of the first row, which no cache has [s]
    rate  BW, most that a core receives [bytes/s];  issue  i, time to request a row [s]
    Source: arXiv 2507.01676 (one row after the other, double-buffered); Little's law for k rows under way
    Limits: n = 0 -> 0;  n = 1 -> l_1;  k = 1, l = l_1, row / BW <= l -> n l;
            k -> inf -> l_1 + (n - 1) max(row / BW, i)
    """
    lined_up = first + np.maximum(n - 1, 0) * np.maximum(row / np.asarray(rate), issue)
    return np.where(n > 0, np.maximum(n * mean / in_flight, lined_up), 0.0)


def l1_time(n: Array, row: float, rate: float, issue: float) -> Array:
    """L1: the rows are in the core's local buffer, and are copied from there one after the other.

        t = n max(row / BW_L1, i)                                             [s]

    n  look-ups [-];  row  bytes of a row [bytes];  rate  BW_L1 [bytes/s];  issue  i, to request a row [s]
    Source: arXiv 2507.01676, inferred
    Limits: n = 0 -> 0;  i = 0 -> n row / BW_L1;  the same for every distribution of the ids
    """
    return n * max(row / rate, issue)


def gm_ub_time(
    moved: Array, n: Array, row: float, chunks: Array, scan: Array, latency: float, rate: float, vector: float
) -> Array:
    """GM-UB: the table streams from global memory in chunks; the vector unit gathers rows of each chunk.

        t = (c - 1) max(s, g, (s + g + l) / 2) + s + g                                          [s]
        s = p m row / (c BW),   g = n row / (c BW_vec) + e

    moved  p m row: passes, rows of the table, bytes of a row [bytes];  n  look-ups [-];  row  [bytes]
    chunks  c, of all passes [-];  scan  e, time to find the ids of a chunk among those of a pass [s]
    latency  l, of a copy [s];  rate  BW, of long copies [bytes/s];  vector  BW_vec, of rows from the vector
    buffer [bytes/s]
    Source: arXiv 2507.01676, inferred; each of two buffers is filled, waited for and looked up in turn
    Limits: c = 1, e = 0 -> s + g, as inferred from the paper;  l = e = 0, c -> inf -> all copies, or all
            look-ups, whichever is longer;  the same for every distribution of the ids
    """
    stream = moved / rate / chunks
    gather = n * row / vector / chunks + scan
    slot = np.maximum(np.maximum(stream, gather), (stream + gather + latency) / 2)
    return np.asarray((chunks - 1) * slot + stream + gather)


def l1_ub_time(
    moved: Array, n: Array, row: float, chunks: Array, scan: Array, rate: float, vector: float
) -> Array:
    """L1-UB: as GM-UB, with rows that stay in the core's local buffer.

        t = ``gm_ub_time`` with BW of copies from the local to the vector buffer, l = 0         [s]
        t = n row / BW_vec + c e   where the vector unit reads the local buffer, one memory: rate = 0

    moved  bytes copied;  n  look-ups;  row  its bytes;  chunks  c;  scan  e [s];  rate, vector  BWs [bytes/s]
    Source: arXiv 2507.01676 (name and cost inferred)
    Limits: rate = 0, e = 0, BW_vec = BW_L1, i = 0 -> ``l1_time``;  the same for every distribution of the ids
    """
    if rate == 0:
        return np.asarray(n * row / vector + chunks * scan)
    return gm_ub_time(moved, n, row, chunks, scan, 0.0, rate, vector)


def row_misses(p: Array, n: ArrayLike, stays: float) -> Array:
    """Misses of a row in a cache that is empty when the batch begins.

        1 - (1 - p)^n                                 n <= T                  [-]
        1 - (1 - p)^T + (n - T) p (1 - p)^T           n > T

    p  chance that a look-up asks for the row [-];  n  look-ups of its table [-]
    stays  T, look-ups during which a row stays in the cache (``access.find_characteristic_draws``)
    Source: Che et al. (2002), as ``Popularity.misses``, for a single row
    Limits: T = 0 -> n p;  T = inf -> 1 - (1 - p)^n;  p = 0 -> 0
    """
    draws = np.asarray(n, dtype=np.float64)
    before = np.minimum(draws, stays)
    once = np.where(before > 0, compute_touched_share(p, np.maximum(before, 1e-300)), 0.0)
    return np.asarray(once + (draws - before) * p * (1 - once))


def slice_time(requests: Array, hottest: Array, row: float, slices: float, rate: float) -> Array:
    """Time of the cache slice that has the hottest row of a table: all cores that ask for it wait there.

        t = (r_1 + (r - r_1) / C) row / (BW / C)                              [s]

    requests, hottest  r and r_1: of all rows, and of the hottest row, by all cores [-]
    row  bytes of a row [bytes];  slices  C, to which rows are dealt in turn [-];  rate  BW of all of them
    Source: definition; arXiv 2507.01676 has it as the cause of slow batches with extreme ids
    Limits: r_1 = r -> C times as long as evenly spread look-ups;  r_1 = 0 -> r row / BW
    """
    return (hottest + (requests - hottest) / slices) * row * slices / rate


def lower_bound(
    works: Sequence[Array], held: Sequence[Array], longest: Sequence[Array], cores: int, room: float
) -> tuple[float, float]:
    """(time that no mapping of these options is below, price y of a byte that gives it) [s, s/byte].

        T >= max(sum of min(w + y x) / N - y R for any y >= 0, max of min t)  [s]

    works  w, time of all cores for a table [s];  held  x, bytes that stay in all buffers [bytes]
    longest  t, time of a piece [s]; arrays with an entry for each option of a table
    cores  N;  room  R, bytes of a core's buffer, infinite if nothing stays.  Powers of sqrt(2) are tried as y
    Source: Lagrange: cores are busy for at most N T, and N buffers hold at most N R
    Limits: R = inf -> as if every core held all tables;  one table of one option, on one core -> its time
    """
    mean = float(sum(np.min(w) for w in works)) / cores
    bounds = {0.0: mean}
    for y in mean / room * 2.0 ** np.arange(-8, 6, 0.5) if np.isfinite(room) else ():
        relaxed = sum(np.min(w + y * x) for w, x in zip(works, held, strict=True))
        bounds[float(y)] = float(relaxed) / cores - float(y) * room
    price = max(bounds, key=lambda y: bounds[y])
    return max(float(max(np.min(t) for t in longest)), bounds[price]), price
