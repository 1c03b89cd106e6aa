"""How a plan scales: the same tables on several numbers of GPUs, and the knee."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion

Array = NDArray[np.float64]

HALF = 0.5
"""A further GPU that adds less than this share of the average GPU is beyond the knee."""
_OF_PLAN = (
    *("time_s", "low_s", "high_s", "samples_per_s", "gpu_samples_per_s", "added", "memory_bytes"),
    *("memory_limit_bytes", "longest_step", "longest_share", "bound_s", "gap"),
)
_STOPPED = "stopped before there was a plan"


@dataclass(frozen=True, eq=False)
class ScalePoint:
    """The plan of the tables on one number of GPUs.

    answer        the plan; None if there is none, and ``why`` says so
    added         what each GPU added since the point before, in samples per second, over the average per GPU
                  at that point [-]; None for the first
    """

    gpus: int
    answer: Planned | None
    why: str = ""
    added: float | None = None

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs; 0 without a plan."""
        if self.answer is None:
            return 0.0
        return self.answer.evaluator.batch * self.gpus / self.answer.found.cost.time_s

    def to_dict(self) -> dict[str, Any]:
        """The point as plain values, a row of the public schema; null without a plan."""
        if self.answer is None:
            return {"gpus": self.gpus, **dict.fromkeys(_OF_PLAN), "why_not": self.why}
        found, rate = self.answer.found, self.samples_per_s
        cost, row = found.cost, found.cost.limiting
        times = cost.time_s, cost.low_s, cost.high_s, rate, rate / self.gpus, self.added
        memory = float(found.memory.total_bytes.max()), found.limit_bytes
        numbers = *times, *memory, row.name, row.time_s / cost.time_s, found.bound_s, found.gap
        return {"gpus": self.gpus, **dict(zip(_OF_PLAN, numbers, strict=True)), "why_not": None}


@dataclass(frozen=True, eq=False)
class Scaling:
    """Plans of the same tables on several numbers of GPUs, fewest first.

    knee    number of GPUs beyond which more add little (``knee_of``); None: none
    stopped whether Ctrl-C ended the searches: later points have no plan
    total   samples of all GPUs together, if the batch is global; None: equal samples per GPU
    """

    points: tuple[ScalePoint, ...]
    knee: int | None
    stopped: bool = False
    total: int | None = None

    @property
    def planned(self) -> list[ScalePoint]:
        """Points with a plan."""
        return [point for point in self.points if point.answer is not None]

    def to_dict(self) -> dict[str, Any]:
        """The plans as plain values in SI units, in the public schema of ``--json``."""
        answer = self.planned[0].answer
        assert answer is not None
        kept = ("model", "machine", "backend", "objective", "batch", "distribution", "tables")
        known = answer.to_dict()
        return {
            **{name: known[name] for name in kept},
            **({"batch": None} if self.total else {}),
            "global_batch": self.total,
            "table_bytes": answer.evaluator.memories.table_bytes,
            "scaling": [point.to_dict() for point in self.points],
            "knee_gpus": self.knee,
        }


def added_by_gpu(gpus: ArrayLike, samples_per_s: ArrayLike) -> Array:
    """Gain of each further GPU, over the average per GPU before; n - 1 values for n numbers of GPUs.

        (S_i - S_(i-1)) / (N_i - N_(i-1)) / (S_(i-1) / N_(i-1))               [-]

    gpus  N_i, increasing [-];  samples_per_s  S_i
    Limits: twice the GPUs, twice the samples -> 1;  the same samples -> 0;  fewer -> below 0
    """
    N, S = np.asarray(gpus, dtype=np.float64), np.asarray(samples_per_s, dtype=np.float64)
    return np.asarray(np.diff(S) / np.diff(N) / (S[:-1] / N[:-1]))


def knee_of(gpus: Sequence[int], samples_per_s: Sequence[float]) -> int | None:
    """The first number of GPUs beyond which a further GPU adds less than ``HALF`` of the average before it.

    gpus, samples_per_s  as in ``added_by_gpu``
    Limits: one number of GPUs, or every step adds at least ``HALF`` -> None
    """
    added = added_by_gpu(gpus, samples_per_s) if len(gpus) > 1 else np.zeros(0)
    return next((count for count, gain in zip(gpus, added, strict=False) if gain < HALF), None)


def scale(
    question: PlanQuestion,
    gpus: Sequence[int],
    tell: Callable[[int, float], None] = lambda gpus, best_s: None,
) -> Scaling:
    """Plans on each number of GPUs: each search has the whole effort.

    tell  called during the search with (GPUs, best time so far [s])
    Limits: too few GPUs for the tables -> a point without a plan;  no number is enough -> BadInputError;
            Ctrl-C -> the points so far, KeyboardInterrupt before there is a plan
    """
    points: list[ScalePoint] = []
    wanted = sorted(set(gpus))
    refusal: BadInputError | None = None
    stopped = False
    for count in wanted:
        if stopped:
            points.append(ScalePoint(count, None, _STOPPED))
            continue
        try:
            answer = question.on(count).answer(partial(tell, count))
        except BadInputError as error:
            refusal = refusal or error
            points.append(ScalePoint(count, None, error.message))
            continue
        except KeyboardInterrupt:
            if not any(point.answer for point in points):
                raise
            points.append(ScalePoint(count, None, _STOPPED))
            stopped = True
            continue
        stopped = answer.found.stopped == "interrupt"
        points.append(ScalePoint(count, answer))
    found = [point for point in points if point.answer is not None]
    if not found and refusal is not None:
        raise refusal
    numbers, rates = [point.gpus for point in found], [point.samples_per_s for point in found]
    if len(found) > 1:
        added = dict(zip(numbers[1:], added_by_gpu(numbers, rates).tolist(), strict=True))
        points = [replace(point, added=added.get(point.gpus)) for point in points]
    return Scaling(tuple(points), knee_of(numbers, rates), stopped, question.question.total)
