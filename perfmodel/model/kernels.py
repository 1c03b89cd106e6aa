"""Kernels of the embedding bag on one GPU: a roofline with a launch floor.

Every time is on the stream clock: kernels launched back to back, without the host time of eager calls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.model import access
from perfmodel.model.recording import Array, Number, as_array, equation


def round_to_sectors(x: ArrayLike, sector: ArrayLike) -> Array:
    """Bytes that DRAM moves to deliver x contiguous bytes that begin at a sector.

        ceil(x / sector) sector                                               [bytes]

    x       bytes wanted [bytes];  sector  bytes of one DRAM sector [bytes]
    Source: Lin et al., arXiv 2201.07821: row, indices and output each rounded to 32-byte sectors
    Limits: x = 0 -> 0;  x = 1 -> sector;  x a multiple of the sector -> x
    """
    return np.ceil(as_array(x) / as_array(sector)) * as_array(sector)


def count_row_bytes(b: ArrayLike, sector: float, least: float) -> Array:
    """Bytes that reading one row moves.

        max(ceil(b / sector) sector, least)        0 for b = 0                [bytes]

    b  bytes of one row [bytes];  sector  bytes of one DRAM sector [bytes]
    least  bytes moved for a short row: a cache line, even if fewer sectors are needed [bytes]
    Source: sectors by Lin et al., arXiv 2201.07821; the least is fitted to look-ups on an H200, where our
            kernel and torch's take 131 and 151 bytes (data/measurements/kernels)
    Limits: b = 0 -> 0;  b <= least -> least;  least = 0 -> sectors
    """
    moved = round_to_sectors(b, sector)
    return np.asarray(np.where(moved, np.maximum(moved, least), 0.0))


@equation
def gather_bytes(n: Number, missed: Number, id_bytes: Number, bags: Number, o: Number) -> Number:
    """Bytes that a gather-and-pool kernel moves.

        n (missed + id_bytes) + bags o                                        [bytes]

    n         rows that this GPU looks up, or whose gradients it reads [-]
    missed    bytes of one of them that miss the cache [bytes]: ``count_row_bytes`` times the share of misses
    id_bytes  bytes of one id, with its weight where it has one [bytes]
    bags      bags, parts of bags, or rows that are written [-]
    o         bytes of one of them, times the cost of writing over reading a byte [bytes]
    Source: FBGEMM's split table-batched embedding forward; bytes B T L (phi D w + 8) + bags (D w + 8)
    Limits: n = 0 -> bags o;  bags = 0 -> n (missed + id_bytes)
    """
    return n * (missed + id_bytes) + bags * o


class GatherTraffic(NamedTuple):
    """Bytes of a gather.

    dram_bytes  through DRAM;  l2_bytes  through the L2
    """

    dram_bytes: Array
    l2_bytes: Array


def compute_uniform_misses(E: ArrayLike, draws: ArrayLike, row: ArrayLike, cache: ArrayLike) -> Array:
    """Share of the look-ups of a gather with uniform ids that misses the L2 cache.

        miss = 1 - ``access.compute_hit_ratio``                                    [-]

    E      rows of one table on this GPU [-];  draws  look-ups that determine its L2 hits [-]
    row    bytes of one row [bytes];  cache  bytes of the L2 available to one table [bytes]
    Source: Lin et al., arXiv 2201.07821
    Limits: cache = 0 -> 1;  E = 1 -> 1/draws
    """
    resident = access.count_resident_rows(E, draws, row, cache)
    return 1 - access.compute_hit_ratio(E, draws, resident, access.count_unique_uniform(E, draws))


def compute_misses_of_all(miss: ArrayLike, E: ArrayLike, n: ArrayLike) -> Array:
    """Share of reads that miss the L2 if every row is certainly read, as gradients of bags are.

        m = min(max(miss, E / n), 1)                                          [-]

    miss  share of misses if n reads are drawn at random from E rows [-];  E  rows [rows];  n  reads [-], > 0
    Source: a row's first read misses; n random draws would leave some rows out
    Limits: E = n -> 1;  E << n, cache of all rows -> E/n
    """
    return np.minimum(np.maximum(as_array(miss), as_array(E) / as_array(n)), 1)


def count_traffic(
    miss: ArrayLike,
    n: ArrayLike,
    row: ArrayLike,
    least: float,
    sector: float,
    id_bytes: ArrayLike,
    bags: ArrayLike,
    o: ArrayLike,
) -> GatherTraffic:
    """Bytes that a gather from equal tables moves (``gather_bytes``) when a share of its look-ups misses L2.

        dram = gather_bytes(n, s miss),   l2 = gather_bytes(n, s)

    miss      share of the look-ups that misses L2 [-]: ``compute_uniform_misses``, or ``LookUps.miss``
    n         rows looked up, all tables together [-];  row  bytes of one row [bytes]
    least, sector  s = ``count_row_bytes`` (row, sector, least) [bytes]
    id_bytes, bags, o   as in ``gather_bytes``
    Source: Lin et al., arXiv 2201.07821
    Limits: miss = 1 -> dram = l2;  miss = 0 -> ids and bags alone pass DRAM
    """
    moved = count_row_bytes(row, sector, least)
    missed = moved * as_array(miss)
    return GatherTraffic(
        gather_bytes(n, missed, id_bytes, bags, o), gather_bytes(n, moved, id_bytes, bags, o)
    )


@equation
def gather_pool_time(
    dram_bytes: Number, l2_bytes: Number, t0: Number, dram_rate: Number, l2_rate: Number, launches: Number = 1
) -> Number:
    """Time of gather and pool: launch floor, then the slower of DRAM and L2.

        t = launches t0 + max(dram_bytes / dram_rate, l2_bytes / l2_rate)     [s]

    dram_bytes  bytes that miss the L2 [bytes];  l2_bytes  all bytes that pass the L2 [bytes]
    t0          launch floor [s];  dram_rate, l2_rate  achieved rates [bytes/s]
    launches    kernels: one for each exchange and data type in use, as TorchRec groups tables [-]
    Source: Lin et al., arXiv 2201.07821 (roofline over DRAM and L2); the floor is a constant of the machine
    Limits: no bytes -> t0;  l2_rate -> inf -> t0 + dram_bytes / dram_rate;
            all hits -> t0 + l2_bytes / l2_rate
    """
    return t0 * launches + np.maximum(dram_bytes / dram_rate, l2_bytes / l2_rate)


@equation
def stream_kernel_time(x: Number, t0: Number, rate: Number, launches: Number = 1) -> Number:
    """Time of a kernel that streams x bytes: bucketize, local sum, sort.

        t = launches t0 + x / rate                                            [s]

    x      S, bytes read and written [bytes];  t0  launch floor [s];  rate  achieved rate [bytes/s]
    launches  kernels: one for each exchange and data type in use, as TorchRec groups tables [-]
    Source: roofline of a memory-bound kernel
    Limits: x = 0 -> t0;  x -> inf -> x / t = rate
    """
    return t0 * launches + x / rate


@equation
def sort_floor(begin: Number, pass_s: Number, digits: Number) -> Number:
    """Time of a radix sort of a few ids with their positions, and of the run-length encoding after it.

        begin + pass_s digits                                                 [s]

    begin   counting the digits, and run lengths [s];  digits  digits of 8 bits of an id [-]
    pass_s  per digit: a kernel that waits for its own blocks [s]
    Source: Onesweep, arXiv 2206.01784 (CUB's radix sort): a kernel for each digit
    Limits: no digits -> begin
    """
    return begin + pass_s * digits


def compute_error_factor(e: float, z: float) -> float:
    """Factor k of the interval [t / k, t k] around a time t whose mean absolute relative error is e.

        k = exp(z sqrt(pi/2) e);   interval [t / k, t k]                      [-]

    e      mean absolute relative error [-], of a normal log-error: sd = sqrt(pi/2) e
    z      normal quantile of the interval [-] (1.96 for 95 %)
    Source: mean absolute deviation of a normal variable is sqrt(2/pi) of its standard deviation
    Limits: e = 0 -> 1;  z = 0 -> 1;  small e -> 1 + z sqrt(pi/2) e
    """
    return float(np.exp(z * np.sqrt(np.pi / 2) * e))


def widen_factor(k: ArrayLike, log_sd: ArrayLike, z: float) -> Array:
    """Factor of an interval, widened by an independent error: the spread of the constants.

        exp(sqrt(ln(k)^2 + (z log_sd)^2))                                     [-]

    k       factor without that error [-], >= 1;  z  normal quantile of both intervals [-]
    log_sd  standard deviation of ln(time) from the constants [-], array of any shape
    Source: variances of independent terms add
    Limits: log_sd = 0 -> k;  k = 1 -> exp(z log_sd)
    """
    return np.asarray(np.exp(np.hypot(np.log(as_array(k)), z * as_array(log_sd))))


def count_host_row_bytes(b: ArrayLike, a: float, h: float, m: float) -> Array:
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


def count_rows_in_flight(latency: float, R: float, w: ArrayLike) -> Array:
    """Rows that are on their way over the link at any moment: a second read of one waits for the first.

        X = latency R / w                                                     [rows]

    latency  from a read to its data [s];  R  rate of the link [bytes/s];  w  ``count_host_row_bytes`` [bytes]
    Source: Little's law; the link has no other cache: an LRU cache of X rows says which reads miss
    Limits: latency = 0 -> 0;  long rows -> 0
    """
    return np.asarray(latency * R / np.asarray(w, dtype=np.float64))


@equation
def read_bytes(x: Number, w: Number) -> Number:
    """Bytes of the link that x rows of host memory take.

        x w                                                                   [bytes]

    x  rows that are read: missing in the cache, or in place and not on their way already [rows]
    w  bytes of the link for one of them (``count_host_row_bytes``) [bytes]
    Source: each row is read on its own
    Limits: x = 0 -> 0
    """
    return x * w
