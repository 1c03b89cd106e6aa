"""Attribution of time: to each GPU for its own bytes, and to each shard and replica that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.loads import Loads
from perfmodel.engine.placement import Plan
from perfmodel.engine.steps import Resource, Step, StepCost

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_OF_COPIES = (Resource.GATHER_DRAM, Resource.SORT, Resource.UPDATE_DRAM, Resource.COPIED_GRADIENTS)
"""Resources that a table in parts loads on every rank only because its hot rows are replicated."""


@dataclass(frozen=True, eq=False)
class Shares:
    """How the time of a plan is divided among GPUs, and on each GPU among the shards and replicas that it
    holds.

    names   of the S steps that take time, in order;  step_s [S]  their times, set by the busiest GPU
    own_s   [S, G] time that each step would take if every GPU had as many bytes as this GPU has. For the rest
            of the step, the GPU waits for busier GPUs
    A shard's share of a GPU's time in a step is its share of the bytes that determine that time.
    Source: the curves of the steps (``PassTimes.exact``); the hand-over is the same on every GPU
    Limits: equal GPUs -> ``own_s`` is ``step_s`` on all;  shards, replicas and a GPU's work for its own
            samples add up to ``own_s`` without the hand-over
    """

    evaluator: Evaluator
    plan: Plan
    loads: Loads
    names: tuple[str, ...]
    step_s: Array
    own_s: Array

    @staticmethod
    def of(evaluator: Evaluator, plan: Plan, cost: StepCost) -> Shares:
        """The shares of a plan, from its cost."""
        loads, steps = evaluator.loads(plan), evaluator.steps_by_name
        alone = [
            _time_alone(evaluator, steps[row.name], loads)
            if row.name in steps
            else np.full(evaluator.gpus, row.time_s)
            for row in cost.rows
        ]
        names, times = tuple(row.name for row in cost.rows), np.array([row.time_s for row in cost.rows])
        return Shares(evaluator, plan, loads, names, times, np.minimum(np.array(alone), times[:, np.newaxis]))

    @property
    def total_s(self) -> Array:
        """Own time of each GPU, all steps together, [G]."""
        return np.asarray(self.own_s.sum(axis=0))

    @cached_property
    def _rates(self) -> tuple[list[Step], Ints, Array]:
        """(steps that move bytes, resource that limits each step on each rank, time per byte [s/byte])."""
        by_name = self.evaluator.steps_by_name
        steps = [by_name[name] for name in self.names if name in by_name]
        limiting, rates = [], []
        for index, name in enumerate(self.names):
            if name not in by_name:
                continue
            step = by_name[name]
            sides = step.resources[:1] if step.gathers else step.resources
            values = np.stack([self.loads.of(side) for side in sides])
            limiting.append(np.array(sides, dtype=np.int64)[values.argmax(axis=0)])
            largest = values.max(axis=0)
            rates.append(np.where(largest > 0, self.own_s[index] / np.maximum(largest, 1e-30), 0.0))
        return steps, np.array(limiting, dtype=np.int64), np.array(rates)

    @cached_property
    def _bytes(self) -> tuple[Array, Array]:
        """(bytes of one shard of each table, bytes of each table on every rank), both [T, K], K resources."""
        plan = self.plan
        t = np.arange(len(plan.tables))
        counts = self.evaluator.count_shards(t, *plan.schemes)
        return counts.own, counts.everywhere

    def shards_s(self, tables: Ints, rank: int) -> Array:
        """Times of shards of these tables on a rank [s], shape of ``tables``."""
        _, resources, rates = self._rates
        held = self._bytes[0][tables][..., resources[:, rank]]
        return np.asarray(held @ rates[:, rank])

    def copies_s(self, rank: int) -> Array:
        """Times of replicas of tables, or of hot rows, on a rank [s], shape [T]; 0 without replicas."""
        _, resources, rates = self._rates
        everywhere = self._bytes[1][:, resources[:, rank]]
        replicated = np.array([placement.ranks.size == 0 for placement in self.plan.placements])
        of_copies = np.isin(resources[:, rank], _OF_COPIES) & (self.plan.hot_rows > 0)[:, np.newaxis]
        return np.asarray((everywhere * (replicated[:, np.newaxis] | of_copies)) @ rates[:, rank])


def _time_alone(evaluator: Evaluator, step: Step, loads: Loads) -> Array:
    """Time of one step for the bytes of each rank alone [G].

    Limits: a rank without bytes in this step -> 0
    """
    largest = np.max([loads.of(resource) for resource in step.resources], axis=0)
    timing = evaluator.times.time_step(step, loads.values.T)
    return np.asarray(np.where((largest > 0) | step.always, timing.time_s, 0.0))
