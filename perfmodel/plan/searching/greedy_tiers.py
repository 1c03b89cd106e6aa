"""Plans with tiers as made by hand: the tables with the most look-ups per byte go to HBM first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.allowed_tiers import IN_HOST, NONE, ON_SSD
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.placement import WHOLE
from perfmodel.passes.schemes import over_all
from perfmodel.passes.step_resources import Resource
from perfmodel.plan.choices.node_memory import node_bytes, node_size
from perfmodel.plan.choices.options import Options
from perfmodel.plan.searching.packing import Packing, pack

Ints = NDArray[np.int64]

_COPIED = (0.0, 0.02, 0.1)
"""Shares of a GPU's HBM that replicas of the smallest tables may have."""
_FILLED = (1.0, 0.9, 0.75)
"""Shares of all host memory to fill, for tables that are larger than a node's part."""
_MOST_TABLES = 500
_LEAST = 1e-9  # look-ups of a bag


def greedy_plans(evaluator: Evaluator, options: Options, limit_bytes: float) -> Iterator[Packing]:
    """Plans that fit: one for each sharding that all tables have, and each tier below the HBM.

    Tables leave the HBM in the order of their bytes per look-up, largest first, until the others fit; the
    smallest tables are replicated.
    Limits: very many tables, or no tiers -> empty
    """
    o, tables = options, evaluator.tables
    if o.tier is None or o.cached is None or len(tables) > _MOST_TABLES:
        return
    size = tables.rows * tables.dim * tables.element_bytes
    leave = np.argsort(-size / np.maximum(tables.pooling, _LEAST), kind="stable")
    copies = _of(o, o.copied, NONE, 0.0)[o.kind_of]
    below = sorted({*zip(o.tier.tolist(), o.cached.tolist(), strict=True)} - {(NONE, 0.0)})
    both = [pair for pair in product(below, below) if _colder(*pair)] if o.crowded else []
    for cut in _cuts(o):
        kept = _of(o, cut, NONE, 0.0)[o.kind_of]
        for share in _COPIED:
            held = np.cumsum(np.sort(size)) <= share * limit_bytes
            copied = np.isin(np.arange(size.size), np.argsort(size, kind="stable")[held]) & (copies >= 0)
            first = np.where(copied, copies, kept)
            for tier in below:
                gone = _of(o, cut, *tier)[o.kind_of]
                yield from _fullest(evaluator, o, limit_bytes, leave, first, gone)
            for warm, cold in both:
                gone, last = (_of(o, cut, *tier)[o.kind_of] for tier in (warm, cold))
                yield from _three(evaluator, o, limit_bytes, leave, first, gone, last)


def _colder(warm: tuple[int, float], cold: tuple[int, float]) -> bool:
    """Whether ``cold`` is on SSDs and ``warm`` in host memory, without a cache or with an equally large one.

    warm, cold  (code, cached share) of two tiers
    """
    return warm[0] in IN_HOST and cold[0] == ON_SSD and warm[1] in (0.0, cold[1])


def _fullest(
    evaluator: Evaluator, o: Options, limit_bytes: float, leave: Ints, kept: Ints, gone: Ints
) -> Iterator[Packing]:
    """The plan that fits with the fewest tables out of HBM.

    leave  tables in the order in which they leave;  kept, gone  option of each table in HBM, and below
    """
    for count in range(leave.size + 1):
        option = kept.copy()
        option[leave[:count]] = gone[leave[:count]]
        if (option < 0).any() or o.average_memory[option].sum() > limit_bytes:
            continue
        state = pack(evaluator, o, option, limit_bytes)
        if state is not None or not o.crowded:
            if state is not None and state.below_fits:
                yield state
            return


def _three(
    evaluator: Evaluator, o: Options, limit_bytes: float, leave: Ints, kept: Ints, gone: Ints, last: Ints
) -> Iterator[Packing]:
    """Plans as in ``_fullest``, with a third tier for the tables that no longer fit in the second.

    gone, last  option of each table in the second and in the third tier; the first to leave get ``last``
    """
    nodes = -(-o.gpus // node_size(evaluator))
    for fill in _FILLED:
        room = fill * nodes * node_bytes(evaluator)
        for count in range(1, leave.size + 1):
            option = kept.copy()
            out = leave[:count]
            held = np.where(gone[out] >= 0, o.own[gone[out], Resource.HOST_HELD] * o.parts[gone[out]], np.inf)
            in_host = np.cumsum(held[::-1])[::-1] <= room
            option[out] = np.where(in_host, gone[out], last[out])
            if (option < 0).any() or o.average_memory[option].sum() > limit_bytes:
                continue
            state = pack(evaluator, o, option, limit_bytes)
            if state is not None:
                yield state
                return


def _cuts(o: Options) -> Iterator[NDArray[np.bool_]]:
    """Masks of the options for each cut that all tables have: whole, by rows, by columns and rows."""
    bags = o.exchange == WHOLE.kind
    yield bags & (o.r == 1) & (o.c == 1)
    yield over_all(o.exchange)
    yield bags & (o.r == o.gpus) & (o.c == 1)


def _of(o: Options, cut: NDArray[np.bool_], tier: int, share: float) -> Ints:
    """For each kind of table, its option in the mask ``cut`` that is in a tier; -1: none.

    tier, share  code and cached share of the tier
    """
    assert o.tier is not None and o.cached is not None
    at = np.flatnonzero(cut & (o.tier == tier) & (o.cached == share) & (o.hot == 0))
    found = np.full(o.count.size, -1, dtype=np.int64)
    found[o.group[at]] = at
    return found
