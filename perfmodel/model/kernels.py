"""Kernels of the embedding bag on one GPU: a roofline with a launch floor.

Every time is on the stream clock: kernels launched back to back, without the host time of eager calls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model import access
from perfmodel.model.recording import Number, larger

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def sector_rounded(x: ArrayLike, sector: ArrayLike) -> Array:
    """Bytes that DRAM moves to deliver x contiguous bytes that start on a sector.

        ceil(x / sector) sector                                               [bytes]

    x       bytes wanted [bytes];  sector  bytes of one DRAM sector [bytes]
    Source: Lin et al., arXiv 2201.07821: row, indices and output each rounded to 32-byte sectors
    Limits: x = 0 -> 0;  x = 1 -> sector;  x a multiple of the sector -> x
    """
    return np.ceil(_array(x) / _array(sector)) * _array(sector)


def small_row_penalty(
    b: ArrayLike, sector: float, widths: tuple[float, float, float], phi1: float, phi2: float
) -> Array:
    """Factor on the bytes of a row that is too short to fill a warp's memory requests.

        n = ceil(b / sector)                        sectors that a row touches
        phi(n) n = phi1 n for n <= n1; then straight lines through
                   (n1, phi1 n1), (n2, phi2 n2) and (n3, n3);  n for n > n3   [sectors]

    b           bytes of one row [bytes];  sector  bytes of one DRAM sector [bytes]
    widths      row bytes b1 < b2 < b3 that were measured [bytes]; n1, n2, n3 are their sectors
    phi1, phi2  factors at b1 and b2 [-]; at b3 it is 1
    What a row moves, phi(n) n, is continuous in n and never falls: where phi2 n2 < phi1 n1 it stays level.
    Source: Lin et al., arXiv 2201.07821, measured D = 32, 64, 128 and 256 of 4 bytes: 1.55, 1.1, 1 and 1
    (steps between these); the lines between them are ours
    Limits: b <= b1 -> phi1;  b = b2 -> phi2;  b >= b3 -> 1;  a longer row -> never fewer bytes
    """
    n = _array(sector_rounded(b, sector)) / sector
    n1, n2, n3 = (float(sector_rounded(width, sector)) / sector for width in widths)
    moved = np.maximum.accumulate([0.0, phi1 * n1, phi2 * n2, n3])
    least = np.maximum(np.interp(n, [0.0, n1, n2, n3], moved), n)
    return np.asarray(np.divide(least, n, out=np.full(n.shape, float(phi1)), where=n > 0))


def gather_bytes(n: Number, r: Number, id_bytes: Number, bags: Number, o: Number) -> Number:
    """Bytes that a gather-and-pool kernel moves.

        n (r + id) + bags o                                                   [bytes]

    n         rows looked up [-];  r  bytes moved for one row [bytes] (penalty and misses included)
    id_bytes  id, bytes of one id [bytes]
    bags      bags written [-];  o  bytes written and read for one bag: the pooled row and its offset
    Source: FBGEMM's split table-batched embedding forward; SCIENCE form B T L (phi D w + 8) + bags (D w + 8)
    Limits: n = 0 -> bags o;  bags = 0 -> n (r + id)
    """
    return n * (r + id_bytes) + bags * o


class GatherTraffic(NamedTuple):
    """Bytes of a gather: through DRAM, through the L2, and through DRAM without the penalty of short rows."""

    dram_bytes: Array
    l2_bytes: Array
    bare_bytes: Array


def uniform_misses(E: ArrayLike, draws: ArrayLike, row: ArrayLike, cache: ArrayLike) -> Array:
    """Part of the look-ups of a gather with uniform ids that misses the L2 cache.

        miss = 1 - ``access.l2_hit_ratio``                                    [-]

    E      rows of one table on this GPU [-];  draws  look-ups that decide its hits in the L2 [-]
    row    bytes of one row [bytes];  cache  bytes of the L2 for one table [bytes]
    Source: Lin et al., arXiv 2201.07821
    Limits: cache = 0 -> 1;  E = 1 -> 1/draws
    """
    kept = access.resident_rows(E, draws, row, cache)
    return 1 - access.l2_hit_ratio(E, draws, kept, access.unique_rows_uniform(E, draws))


def misses_of_all(miss: ArrayLike, E: ArrayLike, n: ArrayLike) -> Array:
    """Misses where it is certain that every row is read: gradients of bags, each by all rows of its bag.

        m = max(miss, E / n), at most 1                                       [-]

    miss  of n reads drawn from E rows [-];  E  rows [rows];  n  reads [-], > 0
    Source: a row's first read misses; n random draws would leave some rows out
    Limits: E = n -> 1;  E << n, cache of all rows -> E/n
    """
    return np.minimum(np.maximum(_array(miss), _array(E) / _array(n)), 1)


def traffic_of_misses(
    miss: ArrayLike,
    n: ArrayLike,
    row: ArrayLike,
    phi: ArrayLike,
    sector: float,
    id_bytes: ArrayLike,
    bags: ArrayLike,
    o: ArrayLike,
) -> GatherTraffic:
    """Bytes that a gather from equal tables moves (``gather_bytes``), part of its look-ups missing the L2.

        dram = gather_bytes(n, phi s miss),   l2 = gather_bytes(n, phi s),   bare = gather_bytes(n, row miss)

    miss      part of the look-ups that misses [-]: ``uniform_misses``; of skewed ids ``look_ups``
    n         rows looked up, all tables together [-];  row  bytes of one row, s of its sectors [bytes]
    phi       factor of short rows [-];  sector  smallest read [bytes]
    id_bytes, bags, o   as in ``gather_bytes``
    Source: Lin et al., arXiv 2201.07821
    Limits: miss = 1 -> dram = l2;  miss = 0 -> ids and bags alone pass DRAM
    """
    moved, part = _array(phi) * sector_rounded(row, sector), _array(miss)
    return GatherTraffic(
        gather_bytes(n, moved * part, id_bytes, bags, o),
        gather_bytes(n, moved, id_bytes, bags, o),
        gather_bytes(n, _array(row) * part, id_bytes, bags, o),
    )


def gather_pool_time(
    dram_bytes: Number, l2_bytes: Number, t0: Number, dram_rate: Number, l2_rate: Number
) -> Number:
    """Gather and pool: launch floor, then the slower of DRAM and L2.

        t = t0 + max(dram_bytes / dram_rate, l2_bytes / l2_rate)              [s]

    dram_bytes  bytes that miss the L2 [bytes];  l2_bytes  all bytes that pass the L2 [bytes]
    t0          launch floor [s];  dram_rate, l2_rate  achieved rates [bytes/s]
    Source: Lin et al., arXiv 2201.07821 (roofline over DRAM and L2); the floor is a constant of the machine
    Limits: no bytes -> t0;  l2_rate -> inf -> t0 + dram_bytes / dram_rate;
            all hits -> t0 + l2_bytes / l2_rate
    """
    return t0 + larger(dram_bytes / dram_rate, l2_bytes / l2_rate)


def stream_kernel_time(x: Number, t0: Number, rate: Number) -> Number:
    """A kernel that streams x bytes: bucketize, local sum, sort.

        t = t0 + x / rate                                                     [s]

    x      bytes read and written [bytes];  t0  launch floor [s];  rate  achieved bytes per second [bytes/s]
    Source: roofline of a memory-bound kernel
    Limits: x = 0 -> t0;  x -> inf -> x / t = rate
    """
    return t0 + x / rate


def sort_floor(t0: Number, t1: Number, digits: Number) -> Number:
    """Time of a radix sort of few ids with their places, and of the lengths of the runs of equal ids.

        t0 + t1 digits                                                        [s]

    t0  counting the digits, and the runs [s];  t1  one digit more: a kernel that waits for its own blocks [s]
    digits  of 8 bits that are sorted [-]
    Source: Onesweep, arXiv 2206.01784 (CUB's radix sort): a kernel for each digit
    Limits: no digits -> t0
    """
    return t0 + t1 * digits


def error_factor(e: float, z: float) -> float:
    """Factor that spans an interval around a time whose mean absolute relative error is e.

        k = exp(z sqrt(pi/2) e);   interval [t / k, t k]                      [-]

    e      mean absolute relative error [-], of a normal log-error: sd = sqrt(pi/2) e
    z      normal quantile of the interval [-] (1.96 for 95 %)
    Source: mean absolute deviation of a normal variable is sqrt(2/pi) of its standard deviation
    Limits: e = 0 -> 1;  z = 0 -> 1;  small e -> 1 + z sqrt(pi/2) e
    """
    return float(np.exp(z * np.sqrt(np.pi / 2) * e))


def wider_factor(k: ArrayLike, log_sd: ArrayLike, z: float) -> Array:
    """Factor of an interval whose time also has constants of another spread, independent of the first.

        k' = exp(sqrt(ln(k)^2 + (z log_sd)^2))                                [-]

    k       factor of the interval without them [-], >= 1;  z  normal quantile of both intervals [-]
    log_sd  standard deviation of ln(time) from the constants [-], array of any shape
    Source: variances of independent terms add
    Limits: log_sd = 0 -> k;  k = 1 -> exp(z log_sd)
    """
    return np.asarray(np.exp(np.hypot(np.log(_array(k)), z * _array(log_sd))))
