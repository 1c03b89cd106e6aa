"""Speed-of-light floors: times that no schedule of the same algorithm can beat on these links."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def all_to_all_floor_time(S: ArrayLike, G: ArrayLike, g: ArrayLike, inside: float, nic: float) -> Array:
    """Least time of an all-to-all of an S-byte send buffer per rank.

        t = max(S (g - 1)/G / inside, S (G - g)/G / nic)                      [s]

    S       send buffer of one rank [bytes];  G  ranks [-];  g  ranks in one fast domain [-], <= G
    inside  one GPU's rate inside the domain, one direction [bytes/s];  nic  outside it [bytes/s]
    Source: every byte for another rank leaves its sender once; the two kinds of link work at once
    Limits: G = 1 -> 0;  g = G -> S (G - 1)/G / inside;  g = 1 -> S (G - 1)/G / nic
    """
    size, ranks, domain = _array(S), _array(G), _array(g)
    return np.maximum(size * (domain - 1) / ranks / inside, size * (ranks - domain) / ranks / nic)


def sharded_floor_time(
    t: ArrayLike, local: ArrayLike, gather_bytes: ArrayLike, memory_rate: float, links: ArrayLike
) -> Array:
    """Least time of a sharded pass: datasheet rates and no latency, but never less than the local look-up.

        min(t, max(local, gather_bytes / memory_rate) + links)                [s]

    t             modelled time of the pass [s];  local  time of the same batch in local memory [s]
    gather_bytes  bytes that the gather must read and write, without a penalty for short rows [bytes]
    memory_rate   rate of the memory, the larger of datasheet and achieved [bytes/s]
    links         sum of the floors of the collectives [s]
    Source: a rank of the sharded pass reads as many rows as the local look-up and writes no fewer bags
    Limits: one GPU -> local;  few bytes and links = 0 -> local;  never above t;
            never below local unless t is
    """
    gather = np.maximum(_array(local), _array(gather_bytes) / memory_rate)
    return np.minimum(_array(t), gather + _array(links))


def reduce_scatter_floor_time(S: ArrayLike, G: ArrayLike, g: ArrayLike, inside: float, nic: float) -> Array:
    """Least time of a reduce-scatter of an S-byte send buffer per rank.

        t = max(S (g - 1)/g / inside, S (G - g)/(G g) / nic)                  [s]

    S, G, g, inside, nic   as in all_to_all_floor_time
    Source: inside a domain every rank sends its part for its g - 1 peers' shares; a domain sends one reduced
            copy of what the G - g ranks outside own, (G - g) S/G bytes over its g links
    Limits: G = 1 -> 0;  g = G -> S (G - 1)/G / inside;  g = 1 -> S (G - 1)/G / nic
    """
    size, ranks, domain = _array(S), _array(G), _array(g)
    return np.maximum(size * (domain - 1) / domain / inside, size * (ranks - domain) / (ranks * domain) / nic)
