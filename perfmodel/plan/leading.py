"""The uniform sharding that leads an answer: the fastest that fits and somebody runs, beside row-wise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfmodel.errors import NoCalibrationError
from perfmodel.passes.schemes import ROW_WISE, WAYS, copied
from perfmodel.plan.as_projection import Compared, compared, compared_way, evaluator_of, undecided
from perfmodel.plan.pricing.alike import best_alike, least_times
from perfmodel.projections.grid import costed
from perfmodel.projections.hosted import hosted
from perfmodel.projections.projection import Projection, projections
from perfmodel.projections.sensitivity import Change, Sensitivity, of_hardware

RUN = tuple(name for name, way in WAYS.items() if way.runs and not copied(way.exchange))
"""Ways that somebody runs and that spread tables: what is said to be the best is one of them."""
MOST_COMPARED = 1000
"""Tables up to which every way is dealt to GPUs within a second or two."""
_SAME = 1e-6


@dataclass(frozen=True, eq=False)
class Leading:
    """Of one question the best ways that fit, the fastest first, and its row-wise projection.

    best  none where nothing fits; of slower ones those that can matter beside it
    """

    base: Projection
    best: tuple[Compared, ...]

    @property
    def answer(self) -> Projection:
        """Of the best way; row-wise where none fits."""
        first = self.best[0].answer if self.best else None
        return first or self.base

    @property
    def way(self) -> str:
        """The best."""
        return self.best[0].way if self.best else ROW_WISE

    @property
    def as_good(self) -> tuple[Compared, ...]:
        """Slower ways inside the band of the difference: nobody can tell which is faster."""
        return undecided(self.best) if self.best else ()

    def changes(self) -> tuple[Sensitivity, ...]:
        """What other links, libraries and batches leave, each with the way that is best then."""
        return of_hardware(self.answer, self._changed)

    def _changed(self, _: Projection, change: Change) -> Sensitivity | None:
        try:
            grid = costed(change.forward, change.work)
            reserve = self.base.gpu_count.reserve
            found = leading(*projections(change.forward, change.work, reserve, grid))
        except NoCalibrationError:
            return None
        if not found.best:
            return None
        label = change.label if found.way == self.way else f"{change.label} ({found.way})"
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


def leading(base: Projection) -> Leading:
    """The ways that fit, the fastest first: until no other can be as fast as the second.

    base  row-wise, with the reduction that is best for it
    Limits: one GPU, too many tables to deal -> row-wise alone
    """
    mine = (Compared(ROW_WISE, None, base, base.gpu_count.memory_bytes),) if base.gpu_count.fits else ()
    if base.gpus == 1 or table_count(base) > MOST_COMPARED:
        return Leading(base, mine)
    evaluator = evaluator_of(base)
    least, known = least_times(evaluator, RUN, base.gpu_count.usable_bytes)
    found = list(mine)
    for way in sorted(least, key=lambda way: least[way]):
        times = sorted({_time(each) for each in found})
        if way == ROW_WISE or (len(times) > 1 and least[way] >= times[1]):
            continue
        plan = best_alike(evaluator, way, base.gpu_count.usable_bytes, known)
        each = compared_way(base, evaluator, way, plan)
        found += [each] if each.answer is not None else []
    return Leading(base, tuple(_fastest_first(found)))


def leading_with_host(base: Projection, host: str, calibration: str | None) -> Leading:
    """The ways that fit, the fastest with the host that issues them first.

    host, calibration  as in ``hosted.host_costs``
    Limits: as ``leading``
    """
    if base.gpus == 1 or table_count(base) > MOST_COMPARED:
        return leading(base)
    timed = [
        (hosted(each.answer, host, calibration).time_s, each)
        for each in compared(base, RUN)
        if each.answer is not None and each.fits
    ]
    return Leading(base, tuple(each for _, each in sorted(timed, key=lambda pair: pair[0])))


def table_count(base: Projection) -> int:
    """Tables of a projection."""
    return int(sum(float(group.count.flat[0]) for group in base.work.groups))


def _fastest_first(found: Sequence[Compared]) -> Iterator[Compared]:
    """Of equally fast ways the simpler alone (earlier in ``WAYS``)."""
    last = 0.0
    order = list(WAYS)
    for each in sorted(found, key=lambda each: (_time(each), order.index(each.way))):
        if _time(each) > last * (1 + _SAME):
            yield each
        last = _time(each)


def _time(each: Compared) -> float:
    """To six digits [s]."""
    return float(f"{each.answer.time_s:.6g}") if each.answer else 0.0
