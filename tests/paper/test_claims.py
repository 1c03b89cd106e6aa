"""What papers state, row by row: the recorded verdict of each claim is the verdict of today."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from perfmodel.model.dense import DenseModel
from perfmodel.plan.pricing.tables import PlanTables
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
    rows = {claim.id.rstrip("abcdef") for claim in load_claims().claim}
    assert rows == {str(row) for row in range(1, 13)}


@pytest.mark.parametrize("identifier", [claim.id for claim in load_claims().claim])
def test_verdict_is_the_recorded_one(identifier: str, today: dict[str, Verdict]) -> None:
    verdict = today[identifier]
    assert not verdict.regression, f"{verdict.got} is now: {verdict.verdict}"


def test_honest_failures_are_told(today: dict[str, Verdict]) -> None:
    failed = {name for name, v in today.items() if v.verdict is Outcome.FAILS}
    assert {"2a", "3a", "4a", "9", "11"} <= failed


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
    assert found.judge(1e9) is Outcome.COMPARED
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
