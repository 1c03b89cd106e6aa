"""Collectives of a trace as steps of a plan: in order or not, missing, too many, of other kinds."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from made_run import BACKWARD, FORWARD, Event, MadeRun, evaluator_of, plan_of

from perfmodel.errors import BadInputError
from perfmodel.schema.trace_alignment import align
from perfmodel.validate.traced import matching
from perfmodel.validate.traced.expected import PlannedPass, planned_pass
from perfmodel.validate.traced.matching import Instance, Matched, instances, matched
from perfmodel.validate.traced.seen import seen
from perfmodel.validate.traced.windows import cut

STEP = tuple(event for event in FORWARD + BACKWARD if event.family is None)
DENSE = Event("", "all_reduce", (4_000_000,) * 2, (4_000_000,) * 2)


@pytest.fixture(scope="module")
def planned() -> PlannedPass:
    tables, plan = plan_of()
    return planned_pass(evaluator_of(tables), plan)


def found_in(events: list[Event], planned: PlannedPass) -> tuple[Matched, dict[int, str]]:
    """What is matched, and the step of each event by its place."""
    run = MadeRun(iterations=[events])
    aligned = align(run.traces()).collectives
    found = matched(aligned, instances(planned.exchanges, (0, 1)))
    places = {id(event): at for at, event in enumerate(aligned)}
    return found, {places[id(pair.event)]: pair.instance.step.name for pair in found.pairs}


def test_what_torchrec_ran_is_what_the_plan_says(planned: PlannedPass) -> None:
    """Every event is its own step, in the plan's order, with the plan's bytes but for random ids."""
    found, names = found_in(list(STEP), planned)
    assert [names[at] for at in range(len(STEP))] == [event.step for event in STEP]
    assert [each.name for each in planned.exchanges] == [event.step for event in STEP]
    assert not found.left_over and not found.missing
    assert max(pair.cost for pair in found.pairs) < 0.01


def test_order_does_not_decide_where_bytes_do(planned: PlannedPass) -> None:
    """A pipeline runs the input exchange of the next batch in the middle of this one's backward pass."""
    moved = [*STEP[6:9], *STEP[:6], *STEP[9:]]
    _, names = found_in(moved, planned)
    assert [names[at] for at in range(len(moved)) if moved[at].sent[0] != 48] == [
        event.step for event in moved if event.sent[0] != 48
    ]


def test_equal_bytes_are_told_apart_by_their_order(planned: PlannedPass) -> None:
    """Bags and their gradients have the same bytes: the later one is the gradients'."""
    _, names = found_in(list(STEP), planned)
    assert names[7] == "all_to_all_bags" and names[8] == "all_to_all_gradients"


def test_one_of_two_alike_is_the_nearer_one(planned: PlannedPass) -> None:
    """Where the bags are missing, an exchange of as many bytes late in the step is the gradients'."""
    _, names = found_in([*STEP[:7], *STEP[8:]], planned)
    assert names[7] == "all_to_all_gradients"


def test_what_is_not_the_plans_is_left_over_with_the_reason(planned: PlannedPass) -> None:
    small = Event("", "all_to_all", (2, 2), (2, 2))
    again = replace(STEP[3], step="")
    wrong = Event("", "broadcast", (64, 64), (64, 64))
    found, names = found_in([small, *STEP, DENSE, again, wrong], planned)
    assert [names[at] for at in range(1, 11)] == [event.step for event in STEP]
    why = {(what.collective, what.payload_bytes): what.why for _, what in found.left_over}
    assert why["all_reduce", 4_000_000] == "no step of the plan is an all-reduce"
    assert why["broadcast", 64] == "no step of the plan is a broadcast"
    assert why["all_to_all", 2].startswith("the nearest step, all-to-all (splits")
    assert why["all_to_all", 122880] == "one more than the plan has of its kind and size"


def test_a_group_of_other_ranks_is_no_step(planned: PlannedPass) -> None:
    run = MadeRun(iterations=[[STEP[2]]])
    traces = [
        replace(
            each, collectives=tuple(replace(one, group_size=8, group_ranks=()) for one in each.collectives)
        )
        for each in run.traces()
    ]
    found = matched(align(traces).collectives, instances(planned.exchanges, (0, 1)))
    assert not found.pairs
    assert found.left_over[0][1].why == "the plan has no all-to-all over 8 ranks"


def test_a_missing_step_is_missing(planned: PlannedPass) -> None:
    found, _ = found_in(list(STEP[:6] + STEP[7:]), planned)
    assert [each.step.name for each in found.missing] == ["reduce_scatter_bags"]
    assert not found.left_over


