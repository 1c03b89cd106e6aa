"""Local search: tables get other schemes, one at a time, and the best of several is kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfmodel.engine.placement import Placement
from perfmodel.engine.tables import Ints
from perfmodel.plan.searching.packing import Packing, Scale, Until, compute_balance, is_faster, place

_TRIED = 3  # options of one table that are really placed
_COMPARED = 6  # options of one table of which the next best is chosen


def improve(state: Packing, until: Until) -> None:
    """Improve a plan, in place, until no table has a faster option. until  returns whether to stop"""
    while not until() and recut(state, until):
        pass


def recut(state: Packing, until: Until) -> bool:
    """Give each table in turn, most loads first, its fastest option; returns whether any changed."""
    o = state.options
    changed = False
    scale = Scale.build(state.evaluator, compute_balance(o, state.option))
    size = scale.score(o.average[state.option])
    for table in np.argsort(-size, kind="stable").tolist():
        if until():
            break
        now = int(state.option[table])
        ranks = state.ranks[table]
        assert ranks is not None
        best = state.time_s, now, ranks
        for trial in _try_options(state, table, best[0], _TRIED):
            if is_faster(trial[0], best[0]):
                best = trial
        _, option, ranks = best
        state.put_back(table, option, ranks)
        changed |= option != now
    return changed


def find_next_best(state: Packing, table: int) -> tuple[float, Placement] | None:
    """(time of the plan [s], placement of a table) with the table's next best scheme, all others as they are.

    Limits: no other scheme fits in memory -> None
    """
    option, ranks = int(state.option[table]), state.ranks[table]
    assert ranks is not None
    tried = list(_try_options(state, table, np.inf, _COMPARED))
    state.put_back(table, option, ranks)
    if not tried:
        return None
    time_s, best, places = min(tried, key=lambda trial: trial[0])
    return time_s, Placement(state.options.build_scheme(best), places)


def _try_options(state: Packing, table: int, below_s: float, count: int) -> Iterator[tuple[float, int, Ints]]:
    """Take a table off its ranks and give it other options: (time of the plan [s], option, ranks) of each.

    Only options are tried with which a lower bound on the time is less than ``below_s``, the ``count`` with
    the least. Limits: an option does not fit -> it is left out
    """
    o = state.options
    option = int(state.option[table])
    span = o.find_range(table)
    state.clear(table)
    # No rank has less than the mean, and some rank has at least the largest load up to now, or the shard.
    mean = state.held.mean(axis=0)
    spread = (o.parts[span] / o.gpus)[:, np.newaxis] * o.shard[span]
    least = np.maximum(np.maximum(state.held.max(axis=0), o.shard[span]), mean + spread)
    time = state.evaluator.estimate_times(state.base + o.everywhere[span] + least)
    room = o.average_memory[span] + state.memory.mean()
    time = np.where(room <= state.limit_bytes, time, np.inf)
    order = np.argsort(time, kind="stable")
    order = order[is_faster(time[order], below_s) & (span.start + order != option)][:count]
    for tried in (span.start + order).tolist():
        state.choose([table], np.array([tried]))
        ranks = state.ranks[table]
        if ranks is None:
            target = np.maximum(state.busiest, state.base + o.shard[tried])
            ranks = place(state, tried, Scale.build(state.evaluator, target))
            if ranks is not None:
                state.put(table, ranks)
        if ranks is not None and state.fits:
            yield state.time_s, tried, ranks
        state.clear(table)
