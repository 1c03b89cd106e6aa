"""The best plan of a small case by trying all of them: what a search is judged by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.schemes import Exchange
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.scheme_options import Options, list_options
from perfmodel.plan.searching.packing import Packing, list_all_ranks, list_ranks

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_PLANS = 20_000_000
_CHUNK = 1 << 15


def exact(evaluator: Evaluator, limit_bytes: float) -> Packing:
    """The plan of ``list_options``'s schemes that takes least time and fits.

    Limits: more than ``MOST_PLANS`` plans, or none that fits -> BadInputError
    """
    options = list_options(evaluator, limit_bytes)
    ways = [list(placements(options, table)) for table in range(options.kind_of.size)]
    sizes = [len(way) for way in ways]
    if math.prod(sizes) > MOST_PLANS:
        raise BadInputError(f"{math.prod(sizes):.3g} plans are too many to try.", f"at most {MOST_PLANS}.")
    loads = [np.stack([_loads(options, *way) for way in of_table]) for of_table in ways]
    best, best_s = -1, np.inf
    for start in range(0, math.prod(sizes), _CHUNK):
        chosen = np.unravel_index(np.arange(start, min(start + _CHUNK, math.prod(sizes))), sizes)
        parts = [values[place] for values, place in zip(loads, chosen, strict=True)]
        total = np.sum(parts, axis=0)  # [n, G, K + 1]
        time = evaluator.estimate_times(total[..., :-1].max(axis=1))
        flat = total[..., :-1].reshape(-1, total.shape[-1] - 1).T
        needs = total[..., -1] + evaluator.times.count_buffers(flat).reshape(total.shape[:2])
        time = np.where(needs.max(axis=1) <= limit_bytes, time, np.inf)
        best_place = int(np.argmin(time))
        if time[best_place] < best_s:
            best, best_s = start + best_place, float(time[best_place])
    if best < 0:
        raise BadInputError("no plan fits in memory.", "allow more memory.")
    state = Packing(evaluator, options, limit_bytes)
    for table, (way, index) in enumerate(zip(ways, np.unravel_index(best, sizes), strict=True)):
        option, ranks = way[int(index)]
        state.choose([table], np.array([option]))
        if state.ranks[table] is None:
            state.put(table, ranks)
    return state


def placements(o: Options, table: int) -> Iterator[tuple[int, Ints]]:
    """Every scheme of a table on every choice of ranks."""
    options = o.find_range(table)
    for option in range(options.start, options.stop):
        if o.everywhere_held[option]:
            yield option, list_all_ranks(o, option)
        elif o.exchange[option] == Exchange.TWO_LEVEL:
            for domains in combinations(range(o.gpus // o.domain), int(o.parts[option]) // o.domain):
                yield option, list_ranks(o, option, np.array(domains))
        else:
            for ranks in combinations(range(o.gpus), int(o.parts[option])):
                yield option, np.array(ranks)


def _loads(o: Options, option: int, ranks: Ints) -> Array:
    """Loads and memory [G, K + 1] of a table on its ranks."""
    loads = np.tile(np.append(o.everywhere[option], o.everywhere_memory[option]), (o.gpus, 1))
    loads[ranks] += np.append(o.shard[option], o.shard_memory[option])
    return loads
