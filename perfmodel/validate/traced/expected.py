"""Events of a plan in traces: its exchanges in TorchRec's order with bytes per rank, and its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.cost import Evaluator
from perfmodel.passes.loads import Loads
from perfmodel.passes.placement import Plan
from perfmodel.passes.schemes import OF_TORCHREC, ROW_WISE, SHARDINGS, TABLE_ROW_WISE, TABLE_WISE
from perfmodel.passes.steps import ALL, BACKWARD, INSIDE, STEPS, Step, StepCost, StepRow
from perfmodel.schema.traces import KernelFamily

Array = NDArray[np.float64]
Group = tuple[int, ...]

_BACKWARD = frozenset(step.name for step in BACKWARD)
_BY_IDS = ("ids", "weights", "requests", "rows", "sparse")
_ROWS_TYPE, _INSIDE_TYPE, _WHOLE_TYPE = (
    SHARDINGS[name].torchrec for name in (ROW_WISE, TABLE_ROW_WISE, TABLE_WISE)
)
_TYPE_OF = {"reduce_scatter_bags": _ROWS_TYPE, "all_gather_gradients": _ROWS_TYPE}
_KIND_TYPES = {OF_TORCHREC[name].exchange: name for name in (_ROWS_TYPE, _INSIDE_TYPE, _WHOLE_TYPE)}
_INPUT = ("lengths", "ids", "weights", "request_splits", "requests")
KERNELS: dict[KernelFamily, tuple[str, ...]] = {
    KernelFamily.BUCKETIZE: ("bucketize", "deduplicate"),
    KernelFamily.GATHER_POOL: ("gather_pool", "gather_host", "pool_unique_rows"),
    KernelFamily.BACKWARD: ("accumulate_row_gradients", "sort_lookups", "update_rows", "update_host"),
}
"""Steps of a plan that are one family of kernels in a trace: FBGEMM's backward sorts, sums and updates."""


@dataclass(frozen=True, eq=False)
class PlannedExchange:
    """A collective of a plan.

    row       its predicted time, for the bytes of its busiest rank
    groups    the process groups that run it, as ranks
    sent, received  bytes of every rank
    splits    for an exchange of splits, how many sets of splits it sends; else 0
    """

    row: StepRow
    groups: tuple[Group, ...]
    sent: Array
    received: Array
    splits: int = 0

    @property
    def name(self) -> str:
        """Name of the step."""
        return self.row.name

    @property
    def backward(self) -> bool:
        """Whether it belongs to the backward pass."""
        return is_backward(self.name)

    @property
    def by_ids(self) -> bool:
        """Whether its bytes depend on the ids of a batch; otherwise they are exact."""
        return any(word in self.name.split("_") for word in _BY_IDS)


@dataclass(frozen=True, eq=False)
class PlannedKernel:
    """The kernels of a plan in one family (similar kernels that a trace cannot tell apart), with their times.

    rows    the predicted steps;  shares  bytes of every rank over the mean of all ranks [-]
    """

    family: KernelFamily
    rows: tuple[StepRow, ...]
    shares: Array

    @property
    def name(self) -> str:
        """Name of the family."""
        return str(self.family)

    @property
    def label(self) -> str:
        """Labels of its steps, as in an answer."""
        return " + ".join(row.label for row in self.rows)

    @property
    def backward(self) -> bool:
        """Whether it belongs to the backward pass."""
        return self.family is KernelFamily.BACKWARD


@dataclass(frozen=True, eq=False)
class PlannedPass:
    """All events of a plan that traces should show, with their predicted times.

    exchanges, kernels  in TorchRec's order
    rest     steps that have no event in a trace: precision conversions, the hand-over between steps, reading
             rows from below the HBM
    """

    evaluator: Evaluator
    cost: StepCost
    exchanges: tuple[PlannedExchange, ...]
    kernels: tuple[PlannedKernel, ...]
    rest: tuple[StepRow, ...]

    @cached_property
    def fused_splits(self) -> PlannedPass:
        """The pass with one all-to-all for the splits of all sharding types, as TorchRec's pipeline has.

        Limits: one sharding type -> unchanged
        """
        splits = [each for each in self.exchanges if each.splits]
        if len(splits) < 2:
            return self
        time_s = self.evaluator.times.all_splits(len(splits))
        factor = time_s / sum(each.row.time_s for each in splits)
        low, high, floor = (
            factor * sum(getattr(each.row, end) for each in splits) for end in ("low_s", "high_s", "floor_s")
        )
        row = replace(
            splits[0].row,
            time_s=time_s,
            low_s=low,
            high_s=high,
            floor_s=floor,
            payload_bytes=sum(each.row.payload_bytes for each in splits),
        )
        sent = np.asarray(sum(each.sent for each in splits))
        fused = PlannedExchange(row, splits[0].groups, sent, sent, len(splits))
        rest = tuple(each for each in self.exchanges if not each.splits)
        return replace(self, exchanges=(fused, *rest))


