"""The number of replicas for a load, with the best batch size, wait and overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfmodel.errors import BadInputError
from perfmodel.question.passes import FOLLOWED
from perfmodel.schema.ranges import MOST_GPUS
from perfmodel.service.arrivals import Arrivals, Poisson
from perfmodel.service.highest import QUICK, Carried, Replica, batches_within, carried, soonest, surely
from perfmodel.service.served import ServedPass
from perfmodel.service.stragglers import NONE, Lateness, RankDelay, lateness
from perfmodel.units import counted, format_count, format_per_second, format_time

SLACK = 1e-9
_MOST_ROUNDS = 12
_ALIKE = 0.05
_ROUGH = 0.1  # of the load that a short simulation gives
_MOST_NEW = 3  # rules with equally low latency whose highest load is computed


@dataclass(frozen=True, kw_only=True, eq=False)
class ServiceQuestion:
    """A question about a service: which load, or how many replicas.

    served   the pass of a replica;  limit_s  of the 99th percentile of the latency [s]
    qps      requests per second of the service; None: the highest load of the replicas
    replicas number of replicas; None: as many as needed;  batch  samples per GPU in a full batch
    wait_s   longest wait of a batch's first request;  overlap  whether two batches overlap
             (batch, wait_s, overlap  None: the best of several)
    samples  per request;  arrivals  how requests arrive;  requests  to simulate at each load
    spread   mean delays of a rank, from which delays by the slowest rank follow
    measured ranks on which the mean time of each step was measured [S], or at each batch of ``served`` [S, n]
             (``stragglers.ranks_behind``); None: all ranks are equally fast
    """

    served: ServedPass
    limit_s: float
    qps: float | None = None
    replicas: int | None = None
    batch: int | None = None
    wait_s: float | None = None
    overlap: bool | None = None
    samples: float = 1.0
    arrivals: Arrivals = field(default_factory=Poisson)
    requests: int = FOLLOWED
    spread: RankDelay = NONE
    measured: npt.ArrayLike | None = None

    @property
    def late(self) -> Lateness | None:
        """Delays of the collectives of a pass by slow ranks; None: all ranks are equally fast."""
        return self._late(self.spread)

    def _late(self, spread: RankDelay) -> Lateness | None:
        if self.measured is None:
            return None
        at = self.served.batches if np.ndim(self.measured) > 1 else None
        return lateness(spread, self.measured, self.served.gpus, self.arrivals.seed, at)

    def ranks_at(self, samples: float) -> list[int]:
        """For each step, the ranks on which its mean time was measured at about ``samples``; 0: a kernel."""
        steps, sizes = len(self.served.steps), self.served.batches
        if self.measured is None:
            return [0] * steps
        ranks = np.asarray(self.measured, dtype=np.int64).reshape(steps, -1)
        nearest = int(np.argmin(np.abs(sizes - samples)))
        return [int(each) for each in ranks[:, min(nearest, ranks.shape[1] - 1)]]

    def replica(self, replicas: int, end: str = "") -> Replica:
        """A replica of a service with so many replicas.

        end  ``low`` or ``high``: all times at that end of their bands; "": at the centre
        """
        served, spread = self.served, self.spread
        if end:
            served = served.changed(getattr(served, f"{end}_s"))
            spread = spread.end(end == "high")
        return Replica(served, self.arrivals, self.limit_s, self._late(spread), self.samples, replicas)


def sized(question: ServiceQuestion, tell: Callable[[str], None]) -> tuple[int, Carried, tuple[Carried, ...]]:
    """(the fewest replicas for the question, the best batch size, the result for every batch size).

    tell  is called with words on the progress
    Poisson arrivals stay Poisson when shared among replicas, so one search is enough. With a trace, arrivals
    at a replica depend on the number of replicas: numbers are tried until the fewest are known.
    """
    replicas = question.replicas or 1
    gpus = replicas * question.served.gpus
    if gpus > MOST_GPUS:
        raise BadInputError(
            f"{counted(replicas, 'replica')} of {counted(question.served.gpus, 'GPU')} are "
            f"{counted(gpus, 'GPU')}: more than this model describes.",
            f"at most {format_count(MOST_GPUS)} GPUs.",
        )
    best, tried = _best(question, replicas, tell)
    if question.qps is None or question.replicas is not None:
        return replicas, best, tried
    needed = _needed(question, best)
    if isinstance(question.arrivals, Poisson) or needed <= replicas:
        return needed, best, tried
    too_few, enough = replicas, None
    for _ in range(_MOST_ROUNDS):
        best, tried = _best(question, needed, tell)
        likely = _needed(question, best)
        if likely <= needed:
            enough = needed, best, tried
        else:
            too_few = needed
        if enough is None:
            needed = max(likely, needed + 1)
            continue
        if enough[0] - too_few == 1:
            break
        needed = likely if too_few < likely < enough[0] else max(math.isqrt(too_few * enough[0]), too_few + 1)
    return enough or (needed, best, tried)


def _needed(question: ServiceQuestion, best: Carried) -> int:
    """Replicas needed for the asked load. Limits: more GPUs than the model covers -> BadInputError"""
    load, gpus = question.qps or 0.0, question.served.gpus
    needed = max(math.ceil(load / best.rate_per_s - SLACK), 1)
    if needed * gpus > MOST_GPUS:
        most = best.rate_per_s * (MOST_GPUS // gpus)
        raise BadInputError(
            f"{format_per_second(load, 'requests')} need {counted(needed, 'replica')} of "
            f"{counted(gpus, 'GPU')}: more than this model covers.",
            f"{format_count(MOST_GPUS)} GPUs carry {format_per_second(most, 'requests')}.",
        )
    return needed


def _best(
    question: ServiceQuestion, replicas: int, tell: Callable[[str], None]
) -> tuple[Carried, tuple[Carried, ...]]:
    """(the best batch size with its rule, all that were tried).

    Without a load: the highest load within the limit. With a load: of the rules that carry it on the fewest
    replicas, the rule with the lowest p99. If several p99 differ by less than 5 %, the highest load decides.
    """
    replica = question.replica(replicas)
    fitting = batches_within(question.served, question.limit_s)
    batches = fitting if question.batch is None else [question.batch]
    tried = carried(replica, batches, question.wait_s, question.overlap, tell)
    tell("the most that the best batch carries")
    best = _most(question, replica, tried)
    if question.qps is not None:
        count = question.replicas or max(_needed(question, best), replicas)
        tell("the batch that answers soonest")
        soon = _soonest(question, replica, batches, tried, question.qps / count)
        sure = best if soon is None else surely(replica, soon, question.requests)
        if sure.rate_per_s * count >= min(question.qps, best.rate_per_s * count):
            best = sure
    others = [each for each in tried if each.rule != best.rule]
    return best, tuple(sorted([*others, best], key=lambda each: each.batch))


def _most(question: ServiceQuestion, replica: Replica, tried: Sequence[Carried]) -> Carried:
    """The rule with the highest load within the limit.

    Where short simulations cannot decide, long ones do. Limits: no load is carried -> BadInputError
    """
    ranked = sorted(tried, key=lambda each: (-each.rate_per_s, each.batch))
    best: Carried | None = None
    for each in ranked:
        above = best.rate_per_s if best else 0.0
        if best is None or each.rate_per_s > (1 - _ROUGH) * above:
            sure = surely(replica, each, question.requests, above)
            best = sure if sure.rate_per_s > above else best
    if best is None:
        raise _nothing(question)
    return best


def _soonest(
    question: ServiceQuestion, replica: Replica, batches: Sequence[int], tried: Sequence[Carried], rate: float
) -> Carried | None:
    """The rule with the lowest p99 of all that carry ``rate``; within 5 %, with the highest load.

    Limits: none carries it in a short simulation -> None
    """
    found = soonest(replica, batches, rate, question.wait_s, question.overlap)
    least = min((time for _, _, time in found), default=0.0)
    near = {rule: batch for batch, rule, time in found if time <= (1 + _ALIKE) * least}
    known = [each for each in tried if each.rule in near]
    new = sorted(near.keys() - {each.rule for each in known}, key=replica.capacity)[-_MOST_NEW:]
    for rule in new:
        most, alone = replica.highest(rule, QUICK), question.served.total(near[rule])
        known.append(Carried(near[rule], rule, most, alone, replica.capacity(rule)))
    return max(known, key=lambda each: (each.rate_per_s, -each.batch), default=None)


def _nothing(question: ServiceQuestion) -> BadInputError:
    """The error that no load is answered in time, however small, or that the tables do not fit."""
    served = question.served
    if not served.fits.any():
        return BadInputError(
            f"the tables do not fit on {counted(served.gpus, 'GPU')}, even with 1 sample per GPU in a batch.",
            "use more GPUs (without --gpus, as many as it takes), or --tier uvm.",
        )
    named = {
        f"--batch {question.batch}": question.batch,
        f"--wait {format_time(question.wait_s or 0)}": question.wait_s,
    }
    given = " and ".join(name for name, value in named.items() if value is not None)
    with_what = f" with {given}" if given else ""
    alone = format_time(question.replica(1).alone())
    return BadInputError(
        f"no load is answered within {format_time(question.limit_s)}{with_what}.",
        f"a request that comes alone takes {alone} (p99): ask for a longer "
        f"--p99{', or leave ' + given + ' out' if given else ''}.",
    )
