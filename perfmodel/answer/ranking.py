"""The best sharding option for a question, beside row-wise: the fastest that fits and that TorchRec runs.

An option (a *way*, one of ``WAYS``) is one sharding for all tables, such as column-wise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from perfmodel.answer.projection import Projection, projections
from perfmodel.answer.sensitivity import (
    Change,
    NextExperiment,
    Sensitivity,
    next_experiment,
    of_hardware,
)
from perfmodel.answer.sharding_answers import (
    ShardingAnswer,
    answer_sharding,
    answer_shardings,
    evaluator_for,
    tables_of,
    undecided,
    uniform_plans_of,
)
from perfmodel.engine.grid import costed
from perfmodel.engine.schemes import AUTO, ROW_WISE, ROWS_ONCE, WAYS, copied
from perfmodel.engine.uniform_plans import MOST_COMPARED, UniformPlans
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model import sharding

T = TypeVar("T")

RUN = tuple(name for name, way in WAYS.items() if way.torchrec and not copied(way.exchange))
"""Shardings that TorchRec runs and that spread tables over GPUs: only these can lead an answer."""
LEFT_OUT = tuple(name for name, way in WAYS.items() if way.runs and name not in (*RUN, ROWS_ONCE))
"""Other shardings that somebody runs: replicas on all GPUs, and EMBark's besides unique rows."""
_SAME = 1e-6
AT_MOST = 16
"""Multiple of the GPUs that the rows alone need: the most GPUs that are tried."""
_MORE = 1.25


@dataclass(frozen=True, eq=False)
class Ranking:
    """The sharding options (``WAYS``) that fit for one question, fastest first, and the row-wise projection.

    base     the row-wise projection
    best     options that fit; empty if none fits; slower options only if they may be the answer
    unknown  options that are not compared, because no calibration has their exchanges
    enough   if nothing fits the given GPUs: how many would be enough, in words
    """

    base: Projection
    best: tuple[ShardingAnswer, ...]
    unknown: tuple[str, ...] = ()
    enough: str = ""

    @property
    def answer(self) -> Projection:
        """The projection of the best option; row-wise if none fits."""
        first = self.best[0].answer if self.best else None
        return first or self.base

    @property
    def way(self) -> str:
        """Name of the best sharding option."""
        return self.best[0].way if self.best else ROW_WISE

    @property
    def as_good(self) -> tuple[ShardingAnswer, ...]:
        """Options that are slower than the best by less than the uncertainty: they may be as fast."""
        return undecided(self.best) if self.best else ()

    @cached_property
    def _beside(self) -> dict[str, ShardingAnswer]:
        """The answers, on the same GPUs, of shardings that TorchRec does not run; none if tables are not
        packed."""
        if not self.best or not self._packs:
            return {}
        return {each.way: each for each in answer_shardings(self.base, (ROWS_ONCE, *LEFT_OUT)) if each.answer}

    @property
    def unique_rows(self) -> ShardingAnswer | None:
        """The answer if unique rows are sent. Limits: nothing or it does not fit, one GPU -> None"""
        return self._beside.get(ROWS_ONCE)

    @property
    def left_out(self) -> ShardingAnswer | None:
        """The fastest sharding of ``LEFT_OUT`` that fits and is faster than the best and than unique rows."""
        shown = [self.answer, *([self.unique_rows.answer] if self.unique_rows else [])]
        least = min(answer.time_s for answer in shown if answer)
        faster = {
            each.answer.time_s: each
            for way, each in self._beside.items()
            if way != ROWS_ONCE and each.answer and each.answer.time_s < least * (1 - _SAME)
        }
        return faster[min(faster)] if faster else None

    @property
    def _packs(self) -> bool:
        """Whether there are several GPUs, and few enough tables to pack onto them."""
        return self.base.gpus > 1 and table_count(self.base) <= MOST_COMPARED

    @cached_property
    def experiment(self) -> NextExperiment | None:
        """The measurement that would narrow the band of the answer most; None if nothing fits."""
        return next_experiment(self.answer) if self.best else None

    @cached_property
    def changes(self) -> tuple[Sensitivity, ...]:
        """Slowdowns with other links, libraries and batches, each with the way that is best then; the
        shortest time first.
        """
        return tuple(sorted(of_hardware(self.answer, self._changed), key=lambda each: each.after_s))

    def _changed(self, _: Projection, change: Change) -> Sensitivity | None:
        try:
            grid = costed(change.forward, change.work)
            reserve = self.base.gpu_count.reserve
            found = rank_shardings(*projections(change.forward, change.work, reserve, grid))
        except NoCalibrationError:
            return None
        if not found.best:
            return None
        label = change.label if found.way == self.way else f"{change.label}, sharded {found.way}"
        now, after = self.answer, found.answer
        low, high = after.band
        return Sensitivity(
            label,
            change.option,
            now.slowdown,
            after.slowdown,
            low,
            high,
            after.evidence,
            now.time_s,
            after.time_s,
        )


def leads(base: Projection) -> bool:
    """Whether several options are compared: tables are in HBM, on several GPUs, with no exchange given."""
    forward = base.forward
    return base.gpus > 1 and forward.memory is None and forward.reduction == AUTO


