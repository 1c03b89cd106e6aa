"""Compares a traced run with its prediction: each step, the sum, the whole, and the likeliest reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfmodel.collectives.library import Timing
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.model import bands
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.other_choices import choices_at
from perfmodel.passes.placement import Plan
from perfmodel.passes.steps import HANDOVER, INSIDE, STEPS, StepRow, by_cause
from perfmodel.schema.traces import RankTrace
from perfmodel.validate.traced import causes
from perfmodel.validate.traced.causes import Cause, Reason
from perfmodel.validate.traced.expected import PlannedExchange, PlannedKernel, planned_pass
from perfmodel.validate.traced.results import (
    CALIBRATED,
    STEPS_ALONE,
    WHOLE,
    ComparedRun,
    ComparedStep,
    PredictedTime,
)
from perfmodel.validate.traced.seen import PassSeen, StepSeen, median_whole, seen
from perfmodel.validate.traced.windows import cut

LATENCY_SHARE = 0.5
"""Latency share of a predicted time above which a step does not show the rate of its links."""


def compare(
    traces: Sequence[RankTrace],
    evaluator: Evaluator,
    plan: Plan,
    *,
    skip: int | None = None,
    judged: str = WHOLE,
    of_these: bool = False,
) -> ComparedRun:
    """Compares the traces of a run with the prediction for its plan.

    skip      steps of the profiler to leave out at the start (``windows.cut``);  judged  one of ``JUDGED``
    of_these  whether the calibration was made from these same traces
    Limits: traces of another number of ranks, without steps, or with no step of the plan -> BadInputError
    """
    trace = cut(traces, skip)
    if trace.world_size != evaluator.gpus:
        raise BadInputError(
            f"the traces are of a job of {trace.world_size} ranks, and the plan is for {evaluator.gpus}.",
            "give the plan of this job, or traces of the job of this plan.",
        )
    run = seen(trace, planned_pass(evaluator, plan))
    if not run.steps:
        raise BadInputError(
            "nothing in these traces is a step of this plan: " + _seen_instead(run) + ".",
            "check the plan, the tables and the batch of this run.",
        )
    batch = _batch_ratio(run)
    lines = [_exchange_line(run, each, batch) for each in run.plan.exchanges if each.name in run.steps]
    lines += [_kernel_line(run, each) for each in run.plan.kernels if each.name in run.steps]
    lines = _with_network(run, sorted(lines, key=lambda line: _first(run, line)))
    handed = [row for row in run.plan.rest if row.name == HANDOVER]
    rows = [row for row in (*_rows(run), *handed) if row is not None]
    absent = [row for row in run.plan.cost.rows if row.name not in {each.name for each in rows}]
    if any(each.splits > 1 for each in run.plan.exchanges):
        absent = [row for row in absent if not STEPS[row.name].splits]
    whole = median_whole(run.wholes)
    of_steps, calibrated = _sum_of(rows), [line for line in lines if line.calibrated]
    if judged == CALIBRATED and not calibrated:
        raise BadInputError(
            "no step of these traces is calibrated.", "give --calibration, or judge the whole or the steps."
        )
    names = {line.name for line in calibrated}
    of_families = {row.name: kernel.name for kernel in run.plan.kernels for row in kernel.rows}
    kept = [row for row in rows if row.name == HANDOVER or of_families.get(row.name, row.name) in names]
    found = ComparedRun(
        run, tuple(lines), _sum_of(kept if judged == CALIBRATED else rows), of_steps,
        sum(line.own_s for line in lines), sum(line.own_s for line in calibrated), whole.whole_s,
        whole.wait_s, whole.idle_s, whole.other_s, tuple(absent), (), judged, of_these=of_these,
    )  # fmt: skip
    found = replace(found, findings=_findings(found))
    return found if found.agrees else replace(found, reasons=_whole_reasons(found))


def _first(run: PassSeen, line: ComparedStep) -> tuple[bool, float]:
    """Sort key of lines: forward before backward, each in the order of the timeline."""
    starts = [bar.start_s for bar in run.timeline if bar.step == line.name]
    return line.backward, min(starts, default=float("inf"))


def _seen_instead(run: PassSeen) -> str:
    kinds = Counter(what.why for what, count, _ in run.left_over for _ in range(count))
    return (
        "; ".join(why for why, _ in kinds.most_common(3)) or "they have no collective in the profiler's steps"
    )


def _rows(run: PassSeen) -> Iterable[StepRow]:
    for exchange in run.plan.exchanges:
        if exchange.name in run.steps:
            yield exchange.row
    for kernel in run.plan.kernels:
        if kernel.name in run.steps:
            yield from kernel.rows


def _sum_of(rows: Sequence[StepRow]) -> PredictedTime:
    """The predicted time of some steps together, with its band as in ``Evaluator.step``."""
    time = sum(row.time_s for row in rows)
    low, _, high = bands.sum_band(*by_cause(rows).values())
    return PredictedTime(time, float(low), float(high))


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return float(np.quantile(values, 0.1)), float(np.quantile(values, 0.9))


def _payload(step: PlannedExchange, sent: float, received: float) -> float:
    """Bytes for which a collective's time is predicted, from the bytes that a rank sends and receives."""
    return {"reduce_scatter": sent, "all_gather": received}.get(step.row.collective, max(sent, received))


