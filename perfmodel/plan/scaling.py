"""Plans of the same tables side by side: on several numbers of GPUs, or in several copies (2D parallel)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.units import counted

HALF = 0.5  # a further GPU that adds less than this share of the average GPU is beyond the knee
STOPPED = "stopped before there was a plan"
_OF_PLAN = (
    *("time_s", "low_s", "high_s", "sync_s", "samples_per_s", "gpu_samples_per_s", "memory_bytes"),
    *("memory_limit_bytes", "longest_step", "longest_share", "bound_s", "gap"),
)


@dataclass(frozen=True, eq=False)
class PlanPoint:
    """A plan of the tables on one number of GPUs, in one number of copies.

    gpus      of all copies together;  replicas  R copies, each on gpus / R GPUs with the samples of these
    answer    the plan of one copy; None if there is none, and ``why`` says so
    sync_s    all-reduce of the tables among the copies [s]
    """

    gpus: int
    replicas: int
    answer: Planned | None
    why: str = ""
    sync_s: float = 0.0

    @property
    def time_s(self) -> float:
        """Time of a step: the pass of a copy, then the all-reduce [s]. Limits: no plan -> infinite"""
        return np.inf if self.answer is None else self.answer.costed.time_s + self.sync_s

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs; 0 without a plan."""
        return 0.0 if self.answer is None else self.answer.evaluator.batch * self.gpus / self.time_s

    def to_dict(self) -> dict[str, object]:
        """The point as plain values, a row of the public schema; null without a plan."""
        record = {"gpus": self.gpus, "replicas": self.replicas, "why_not": self.why or None}
        if self.answer is None:
            return {**record, **dict.fromkeys(_OF_PLAN)}
        result = self.answer.result
        cost = result.costed.cost
        values = (
            *(self.time_s, cost.low_s + self.sync_s, cost.high_s + self.sync_s, self.sync_s),
            *(self.samples_per_s, self.samples_per_s / self.gpus, result.costed.fullest_bytes),
            *(result.limit_bytes, cost.limiting.name, cost.limiting.time_s / self.time_s),
            *(result.bound_s, result.gap),
        )
        return {**record, **dict(zip(_OF_PLAN, values, strict=True))}


@dataclass(frozen=True, eq=False)
class Scaling:
    """Plans of the same tables, in the order of their GPUs, then of their copies.

    points   at least one of them has a plan
    stopped  whether Ctrl-C ended the searches: later points have no plan
    total    samples of all GPUs together, if the batch is global; None: equal samples per GPU
    """

    points: tuple[PlanPoint, ...]
    stopped: bool = False
    total: int | None = None

    @property
    def planned(self) -> list[PlanPoint]:
        """Points with a plan."""
        return [point for point in self.points if point.answer is not None]

    @property
    def rates(self) -> dict[int, float]:
        """Samples per second of all GPUs, by number of GPUs, of the points with a plan."""
        return {point.gpus: point.samples_per_s for point in self.planned}

    @property
    def added(self) -> dict[int, float]:
        """By number of GPUs, ``compare_added`` since the point before; not of the first."""
        gains = compare_added(list(self.rates), list(self.rates.values()))
        return dict(zip(list(self.rates)[1:], gains.tolist(), strict=True))

    @property
    def knee(self) -> int | None:
        """The number of GPUs beyond which more add little (``find_knee``); None: there is none."""
        return find_knee(list(self.rates), list(self.rates.values()))

    @property
    def best(self) -> PlanPoint:
        """The plan to look at: at the knee, or on most GPUs; of several numbers of copies the fastest."""
        if len(self.rates) == 1:
            return min(self.planned, key=lambda point: point.time_s)
        gpus = self.knee or max(self.rates)
        return next(point for point in self.planned if point.gpus == gpus)

    def to_dict(self) -> dict[str, object]:
        """The plans as plain values in SI units, in the public schema of ``--json``."""
        answer = self.planned[0].answer
        assert answer is not None
        names = ("model", "machine", "backend", "objective", "distribution", "tables", "table_bytes", "batch")
        record = {name: value for name, value in answer.to_dict().items() if name in names}
        added = self.added
        return {
            **record,
            **({"batch": None} if self.total else {}),
            "global_batch": self.total,
            "scaling": [{**point.to_dict(), "added": added.get(point.gpus)} for point in self.points],
            "knee_gpus": self.knee,
            "fastest_replicas": self.best.replicas,
        }


