"""What papers state, row by row: verdicts follow from what is computed, by one rule."""

from __future__ import annotations

from math import inf

import pytest

from perfmodel.answer import project_one, project_row_wise, sweep
from perfmodel.engine.tables import PlanTables
from perfmodel.model.dense import DenseModel
from perfmodel.report.validation_text import verdicts_text
from perfmodel.schema.priors import load_dense
from perfmodel.schema.workload import UNIFORM
from perfmodel.validate import Verdict, embark, questions, validate
from perfmodel.validate.embark import build_evaluator, count_usable_bytes, load_embark, load_planned
from perfmodel.validate.verdicts import Claim, Finding, Outcome, load_claims


@pytest.fixture(scope="module")
def today() -> dict[str, Verdict]:
    return {verdict.identifier: verdict for verdict in validate(paper=True)}


def claim(identifier: str) -> Claim:
    return next(claim for claim in load_claims() if claim.id == identifier)


def test_every_claim_has_a_name_and_every_question_is_asked() -> None:
    claims = load_claims()
    assert len({claim.id for claim in claims}) == len(claims)
    assert {claim.ask["what"] for claim in claims} == set(questions.QUESTIONS)


def test_honest_failures_are_told(today: dict[str, Verdict]) -> None:
    failed = {name for name, v in today.items() if v.verdict is Outcome.FAILS}
    assert {"2a", "3a", "4a", "11a", "12h", "12i"} <= failed


def test_a_band_that_holds_what_is_published_cannot_say(today: dict[str, Verdict]) -> None:
    """Fig 9 at both ends, and what depends on a batch, a model or a size that nobody published."""
    open_ = {"3c", "9b", "10a", "10b", "11b", "12a", "12c", "12e", "12f", "12g"}
    assert {today[name].verdict for name in open_} == {Outcome.CANNOT_SAY}
    assert all("(" in today[name].got for name in open_ - {"3c", "9b"})  # the band is printed


@pytest.mark.parametrize("identifier", [claim.id for claim in load_claims() if claim.low is not None])
def test_every_claim_can_hold_and_can_fail(identifier: str) -> None:
    """By a number inside what its words allow, and by one outside."""
    row = claim(identifier)
    assert row.low is not None and row.high is not None
    assert row.published is None or row.low <= row.published <= row.high
    outside = row.low / 2 if row.high == inf else 2 * row.high
    assert row.verdict(Finding(row.low, "at its edge")).verdict is Outcome.HOLDS
    assert row.verdict(Finding(outside, "outside")).verdict is Outcome.FAILS
    assert row.verdict(Finding(None, "not measured")).verdict is Outcome.CANNOT_SAY


def test_10_tb_are_shown_on_128_gpus_and_on_what_memory_kept_free_takes(today: dict[str, Verdict]) -> None:
    said = today["10g"].got
    assert said.startswith("128 GPUs, ") and "hbm_bytes=80GB" in said and "144 GPUs, " in said


def test_the_batch_that_nobody_published_is_spanned() -> None:
    """The band over two batches is that of the one and of the other."""
    ask = {**claim("12e").ask, "batches": [65536, 131072]}
    both = questions.find_answer(ask).ends
    one, two = (questions.find_answer({**ask, "batches": [batch]}).ends for batch in ask["batches"])
    assert both and one and two
    assert both == (min(one[0], two[0]), max(one[1], two[1])) and both != one
    assert questions.find_answer(ask).words.endswith("at batches of 65 536 to 131 072 in all")


def test_what_is_said_of_published_numbers_is_said_where_they_are(today: dict[str, Verdict]) -> None:
    tables = PlanTables.load("embark-dcnv2", UNIFORM)
    assert float((tables.rows * tables.dim).sum()) == pytest.approx(26.1e9, rel=2e-3)
    assert "26.1 B" in today["12a"].why and "26.8" in today["12g"].why
    assert pytest.approx(20.5e9, rel=2e-3) == 40e6 * 128 * 4 and "20.5 GB" in today["10g"].why
    assert "host memory" in today["9a"].why


def test_numbers_beside_each_other_are_not_judged(today: dict[str, Verdict]) -> None:
    assert {name for name, v in today.items() if v.verdict is Outcome.COMPARED} == {"10c", "10d"}
    lines = verdicts_text(list(today.values()), "claims of papers")
    first = lines.split("\n\n")[0]
    assert max(map(len, lines.splitlines())) <= 100
    assert first.startswith("26 claims of papers: ") and first.endswith("; 2 comparisons, not judged")


@pytest.mark.parametrize(("grid", "points"), [("paper-1", 192), ("paper-2", 168)])
def test_the_papers_grids_are_whole(grid: str, points: int) -> None:
    """One GPU is as fast as itself, and more are slower."""
    frame = project_row_wise(sweep.GRIDS[grid]())
    alone = frame["gpus"] == 1
    assert len(frame) == points
    assert (frame["slowdown"][alone] == 1).all() and (frame["slowdown"][~alone] >= 1).all()


def test_without_a_reduce_scatter_an_exchange_sends_every_bag_to_every_gpu() -> None:
    """G B T D w bytes: 8 GPUs, 128 samples, 4 tables, 32 columns of 4 bytes; and a local sum."""
    asked = {"gpus": 8, "batch": 128, "table_count": 4, "dim": 32, "pooling": 4}
    steps = {step.name: step for step in project_one(machine="h200-sxm-ib", backend="nvshmem", **asked).steps}
    assert steps["all_to_all_bags"].payload_bytes == 8 * 128 * 4 * 32 * 4 and "local_sum" in steps


def test_slowdowns_of_the_papers_grids_have_two_ends() -> None:
    ends = [questions.find_slowdown(end, 8) for end in ("least", "largest")]
    values = [
        value
        for grid in sweep.GRIDS.values()
        for value in questions.project_columns(grid(gpus=(8,)))["slowdown"]
    ]
    assert [end.value for end in ends] == [min(values), max(values)]


def test_stored_plans_are_of_their_tables_and_fit() -> None:
    run = load_embark()
    for model in run.models:
        evaluator = build_evaluator(model, run.gpus, 65536)
        held = evaluator.cost(load_planned(model, run.gpus, 65536).plan).memory.total_bytes
        assert held.max() <= count_usable_bytes(evaluator), model
        assert embark.build_dense(evaluator, 6.0, 4.0).weights == 3, "a product and a sum for each weight"


def test_embarks_operations_are_forward_and_backward() -> None:
    """DLRM-DCNv2's own layers take a third of what Table 1 prints."""
    file, tables = load_dense("dlrm-dcnv2"), PlanTables.load("embark-dcnv2", UNIFORM)
    model = DenseModel(file.bottom, file.top, file.rank, file.layers)
    forward = 2 * model.weights(float(tables.dim.sum()))
    printed = claim("12a").ask["training_flops"]
    assert printed / forward == pytest.approx(3, rel=0.1)
