"""Matches collectives of a trace with steps of a plan, by kind, process group, bytes and order.

    cost = k + |ln(sent / s planned sent)| / 2 + |ln(received / s planned received)| / 2 + o (p - q)^2     [-]

k  0 for the step's own collective, ``ANOTHER_KIND`` for another collective with the same work; no others
   match
p, q  position of the event in the trace's step and of the step in the plan, from 0 to 1;  o  ``ORDER``
sent, received  bytes of all traced ranks
s  factor on the bytes of all steps except splits, for a batch that differs from the plan's

The pairing with the least total cost is used. No pair may cost more than ``MOST``, which is also the cost of
an event or step without partner; these are listed with the reason. Names of profiler ranges are not used,
because trainers rename and fuse them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from perfmodel.passes.steps import step_label
from perfmodel.schema.trace_alignment import AlignedCollective
from perfmodel.units import format_bytes
from perfmodel.validate.traced.expected import Group, PlannedExchange

ANOTHER_KIND = 0.3
"""Cost of another collective with the same work: equal to the cost of 1.35 times the plan's bytes."""
ORDER = 0.1
"""Cost of the first position for the last step: equal to the cost of 1.1 times the plan's bytes. Squares
keep events of equal bytes in their order."""
MOST = 2.5
"""Largest cost of a pair: bytes that are 12 times the plan's, or a twelfth of them."""
BATCH = 0.5
"""Cost of another batch, per |ln s|: among equally good matches, the plan's batch is preferred."""
SAME_WORK: dict[str, tuple[str, ...]] = {
    "reduce_scatter": ("all_reduce", "all_to_all"),
    "all_gather": ("all_reduce", "broadcast", "all_to_all"),
    "all_reduce": ("reduce_scatter", "all_gather"),
}
"""Collectives that libraries run in place of another: gloo runs an all-reduce for a reduce-scatter."""
_NEVER = 1e6
_LEAST_BYTES = 1.0


@dataclass(frozen=True, eq=False)
class Instance:
    """A step of a plan, as run by one of its process groups."""

    step: PlannedExchange
    group: Group


@dataclass(frozen=True, eq=False)
class MatchedStep:
    """A traced event and the planned step that it is matched with. cost  of the pair [-]"""

    event: AlignedCollective
    instance: Instance
    cost: float


@dataclass(frozen=True)
class LeftOver:
    """A collective of the trace that matches no step. payload_bytes  per rank;  why  it matches none"""

    collective: str
    ranks: int
    payload_bytes: float
    why: str


@dataclass(frozen=True, eq=False)
class Matched:
    """The matching of one step of the trace with a plan.

    pairs  event and planned step;  left_over  events without a planned step, and why
    missing  planned steps without an event
    """

    pairs: tuple[MatchedStep, ...]
    left_over: tuple[tuple[AlignedCollective, LeftOver], ...]
    missing: tuple[Instance, ...]

    @property
    def cost(self) -> float:
        """Cost of all pairs, and of the events and steps without partner [-]."""
        return sum(pair.cost for pair in self.pairs) + MOST * (len(self.left_over) + len(self.missing))


def instances(steps: Sequence[PlannedExchange], traced: Sequence[int]) -> list[Instance]:
    """The planned exchanges in order, one for each process group that has a traced rank."""
    ranks = set(traced)
    return [Instance(step, group) for step in steps for group in step.groups if ranks & set(group)]


def batches(events: Sequence[AlignedCollective], planned: Sequence[Instance]) -> list[float]:
    """Factors s to try on the planned bytes: 1, and for each kind the largest event over the largest step."""
    found = [1.0]
    for kind in sorted({each.step.row.collective for each in planned}):
        seen = [float(event.payload_bytes) for event in events if event.first.collective == kind]
        steps = [
            max(each.step.sent.max(), each.step.received.max())
            for each in planned
            if each.step.row.collective == kind and not each.step.splits
        ]
        if seen and steps and max(steps) > 0:
            found.append(max(seen) / float(max(steps)))
    return found


