"""What arXiv 2512.05831 states, row by row: the recorded verdict of each claim is the verdict of today."""

from __future__ import annotations

import pytest

from perfmodel.validate import paper, validate
from perfmodel.validate.verdicts import Finding, Outcome, load_claims


def test_every_claim_has_its_check_and_every_check_its_claim() -> None:
    assert {claim.check for claim in load_claims().claim} == set(paper.CHECKS)


def test_all_ten_rows_are_there() -> None:
    rows = {claim.id.rstrip("abc") for claim in load_claims().claim}
    assert rows == {str(row) for row in range(1, 11)}


@pytest.mark.parametrize("identifier", [claim.id for claim in load_claims().claim])
def test_verdict_is_the_recorded_one(identifier: str) -> None:
    verdict = next(v for v in validate(paper=True) if v.identifier == identifier)
    assert not verdict.regression, f"{verdict.got} is now: {verdict.verdict}"


def test_honest_failures_are_told() -> None:
    failed = {v.identifier for v in validate(paper=True) if v.verdict is Outcome.FAILS}
    assert {"2a", "3a", "4a", "10c"} <= failed


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


def test_figure_9_is_met_within_ten_percent() -> None:
    assert paper.figure_9_least().value == pytest.approx(22.8, rel=0.1)
    assert paper.figure_9_most().value == pytest.approx(108.2, rel=0.1)


def test_exchange_of_bags_is_the_papers() -> None:
    assert paper.exchange_bytes().value == 1
