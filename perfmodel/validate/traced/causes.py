"""Reasons why a traced step's time differs from its prediction; each follows from numbers and a threshold.

Every function returns a reason with the seconds per iteration that it explains, or None if its numbers are
below the threshold. ``likeliest`` sorts reasons by the time that they explain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from perfmodel.units import counted, format_bytes, format_fraction, format_ratio, format_time

WAIT_SHARE = 0.2
"""Share of a step's time with its wait: ranks with equal speed wait less."""
CAUSED_SHARE = 0.6
"""Share of all waiting that one rank must cause; of two equal ranks each causes half."""
LAST_SHARE = 0.75
"""Share of the iterations in which this rank must cause the longest waits."""
SLOWER = 1.4
"""Ratio of a rank's kernel times to the median rank's, for equal bytes: equal cards differ by a tenth."""
SLOWER_SHARE = 0.75
"""Share of the kernels that must be slower by ``SLOWER``."""
HALF = (1.7, 2.5)
"""Range of ratios that are described as half the rate."""
ACROSS_SLOWER, INSIDE_ALIKE = 1.5, 1.25
"""Threshold of exchanges across nodes over their prediction, while exchanges inside are below the second."""
IDLE_SHARE = 0.2
"""Share of the pass: gaps between its steps longer than back-to-back kernels leave."""
OVERLAP_SLOWER = 1.1
"""Ratio of a step's time beside compute to its time alone."""
AS_FAST = 0.15
"""Largest relative distance of a measured time from the prediction for another algorithm or protocol."""
BYTES_APART = 0.1
"""Relative excess of the sent bytes over the plan's bytes that matters: random ids cause a few percent."""
REST_SHARE = 0.1
"""Share of a step's difference: if less than this is unexplained, the causes explain the step."""
UNEVEN = 1.3
"""Ratio of busiest to mean rank's bytes, relative to that ratio in the plan."""


_NAMED = 3


class Cause(StrEnum):
    """The possible causes of a difference."""

    STRAGGLER = "straggler"
    SKEW = "uneven arrival"
    SLOW_RANK = "slow rank"
    SLOW_NETWORK = "network at part of its rate"
    HOST_BOUND = "host-bound"
    OVERLAP = "overlap"
    BYTES = "other bytes"
    UNEVEN_BYTES = "uneven bytes"
    RAN_AS = "another algorithm"
    PROTOCOL = "another protocol"
    HIDDEN_WAIT = "waits inside"
    CURVE = "the prediction itself"