def rank_on_enough(
    base: Projection, on_gpus: Callable[[int], Projection], of: Callable[[Projection], Ranking] | None = None
) -> Ranking:
    """The best options, on the given GPUs, else on the fewest GPUs where any option fits (``on_enough``).

    on_gpus  returns the row-wise projection for a number of GPUs
    of       computes the result for a projection; None: ``rank_shardings``
    """
    if table_count(base) > MOST_COMPARED:
        return rank_shardings(base)
    return on_enough(base, on_gpus, of or rank_shardings, lambda each: bool(each.best))[1]


def on_enough(
    base: Projection,
    on_gpus: Callable[[int], Projection],
    on: Callable[[Projection], T],
    fits: Callable[[T], bool],
    ways: Sequence[str] = RUN,
) -> tuple[Projection, T]:
    """(row-wise projection, result) on the fewest GPUs where the result fits: within a node any number,
    else whole nodes.

    base     row-wise, on as many GPUs as it needs: other options have smaller buffers and may fit fewer
    on_gpus  returns the row-wise projection for a number of GPUs
    on       computes the result for a projection;  fits  returns whether a result fits the memory
    ways     options that the result may have; numbers of GPUs where ``UniformPlans.may_fit`` excludes all are
             skipped
    Limits: GPUs were given, or none fits up to ``AT_MOST`` times as many -> on the GPUs of ``base``;  numbers
    of GPUs without measurements, or that are refused -> skipped
    """
    first = on(base)
    if base.work.given_gpus or base.gpus == 1:
        return base, first

    def with_gpus(gpus: int, like: Projection) -> tuple[Projection, T] | None:
        try:
            if not _may_fit(like, gpus, ways):
                return None
            there = on(more := _fewest(on_gpus(gpus)))
        except (BadInputError, NoCalibrationError):  # fewer rows than GPUs, or an indivisible batch
            return None
        return (more, there) if fits(there) else None

    count = base.gpu_count
    node, many, found = count.gpus_per_node, base.gpus, (base, first) if fits(first) else None
    while found is None and many < AT_MOST * base.gpus:
        many = node * math.ceil(max(many * _MORE, many + node) / node)
        found = with_gpus(many, base)
    if found is None:
        return base, first
    fewer = sharding.allowed_gpus(count.for_rows, many - 1, node)
    return next((less for gpus in fewer if (less := with_gpus(gpus, found[0]))), found)


def _may_fit(like: Projection, gpus: int, ways: Sequence[str]) -> bool:
    """Whether any of these options may fit on so many GPUs, with the batch of ``like``."""
    work = replace(like.work, gpus=np.full_like(like.work.gpus, gpus))
    tables = tables_of(work, "the tables", like.forward.ids)
    evaluator = evaluator_for(like.forward, work, 0, tables)
    return UniformPlans(evaluator, like.gpu_count.usable_bytes).may_fit(ways)


def _fewest(answer: Projection) -> Projection:
    """The projection, with a note on why it uses this number of GPUs, which the user did not give."""
    which = "whole nodes that it fits" if answer.gpus > answer.gpu_count.gpus_per_node else "that it fits"
    count = replace(answer.gpu_count, needed=answer.gpus, rule=f"the fewest {which}")
    return replace(answer, gpu_count=count, totals=answer.totals | {"gpus_needed": float(answer.gpus)})


def rank_shardings(base: Projection) -> Ranking:
    """Compares sharding options; stops when no other option can be as fast as the second best.

    base  the row-wise projection, with its best reduction
    Limits: one GPU, or too many tables to pack -> row-wise alone
    """
    mine = (ShardingAnswer(ROW_WISE, None, base, base.gpu_count.memory_bytes),) if base.gpu_count.fits else ()
    if base.gpus == 1 or table_count(base) > MOST_COMPARED:
        return Ranking(base, mine)
    plans = uniform_plans_of(base)
    least, unknown = plans.least_times(RUN)
    found = list(mine)
    for way in sorted(least, key=lambda way: least[way]):
        times = sorted({_time(each) for each in found})
        if way == ROW_WISE or (len(times) > 1 and least[way] >= times[1]):
            continue
        each = answer_sharding(base, plans, way)
        found += [each] if each.answer is not None else []
    return Ranking(base, tuple(_fastest_first(found)), tuple(way for way in unknown if way != ROW_WISE))


def table_count(base: Projection) -> int:
    """Number of tables of a projection."""
    return int(sum(float(group.count.flat[0]) for group in base.work.groups))


def _fastest_first(found: Sequence[ShardingAnswer]) -> Iterator[ShardingAnswer]:
    """The results, fastest first; of equally fast ones only the simplest (earliest in ``WAYS``)."""
    last = 0.0
    order = list(WAYS)
    for each in sorted(found, key=lambda each: (_time(each), order.index(each.way))):
        if _time(each) > last * (1 + _SAME):
            yield each
        last = _time(each)


def _time(each: ShardingAnswer) -> float:
    """Time rounded to six digits [s]."""
    return float(f"{each.answer.time_s:.6g}") if each.answer else 0.0
