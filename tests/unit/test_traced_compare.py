"""A whole comparison: a run at the predicted times is inside; each planted cause is found by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from made_run import BACKWARD, FORWARD, Event, MadeRun, at_times, evaluator_of, plan_of

from perfmodel.errors import BadInputError
from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.other_choices import choices_at
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme
from perfmodel.report.traced_text import headline, headline_words, traced_text
from perfmodel.schema.traces import KernelFamily
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_ratio
from perfmodel.validate.traced.causes import Cause
from perfmodel.validate.traced.comparing import compare
from perfmodel.validate.traced.expected import planned_pass
from perfmodel.validate.traced.results import ComparedRun

Change = Callable[[Event], Event]
Question = tuple[Evaluator, Plan, tuple[Event, ...]]


@pytest.fixture(scope="module")
def question() -> Question:
    tables, plan = plan_of()
    evaluator = evaluator_of(tables)
    planned = planned_pass(evaluator, plan)
    times = {each.name: each.row.time_s for each in planned.exchanges}
    kernels = {each.name: sum(row.time_s for row in each.rows) for each in planned.kernels}
    events = at_times((*FORWARD, *BACKWARD), times, kernels)
    return evaluator, plan, tuple(replace(event, gap_s=0.1e-6) for event in events)


def changed(events: Sequence[Event], change: Change, times: int = 5) -> list[list[Event]]:
    """So many iterations of changed events."""
    return [[change(event) for event in events] for _ in range(times)]


def compared(
    question: tuple[Evaluator, Plan, tuple[Event, ...]], change: Change, **options: object
) -> ComparedRun:
    evaluator, plan, events = question
    run = MadeRun(iterations=changed(events, change))
    return compare(run.traces(), evaluator, plan, **options)


def test_a_run_at_the_predicted_times_is_inside(question: Question) -> None:
    found = compared(question, lambda event: event)
    assert all(line.inside and not line.reasons for line in found.lines)
    assert found.steps_s == pytest.approx(found.predicted.time_s)
    assert found.whole_s == pytest.approx(found.steps_s + found.idle_s) and found.wait_s == pytest.approx(0)
    assert found.inside and not found.reasons and not found.missing
    assert found.predicted.time_s == pytest.approx(found.run.plan.cost.time_s)
    assert found.predicted.low_s == pytest.approx(found.run.plan.cost.low_s)
    assert (len(found.run.trace.steps), found.run.trace.skipped) == (4, 1)


@pytest.mark.parametrize("ratio", [3.0, 1 / 3.0])
def test_a_wide_band_confirms_nothing(question: Question, ratio: float) -> None:
    found = compared(question, lambda event: event)
    assert found.agrees and "inside its band" in headline(found)
    time_s = found.measured_s / ratio
    wide = replace(found.predicted, time_s=time_s, low_s=time_s / 4, high_s=time_s * 4)
    far = replace(found, predicted=wide)
    assert far.inside and not far.agrees
    assert "inside its band" not in headline(far) and "cannot tell, the band is too wide" in headline(far)
    assert f"{format_ratio(ratio)}, band" in headline(far)


def test_a_band_of_200_times_tells_nothing_wherever_the_time_is(question: Question) -> None:
    found = compared(question, lambda event: event)
    time_s = found.measured_s / 1.1
    for wide, agrees in ((1.9, True), (14.0, False)):  # 14 times both ways: 196 times from end to end
        known = replace(found.predicted, time_s=time_s, low_s=time_s / wide, high_s=time_s * wide)
        near = replace(found, predicted=known)
        assert near.inside and near.agrees is agrees
        assert ("cannot tell" in headline(near)) is not agrees


@pytest.mark.parametrize(("slow", "far"), [(2.5, True), (1.9, False)])
def test_a_step_at_more_than_twice_its_prediction_is_far_whatever_its_band(
    question: Question, slow: float, far: bool
) -> None:
    """The bucketize, whose band is assumed and reaches to 2.75 times; the pass is inside."""

    def slower(event: Event) -> Event:
        return replace(event, rank_s=(slow * event.rank_s[0],) * 2) if event.step == "bucketize" else event

    found = compared(question, slower)
    line = next(each for each in found.lines if each.name == "bucketize")
    assert line.predicted.holds(line.own_s) and found.inside
    assert line.far is far and (found.far == (line,)) is far and found.agrees is not far
    said = "inside its band, but bucketize takes more than 2.00× its prediction."
    assert headline_words(found).endswith(said) is far
    assert (". far: in the band" in " ".join(traced_text(found).split())) is far and bool(line.reasons) is far
    assert compared(question, slower, judged="calibrated").far == ()  # nobody timed it


def test_one_slow_repeat_makes_no_step_far(question: Question) -> None:
    """Half of the repeats at the prediction: it lies in their spread, though the median is beyond 2 times."""
    evaluator, plan, events = question
    rounds = [
        [replace(e, rank_s=(f * e.rank_s[0],) * 2) if e.step == "bucketize" else e for e in events]
        for f in (1.0, 1.0, 1.0, 2.6, 2.6, 2.6, 2.6)
    ]
    found = compare(MadeRun(iterations=rounds).traces(), evaluator, plan, skip=0)
    line = next(each for each in found.lines if each.name == "bucketize")
    assert line.own_s > 2 * line.predicted.time_s and not line.far


def test_a_rank_that_comes_late(question: Question) -> None:
    def late(event: Event) -> Event:
        return replace(event, wait_s=(2e-3, 0.0)) if event.kind else event

    found = compared(question, late)
    assert not found.inside and found.reasons[0].cause is Cause.STRAGGLER
    assert found.reasons[0].words.startswith("rank 1 comes late: the mean rank waits 10.0 ms for it, 100 %")
    assert all(line.inside for line in found.lines)  # after the last arrival they are as predicted
    assert found.wait_s == pytest.approx(10 * 1e-3)
    steps = compared(question, late, judged="steps")
    assert steps.inside and not steps.reasons


def test_the_calibrated_steps_alone_can_be_judged(question: Question) -> None:
    """Kernels that nobody timed do not count then, neither on the one side nor on the other."""

    def slow(event: Event) -> Event:
        return replace(event, rank_s=(9e-3, 9e-3)) if event.family else event

    assert not compared(question, slow).inside and not compared(question, slow, judged="steps").inside
    found = compared(question, slow, judged="calibrated")
    links = [line for line in found.lines if line.collective]
    assert [line for line in found.lines if line.calibrated] == links
    assert found.inside and not found.reasons
    assert found.measured_s == pytest.approx(sum(line.own_s for line in links))
    assert found.predicted.time_s == pytest.approx(sum(line.predicted.time_s for line in links))
    assert found.of_steps.time_s == pytest.approx(found.run.plan.cost.time_s)


def test_a_card_at_half_its_rate(question: Question) -> None:
    def slow(event: Event) -> Event:
        return replace(event, rank_s=(event.rank_s[0], 40 * event.rank_s[1])) if event.family else event

    found = compared(question, slow)
    assert found.reasons[0].cause is Cause.SLOW_RANK
    gather = next(line for line in found.lines if line.name == "gather_pool")
    assert not gather.inside and gather.reasons[0].words.startswith("rank 1 takes")


def test_a_slow_rank_is_seen_though_its_step_is_inside(question: Question) -> None:
    def slow(event: Event) -> Event:
        return replace(event, rank_s=(event.rank_s[0] / 2, event.rank_s[1])) if event.family else event

    found = compared(question, slow)
    assert found.inside and not found.reasons
    assert [each.cause for each in found.findings] == [Cause.SLOW_RANK]
    assert "in 3 of 3 kinds of kernels: half its rate" in found.findings[0].words
    even = compared(question, lambda event: event)
    assert not even.findings


def test_a_host_that_launches_late(question: Question) -> None:
    found = compared(question, lambda event: replace(event, gap_s=100e-6))
    assert not found.inside and found.reasons[0].cause is Cause.HOST_BOUND
    # 12 gaps less the one between forward and backward
    assert found.idle_s == pytest.approx(11 * 100e-6, rel=1e-3)


def test_dense_layers_between_two_steps_are_no_gap(question: Question) -> None:
    evaluator, plan, events = question
    dense = Event("dense", "", family=KernelFamily.DENSE, rank_s=(5e-3, 5e-3))
    at = [event.step for event in events].index("all_to_all_bags")
    with_dense = [*events[:at], dense, *events[at:]]
    found = compare(MadeRun(iterations=[with_dense] * 4).traces(), evaluator, plan)
    assert found.inside and found.whole_s < 1.1 * found.steps_s
    assert found.run.other_kernels == {"dense": pytest.approx(5e-3)}


def test_another_batch(question: Question) -> None:
    def doubled(event: Event) -> Event:
        if not event.kind or "splits" in event.step:
            return event
        twice = replace(event, own_s=8 * event.own_s)
        return replace(
            twice, sent=tuple(4 * x for x in event.sent), received=tuple(4 * x for x in event.received)
        )

    found = compared(question, doubled)
    line = next(each for each in found.lines if each.name == "all_to_all_bags")
    assert line.reasons[0].cause is Cause.BYTES and "another batch" in line.reasons[0].words
    assert line.seen_bytes == 4 * line.planned_bytes
    assert line.reasons[0].explains_s > 0


def test_skewed_ids(question: Question) -> None:
    def skewed(event: Event) -> Event:
        if event.step != "all_to_all_ids_row_wise":
            return event
        return replace(event, received=(5 * event.received[0], event.received[1] // 8), own_s=9 * event.own_s)

    found = compared(question, skewed)
    line = next(each for each in found.lines if each.name == "all_to_all_ids_row_wise")
    assert line.reasons[0].cause is Cause.UNEVEN_BYTES
    assert "rank 0 has the most" in line.reasons[0].words
    assert found.outside == (line,)


def test_an_all_reduce_in_place_of_a_reduce_scatter(question: Question) -> None:
    def gloo(event: Event) -> Event:
        if event.kind != "reduce_scatter":
            return event
        return replace(event, kind="all_reduce", received=event.sent, own_s=3 * event.own_s)

    found = compared(question, gloo)
    line = next(each for each in found.lines if each.name == "reduce_scatter_bags")
    assert line.reasons[0].cause is Cause.RAN_AS and line.seen_bytes == line.planned_bytes


def test_a_reduce_scatter_by_another_protocol(question: Question) -> None:
    """As long as the law says for LL, where NCCL takes another at this size."""
    evaluator, _, events = question
    event = next(each for each in events if each.step == "reduce_scatter_bags")
    found = choices_at(evaluator.setting.links, "reduce_scatter", event.sent[0], 2, 8, event.own_s)
    assert found is not None and found.times_s[found.taken] == pytest.approx(event.own_s)
    slow = max(found.times_s, key=lambda name: found.times_s[name])
    assert found.times_s[slow] > 1.5 * event.own_s

    def slowly(one: Event) -> Event:
        return replace(one, own_s=1.02 * found.times_s[slow]) if one.step == event.step else one

    line = next(each for each in compared(question, slowly).lines if each.name == event.step)
    assert line.reasons[0].cause is Cause.PROTOCOL and slow in line.reasons[0].words


def test_compute_beside_an_exchange(question: Question) -> None:
    evaluator, plan, events = question
    slow = [
        replace(event, own_s=4 * event.own_s, overlap=True) if event.step == "all_to_all_bags" else event
        for event in events
    ]
    found = compare(MadeRun(iterations=[events, slow, slow, slow, events]).traces(), evaluator, plan)
    line = next(each for each in found.lines if each.name == "all_to_all_bags")
    assert line.reasons[0].cause is Cause.OVERLAP
    assert line.reasons[0].explains_s == pytest.approx(3 * line.predicted.time_s)


def test_a_step_without_a_cause_says_so(question: Question) -> None:
    def bags(event: Event) -> Event:
        return replace(event, own_s=5 * event.own_s) if event.step == "all_to_all_bags" else event

    found = compared(question, bags)
    line = next(each for each in found.lines if each.name == "all_to_all_bags")
    assert [each.cause for each in line.reasons] == [Cause.CURVE]
    assert "5.00×" in line.reasons[0].words


@pytest.fixture(scope="module")
def two_nodes() -> tuple[Evaluator, Plan, list[Event]]:
    """Large tables by rows inside each of two nodes of 2 GPUs: exchanges inside, across and of all."""
    tables = PlanTables.of(TableSet("mine", tuple(Table(f"t{at}", 10**6, 128, 8.0) for at in (0, 1))))
    placed = (Placement.of(Scheme(Exchange.TWO_LEVEL, 2), (2 * at, 2 * at + 1)) for at in (0, 1))
    plan = Plan(tables, tuple(placed), 4, 2)
    sets = ExchangeSets(("table_row_wise",) * 2)
    evaluator = Evaluator.on("h100-sxm-ib", tables, 65536, 4, gpus_per_node=2, sets=sets)
    events = []
    for step in planned_pass(evaluator, plan).exchanges:
        sent, received = (tuple(int(each) for each in side) for side in (step.sent, step.received))
        kind, time = step.row.collective, step.row.time_s
        events.append(Event(step.name, kind, sent, received, time, (0.0,) * 4, 0.0, groups=step.groups))
    return evaluator, plan, events


def test_a_network_at_half_its_rate(two_nodes: tuple[Evaluator, Plan, list[Event]]) -> None:
    """Exchanges across the nodes take twice as long, those inside a node what is predicted."""
    evaluator, plan, events = two_nodes

    def run(factor: float, inside: float = 1.0) -> ComparedRun:
        changed_events = [
            replace(event, own_s=event.own_s * (inside if event.step.endswith("_inside") else factor))
            for event in events
        ]
        made = MadeRun(4, 4, [changed_events] * 4)
        return compare(made.traces(), evaluator, plan, judged="calibrated")

    slow = run(2.5)
    assert not slow.inside and slow.reasons[0].cause is Cause.SLOW_NETWORK
    assert "2.50× as long as predicted and those inside a node 1.00×" in slow.reasons[0].words
    assert slow.reasons[-1].cause is Cause.CURVE  # latency-bound ones say nothing about the rate
    bound = [line for line in slow.lines if line.reasons and line.reasons[0].cause is Cause.SLOW_NETWORK]
    assert {line.name for line in bound} == {"all_to_all_ids_table_row_wise", "all_to_all_across"}
    assert slow.reasons[0].explains_s == pytest.approx(1.5 * sum(line.predicted.time_s for line in bound))
    assert run(1.0).inside
    both = run(2.5, 2.5)
    assert not both.inside and Cause.SLOW_NETWORK not in {each.cause for each in both.reasons}


def test_of_several_groups_the_slowest_counts(two_nodes: tuple[Evaluator, Plan, list[Event]]) -> None:
    evaluator, plan, events = two_nodes
    traces = MadeRun(4, 4, [events] * 4).traces()
    later = [
        replace(one, time_s=3 * one.time_s, start_s=one.start_s - 2 * one.time_s)
        if one.group == "2-3" else one
        for one in traces[2].collectives
    ]  # fmt: skip
    other = [
        replace(one, time_s=3 * one.time_s, start_s=one.start_s - 2 * one.time_s)
        if one.group == "2-3" else one
        for one in traces[3].collectives
    ]  # fmt: skip
    slower = [*traces[:2], replace(traces[2], collectives=later), replace(traces[3], collectives=other)]
    found = compare(slower, evaluator, plan)
    line = next(each for each in found.lines if each.name == "reduce_scatter_inside")
    assert line.own_s == pytest.approx(3 * line.predicted.time_s) and found.wait_s == pytest.approx(0)


def test_what_the_trace_lacks_is_not_compared(question: Question) -> None:
    evaluator, plan, events = question
    only = [event for event in events if event.kind]
    found = compare(MadeRun(iterations=[only] * 4).traces(), evaluator, plan)
    assert {row.name for row in found.missing} == {"bucketize", "gather_pool", "sort_lookups", "update_rows"}
    links = sum(row.time_s for row in found.run.plan.cost.rows if row.collective)
    assert found.predicted.time_s == pytest.approx(links) and found.inside


def test_one_rank_says_that_waits_are_inside(question: Question) -> None:
    evaluator, plan, events = question
    late = [replace(event, wait_s=(2e-3, 0.0)) if event.kind else event for event in events]
    found = compare(MadeRun(iterations=[late] * 4).traces(only=[0]), evaluator, plan)
    assert not found.run.trace.complete and found.wait_s == pytest.approx(0)
    exchanges = [line for line in found.lines if line.collective]
    assert all(line.reasons[0].cause is Cause.HIDDEN_WAIT for line in exchanges)
    with_all = compare(MadeRun(iterations=[late] * 4).traces(), evaluator, plan)
    assert with_all.run.trace.complete and not any(line.reasons for line in with_all.lines)


def test_traces_of_another_job_are_refused(question: Question) -> None:
    evaluator, plan, events = question
    run = MadeRun(ranks=2, world_size=8, iterations=[list(events)] * 3)
    with pytest.raises(BadInputError, match="of a job of 8 ranks, and the plan is for 2"):
        compare(run.traces(), evaluator, plan)
    other = [Event("", "all_reduce", (400, 400), (400, 400))]
    with pytest.raises(
        BadInputError, match="nothing in these traces is a step of this plan: no step of the plan is an"
    ):
        compare(MadeRun(iterations=[other] * 3).traces(), evaluator, plan)


def test_the_record_has_what_the_text_says(question: Question) -> None:
    found = compared(question, lambda event: event)
    record = found.to_dict()
    assert record["inside"] and record["steps"][0]["measured_s"] == record["steps"][0]["measured_p10_s"]
    assert record["iterations"] == 4 and record["iterations_left_out"] == 1
    assert len(found.run.timeline) == len(question[2]) and found.run.timeline[0].start_s == 0
