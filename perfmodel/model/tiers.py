"""Rows below the HBM: host memory over a link, SSDs, and how long a batch waits for them.

A GPU reads a row of host memory in place (zero-copy: EmbeddingLocation MANAGED, ``fused_uvm``), or copies it
into a cache in its HBM once a batch (MANAGED_CACHING, ``fused_uvm_caching``), or has it read from SSDs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def rows_in_flight(latency: ArrayLike, R: ArrayLike, row: ArrayLike) -> Array:
    """Rows that are on their way over a link at any moment: a second read of one of them waits for the first.

        X = lambda R / b                                                      [rows]

    latency  lambda, from the read to the data [s];  R  rate of the link [bytes/s];  row  b [bytes], > 0
    Source: Little's law. These reads cross the link once: the link's only cache (benchmarks/tiers.py)
    Limits: lambda = 0 -> 0;  long rows -> 0
    """
    return _array(latency) * _array(R) / _array(row)


def wire_bytes(row: ArrayLike, request: float, header: float) -> Array:
    """Bytes that cross the link for one row, the headers of its packets counted.

        b + h ceil(b / a)                                                     [bytes]

    row  b, bytes of a row, whole sectors [bytes];  request  a, most bytes of one read [bytes]
    header  h, of one packet [bytes]
    Source: Min et al., "EMOGI", VLDB 14 (2020): 128-byte reads, headers of 18 bytes on PCIe
    Limits: b = 0 -> 0;  b = a -> a + h;  h = 0 -> b
    """
    size = _array(row)
    return size + header * np.ceil(size / request)


def row_rate(
    C: ArrayLike, f: ArrayLike, row: ArrayLike, wire: ArrayLike, M: ArrayLike, g: ArrayLike
) -> Array:
    """Rate at which one GPU reads rows of host memory while its neighbours do.

        R = min(f C b / b_wire, M / g)                                        [bytes/s]

    C     of one GPU's link, one direction [bytes/s];  f  part of it that packets of rows fill [-]
    row   b, bytes of a row [bytes];  wire  b_wire, with headers (``wire_bytes``) [bytes]
    M     of the host memory of a node [bytes/s];  g  GPUs of the node [-], > 0
    Source: derived: the slower of the link and of the GPU's share of the memory behind it
    Limits: M -> inf -> f C b / b_wire;  C -> inf -> M / g
    """
    return np.minimum(_array(f) * _array(C) * _array(row) / _array(wire), _array(M) / _array(g))


def shared_rate(R: ArrayLike, n: ArrayLike, C: ArrayLike) -> Array:
    """Rate at which one GPU reads a memory over the network while others read it too.

        r = min(R / n, C)                                                     [bytes/s]

    R  of the memory, or of all parameter servers together [bytes/s];  n  GPUs that share it [-], >= 1
    C  of one GPU's network, one direction [bytes/s]
    Source: derived: the slower of the GPU's share of the memory and of its own card
    Limits: n = 1, C -> inf -> R, as beside the GPU;  n -> inf -> R / n;  R -> inf -> C
    """
    return np.minimum(_array(R) / _array(n), _array(C))


def remote_time(t: ArrayLike, t0: ArrayLike, x: ArrayLike, C: float, latency: float) -> Array:
    """Gather from a memory over the network: its reads at the memory, or on their way, and the latency.

        t_remote = lambda + max(t, t0 + x / C)                                [s]

    t   of the same gather beside the GPU, from a memory of rate R / n of n GPUs that share it [s]
    t0  of a gather with almost nothing to do [s];  x  rows, ids and bags, each once [bytes]
    C   of one GPU's network, one direction [bytes/s];  latency  lambda, from a read to its data [s]
    Source: alpha-beta model; all reads are independent, so the latency is paid once
    Limits: C -> inf, lambda = 0 -> t;  C -> inf, n = 1 -> as beside the GPU, and lambda
    """
    return latency + np.maximum(_array(t), _array(t0) + _array(x) / C)


def link_time(x: ArrayLike, latency: ArrayLike, R: ArrayLike) -> Array:
    """Time to bring x bytes over a link, many reads at once.

        t = lambda + x / R        0 for x = 0                                 [s]

    x  bytes [bytes];  latency  lambda [s];  R  rate that reads reach [bytes/s]
    Source: alpha-beta model; all reads are independent, so the latency is paid once
    Limits: x = 0 -> 0;  x -> inf -> x / t = R
    """
    moved = _array(x)
    return np.where(moved > 0, _array(latency) + moved / _array(R), 0.0)


def cache_lookup_time(u: ArrayLike, t0: ArrayLike, c: ArrayLike) -> Array:
    """Time to find a batch's rows in the cache and to make room for those that are not there.

        t = t0 + c u                                                          [s]

    u  distinct rows of the batch [rows];  t0  time with almost none [s];  c  time of one more [s]
    Source: FBGEMM's prefetch: sort the ids, keep each once, find its set, choose the row that leaves
    Limits: u = 0 -> t0
    """
    return _array(t0) + _array(c) * _array(u)


def exposed_time(t: ArrayLike, other: ArrayLike) -> Array:
    """What is left to wait for of a prefetch that runs beside the rest of the batch before.

        max(0, t - t_other)                                                   [s]

    t  time of the prefetch [s];  other  t_other, of everything beside it [s]
    Source: two streams; TorchRec's PrefetchTrainPipelineSparseDist
    Limits: t_other = 0 -> t;  t <= t_other -> 0
    """
    return np.maximum(_array(t) - _array(other), 0.0)


def ssd_reads_per_s(
    iops: ArrayLike, depth: ArrayLike, latency: ArrayLike, rate: ArrayLike, a: ArrayLike
) -> Array:
    """Random reads per second of SSDs.

        N = min(IOPS, Q / lambda, rate / a)                                   [1/s]

    iops  of all drives together [1/s];  depth  Q, reads under way [-];  latency  lambda of one [s]
    rate  bytes per second, all drives [bytes/s];  a  bytes of one read, whole blocks [bytes]
    Source: Little's law beside the datasheet's IOPS and rate
    Limits: Q -> 0 -> Q / lambda;  long blocks -> rate / a
    """
    return np.minimum(np.minimum(_array(iops), _array(depth) / _array(latency)), _array(rate) / _array(a))


def ssd_write_time(x: ArrayLike, W: ArrayLike) -> Array:
    """Time that SSDs need for updated rows that a cache evicts.

        t = x / W                                                             [s]

    x  bytes of the rows [bytes];  W  rate of sequential writes [bytes/s]
    Source: RocksDB collects writes in memory and writes them in sequence, so a row is no whole block; what
            compaction reads and writes again is not included: a lower limit
    Limits: x = 0 -> 0;  W -> inf -> 0
    """
    return _array(x) / _array(W)


def ssd_time(n: ArrayLike, N: ArrayLike, latency: ArrayLike) -> Array:
    """Time to read n rows from SSDs, each by one read.

        t = lambda + n / N        0 for n = 0                                 [s]

    n  rows [rows];  N  reads per second (``ssd_reads_per_s``) [1/s];  latency  lambda [s]
    Source: as ``link_time``
    Limits: n = 0 -> 0;  n = 1 -> lambda + 1 / N
    """
    rows = _array(n)
    return np.where(rows > 0, _array(latency) + rows / _array(N), 0.0)