def test_gloo_runs_a_reduce_scatter_as_an_all_reduce(planned: PlannedPass) -> None:
    events = [
        replace(e, kind="all_reduce", received=e.sent) if e.kind == "reduce_scatter" else e for e in STEP
    ]
    found, names = found_in(events, planned)
    assert names[6] == "reduce_scatter_bags" and not found.left_over


@pytest.mark.parametrize("factor", [1 / 16, 0.5, 2, 16])
def test_another_batch_is_still_matched(planned: PlannedPass, factor: float) -> None:
    def scaled(event: Event) -> Event:
        if "splits" in event.step:
            return event
        both = ([int(factor * each) for each in side] for side in (event.sent, event.received))
        return replace(event, **dict(zip(("sent", "received"), map(tuple, both), strict=True)))

    events = [scaled(event) for event in STEP]
    run = seen(cut(MadeRun(iterations=[events]).traces()), planned)
    took = {name: each.in_bytes[0] for name, each in run.steps.items()}
    assert took == {event.step: event.sent[0] for event in events}
    assert not run.left_over


def test_one_exchange_of_all_splits(planned: PlannedPass) -> None:
    """As the pipeline sends them: 96 bytes in one all-to-all, where the plan has two of 48."""
    events = [Event("", "all_to_all", (96, 96), (96, 96)), *STEP[2:]]
    run = seen(cut(MadeRun(iterations=[events]).traces()), planned)
    assert [each.splits for each in run.plan.exchanges if each.splits] == [2]
    assert not run.missing or set(run.missing) <= {"bucketize", "gather_pool", "backward"}
    assert not run.left_over
    apart = seen(cut(MadeRun(iterations=[list(STEP)]).traces()), planned)
    assert [each.splits for each in apart.plan.exchanges if each.splits] == [1, 1]


def test_no_pairing_costs_less(planned: PlannedPass) -> None:
    """Beside every way to pair four random events with four steps or with none."""
    random = np.random.default_rng(5)
    steps = instances(planned.exchanges, (0, 1))
    for _ in range(20):
        picked = [STEP[at] for at in random.choice(len(STEP), 4, replace=False)]
        factors = np.exp(random.normal(0, 1.2, 4))
        events = [
            replace(e, sent=(int(f * e.sent[0]),) * 2, received=(int(f * e.received[0]),) * 2)
            for e, f in zip(picked, factors, strict=True)
        ]
        own = [steps[at] for at in sorted(random.choice(len(steps), 4, replace=False))]
        aligned = align(MadeRun(iterations=[events]).traces()).collectives
        found = matched(aligned, own)
        assert found.cost == pytest.approx(_least(list(aligned), own), abs=1e-9)


def _least(events: list, steps: list[Instance]) -> float:
    """Over all permutations, each pair or both sides left out."""
    price = [
        [
            min(matching._cost(e, s) + matching.ORDER * (i - j) ** 2 / 9, 2 * matching.MOST)
            for j, s in enumerate(steps)
        ]
        for i, e in enumerate(events)
    ]
    # an unpaired event or step costs MOST; a pair is taken where it costs no more than MOST
    return min(
        sum(price[i][j] if price[i][j] <= matching.MOST else 2 * matching.MOST for i, j in enumerate(way))
        for way in permutations(range(len(steps)))
    )


def test_steps_of_the_profiler_are_needed() -> None:
    traces = [replace(each, ranges=()) for each in MadeRun(iterations=[list(STEP)]).traces()]
    with pytest.raises(BadInputError, match="no step of the profiler"):
        cut(traces)
    silent = [replace(each, collectives=()) for each in MadeRun(iterations=[list(STEP)]).traces()]
    with pytest.raises(BadInputError, match="no collective"):
        cut(silent)
    with pytest.raises(BadInputError, match="is cut short"):
        cut([replace(each, cut=True) for each in silent])
    with pytest.raises(BadInputError, match="--skip 3 leaves no step of the 3"):
        cut(MadeRun(iterations=[list(STEP)] * 3).traces(), 3)


def test_the_first_step_is_a_warm_up_where_there_are_more() -> None:
    run = MadeRun(iterations=[list(STEP)] * 4)
    assert [step.number for step in cut(run.traces()).steps] == [1, 2, 3]
    assert [step.number for step in cut(run.traces(), 0).steps] == [0, 1, 2, 3]
    assert [step.number for step in cut(MadeRun(iterations=[list(STEP)] * 2).traces()).steps] == [0, 1]