def matched(events: Sequence[AlignedCollective], planned: Sequence[Instance], batch: float = 1.0) -> Matched:
    """Matches the events of one step of the trace, in order of start, with planned steps in order.

    batch  s, the factor on the planned bytes
    Limits: equal sequences -> all pairs, cost 0;  no events -> all missing
    """
    if not events or not planned:
        left = tuple((event, _left_over(event, planned)) for event in events)
        return Matched((), left, tuple(planned))
    costs = np.array([[_cost(event, step, batch) for step in planned] for event in events])
    places = (_places(len(events))[:, np.newaxis] - _places(len(planned))) ** 2
    costs = np.where(costs >= _NEVER, _NEVER, costs + ORDER * places)
    open_ended = np.full((len(events), len(events)), 2 * MOST)  # of an event and of a step
    rows, columns = linear_sum_assignment(np.hstack([np.where(costs > MOST, _NEVER, costs), open_ended]))
    chosen = {int(row): int(column) for row, column in zip(rows, columns, strict=True)}
    pairs = [
        MatchedStep(events[row], planned[column], float(costs[row, column]))
        for row, column in chosen.items()
        if column < len(planned)
    ]
    taken = {id(pair.event) for pair in pairs}
    used = {id(pair.instance) for pair in pairs}
    left = tuple((event, _left_over(event, planned)) for event in events if id(event) not in taken)
    return Matched(tuple(pairs), left, tuple(each for each in planned if id(each) not in used))


def _places(count: int) -> np.ndarray:
    return np.arange(count) / max(count - 1, 1)


def _cost(event: AlignedCollective, instance: Instance, batch: float = 1.0) -> float:
    """Cost of a pair without the term for the order [-]. batch  s, the factor on the planned bytes"""
    step, first = instance.step, event.first
    if first.group_size != len(instance.group) or not set(event.parts) <= set(instance.group):
        return _NEVER
    own = first.collective == step.row.collective
    if not own and first.collective not in SAME_WORK.get(step.row.collective, ()):
        return _NEVER
    ranks = sorted(event.parts)
    seen = [(event.parts[rank].in_bytes, event.parts[rank].out_bytes) for rank in ranks]
    sides = list(zip(*seen, strict=True))
    factor = 1.0 if step.splits else batch
    planned = [factor * step.sent[ranks], factor * step.received[ranks]]
    if not own:  # the larger buffer holds the whole, whatever its name
        sides, planned = [tuple(map(max, seen))], [np.maximum(*planned)]
    apart = [
        _apart(np.array(side, dtype=np.float64), plan) for side, plan in zip(sides, planned, strict=True)
    ]
    return float(np.mean(apart)) + (0.0 if own else ANOTHER_KIND)


def _apart(seen: np.ndarray, planned: np.ndarray) -> float:
    """Mean over traced ranks of |ln(traced bytes / planned bytes)|."""
    total, expected = max(float(seen.sum()), _LEAST_BYTES), max(float(planned.sum()), _LEAST_BYTES)
    return abs(float(np.log(total / expected)))


def _left_over(event: AlignedCollective, planned: Sequence[Instance]) -> LeftOver:
    first = event.first
    size = float(event.payload_bytes)

    def said(why: str) -> LeftOver:
        return LeftOver(first.collective, first.group_size, size, why)

    what = first.collective.replace("_", "-")
    alike = [each for each in planned if first.collective == each.step.row.collective]
    if not alike:
        return said(f"no step of the plan is {'an' if what[0] == 'a' else 'a'} {what}")
    of_group = [each for each in alike if len(each.group) == first.group_size]
    if not of_group:
        return said(f"the plan has no {what} over {first.group_size} ranks")
    costs = [_cost(event, each) for each in of_group]
    near = of_group[int(np.argmin(costs))]
    if min(costs) > MOST:
        most = max(near.step.sent.max(), near.step.received.max())
        return said(f"the nearest step, {step_label(near.step.name)}, has {format_bytes(float(most))}")
    return said("one more than the plan has of its kind and size")
