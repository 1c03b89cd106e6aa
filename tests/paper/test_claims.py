"""What papers state, row by row: the recorded verdict of each claim is the verdict of today."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from pydantic import ValidationError

from perfmodel.model.dense import DenseModel
from perfmodel.passes.tables import PlanTables
from perfmodel.report.validation_text import verdicts_text
from perfmodel.schema.dense import load_dense
from perfmodel.schema.distributions import UNIFORM
from perfmodel.validate import Kind, Verdict, questions, validate
from perfmodel.validate.dlrm_inputs import load_inputs
from perfmodel.validate.verdicts import Claim, Finding, Outcome, load_claims


@pytest.fixture(scope="module")
def today() -> dict[str, Verdict]:
    return {verdict.identifier: verdict for verdict in validate(paper=True)}


def test_every_claim_has_a_name_and_every_question_is_asked() -> None:
    claims = load_claims().claim
    assert len({claim.check for claim in claims}) == len(claims)
    asked = {row.ask["what"] for row in (*claims, *load_inputs().claim)}
    assert asked == set(questions.QUESTIONS)


def test_all_rows_are_there() -> None:
    """The paper's, and of other papers those whose words the repository has the source of."""
    rows = {claim.id.rstrip("abcdefghi") for claim in load_claims().claim}
    assert rows == {str(row) for row in range(1, 13)}


@pytest.mark.parametrize("identifier", [claim.id for claim in load_claims().claim])
def test_verdict_is_the_recorded_one(identifier: str, today: dict[str, Verdict]) -> None:
    verdict = today[identifier]
    assert not verdict.regression, f"{verdict.got} is now: {verdict.verdict}"


def test_honest_failures_are_told(today: dict[str, Verdict]) -> None:
    failed = {name for name, v in today.items() if v.verdict is Outcome.FAILS}
    assert {"2a", "3a", "4a", "11a"} <= failed


def test_a_band_that_holds_both_cannot_say(today: dict[str, Verdict]) -> None:
    """Fig 9 at both ends, and what depends on a batch, a model or a size that nobody published."""
    open_ = {"10a", "10b", "12a", "12b", "12c", "12d", "12e", "12f", "12g", "12h", "12i", "3c", "9b", "11b"}
    assert {today[name].verdict for name in open_} == {Outcome.CANNOT_SAY}
    assert all("(" in today[name].got for name in open_ - {"3c", "9b"})  # the band is printed


@pytest.mark.parametrize("identifier", [claim.id for claim in load_claims().claim])
def test_every_claim_can_hold_and_can_fail(identifier: str) -> None:
    """By a number inside what its words allow, and by one outside."""
    row = claim(identifier)
    if row.kind is Kind.COMPARISON:
        return
    assert row.low is not None and row.high is not None
    outside = row.low / 2 if row.high == inf else 2 * row.high
    assert row.judge(Finding(row.low, "at its edge")) is Outcome.HOLDS
    assert row.judge(Finding(outside, "outside")) is Outcome.FAILS
    assert row.judge(Finding(None, "not measured")) is Outcome.CANNOT_SAY


def test_dependence_is_of_what_the_ids_add() -> None:
    """A batch that no distribution slows is 0, which is what full independence was not by the ratio."""
    row = claim("11a")
    assert row.judge(Finding(0.0, "independent")) is Outcome.HOLDS
    assert row.judge(Finding(1.0, "as plain gathers")) is Outcome.FAILS


def test_10_tb_are_shown_on_128_gpus_and_on_what_memory_kept_free_takes(today: dict[str, Verdict]) -> None:
    said = today["10g"].got
    assert said.startswith("128 GPUs, ") and "hbm_bytes=80GB" in said and "144 GPUs, " in said


def test_the_batch_that_nobody_published_is_spanned() -> None:
    """The band over two batches is that of the one and of the other."""
    ask = {**claim("12e").ask, "batches": [65536, 131072]}
    both = questions.answer(ask).ends
    one, two = (questions.answer({**ask, "batches": [batch]}).ends for batch in ask["batches"])
    assert both and one and two
    assert both == (min(one[0], two[0]), max(one[1], two[1])) and both != one


def claim(identifier: str) -> Claim:
    return next(claim for claim in load_claims().claim if claim.id == identifier)


def test_a_claim_that_stops_holding_is_a_regression() -> None:
    assert claim("7").verdict(Finding(191, "191 of 192")).regression
    assert not claim("7").verdict(Finding(192, "192 of 192")).regression


def test_a_claim_that_starts_to_hold_is_news_too() -> None:
    said = claim("2a").verdict(Finding(10, "10x"))
    assert said.verdict is Outcome.HOLDS
    assert said.regression


def test_the_scenario_meets_figure_9_as_it_was_chosen_to() -> None:
    assert questions.answer(claim("10e").ask).value == pytest.approx(22.8, rel=0.1)
    assert questions.answer(claim("10f").ask).value == pytest.approx(108.2, rel=0.1)


def test_identities_are_self_checks_and_not_counted_as_claims(today: dict[str, Verdict]) -> None:
    said = list(today.values())
    kinds = {kind: {v.identifier for v in said if v.kind is kind} for kind in Kind}
    assert kinds[Kind.SELF_CHECK] == {"1", "5", "7", "8", "10e", "10f"}
    assert kinds[Kind.COMPARISON] == {"10c", "10d"}
    lines = verdicts_text(said, paper=True)
    last = " ".join(lines.split("\n\n")[-1].split())
    assert max(map(len, lines.splitlines())) <= 100
    assert last.startswith(f"{len(kinds[Kind.CLAIM])} claims of papers: ")
    assert "2 comparisons, not judged; 6 self-checks: 6 hold" in last


def test_a_comparison_is_never_judged() -> None:
    row: dict[str, Any] = {"id": "x", "claim": "c", "expected": "e", "ask": {}, "band_why": "b", "why": "w"}
    found = Claim(kind="comparison", recorded="compared", **row)
    assert found.judge(Finding(1e9, "many")) is Outcome.COMPARED
    for wrong in (
        {"kind": "comparison", "recorded": "holds"},
        {"kind": "claim", "recorded": "compared"},
        {"kind": "comparison", "recorded": "compared", "low": 1, "high": 2},
    ):
        with pytest.raises(ValidationError, match="comparison"):
            Claim(**row, **wrong)


def test_embarks_operations_are_forward_and_backward() -> None:
    """DLRM-DCNv2's own layers take a third of what Table 1 prints."""
    file, tables = load_dense("dlrm-dcnv2"), PlanTables.load("embark-dcnv2", UNIFORM)
    model = DenseModel(file.bottom, file.top, file.rank, file.layers)
    forward = model.bottom_flops() + model.top_flops(float(tables.dim.sum()))
    printed = claim("12a").ask["training_flops"]
    assert printed / forward == pytest.approx(3, rel=0.1)
