"""What papers state, row by row: the recorded verdict of each claim is the verdict of today."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from perfmodel.model.dense import DenseModel
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.report.validation_text import verdicts_text
from perfmodel.schema.dense import load_dense
from perfmodel.schema.distributions import UNIFORM
from perfmodel.validate import Kind, paper, validate
from perfmodel.validate.other_papers import load_other_papers
from perfmodel.validate.verdicts import Claim, Finding, Outcome, load_claims


def test_every_claim_has_its_check_and_every_check_its_claim() -> None:
    assert {claim.check for claim in load_claims().claim} == set(paper.CHECKS)


def test_all_rows_are_there() -> None:
    rows = {claim.id.rstrip("abcdef") for claim in load_claims().claim}
    assert rows == {str(row) for row in range(1, 13)}


@pytest.mark.parametrize("identifier", [claim.id for claim in load_claims().claim])
def test_verdict_is_the_recorded_one(identifier: str) -> None:
    verdict = next(v for v in validate(paper=True) if v.identifier == identifier)
    assert not verdict.regression, f"{verdict.got} is now: {verdict.verdict}"


def test_honest_failures_are_told() -> None:
    failed = {v.identifier for v in validate(paper=True) if v.verdict is Outcome.FAILS}
    assert {"2a", "3a", "4a", "9", "11"} <= failed


def test_a_claim_that_stops_holding_is_a_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {**paper.CHECKS, "grid_1_points": lambda: Finding(191, "191 of 192")}
    monkeypatch.setattr(paper, "CHECKS", changed)
    said = {v.identifier: v for v in validate(paper=True)}
    assert said["7"].regression
    assert not said["8"].regression


def test_a_claim_that_starts_to_hold_is_news_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "CHECKS", {**paper.CHECKS, "all_reduce_ratio": lambda: Finding(10, "10x")})
    said = {v.identifier: v for v in validate(paper=True)}
    assert said["2a"].verdict is Outcome.HOLDS
    assert said["2a"].regression


def test_the_scenario_meets_figure_9_as_it_was_chosen_to() -> None:
    assert paper.CHECKS["figure_9_least_as_chosen"]().value == pytest.approx(22.8, rel=0.1)
    assert paper.CHECKS["figure_9_most_as_chosen"]().value == pytest.approx(108.2, rel=0.1)


def test_identities_are_self_checks_and_not_counted_as_claims() -> None:
    said = validate(paper=True)
    kinds = {kind: {v.identifier for v in said if v.kind is kind} for kind in Kind}
    assert kinds[Kind.SELF_CHECK] == {"1", "5", "7", "8", "10e", "10f"}
    assert kinds[Kind.COMPARISON] == {"10c", "10d"}
    last = verdicts_text(said, paper=True).splitlines()[-1]
    assert last.startswith(f"{len(kinds[Kind.CLAIM])} claims of papers: ")
    assert "2 comparisons, not judged; 6 self-checks: 6 hold" in last


def test_a_comparison_is_never_judged() -> None:
    row = {"id": "x", "claim": "c", "expected": "e", "check": "k", "band_why": "b", "why": "w"}
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
    printed = load_other_papers().embark.row[0].training_flops
    assert printed / forward == pytest.approx(3, rel=0.1)


def test_exchange_of_bags_is_the_papers() -> None:
    assert paper.exchange_bytes().value == 1
