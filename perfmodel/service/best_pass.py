"""Chooses the pass that a service runs: the given sharding, or the best for the batches at its load."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from perfmodel.passes.schemes import ROW_WISE
from perfmodel.passes.settings import Setting
from perfmodel.plan.as_projection import is_slower
from perfmodel.plan.leading import Leading, leading_on_enough, leading_with_host, leads
from perfmodel.projections import Projection
from perfmodel.projections.hosted import EAGER, check_clock, hosted
from perfmodel.schema.evidence import Clock
from perfmodel.schema.prices import MEMORY
from perfmodel.service.served import ServedPass, hosted_pass
from perfmodel.service.service_load import ChosenSharding, ServiceLoad
from perfmodel.service.sharded import BATCHES, leading_pass, sharded_pass
from perfmodel.units import counted, format_fraction

BEST = "best"
_ROUNDS = 2  # passes that are simulated, at most
_SAME = 1e-6
_FASTER = 0.05  # a pass must be faster by this share to be served instead


@dataclass(frozen=True, kw_only=True)
class Served:
    """The known properties of a service before its sharding is chosen.

    host, calibration  as in ``hosted.host_costs``; None: times of the device alone
    answer  simulates a service that runs a given pass
    samples_per_s  load; None: not given;  limit_s  of the p99;  most  largest batch, in samples per GPU
    """

    host: str | None
    calibration: str | None
    answer: Callable[[ServedPass], ServiceLoad]
    samples_per_s: float | None
    limit_s: float
    most: float = math.inf

    def by(self, setting: Setting, served: ServedPass) -> ServiceLoad:
        """The answer for a service that runs this pass; device times come with a host's addition."""
        if self.host is not None:
            check_clock(setting, self.host)
            return self.answer(hosted_pass(served, self.host, self.calibration))
        if Clock.EAGER in {*setting.links.clocks, setting.kernel_clock}:
            return self.answer(replace(served, host=f"{Clock.EAGER} clock"))
        found = self.answer(served)
        if served.held_in == MEMORY:
            return found
        with_host = hosted_pass(served, EAGER, self.calibration)
        return replace(found, host_adds_s=with_host.total(found.samples) - served.total(found.samples))

    def time_of(self, answer: Projection) -> float:
        """Time of a pass with the host of this service [s]."""
        return answer.time_s if self.host is None else hosted(answer, self.host, self.calibration).time_s


def sharded_load(
    way: str,
    base: Projection,
    on: Callable[[int, int], Projection],
    row_wise: Callable[[int], ServedPass],
    served: Served,
) -> ServiceLoad:
    """The answer with a given sharding, or with the best that fits.

    way       a sharding option, name among ``schemes.WAYS``, or ``BEST``
    base      the row-wise projection, at the batch for which the sharding is chosen
    on        returns the row-wise projection for (GPUs, samples per GPU)
    row_wise  returns the row-wise pass for a number of GPUs
    Limits: one GPU, rows outside HBM, a given exchange -> row-wise is the best
    """
    if way == ROW_WISE or (way == BEST and not leads(base)):
        return served.by(base.setting, row_wise(base.gpus))
    if way != BEST:
        return served.by(base.setting, sharded_pass(base, way))
    return _best(base, on, row_wise, served)


