"""The headline (card) of an answer: the fastest uniform sharding, row-wise beside it, and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.report.columns import Column, columns_cells
from perfmodel.report.page.parts import Card
from perfmodel.report.page.question_card import evidence_bar, question_card, unwrapped
from perfmodel.report.projection_text import step_columns
from perfmodel.report.ranking_text import (
    CHANGED,
    beside_words,
    change_rows,
    gpu_words,
    headline,
    help_words,
    limit_words,
    measure_text,
    planned_words,
    question_words,
    setting_words,
    throughput_words,
)
from perfmodel.report.shardings_text import SHARDING
from perfmodel.schema.calibration import list_calibrations

_ELSEWHERE = "What would change it: see the question as it was asked, which the page opens with."


def card_of(
    answer: Answer,
    found: Ranking | None,
    *,
    whole: bool,
    elsewhere: str = _ELSEWHERE,
) -> Card:
    """The headline of a projection; of its fastest sharding if shardings are compared.

    found      the fastest sharding; None: shardings are not compared
    whole      whether to add the changes that help, and the plan: this takes many answers
    elsewhere  a note on where the changes are, if they are not here; "": no note
    """
    if found is not None:
        return ranking_card(found, whole=whole, elsewhere=elsewhere)
    return question_card(answer)


def ranking_card(found: Ranking, *, whole: bool, elsewhere: str = _ELSEWHERE) -> Card:
    """The headline with the fastest sharding: its time, row-wise beside it, the question, and findings.

    The findings are the GPUs and the time, the step that limits the time, and changes that help.
    whole, elsewhere  as in ``card_of``
    """
    answer = found.answer
    takes = _finding(f"What it takes: {gpu_words(answer)}.", SHARDING, _beside(found))
    steps = step_columns(answer, brief=True), answer.steps
    findings = [takes] if found.best else []
    findings += [_finding(f"What limits it: {limit_words(answer)}", *steps)]
    findings += [{"title": elsewhere}] if elsewhere and not whole else []
    card = Card(
        headline(found),
        _times(found, whole=False),
        _sentence(planned_words(found)) if whole else "",
        alert=unwrapped(measure_text(found, _own_file(answer))),
        evidence=evidence_bar(answer.evidence_shares()),
        notes=list(answer.every_note),
        question=asked_words(found.base),
        findings=findings if found.best else findings[1:] if found.changes else [],
    )
    return completed(card, found) if whole else card


def asked_words(base: Answer) -> str:
    """The question as the program understood it, with machine, its changed values, and library."""
    return f"{question_words(base)}; on {setting_words(base)}"


def completed(card: Card, found: Ranking) -> Card:
    """A headline with what takes many answers: a sharding that cannot lead, and changes that help.

    Limits: nothing fits, and no change helps -> the headline as it is
    """
    if not (found.best or found.changes):
        return card
    changed = {"columns": list(CHANGED), "rows": change_rows(found)} if found.changes else {}
    findings = [*card.findings, {"title": help_words(found), **changed}]
    return replace(card, times=_times(found, whole=True), findings=findings)


def _times(found: Ranking, *, whole: bool) -> str:
    """Samples per second, and what is beside the answer, as sentences. whole  as in ``beside_words``"""
    fair = throughput_words(found.answer) if found.best else ""
    return " ".join(filter(None, [_sentence(fair), _sentence(beside_words(found, whole=whole))]))


def _beside(found: Ranking) -> list[Answer]:
    """The fastest sharding, those that may be equally fast, row-wise even if it does not fit, unique rows."""
    shown = [*found.best[:1], *found.as_good]
    if all(answer.sharding != ROW_WISE for answer in shown):
        shown.append(found.base)
    return [*shown, *([found.unique_rows] if found.unique_rows else [])]


def _finding(title: str, columns: Iterable[Column], rows: Sequence[Any]) -> dict[str, Any]:
    heads, cells = columns_cells(columns, rows)
    return {"title": title, "columns": heads, "rows": cells}


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}." if words else ""


def _own_file(answer: Answer) -> str | None:
    """The user's calibration file behind the projection; None for a shipped calibration."""
    named = answer.setting.calibration
    return None if named is None or str(named) in list_calibrations() else str(named)
