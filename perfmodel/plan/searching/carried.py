"""The schemes of a plan, carried to other GPUs as a start for a search there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import WHOLE, Plan, Scheme
from perfmodel.engine.schemes import over_all
from perfmodel.plan.choices.options import Options
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.schemes import Descent

Ints = NDArray[np.int64]

_ROOMS = (1.0, 0.95, 0.85, 0.7)
"""Shares of the memory limit, tried until the repaired schemes can be packed."""


def carried(plan: Plan, gpus: int, domain: int) -> list[Scheme]:
    """The scheme of each table of a plan, for another number of GPUs in other domains.

    Row parts over all GPUs stay over all, and over a domain stay over a domain.
    """
    before, now = (plan.gpus, plan.domain), (gpus, domain)
    found: dict[tuple[float, int], Scheme] = {}  # one object for equal tables that are cut in the same way
    for rows, placement in zip(plan.tables.rows.tolist(), plan.placements, strict=True):
        if (rows, id(placement)) not in found:
            found[rows, id(placement)] = _carried(placement.scheme, int(rows), before, now)
    return [found[rows, id(p)] for rows, p in zip(plan.tables.rows.tolist(), plan.placements, strict=True)]


def as_option(o: Options, schemes: list[Scheme]) -> Ints:
    """The option of every table with its scheme; a table without such an option gets the smallest option."""
    found: dict[tuple[int, int], int] = {}
    keys = [(kind, id(scheme)) for kind, scheme in zip(o.kind_of.tolist(), schemes, strict=True)]
    for t, (key, scheme) in enumerate(zip(keys, schemes, strict=True)):
        if key not in found:
            at = o.find(t, scheme)
            found[key] = _leanest(o, t) if at is None else at
    return np.array([found[key] for key in keys])


def repaired(
    evaluator: Evaluator,
    o: Options,
    option: Ints,
    limit_bytes: float,
    until: Callable[[], bool] = lambda: False,
) -> Packing | None:
    """Places tables with these options on ranks; while they do not fit, some get smaller options.

    option  of every table. The change with the least extra time per saved byte comes first
    until   returns whether to stop changing options
    Limits: nothing that is tried fits -> None
    """
    every = np.ones(o.group.size, dtype=bool)
    for room in _ROOMS:
        state = pack(evaluator, o, option, limit_bytes)
        if state is not None or until():
            return state
        option = Descent(evaluator, o, room * limit_bytes).run(option, every, until)
    return pack(evaluator, o, option, limit_bytes)


def _carried(scheme: Scheme, rows: int, before: tuple[int, int], now: tuple[int, int]) -> Scheme:
    """A scheme for another job. rows  of the table;  before, now  (GPUs, GPUs of a domain) of both jobs"""
    gpus, domain = now
    kind, r = scheme.kind, scheme.row_parts
    if not scheme.copied and r == before[0]:
        r = min(gpus, rows - scheme.hot_rows)
    uneven = scheme.by_domain and (gpus % domain or r % domain)
    if uneven or (over_all(kind) and r != gpus):
        kind = WHOLE.kind
    return replace(scheme, kind=kind, row_parts=r)


def _leanest(o: Options, table: int) -> int:
    at = o.of(table)
    return int(at.start + o.average_memory[at].argmin())