def _best(
    base: Projection,
    on: Callable[[int, int], Projection],
    row_wise: Callable[[int], ServedPass],
    served: Served,
) -> ServiceLoad:
    """The better of two answers: the best sharding at a guessed batch, and at the first answer's own batch.

    Better is the answer with fewer GPUs, then with a lower p99; without a load, with a higher load.
    """
    batch = int(base.work.batch[0])
    lead = partial(leading_with_host, host=served.host, calibration=served.calibration)
    enough = base if base.gpu_count.fits else leading_on_enough(base, lambda n: on(n, batch), lead).base
    gpus = enough.gpus
    samples = _likely(row_wise(gpus), served)
    found = lead(on(gpus, samples))
    best: ServiceLoad | None = None
    for _ in range(_ROUNDS):
        planned = _fastest(found, served) is not found.answer
        its = leading_pass(found, planned=planned) if planned or found.way != ROW_WISE else row_wise(gpus)
        answer = served.by(base.setting, its)
        before, samples = samples, _power_of_two(answer.samples, its.largest_batch)
        found = found if samples == before else lead(on(gpus, samples))
        time_s = answer.question.served.total(samples)
        fastest_s = served.time_of(_fastest(found, served))
        question = answer.question
        if its.way != ROW_WISE:
            words = _chosen_words(its, samples, time_s / fastest_s - 1)
            question = replace(question, served=replace(question.served, sharding=words))
        answer = replace(answer, question=question, choice=_choice(its, samples, time_s, found, served))
        best = answer if best is None or _rank(answer) < _rank(best) else best
        if fastest_s >= (1 - _FASTER) * time_s:
            break
    assert best is not None
    return best


def _chosen_words(its: ServedPass, samples: int, slower: float) -> str:
    """The sharding, and how near it is to the fastest at the batch of this load.

    samples  of that batch, per GPU;  slower  its time over that of the fastest, minus 1 [-]
    """
    than = "" if slower < _SAME else f"{format_fraction(slower)} slower than "
    name, batch = its.sharding.partition(",")[0], counted(samples, "sample")
    return f"{name}, {than}the fastest for a batch of {batch} per GPU"


def _power_of_two(samples: float, most: int) -> int:
    """The power of two from 1 to ``most`` that is nearest by ratio."""
    return 1 << min(round(math.log2(max(samples, 1.0))), most.bit_length() - 1)


def _likely(row_wise: ServedPass, served: Served) -> int:
    """A guess of the samples per GPU in a batch: as many as arrive while a row-wise pass runs [-].

        n = lambda s t(n) / G,   t(n) <= limit / 2

    lambda  requests per second;  s  samples per request;  t(n)  time of a pass;  G  GPUs
    A request may wait for a pass and then take another, so a pass takes at most half of the limit.
    Limits: no load was given -> limited by time alone;  nothing fits -> 1
    """
    sizes = [size for size in BATCHES if size <= min(served.most, row_wise.largest_batch)]
    times = {size: row_wise.total(size) for size in sizes}
    rate = math.inf if served.samples_per_s is None else served.samples_per_s / row_wise.gpus
    for size, time_s in times.items():
        if rate * time_s <= size or 4 * time_s > served.limit_s:  # twice as many leave no time for a second
            return size
    return sizes[-1] if sizes else 1


def _rank(answer: ServiceLoad) -> tuple[float, float]:
    """Sort key of an answer: less is better."""
    if answer.question.qps is None:
        return -answer.best.rate_per_s * answer.replicas / answer.gpus, 0.0
    return answer.gpus, answer.asked.run.quantile(0.99)


def _fastest(found: Leading, served: Served) -> Projection:
    """The projection of the best uniform sharding, or of a plan by table if that is faster with the host."""
    planned = found.planned_answer
    if planned is None or (found.best and served.time_of(planned) >= served.time_of(found.answer)):
        return found.answer
    return planned


def _choice(its: ServedPass, samples: int, time_s: float, found: Leading, served: Served) -> ChosenSharding:
    """The comparison of the served pass with the best other passes at this batch.

    its  the served pass;  samples  per GPU;  time_s  of it
    Limits: with a host no difference has a band -> no other pass is listed as near
    """
    base, near = found.base, []
    alike = (each.answer for each in found.best if each.way == its.way)
    mine = next(alike, None) if its.way else found.planned_answer
    if mine is not None and served.host is None:
        for each in found.best:
            other = each.answer
            if other is not None and other is not mine:
                fast, slow = sorted((mine, other), key=lambda answer: answer.time_s)
                near += [] if is_slower(slow, fast) else [(each.way, other.time_s)]
    fits = base.gpu_count.fits and its.way != ROW_WISE
    return ChosenSharding(samples, time_s, served.time_of(base) if fits else None, tuple(near))
