"""Splits of all plans by the tiers that hold tables: is any table cached, is any table in HBM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.allowed_tiers import CODES, NONE, WITH_CACHE
from perfmodel.passes.cost import Evaluator
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_ODD = 1e-4  # of a table: if more is in each of two places, it is split


def by_caches(problem: Problem, part: Subspace, chosen: Ints) -> list[Subspace]:
    """(plans that cache a table in one tier, and so wait for that cache; plans without such a table).

    chosen  the options in use in the relaxed optimum
    Limits: no chosen option is cached, or the latency of look-ups is counted already -> empty
    """
    tier = problem.options.tier
    if tier is None:
        return []
    for code in WITH_CACHE:
        if not part.used[code] and (tier[chosen] == code).any():
            one = np.arange(len(CODES)) == code
            return [replace(part, used=part.used | one), replace(part, tiers=part.tiers & ~one)]
    return []


def by_tier(problem: Problem, part: Subspace, relaxed: Relaxation) -> tuple[float, list[Subspace]]:
    """(gain of the bound [s], parts) of a split by the tier of a table that is partly in each of two tiers.

    One part has the table in HBM, the other part below HBM. If both tiers are below HBM, one part has it in a
    tier with a cache, the other part everywhere else. The gain is estimated from the memory between the
    optimum and the nearer part.
    Limits: equal tables, which may differ in their tiers -> no split
    """
    tier, o = problem.options.tier, problem.options
    if tier is None:
        return 0.0, []
    at, Q = relaxed.chosen, problem.count.size
    there, held = (np.zeros((Q, len(CODES))) for _ in range(2))
    np.add.at(there, (o.group[at], tier[at]), relaxed.share)
    np.add.at(held, (o.group[at], tier[at]), relaxed.share * o.average_memory[at])
    each = held / np.maximum(there, _ODD)  # bytes of a rank if the whole table were there
    below, bytes_below = there[:, NONE + 1 :].sum(axis=1), held[:, NONE + 1 :].sum(axis=1)
    odd = [np.minimum(there[:, NONE], below)]
    saved = [np.abs(each[:, NONE] - each[:, NONE + 1 :].min(axis=1))]
    for code in WITH_CACHE:
        rest = below - there[:, code]
        odd.append(np.where(there[:, NONE] <= _ODD, np.minimum(there[:, code], rest), 0.0))
        saved.append(np.abs(each[:, code] - (bytes_below - held[:, code]) / np.maximum(rest, _ODD)))
    which_odd = np.where(problem.count > 1, 0.0, np.stack(odd))
    worth = np.where(which_odd > _ODD, which_odd, 0) * np.stack(saved) / problem.limit_bytes * relaxed.room
    if not worth.any():
        return 0.0, []
    which, q = np.unravel_index(int(np.argmax(worth)), worth.shape)
    one = (np.arange(Q) == q)[:, np.newaxis]
    first = np.arange(len(CODES)) == (NONE, *WITH_CACHE)[int(which)]
    parts = [replace(part, tiers=part.tiers & (~one | side)) for side in (first, ~first)]
    return float(worth[which, q]), parts


def prefetched_s(options: Options, evaluator: Evaluator) -> Array | None:
    """For each option, the time to fill its cache with loads spread evenly [s]; infinite without cache.

    A pass takes no less, whatever runs beside it: its busiest rank has at least the mean load of each of
    its tables.
    Limits: caches are not prefetched -> None: their time is in the curves
    """
    if options.tier is None or not evaluator.times.prefetch:
        return None
    cached = np.isin(options.tier, WITH_CACHE)
    found = np.full(cached.size, np.inf)
    found[cached] = evaluator.times.ahead(options.average[cached])
    return found