def _sizes(step: PlannedExchange, found: StepSeen) -> tuple[dict[int, float], dict[int, float]]:
    """(measured bytes, planned bytes) of a step, each by traced rank."""
    ranks = sorted(found.in_bytes)
    if found.ran_as != step.row.collective:
        took = {rank: max(found.in_bytes[rank], found.out_bytes[rank]) for rank in ranks}
    else:
        took = {rank: _payload(step, found.in_bytes[rank], found.out_bytes[rank]) for rank in ranks}
    planned = {rank: _payload(step, float(step.sent[rank]), float(step.received[rank])) for rank in ranks}
    return took, planned


def _batch_ratio(run: PassSeen) -> float:
    """Median ratio of traced to planned bytes, in exchanges that depend on the batch only; 1 without any."""
    found = []
    for step in run.plan.exchanges:
        if step.name in run.steps and not step.by_ids and not step.splits:
            took, planned = _sizes(step, run.steps[step.name])
            found.append(max(took.values()) / max(max(planned.values()), 1.0))
    return float(np.median(found)) if found else 1.0


def _timing(run: PassSeen, step: PlannedExchange, collective: str, payload: float) -> Timing | None:
    """Predicted time if the step ran as another collective or with another payload, on the same ranks.

    Limits: nothing is known of it -> None
    """
    times = run.plan.evaluator.times
    ranks, node = times.group(STEPS[step.name])
    links = run.plan.evaluator.setting.links
    try:
        return links.timing(collective, np.array([payload]), np.array([ranks]), node)
    except PerfmodelError:
        return None


def _protocol(run: PassSeen, step: PlannedExchange, own_s: float) -> Reason | None:
    evaluator, row = run.plan.evaluator, step.row
    ranks, node = evaluator.times.group(STEPS[step.name])
    per_node = evaluator.setting.machine.gpus_per_node if node is None else node
    links = evaluator.setting.links
    found = choices_at(links, row.collective, row.payload_bytes, int(ranks), per_node, row.time_s)
    return None if found is None else causes.other_protocol(own_s, found.taken, found.times_s)


def _more_s(run: PassSeen, step: PlannedExchange, collective: str, payload: float) -> float | None:
    known = _timing(run, step, collective, payload)
    return None if known is None else float(known.time_s[0]) - step.row.time_s


def _exchange_line(run: PassSeen, step: PlannedExchange, batch: float) -> ComparedStep:
    found, row = run.steps[step.name], step.row
    took, planned = _sizes(step, found)
    own = float(np.median(found.own_s))
    wait = float(np.median(found.wait_s)) if found.wait_s else 0.0
    predicted, spread = PredictedTime(row.time_s, row.low_s, row.high_s), _spread(found.own_s)
    why: list[Reason] = []
    if not predicted.holds(own) or predicted.is_exceeded(own, spread):
        most = max(took.values())
        more = _more_s(run, step, row.collective, most) if not step.splits else None
        other = _more_s(run, step, found.ran_as, most) if found.ran_as != row.collective else None
        why = causes.likeliest(
            [
                causes.other_bytes(took, planned, more or 0.0, step.by_ids, batch)
                if not step.splits
                else None,
                causes.ran_as(row.collective, found.ran_as, other),
                causes.overlap(found.own_s, found.overlapped),
                _protocol(run, step, own) if found.ran_as == row.collective else None,
                None if run.trace.complete else causes.hidden_wait(own - row.time_s),
            ],
            own - row.time_s,
        ) or [causes.the_curve(own, row.time_s, str(row.evidence), row.limit)]
    label = f"all-to-all (splits of {step.splits} sharding types)" if step.splits > 1 else row.label
    return ComparedStep(
        step.name, label, row.collective, predicted, str(row.evidence), row.limit,
        max(planned.values()), max(took.values()), own, spread, wait, len(found.own_s),
        step.backward, tuple(why),
    )  # fmt: skip


def _kernel_line(run: PassSeen, kernel: PlannedKernel) -> ComparedStep:
    found = run.steps[kernel.name]
    own = float(np.median(found.own_s))
    predicted, spread = _sum_of(kernel.rows), _spread(found.own_s)
    weakest = max(kernel.rows, key=lambda row: row.evidence.rank)
    why: list[Reason] = []
    if not predicted.holds(own) or predicted.is_exceeded(own, spread):
        why = causes.likeliest(
            [
                causes.slow_rank([found.rank_s], [_shares(kernel, found.rank_s)]),
                causes.overlap(found.own_s, found.overlapped),
            ],
            own - predicted.time_s,
        ) or [causes.the_curve(own, predicted.time_s, str(weakest.evidence), weakest.limit)]
    return ComparedStep(
        kernel.name, kernel.label, "", predicted, str(weakest.evidence), weakest.limit, 0.0, 0.0, own,
        spread, 0.0, len(found.own_s), kernel.backward, tuple(why),
    )  # fmt: skip


