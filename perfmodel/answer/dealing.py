"""Deals the shards of tables to ranks: the heaviest first, each to the ranks that hold the least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.placement import Placement, Scheme
from perfmodel.engine.schemes import WAYS

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def deal_shards(
    sharding: str, cut: list[Scheme], kind_of: Ints, weight: Array, gpus: int, domain: int
) -> list[Placement]:
    """Ranks of every table [T]: heaviest shards first, each to the ranks (or domains) with the least weight.

    cut, weight   scheme and weight of each kind of table [Q]
    Tables of one kind that begin with equal weight on every rank are dealt in rounds, each like the first.
    Equal placements are one object.
    """
    held, placed = np.zeros(gpus), dict[int, Placement]()
    placements: dict[tuple[Scheme, bytes], Placement] = {}
    order = np.argsort(-weight[kind_of], kind="stable")
    for run in np.split(order, np.flatnonzero(np.diff(kind_of[order])) + 1):
        scheme, shard_weight = cut[kind_of[run[0]]], float(weight[kind_of[run[0]]])
        even, dealt = run.size > 1 and not np.ptp(held), list[Placement]()
        while len(dealt) < run.size:
            ranks = find_lightest(sharding, scheme, held, gpus, domain)
            held[ranks] += shard_weight
            key = scheme, ranks.tobytes()
            if key not in placements:
                placements[key] = Placement(scheme, ranks)
            dealt.append(placements[key])
            if even and len(dealt) * scheme.parts % gpus == 0 and not np.ptp(held):
                break
        placed |= {table: dealt[n % len(dealt)] for n, table in enumerate(run.tolist())}
        if len(placed) < order.size:
            for n in range(len(dealt), run.size):
                held[dealt[n % len(dealt)].ranks] += shard_weight
    return [placed[table] for table in range(order.size)]


def find_lightest(sharding: str, scheme: Scheme, held: Array, gpus: int, domain: int) -> Ints:
    """Ranks of a table's shards: the ranks, or domains, that hold the least weight so far [shards]."""
    if scheme.parts == gpus and scheme.col_parts == 1:
        return np.arange(gpus)
    if scheme.by_domain:
        domains = scheme.row_parts // domain
        chosen = np.argsort(held.reshape(-1, domain).sum(axis=1), kind="stable")[: domains * scheme.col_parts]
        ranks = np.sort(chosen).reshape(-1, domains)[:, :, np.newaxis] * domain + np.arange(domain)
        return np.asarray(ranks.reshape(scheme.col_parts, -1).T.reshape(-1))
    if scheme.parts == 1:
        return np.array([np.argmin(held)])
    start = 0
    if WAYS[sharding].inside:
        start = int(np.argmin(held.reshape(-1, domain).sum(axis=1))) * domain
        held = held[start : start + domain]
    return np.sort(np.argsort(held, kind="stable")[: scheme.parts]) + start