@dataclass(frozen=True)
class Reason:
    """A cause in words, with the seconds per iteration that it explains; negative: it saves time.

    at_most  the traces do not show how much time it costs: ``explains_s`` is the step's whole difference
    """

    cause: Cause
    words: str
    explains_s: float
    at_most: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The public schema."""
        return {
            "cause": str(self.cause), "words": self.words, "explains_s": self.explains_s,
            "at_most": self.at_most,
        }  # fmt: skip


def waiting(caused: Sequence[Mapping[int, float]], wait_s: float, own_s: float) -> Reason | None:
    """The reason that ranks wait for others at exchanges.

    caused  per iteration, by rank: how long the mean rank waited for it, as the last to arrive [s]
    wait_s  all waits in an iteration on the mean rank; simultaneous waits count once [s]
    own_s   time of the exchanges after the last rank arrived [s]
    Limits: waits below ``WAIT_SHARE`` of both -> None;  one rank causes ``CAUSED_SHARE`` of them, and
            the most in ``LAST_SHARE`` of the iterations -> that rank, by its share of the waits;  else
            uneven arrival without a single cause
    """
    by_rank: dict[int, float] = defaultdict(float)
    for each in caused:
        for rank, seconds in each.items():
            by_rank[rank] += seconds
    total = sum(by_rank.values())
    if total <= 0 or wait_s < WAIT_SHARE * (wait_s + own_s):
        return None
    rank = max(sorted(by_rank), key=lambda each: by_rank[each])
    share = by_rank[rank] / total
    most = sum(bool(each) and max(each, key=lambda one: each[one]) == rank for each in caused) / len(caused)
    if share >= CAUSED_SHARE and most >= LAST_SHARE:
        words = (
            f"rank {rank} comes late: the mean rank waits {format_time(share * wait_s)} for it, "
            f"{format_fraction(share)} of its waiting"
        )
        return Reason(Cause.STRAGGLER, words, share * wait_s)
    words = (
        f"ranks wait {format_time(wait_s)} for the last one to arrive, and it is not always the same "
        f"(most for rank {rank}: {format_fraction(share)} of it)"
    )
    return Reason(Cause.SKEW, words, wait_s)


def slow_rank(kernels: Sequence[Mapping[int, float]], shares: Sequence[Mapping[int, float]]) -> Reason | None:
    """The reason that all kernels of one rank take longer than on other ranks, relative to its planned bytes.

    kernels  for each kind of kernel, the time on every rank [s]
    shares   for each kind, the planned bytes of every rank over the mean rank's [-]
    Limits: fewer than two ranks, or no kernel -> None;  ``SLOWER`` times the median of the others in
            ``SLOWER_SHARE`` of the kinds -> that rank, by its excess
    """
    ranks = sorted(set.intersection(*(set(each) for each in kernels))) if kernels else []
    if len(ranks) < 2:
        return None
    ratios: dict[int, list[float]] = {rank: [] for rank in ranks}
    excess: dict[int, float] = dict.fromkeys(ranks, 0.0)
    for times, share in zip(kernels, shares, strict=True):
        even = {
            rank: times[rank] / share[rank] for rank in ranks if share.get(rank, 0) > 0 and times[rank] > 0
        }
        for rank, time in even.items():
            others = [other for each, other in even.items() if each != rank]
            if others:
                usual = float(np.median(others))
                ratios[rank].append(time / usual)
                excess[rank] += times[rank] - usual * share[rank]
    found = {rank: each for rank, each in ratios.items() if each and _most_above(each)}
    if not found:
        return None
    rank = max(found, key=lambda each: float(np.median(found[each])))
    ratio = float(np.median(found[rank]))
    many = len(found[rank])
    words = (
        f"rank {rank} takes {format_ratio(ratio)} as long as the median of the other ranks for as many bytes"
    )
    if many > 1:
        above = sum(each >= SLOWER for each in found[rank])
        words += f", in {above} of {many} kinds of kernels"
        if HALF[0] <= ratio <= HALF[1]:
            words += ": half its rate (look at clocks, temperature, MIG and the power cap)"
    return Reason(Cause.SLOW_RANK, words, excess[rank])


def _most_above(ratios: Sequence[float]) -> bool:
    return sum(ratio >= SLOWER for ratio in ratios) >= SLOWER_SHARE * len(ratios)


def slow_network(
    across: Sequence[tuple[float, float]], inside: Sequence[tuple[float, float]]
) -> Reason | None:
    """The reason that links between nodes are slow: only exchanges across nodes take too long.

    across, inside  (measured, predicted) time of each exchange that is limited by bandwidth [s]
    Limits: none across -> None;  none inside -> None, since all exchanges may be slow
    """
    if not across or not inside:
        return None
    ratios = [measured / predicted for measured, predicted in across]
    near = [measured / predicted for measured, predicted in inside]
    if min(ratios) < ACROSS_SLOWER or float(np.median(near)) > INSIDE_ALIKE:
        return None
    ratio = float(np.median(ratios))
    words = (
        f"exchanges across nodes take {format_ratio(ratio)} as long as predicted and those inside a node "
        f"{format_ratio(float(np.median(near)))}: look for a NIC or a rail at part of its rate"
    )
    return Reason(Cause.SLOW_NETWORK, words, sum(measured - predicted for measured, predicted in across))


def host_bound(idle_s: float, whole_s: float) -> Reason | None:
    """The reason that the device waits for the host to launch kernels, which leaves gaps between steps.

    idle_s  gaps in a pass [s];  whole_s  the pass [s]
    Limits: idle_s below ``IDLE_SHARE`` of the whole -> None
    """
    if whole_s <= 0 or idle_s < IDLE_SHARE * whole_s:
        return None
    words = (
        f"nothing runs for {format_time(idle_s)} between the steps, {format_fraction(idle_s / whole_s)} of "
        "the pass: the host launches too late (CUDA graphs or larger batches help)"
    )
    return Reason(Cause.HOST_BOUND, words, idle_s)


def overlap(own_s: Sequence[float], beside: Sequence[bool]) -> Reason | None:
    """The reason that compute at the same time slows a step.

    own_s  time of the step in each iteration [s];  beside  whether compute ran at the same time in it
    Limits: never, or less than ``OVERLAP_SLOWER`` times as long as alone -> None;  always -> a reason that
            explains 0 s, since there is no time to compare with
    """
    together = [time for time, over in zip(own_s, beside, strict=True) if over]
    alone = [time for time, over in zip(own_s, beside, strict=True) if not over]
    if not together:
        return None
    if not alone:
        words = "compute runs beside it in every iteration and takes a part of its bandwidth"
        return Reason(Cause.OVERLAP, words, 0.0)
    slow, fast = float(np.median(together)), float(np.median(alone))
    if slow < OVERLAP_SLOWER * fast:
        return None
    words = (
        f"compute beside it slows it: {format_time(slow)} with, {format_time(fast)} without "
        f"({counted(len(together), 'iteration')} of {len(own_s)})"
    )
    return Reason(Cause.OVERLAP, words, max(float(np.median(own_s)) - fast, 0.0))


def other_bytes(
    sent: Mapping[int, float],
    planned: Mapping[int, float],
    explains_s: float,
    by_ids: bool,
    batch: float = 1.0,
) -> Reason | None:
    """The reason that ranks sent more or fewer bytes than in the plan.

    sent, planned  bytes of each traced rank;  by_ids  whether they depend on the ids of a batch
    explains_s     predicted time for the sent bytes, less predicted time for the planned bytes [s]
    batch          sent over planned bytes in exchanges that depend on the batch only (1: as planned)
    Limits: within ``BYTES_APART`` on the busiest rank and evenly -> None
    """
    ranks = [rank for rank in sent if planned.get(rank, 0) > 0]
    if not ranks:
        return None
    most, most_planned = max(sent[rank] for rank in ranks), max(planned[rank] for rank in ranks)
    mean, mean_planned = (float(np.mean([each[rank] for rank in ranks])) for each in (sent, planned))
    if mean <= 0:
        return None
    ratio, uneven = most / most_planned, (most / mean) / (most_planned / mean_planned)
    if abs(ratio - 1) < BYTES_APART:
        return None
    size = f"{format_bytes(most)} where the plan has {format_bytes(most_planned)}"
    if len(ranks) > 1 and uneven >= UNEVEN:
        busiest = max(ranks, key=lambda rank: sent[rank])
        words = (
            f"{size}, {format_ratio(uneven)} as uneven: rank {busiest} has the most (skewed ids, a hot table)"
        )
        return Reason(Cause.UNEVEN_BYTES, words, explains_s)
    if abs(batch - 1) >= BYTES_APART and abs(ratio / batch - 1) < BYTES_APART:
        why = f"all exchanges have {format_ratio(ratio)} the plan's bytes: another batch (--batch)"
    elif by_ids:
        why = "other poolings than the tables say, padding, or ids of another width"
    else:
        why = "elements of another width (fp16, int32), padding, or another batch"
    return Reason(Cause.BYTES, f"{size}, {format_ratio(ratio)}: {why}", explains_s)


def ran_as(planned: str, seen: str, more_s: float | None) -> Reason | None:
    """The reason that another collective ran than in the plan.

    planned, seen  names of both
    more_s  predicted time of the collective that ran, minus the predicted time of the plan's [s]; None:
            unknown
    Limits: the plan's own -> None
    """
    if planned == seen or not seen:
        return None
    known = (
        ""
        if more_s is None
        else f", predicted {format_time(abs(more_s))} {'longer' if more_s >= 0 else 'shorter'}"
    )
    words = f"it ran as {seen.replace('_', '-')}, not as {planned.replace('_', '-')}{known}"
    return Reason(Cause.RAN_AS, words, more_s or 0.0)


def other_protocol(own_s: float, taken: str, times_s: Mapping[str, float]) -> Reason | None:
    """The reason that NCCL probably chose another algorithm or protocol, whose time matches.

    own_s    measured time [s];  taken  algorithm and protocol of the prediction, ``ring Simple``
    times_s  predicted time of each possible algorithm and protocol [s]
    Kernel names do not show it: NCCL launches one kernel for all protocols (NCCL, src/device/generate.py).
    Limits: nearest to its own -> None;  not within ``AS_FAST`` of any -> None
    """
    if taken not in times_s:
        return None
    apart = {name: abs(float(np.log(own_s / time))) for name, time in times_s.items() if time > 0}
    name = min(apart, key=lambda each: apart[each])
    if name == taken or apart[name] > np.log1p(AS_FAST):
        return None
    words = (
        f"it takes what {name} would, {format_time(times_s[name])}, and the prediction is for {taken}: "
        "look at NCCL_ALGO, NCCL_PROTO and tuner plugins"
    )
    return Reason(Cause.PROTOCOL, words, times_s[name] - times_s[taken])


def hidden_wait(excess_s: float) -> Reason | None:
    """The reason that the last rank to arrive may not be traced, so that waits for it count as own time.

    excess_s  measured less predicted time [s]. Limits: faster than predicted -> None
    """
    if excess_s <= 0:
        return None
    words = "waits for the ranks that were not traced are inside its time: give the traces of all ranks"
    return Reason(Cause.HIDDEN_WAIT, words, 0.0)


def the_curve(measured_s: float, predicted_s: float, evidence: str, limit: str) -> Reason:
    """The reason that the prediction is wrong; used if nothing in the trace explains the difference.

    evidence, limit  of the prediction: its evidence, and the value that limits the step
    """
    off = format_ratio(measured_s / predicted_s) if predicted_s > 0 else ""
    rests = f" ({limit})" if limit else ""
    words = f"nothing in the trace explains {off} the predicted time, which is {evidence}{rests}"
    return Reason(Cause.CURVE, words, measured_s - predicted_s)


def several_curves(steps: Sequence[tuple[str, float, float, float]]) -> Reason | None:
    """One reason for the whole pass: the differences of steps that no cause in the traces explains, added up.

    steps  (label, measured [s], predicted [s], explained by a cause [s]) of each
    Limits: none -> None;  a step with less than ``REST_SHARE`` of its difference unexplained -> left out
    """
    left = [
        (label, own / predicted, own - predicted - explained, explained)
        for label, own, predicted, explained in steps
        if predicted > 0 and (own - predicted - explained) / (own - predicted) > REST_SHARE
    ]
    if not left:
        return None
    names = ", ".join(
        f"{label} {format_ratio(ratio)}"
        for label, ratio, _, _ in sorted(left, key=lambda step: -abs(step[2]))[:_NAMED]
    )
    bare = sum(explained == 0 for *_, explained in left)
    said = [f"{counted(bare, 'step')} without a cause in the traces"] if bare else []
    if bare < len(left):
        said.append(f"the rest of {counted(len(left) - bare, 'step')} with one")
    words = f"{', and '.join(said)}, so the prediction itself is off: {names}"
    return Reason(Cause.CURVE, words, sum(rest for _, _, rest, _ in left))


def likeliest(found: Iterable[Reason | None], excess_s: float) -> list[Reason]:
    """The reasons with the sign of the excess, largest first.

    excess_s  measured minus predicted time [s]. Limits: none -> []
    """
    known = [each for each in found if each is not None]
    fitting = [each for each in known if each.explains_s == 0 or (each.explains_s > 0) == (excess_s > 0)]
    return sorted(fitting, key=lambda each: (-abs(each.explains_s), each.cause is Cause.CURVE))