def _shares(kernel: PlannedKernel, times: Mapping[int, float]) -> dict[int, float]:
    return {rank: float(kernel.shares[rank]) for rank in times}


def _findings(found: ComparedRun) -> tuple[Reason, ...]:
    """Findings whether times agree or not: waits for ranks, gaps, ranks with slow kernels."""
    run = found.run
    kernels = [(each, run.steps[each.name].rank_s) for each in run.plan.kernels if each.name in run.steps]
    slow = causes.slow_rank([times for _, times in kernels], [_shares(*each) for each in kernels])
    one = [
        replace(reason, words=f"{kernel.label}: {reason.words}")
        for kernel, times in kernels
        if (reason := causes.slow_rank([times], [_shares(kernel, times)])) is not None
    ]
    links_s = sum(line.own_s for line in found.lines if line.collective)
    waits = causes.waiting(run.caused, found.wait_s, links_s)
    idle = causes.host_bound(found.idle_s, found.whole_s)
    known = [waits, *([slow] if slow is not None else one), idle]
    return tuple(each for each in known if each is not None)


def _whole_reasons(found: ComparedRun) -> tuple[Reason, ...]:
    """The reasons for the judged time; of each step, the first of its reasons."""
    run, lines = found.run, found.lines
    counts = {
        WHOLE: (Cause.STRAGGLER, Cause.SKEW, Cause.HOST_BOUND, Cause.SLOW_RANK),
        STEPS_ALONE: (Cause.SLOW_RANK,),
        CALIBRATED: (),
    }[found.judged]
    if found.judged == CALIBRATED:
        lines = tuple(line for line in lines if line.calibrated)
    of_steps: list[Reason | None] = [
        replace(_accounted(each), words=f"{each.label}: {each.reasons[0].words}")
        for each in lines
        if each.reasons and each.reasons[0].cause not in (Cause.CURVE, Cause.SLOW_RANK, Cause.SLOW_NETWORK)
    ]
    of_steps.append(
        causes.several_curves(
            [
                (e.label, e.own_s, e.predicted.time_s, 0.0 if _bare(e) else _accounted(e).explains_s)
                for e in lines
                if e.reasons
            ]
        )
    )
    across, inside = _by_distance(run, lines)
    network = causes.slow_network([_times(line) for line in across], [_times(line) for line in inside])
    shown = [each for each in found.findings if each.cause in counts]
    return tuple(causes.likeliest([*shown, network, *of_steps], found.measured_s - found.predicted.time_s))


def _accounted(line: ComparedStep) -> Reason:
    """The first reason of a step; if its size is unknown, it explains at most the step's difference."""
    first = line.reasons[0]
    if first.explains_s:
        return first
    return replace(first, explains_s=line.own_s - line.predicted.time_s, at_most=True)


def _bare(line: ComparedStep) -> bool:
    """Whether a step is outside its band and the traces show no cause."""
    return bool(line.reasons) and line.reasons[0].cause is Cause.CURVE


def _with_network(run: PassSeen, lines: Sequence[ComparedStep]) -> list[ComparedStep]:
    """The steps; each step across nodes without another cause gets slow links between nodes as its reason."""
    across, inside = _by_distance(run, lines)
    network = causes.slow_network([_times(line) for line in across], [_times(line) for line in inside])
    if network is None:
        return list(lines)
    slow = {line.name for line in across if _bare(line)}
    return [
        replace(line, reasons=(replace(network, explains_s=line.own_s - line.predicted.time_s),))
        if line.name in slow
        else line
        for line in lines
    ]


def _times(line: ComparedStep) -> tuple[float, float]:
    """(measured, predicted) time of a step [s]."""
    return line.own_s, line.predicted.time_s


def _by_distance(
    run: PassSeen, lines: Sequence[ComparedStep]
) -> tuple[list[ComparedStep], list[ComparedStep]]:
    """(exchanges across nodes, exchanges inside one node), of all that are limited by their links."""
    evaluator = run.plan.evaluator
    node = evaluator.basis.gpus_per_node or evaluator.setting.machine.gpus_per_node
    across: list[ComparedStep] = []
    inside: list[ComparedStep] = []
    rows = {step.name: step.row for step in run.plan.exchanges}
    for line in lines:
        row = rows.get(line.name)
        if row is None or row.floor_s > LATENCY_SHARE * row.time_s:
            continue
        near = STEPS[line.name].ranks == INSIDE or evaluator.gpus <= node
        (inside if near else across).append(line)
    return across, inside
