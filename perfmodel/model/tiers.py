"""Rows below the HBM: host memory over a link, SSDs, and how long a batch waits for its rows.

A GPU reads a row of host memory in place (zero-copy: EmbeddingLocation MANAGED, ``fused_uvm``), or copies it
into a cache in its HBM once a batch (MANAGED_CACHING, ``fused_uvm_caching``), or has it read from SSDs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.recording import Number, if_any, larger, smaller

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def rows_in_flight(latency: ArrayLike, R: ArrayLike, row: ArrayLike) -> Array:
    """Rows in flight over a link at any moment: a second read of such a row waits for the first.

        X = lambda R / b                                                      [rows]

    latency  lambda, from the read to the data [s];  R  rate of the link [bytes/s];  row  b [bytes], > 0
    Source: Little's law. These reads cross the link once: the link's only cache (benchmarks/tiers.py)
    Limits: lambda = 0 -> 0;  long rows -> 0
    """
    return _array(latency) * _array(R) / _array(row)


def wire_bytes(row: ArrayLike, request: float, header: float, least: float) -> Array:
    """Link bytes that one row costs: its packets with headers, or its address translation if that costs more.

        max(b + h ceil(b / a), m)        0 for b = 0                          [bytes]

    row     b, bytes of a row, whole sectors [bytes];  request  a, largest size of one read [bytes]
    header  h, bytes of a packet's header
    least   m, cost of an address translation in bytes: the cost of the shortest row in a large table, where
            each random row is on another page [bytes]
    Source: Min et al., "EMOGI", VLDB 14 (2020): 128-byte reads, headers of 18 bytes on PCIe. On an H200, rows
            of 32 to 256 bytes of a table of 1 GiB take one time, 8.5 ns (data/measurements/kernels)
    Limits: b = 0 -> 0;  m = 0, b = a -> a + h;  m = h = 0 -> b;  m -> inf -> m
    """
    size = _array(row)
    return np.where(size > 0, np.maximum(size + header * np.ceil(size / request), least), 0.0)


def row_rate(C: Number, f: Number, row: Number, wire: Number, M: Number, g: Number) -> Number:
    """Rate at which one GPU reads rows of host memory while all GPUs of its node do so.

        R = min(f C b / b_wire, M / g)                                        [bytes/s]

    C     rate of one GPU's link one direction [bytes/s];  f  share of it that packets of rows can use [-]
    row   b, bytes of a row [bytes];  wire  b_wire, with headers (``wire_bytes``) [bytes]
    M     rate of the host memory of a node [bytes/s];  g  GPUs of the node [-], > 0
    Source: derived: the slower of the link and of the GPU's share of the memory behind it
    Limits: M -> inf -> f C b / b_wire;  C -> inf -> M / g
    """
    return smaller(f * C * row / wire, M / g)


def shared_rate(R: Number, n: Number, C: Number) -> Number:
    """Rate at which one GPU reads a memory over the network while others read it too.

        r = min(R / n, C)                                                     [bytes/s]

    R  rate of the memory, or of all parameter servers together [bytes/s];  n  GPUs that share it [-], >= 1
    C  rate of one GPU's network, one direction [bytes/s]
    Source: derived: the slower of the GPU's share of the memory and of its own network card
    Limits: n = 1, C -> inf -> R, as beside the GPU;  n -> inf -> R / n;  R -> inf -> C
    """
    return smaller(R / n, C)


def remote_time(t: Number, t0: Number, x: Number, C: Number, latency: Number) -> Number:
    """Time of a gather from a memory over the network: latency, then the slower of memory and network.

        t_remote = lambda + max(t, t0 + x / C)                                [s]

    t   time of the same gather if the memory, at a rate of R / n for n GPUs, were beside the GPU [s]
    t0  time of an almost empty gather [s];  x  bytes of rows, ids and bags, each once [bytes]
    C   rate of one GPU's network, one direction [bytes/s];  latency  lambda, from a read to its data [s]
    Source: alpha-beta model; all reads are independent, so the latency is paid once
    Limits: C -> inf, lambda = 0 -> t;  C -> inf, n = 1 -> as beside the GPU, and lambda
    """
    return latency + larger(t, t0 + x / C)


def link_time(x: Number, latency: Number, R: Number) -> Number:
    """Time to bring x bytes over a link by many reads in flight at once.

        t = lambda + x / R        0 for x = 0                                 [s]

    x  bytes [bytes];  latency  lambda [s];  R  rate that reads reach [bytes/s]
    Source: alpha-beta model; all reads are independent, so the latency is paid once
    Limits: x = 0 -> 0;  x -> inf -> x / t = R
    """
    return if_any(x, latency + x / R)


def cache_lookup_time(u: Number, t0: Number, c: Number) -> Number:
    """Time to look up a batch's rows in the cache and to free slots for missing rows.

        t = t0 + c u                                                          [s]

    u  distinct rows of the batch [rows];  t0  time for almost no rows [s];  c  time that each row adds [s]
    Source: FBGEMM's prefetch: sort the ids, keep each once, find its set, choose the row that leaves
    Limits: u = 0 -> t0
    """
    return t0 + c * u


def exposed_time(t: ArrayLike, other: ArrayLike) -> Array:
    """Exposed time of a prefetch that runs beside the rest of the batch before.

        max(0, t - t_other)                                                   [s]

    t  time of the prefetch [s];  other  t_other, of everything beside it [s]
    Source: two streams; TorchRec's PrefetchTrainPipelineSparseDist
    Limits: t_other = 0 -> t;  t <= t_other -> 0
    """
    return np.maximum(_array(t) - _array(other), 0.0)


def ssd_reads_per_s(iops: Number, depth: Number, latency: Number, rate: Number, a: Number) -> Number:
    """Random reads per second of SSDs.

        N = min(IOPS, Q / lambda, rate / a)                                   [1/s]

    iops  datasheet IOPS of all drives together [1/s];  rate  read rate of all drives together [bytes/s]
    depth  Q, reads in flight [-];  latency  lambda, of one read [s]
    a  bytes of one read, whole blocks [bytes]
    Source: Little's law beside the datasheet's IOPS and rate
    Limits: Q -> 0 -> Q / lambda;  long blocks -> rate / a
    """
    return smaller(smaller(iops, depth / latency), rate / a)


def ssd_write_time(x: Number, W: Number) -> Number:
    """Time that SSDs need to write the updated rows that a cache evicts.

        t = x / W                                                             [s]

    x  bytes of the rows [bytes];  W  rate of sequential writes [bytes/s]
    Source: RocksDB collects writes in memory and writes them in sequence, so a row is no whole block; what
            compaction reads and writes again is not included: a lower limit
    Limits: x = 0 -> 0;  W -> inf -> 0
    """
    return x / W


def ssd_time(n: Number, N: Number, latency: Number) -> Number:
    """Time to read n rows from SSDs, one read per row.

        t = lambda + n / N        0 for n = 0                                 [s]

    n  rows [rows];  N  reads per second (``ssd_reads_per_s``) [1/s];  latency  lambda [s]
    Source: alpha-beta model; all reads are independent, so the latency is paid once
    Limits: n = 0 -> 0;  n = 1 -> lambda + 1 / N
    """
    return if_any(n, latency + n / N)
