"""One large memory that holds all tables: beside a GPU, or over the network and shared by several GPUs."""

from __future__ import annotations

import numpy as np

from perfmodel.model.recording import Number, equation


def shared_rate(R: Number, n: Number, C: Number) -> Number:
    """Rate at which one GPU reads a memory over the network while others read it too.

        r = min(R / n, C)                                                     [bytes/s]

    R  rate of the memory, or of all parameter servers together [bytes/s];  n  GPUs that share it [-], >= 1
    C  rate of one GPU's network, one direction [bytes/s]
    Source: derived: the slower of the GPU's share of the memory and of its own network card
    Limits: n = 1, C -> inf -> R, as beside the GPU;  n -> inf -> R / n;  R -> inf -> C
    """
    return np.minimum(R / n, C)


@equation
def remote_time(t: Number, t0: Number, x: Number, C: Number, latency: Number) -> Number:
    """Time of a gather from a memory over the network: latency, then the slower of memory and network.

        t_remote = latency + max(t, t0 + x / C)                               [s]

    t   time of the same gather if the memory, at a rate of R / n for n GPUs, were beside the GPU [s]
    t0  time of an almost empty gather [s];  x  bytes of rows, ids and bags, each once [bytes]
    C   rate of one GPU's network, one direction [bytes/s];  latency  from a read to its data [s]
    Source: alpha-beta model; all reads are independent, so the latency is paid once
    Limits: C -> inf, latency = 0 -> t;  C -> inf, n = 1 -> as beside the GPU, and the latency
    """
    return latency + np.maximum(t, t0 + x / C)
