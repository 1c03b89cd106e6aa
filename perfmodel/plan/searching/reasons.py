"""The reason for a table's sharding: the plan's time with the next best scheme instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.placement import Placement, Scheme
from perfmodel.plan.searching.packing import Packing, Scale, place

_TRIED = 6


@dataclass(frozen=True)
class PlanReason:
    """Why some equal tables have their scheme: the next best scheme, with all other tables unchanged.

    scheme   the next best; None if no other scheme fits in memory;  sharding  its name
    more_s   extra time of the plan if one of the tables has it [s]; negative: it is faster
    only     whether no other is allowed, however much memory there is
    """

    scheme: Scheme | None
    sharding: str = ""
    more_s: float = 0.0
    only: bool = False


def reasons(state: Packing, tables: Sequence[int], least_s: float = 0.0) -> Iterator[PlanReason]:
    """For each of ``tables``, the next best scheme, with ``more_s`` at least ``least_s``.

    The plan stays as it is.
    """
    for table in tables:
        yield _reason(state.copy(), table, least_s)


def _reason(state: Packing, table: int, least_s: float) -> PlanReason:
    o, now_s = state.options, state.time_s
    own, at = int(state.option[table]), state.options.of(table)
    state.clear(table)
    best: tuple[float, int, NDArray[np.int64]] | None = None
    for tried, option in enumerate(_likely(state, at, own)):
        if tried >= _TRIED and best is not None:
            break  # if none of them fits, any scheme that fits is tried
        state.choose([table], np.array([option]))
        ranks = state.ranks[table]
        if ranks is None:
            ranks = place(state, option, Scale.of(state.evaluator, state.most + o.own[option]))
            if ranks is not None:
                state.put(table, ranks)
        if ranks is not None and state.fits and (best is None or state.time_s < best[0]):
            best = state.time_s, option, ranks
        state.clear(table)
    if best is None:
        large = o.too_large is None or bool((o.too_large.group == o.kind_of[table]).any())
        return PlanReason(None, only=at.stop - at.start == 1 and not large)
    scheme = o.scheme(best[1])
    return PlanReason(
        scheme, Placement(scheme, best[2]).sharding(o.gpus, o.domain), max(best[0] - now_s, least_s)
    )


def _likely(state: Packing, at: slice, own: int) -> list[int]:
    """Options of a table, sorted by a lower bound on the plan's time with each.

    at  the range of its options;  own  its present option
    """
    o = state.options
    held = state.held.mean(axis=0) * (o.parts[at] > 0)[:, np.newaxis]
    most = np.maximum(state.most, state.base + o.everywhere[at] + np.maximum(o.own[at], held))
    most = np.maximum(most, state.base + state.held.mean(axis=0) + o.average[at])
    time = state.evaluator.estimate_times(np.maximum(most, state.most + o.everywhere[at]))
    return [at.start + int(i) for i in np.argsort(time, kind="stable") if at.start + i != own]