def is_backward(name: str) -> bool:
    """Whether a step belongs to the backward pass."""
    return (STEPS[name].whole or name) in _BACKWARD


def planned_pass(evaluator: Evaluator, plan: Plan) -> PlannedPass:
    """Every step of a plan that takes time, with the ranks that run it.

    Limits: a plan for other GPUs or tables -> BadInputError
    """
    loads = evaluator.loads(plan)
    cost = evaluator.step(loads)
    rows = {row.name: row for row in cost.rows}
    steps = STEPS | {step.name: step for step in evaluator.steps}  # a gather has one of two names
    exchanges = [
        _exchange(evaluator, steps[name], row, loads) for name, row in rows.items() if row.collective
    ]
    order = _order(evaluator, plan, list(rows))
    exchanges.sort(key=lambda each: order[each.name])
    kernels = tuple(_kernels(rows, steps, loads))
    taken = {row.name for kernel in kernels for row in kernel.rows} | {each.name for each in exchanges}
    rest = tuple(row for name, row in rows.items() if name not in taken)
    return PlannedPass(evaluator, cost, tuple(exchanges), kernels, rest)


def _exchange(evaluator: Evaluator, step: Step, row: StepRow, loads: Loads) -> PlannedExchange:
    """The exchange of a step, with the bytes of each rank from ``loads``. row  its prediction

    Source: the buffers that TorchRec passes to its collectives, counted in
    tests/integration/test_torchrec_counts.py
    """
    gpus, domain = evaluator.gpus, evaluator.domain
    ranks = int(evaluator.times.group(step)[0])
    sides = [np.asarray(loads.of(resource), dtype=np.float64) for resource in step.resources]
    if step.splits:
        sides = [np.full(gpus, evaluator.times.splits_bytes)] * 2
    elif step.collective == "reduce_scatter":
        sides = [sides[0], sides[0] / ranks]
    elif step.collective == "all_gather":
        sides = [sides[0] / ranks, sides[0]]
    if step.ranks == ALL:
        groups: tuple[Group, ...] = (tuple(range(gpus)),)
    elif step.ranks == INSIDE:
        groups = tuple(tuple(range(first, first + domain)) for first in range(0, gpus, domain))
    else:
        groups = tuple(tuple(range(place, gpus, domain)) for place in range(domain))
    return PlannedExchange(row, groups, sides[0], sides[-1], int(step.splits))


def _kernels(rows: dict[str, StepRow], steps: dict[str, Step], loads: Loads) -> Iterator[PlannedKernel]:
    for family, names in KERNELS.items():
        mine = [name for name in names if name in rows]
        if not mine:
            continue
        each = np.asarray(sum(loads.of(steps[name].resources[0]) for name in mine))
        mean = float(each.mean())
        shares = each / mean if mean > 0 else np.ones(each.size)
        yield PlannedKernel(family, tuple(rows[name] for name in mine), shares)


def _order(evaluator: Evaluator, plan: Plan, names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Sort key of each exchange, by name, in the order in which TorchRec runs them.

    First the splits of all sharding types; then lengths and ids, type by type; then bags of each type; in
    training then their gradients, the last type first.
    Source: TorchRec 1.8, ``KJTListSplitsAwaitable``, ``EmbeddingBagCollectionAwaitable``; types in the order
    of their first table
    """
    sets, steps = evaluator.model.sets, [step.name for step in evaluator.steps]
    types: list[str] = []
    if sets is not None:
        types = list(sets.types or [_KIND_TYPES.get(kind, "") for kind in plan.kinds.tolist()])
    places = {name: at for at, name in enumerate(dict.fromkeys(types))}
    found = {}
    for at, name in enumerate(steps):
        if name not in names or not STEPS[name].collective:
            continue
        step = STEPS[name]
        of = step.sharding or _TYPE_OF.get(name) or (_WHOLE_TYPE if step.ranks == ALL else _INSIDE_TYPE)
        place = places.get(of, len(places)) if sets is not None else 0
        if is_backward(name):
            phase, place = 3, -place
        elif step.splits and sets is not None:
            phase = 0
        else:
            phase = 1 if (step.whole or name).removeprefix("all_to_all_") in _INPUT else 2
        found[name] = (phase, place, at)
    return found
