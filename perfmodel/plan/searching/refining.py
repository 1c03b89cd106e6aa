"""Cuts the largest shards finer, so that ranks can be balanced better.

Few large shards unbalance ranks: of twenty equal tables on eight ranks, four ranks get three. Cutting all of
them balances ranks, but each further part costs lengths, ids or sums. So only some are cut: the tables that
remain after every rank has equally many, or the largest one, two, four and so on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.cost import Evaluator
from perfmodel.plan.choices.options import Options
from perfmodel.plan.searching.packing import Scale, balance

Ints = NDArray[np.int64]


def refined(evaluator: Evaluator, options: Options, option: Ints) -> Iterator[tuple[float, Ints]]:
    """Yields (time if shards are spread evenly [s], option of every table) for finer cuts of ``option``.

    First, tables that remain after every rank has equally many are cut, then the 1, 2, 4 ... largest tables.

    Limits: no table can be cut finer with its exchange -> none
    """
    seen: set[bytes] = set()
    for tables, parts in _some(evaluator, options, option):
        for finer in _cut(options, option, tables, parts):
            key = finer.tobytes()
            if key not in seen:
                seen.add(key)
                yield float(evaluator.step_times(balance(options, finer))), finer


def _some(evaluator: Evaluator, o: Options, option: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yields (tables to cut, factor on the number of parts of each)."""
    size = Scale.of(evaluator, balance(o, option)).score(o.own[option])
    order = np.lexsort((option, -size))
    order = order[~o.everywhere_held[option[order]]]
    rest: list[Ints] = []
    times: list[Ints] = []
    for run in np.split(order, np.flatnonzero(np.diff(option[order])) + 1):
        each = int(o.parts[option[run[0]]]) if run.size else 0
        over = run.size * each % o.gpus  # shards of the last, incomplete round
        if run.size * each < o.gpus or not over or over % each:
            continue
        rest.append(run[-(over // each) :])
        times.append(np.full(rest[-1].size, o.gpus // np.gcd(over, o.gpus)))
        yield rest[-1], times[-1]
        if len(rest) > 1:
            yield np.concatenate(rest), np.concatenate(times)
    count = 1
    while count <= min(order.size, o.gpus):
        yield order[:count], np.full(count, 2)
        count *= 2


def _cut(o: Options, option: Ints, tables: Ints, times: Ints) -> Iterator[Ints]:
    """Yields options of all tables with some tables cut finer: by columns, and by rows.

    tables  to cut, each into ``times`` as many parts; a table that cannot be cut stays
    """
    for by_columns in (True, False):
        finer = option.copy()
        for own in np.unique(option[tables]):
            at = tables[option[tables] == own]
            more = int(times[np.flatnonzero(option[tables] == own)[0]])
            found = _finer(o, int(own), more if by_columns else 1, 1 if by_columns else more)
            if found is not None:
                finer[at] = found
        if not np.array_equal(finer, option):
            yield finer


def _finer(o: Options, option: int, columns: int, rows: int) -> int | None:
    """The option with the same exchange but ``columns`` and ``rows`` times as many parts, or None."""
    kind = int(o.group[option])
    at = np.arange(int(o.first[kind]), int(o.first[kind + 1]))
    same = (o.exchange[at] == o.exchange[option]) & (o.hot[at] == o.hot[option])
    same &= (o.c[at] == columns * o.c[option]) & (o.r[at] == rows * o.r[option])
    found = at[same]
    return int(found[0]) if found.size else None
