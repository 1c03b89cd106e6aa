"""Plans with tiers that a person makes by hand: the tables that are asked for most per byte in HBM first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.choices.options import Options
from perfmodel.plan.pricing.allowed_tiers import NONE
from perfmodel.plan.pricing.cost import Evaluator
from perfmodel.plan.searching.packing import Packing, pack

Ints = NDArray[np.int64]

_COPIED = (0.0, 0.02, 0.1)
"""Shares of the HBM of a GPU that copies of the smallest tables may have."""
_MOST_TABLES = 500
_LEAST = 1e-9  # look-ups of a bag


def greedy_plans(evaluator: Evaluator, options: Options, limit_bytes: float) -> Iterator[Packing]:
    """Plans that fit, of each way to cut all tables alike and each tier below the HBM.

    Tables leave the HBM in the order of their bytes per look-up, most first, until the others fit; the
    smallest tables are copied.
    Limits: very many tables, no tiers -> none
    """
    o, tables = options, evaluator.tables
    if o.tier is None or o.cached is None or len(tables) > _MOST_TABLES:
        return
    size = tables.rows * tables.dim * tables.element_bytes
    leave = np.argsort(-size / np.maximum(tables.pooling, _LEAST), kind="stable")
    copies = _of(o, o.exchange == Exchange.DP, NONE, 0.0)[o.kind_of]
    below = sorted({*zip(o.tier.tolist(), o.cached.tolist(), strict=True)} - {(NONE, 0.0)})
    for cut in _cuts(o):
        kept = _of(o, cut, NONE, 0.0)[o.kind_of]
        for share in _COPIED:
            held = np.cumsum(np.sort(size)) <= share * limit_bytes
            copied = np.isin(np.arange(size.size), np.argsort(size, kind="stable")[held]) & (copies >= 0)
            for tier in below:
                gone = _of(o, cut, *tier)[o.kind_of]
                yield from _fullest(evaluator, o, limit_bytes, leave, np.where(copied, copies, kept), gone)


def _fullest(
    evaluator: Evaluator, o: Options, limit_bytes: float, leave: Ints, kept: Ints, gone: Ints
) -> Iterator[Packing]:
    """The first tables of ``leave`` as in ``gone`` [T], as few as fit; the others as in ``kept`` [T]."""
    for count in range(leave.size + 1):
        option = kept.copy()
        option[leave[:count]] = gone[leave[:count]]
        if (option < 0).any() or o.average_memory[option].sum() > limit_bytes:
            continue
        state = pack(evaluator, o, option, limit_bytes)
        if state is not None:
            if state.host_fits:
                yield state
            return


def _cuts(o: Options) -> Iterator[NDArray[np.bool_]]:
    """Whole tables, rows over all GPUs, columns over all that there are."""
    yield (o.exchange == Exchange.RB) & (o.r == 1) & (o.c == 1)
    yield o.exchange == Exchange.RS
    yield (o.exchange == Exchange.RB) & (o.r == o.gpus) & (o.c == 1)


def _of(o: Options, cut: NDArray[np.bool_], tier: int, share: float) -> Ints:
    """[Q] the option of each kind of table that is cut so, in that tier; -1: none."""
    assert o.tier is not None and o.cached is not None
    at = np.flatnonzero(cut & (o.tier == tier) & (o.cached == share) & (o.hot == 0))
    found = np.full(o.count.size, -1, dtype=np.int64)
    found[o.group[at]] = at
    return found
