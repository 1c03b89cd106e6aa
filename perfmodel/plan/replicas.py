"""2D parallel: several copies of the sharded tables, each on its own GPUs (TorchRec's DMPCollection)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.units import counted

_OF_PLAN = ("replicas", "gpus", "time_s", "pass_s", "sync_s", "samples_per_s", "memory_bytes", "why_not")


@dataclass(frozen=True, eq=False)
class ReplicatedPlan:
    """A plan of which R copies run on G / R GPUs each; each copy has the samples of its own GPUs.

    replicas  R;  answer  the plan on G / R GPUs; None if there is none, and ``why`` says so
    sync_s    all-reduce of the tables among the copies [s]
    """

    replicas: int
    answer: Planned | None
    sync_s: float = 0.0
    why: str = ""

    @property
    def time_s(self) -> float:
        """Time of a step: the pass of a copy, then the all-reduce [s]. Limits: no plan -> infinite"""
        return np.inf if self.answer is None else self.answer.found.cost.time_s + self.sync_s

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units, a row of the public schema; null without a plan."""
        if self.answer is None:
            return {**dict.fromkeys(_OF_PLAN), "replicas": self.replicas, "why_not": self.why}
        e, found = self.answer.evaluator, self.answer.found
        rate, held = e.batch * e.gpus * self.replicas / self.time_s, float(found.memory.total_bytes.max())
        numbers = e.gpus, self.time_s, found.cost.time_s, self.sync_s, rate, held
        return dict(zip(_OF_PLAN, (self.replicas, *numbers, None), strict=True))


def plan_replicas(
    question: PlanQuestion,
    counts: Sequence[int],
    tell: Callable[[int, float], None] = lambda gpus, best_s: None,
) -> list[ReplicatedPlan]:
    """A plan for each number of copies of the sharded tables, fewest copies first; one search each.

    counts  numbers of copies R;  tell  called during a search with (GPUs of a copy, best time so far [s])
    Limits: R does not divide the GPUs, or no number has a plan -> BadInputError;  Ctrl-C -> those so far
    """
    gpus = question.gpus
    for replicas in counts:
        if gpus % replicas:
            divisors = ", ".join(str(r) for r in range(1, gpus + 1) if gpus % r == 0)
            raise BadInputError(
                f"{counted(gpus, 'GPU')} are no {replicas} equal groups.", f"--replicas is one of {divisors}."
            )
    plans: list[ReplicatedPlan] = []
    wanted = sorted(set(counts))
    for replicas in wanted:
        group = question.on(gpus // replicas)
        try:
            answer = group.answer(partial(tell, group.gpus))
        except BadInputError as error:
            plans.append(ReplicatedPlan(replicas, None, why=error.message))
        else:
            plans.append(ReplicatedPlan(replicas, answer, time_sync(answer, replicas)))
            if answer.found.stopped == "interrupt":
                break
    if all(plan.answer is None for plan in plans):
        raise BadInputError(plans[-1].why, "use fewer --replicas, or more GPUs (--gpus).")
    return plans


def time_sync(answer: Planned, replicas: int) -> float:
    """Time of the all-reduce among the copies after a step of training [s].

        t(S, R),   S = rows and optimizer state of the fullest GPU                                  [bytes]

    replicas  R copies: a GPU and the GPUs that hold the same in the other copies are R ranks, as many of a
              node as there are copies in a node
    Source: TorchRec 1.8, ``DMPCollection.sync`` with use_inter_host_allreduce, called after every step
    Limits: a forward pass, one copy -> 0
    """
    if not answer.training or replicas == 1:
        return 0.0
    e, memory = answer.evaluator, answer.found.memory
    size = np.array([float((memory.rows_bytes + memory.optimizer_bytes).max())])
    machine = e.setting.machine
    node = e.basis.gpus_per_node or machine.gpus_per_node
    beside = max(min(node // e.gpus, replicas), 1)
    timing = e.setting.links.timing("all_reduce", size, np.array([float(replicas)]), beside)
    return float(timing.time_s[0])


def find_fastest(plans: Sequence[ReplicatedPlan]) -> ReplicatedPlan:
    """The plan with the shortest step; the samples of a step are equal for all."""
    return min(plans, key=lambda plan: plan.time_s)
