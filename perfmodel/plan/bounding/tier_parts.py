"""Parts of all plans by where their tables are: whether any is cached, and whether one of them is in HBM."""

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

_ODD = 1e-4  # of a table: more is in two places


def by_caches(problem: Problem, part: Subspace, chosen: Ints) -> list[Subspace]:
    """Plans that cache a table of one tier, each of which waits for a look-up in that cache, and plans that
    cache none of it.

    Limits: no option in use is cached, or caches are paid for already -> none
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
    """On the tier of one table that is partly in one and partly in another; and what that is worth [s].

    A table is in HBM or below it, and below it with a cache of one tier or otherwise. The worth is that of
    the memory by which the optimum is away from the nearer of both.
    Limits: equal tables, which may differ in their tiers -> not split
    """
    tier, o = problem.options.tier, problem.options
    if tier is None:
        return 0.0, []
    at, Q = relaxed.chosen, problem.count.size
    there, held = (np.zeros((Q, len(CODES))) for _ in range(2))
    np.add.at(there, (o.group[at], tier[at]), relaxed.share)
    np.add.at(held, (o.group[at], tier[at]), relaxed.share * o.average_memory[at])
    each = held / np.maximum(there, _ODD)  # bytes of a rank for all of a table
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
    """[O] what fills the caches takes where one table is cached so and spread evenly [s]; infinite elsewhere.

    A pass takes no less, whatever runs beside it: its busiest rank has no less than the mean of the ranks,
    nor than the mean for one of its tables.
    Limits: caches are not filled ahead -> None: the time is in the curves
    """
    if options.tier is None or not evaluator.times.prefetch:
        return None
    cached = np.isin(options.tier, WITH_CACHE)
    found = np.full(cached.size, np.inf)
    found[cached] = evaluator.times.ahead(options.average[cached])
    return found
