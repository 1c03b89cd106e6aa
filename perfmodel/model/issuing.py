"""The host: how long it takes to issue the work of a device, and whether host or device is slower."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def host_time(
    calls: ArrayLike,
    operators: ArrayLike,
    launches: ArrayLike,
    collectives: ArrayLike,
    each: tuple[float, float, float, float],
) -> Array:
    """Host time to issue some work.

        h = n_p t_p + n_o t_o + n_l t_l + n_c t_c                             [s]

    calls        n_p, calls of Python functions, except calls inside an operator or a collective [-]
    operators    n_o, calls of the framework's operators, including views and annotations [-]
    launches     n_l, kernels launched [-];  collectives  n_c, collectives called [-]
    each         (t_p, t_o, t_l, t_c): host time of one call, operator, launch and collective [s]
    Source: each is work of one thread, so times add; counts by benchmarks/host_time.py
    Limits: nothing -> 0;  only operators -> n_o t_o
    """
    counts = [np.asarray(n, dtype=np.float64) for n in (calls, operators, launches, collectives)]
    return np.asarray(sum(n * t for n, t in zip(counts, each, strict=True)))


def issued_ends(host: ArrayLike, device: ArrayLike, waits: Sequence[bool]) -> tuple[Array, Array]:
    """When each step ends on the device, and when the host has issued it.

        H_k = (E_(k-1) if the host waits for step k-1, else H_(k-1)) + h_k    [s]
        E_k = max(E_(k-1), H_k) + d_k                                         [s]

    host    h, host time of each step [s], shape [S, ...];  device  d, device time [s], same shape
    waits   per step: whether the host reads its result before it goes on (an exchange of sizes)
    Returns (E, H), each [S, ...]; the pass ends at the later of their last entries.
    Source: an asynchronous stream (CUDA): the host runs ahead until it waits
    Limits: no host -> E sums d;  no device -> E = H sums h;  it waits for every step -> E sums h + d;
            it never waits -> at least the larger of the two sums, at most both together
    """
    h, d = (np.asarray(x, dtype=np.float64) for x in (host, device))
    ends, issued = np.zeros_like(h + d), np.zeros_like(h + d)
    end = free = np.zeros_like(ends[0])
    for at, wait in enumerate(waits):
        free = free + h[at]
        end = np.maximum(end, free) + d[at]
        ends[at], issued[at] = end, free
        free = np.maximum(free, end) if wait else free
    return ends, issued