def compare_added(gpus: ArrayLike, samples_per_s: ArrayLike) -> NDArray[np.float64]:
    """Gain of each further GPU, over the average per GPU before; n - 1 values for n numbers of GPUs.

        (S_i - S_(i-1)) / (N_i - N_(i-1)) / (S_(i-1) / N_(i-1))               [-]

    gpus  N_i, increasing [-];  samples_per_s  S_i
    Limits: twice the GPUs, twice the samples -> 1;  the same samples -> 0;  fewer -> below 0
    """
    N = np.asarray(gpus, dtype=np.float64)
    S = np.asarray(samples_per_s, dtype=np.float64)
    return np.asarray(np.diff(S) / np.diff(N) / (S[:-1] / N[:-1]))


def find_knee(gpus: Sequence[int], samples_per_s: Sequence[float]) -> int | None:
    """The first number of GPUs beyond which a further GPU adds less than ``HALF`` of the average before it.

    gpus, samples_per_s  as in ``compare_added``
    Limits: one number of GPUs, or every step adds at least ``HALF`` -> None
    """
    gains = compare_added(gpus, samples_per_s)
    return next((count for count, gain in zip(gpus, gains, strict=False) if gain < HALF), None)


def compare_plans(
    question: PlanQuestion,
    gpus: Sequence[int],
    replicas: Sequence[int] = (1,),
    tell: Callable[[int, float], None] = lambda gpus, best_s: None,
) -> Scaling:
    """A plan for each number of GPUs and of copies of the sharded tables; each search has the whole effort.

    tell  called during a search with (GPUs of a copy, best time so far [s])
    Limits: copies that do not divide the GPUs, or no plan at all -> BadInputError;  too few GPUs for the
            tables -> a point without a plan;  Ctrl-C -> the points so far, KeyboardInterrupt before there is
            a plan
    """
    pairs = [(count, copies) for count in sorted(set(gpus)) for copies in sorted(set(replicas))]
    for count, copies in pairs:
        if count % copies:
            divisors = ", ".join(str(r) for r in range(1, count + 1) if count % r == 0)
            raise BadInputError(
                f"{counted(count, 'GPU')} are no {copies} equal groups.", f"--replicas is one of {divisors}."
            )
    points: list[PlanPoint] = []
    refusals: list[BadInputError] = []
    stopped = False
    for count, copies in pairs:
        answer = None
        why = STOPPED
        if not stopped:
            group = question.use_gpus(count // copies, copies)
            try:
                answer = group.plan(partial(tell, group.gpus), copies)
                why = ""
            except BadInputError as error:
                message = (
                    f"{error.message} That is for each of {copies} copies." if copies > 1 else error.message
                )
                refusals.append(BadInputError(message, error.next_step))
                why = error.message
            except KeyboardInterrupt:
                if not any(point.answer for point in points):
                    raise
                stopped = True
        sync_s = 0.0 if answer is None else time_sync(answer, copies)
        points.append(PlanPoint(count, copies, answer, why, sync_s))
        stopped = stopped or (answer is not None and answer.result.stopped == "interrupt")
    if not any(point.answer for point in points):
        raise refusals[0]
    return Scaling(tuple(points), stopped, question.question.total)


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
    e = answer.evaluator
    memory = answer.costed.memory
    size = np.array([float((memory.rows_bytes + memory.optimizer_bytes).max())])
    node = e.basis.gpus_per_node or e.setting.machine.gpus_per_node
    beside = max(min(node // e.gpus, replicas), 1)
    timing = e.setting.links.timing("all_reduce", size, np.array([float(replicas)]), beside)
    return float(timing.time_s[0])
