"""The answer to a question of the page: the headline (card) and the figures of the report, for its script."""

from __future__ import annotations

import shlex
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfmodel.answer import Answer, Question, answer_on
from perfmodel.answer.answers import note_idle
from perfmodel.answer.ranking import Ranking, answer_question, rank
from perfmodel.cli.question import advised, check_size, question_of
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.explore.asked import Said
from perfmodel.report.figures.registry import BREAKDOWN, CHANGES, OVER_GPUS
from perfmodel.report.figures.subject import Subject
from perfmodel.report.page.assemble import card_html, live_block
from perfmodel.report.page.question_page import card_of
from perfmodel.schema.files import unknown_name

LATER = (OVER_GPUS, CHANGES)
"""Figures that need many answers: they are computed once the question stays unchanged."""
WHAT_IFS = "what-ifs"
"""Name of the headline with changes that would help, which is computed once the question stays unchanged."""
_LATER = threading.Lock()
"""Only one figure of many answers is made at a time."""


@dataclass(frozen=True, eq=False)
class PageAnswer:
    """The answer to one question of the page.

    row_wise  the answer with row-wise sharding, with which other shardings are compared
    shown     the answer that the page shows
    lead      the best sharding, with the changes that would help most; None if the user chose a sharding
    """

    question: Question
    row_wise: Answer
    shown: Answer
    lead: Ranking | None


@lru_cache(maxsize=16)
def answer(asked: Said) -> PageAnswer:
    """Compute the answer to ``asked``. Limits and errors: as ``perfmodel project``"""
    typed = asked.typed()
    if not (typed["table_size"] or typed["gpus"] or typed["model"]):
        raise BadInputError("which tables?", "say how large all of them are, or choose a set.")
    question = question_of(typed)
    check_size(question)
    with advised(question):
        if question.sharding is None:
            ranking = rank(question)
            lead = ranking if ranking.base.gpus > 1 else None
            return PageAnswer(question, ranking.base, note_idle(ranking.answer, answer_question), lead)
        named = note_idle(answer_question(question), answer_question)
        base = answer_on(question, named.gpus) if named.sharding != ROW_WISE else named
        return PageAnswer(question, base, named, None)


def shown(asked: Said) -> dict[str, Any]:
    """The immediate part of the page, as JSON; figures that take longer come with ``drawn``.

    Limits: as ``answer``
    """
    found, said = answer(asked), dict(asked.said)
    machine = found.question.machine
    return {
        "own": {key: str(value) for key, value in machine.values.items() if key not in said},
        "view": _view(found),
        "blocks": [live_block(BREAKDOWN.draw(_subject(found)))],
        "command": shlex.join(asked.words()),
        "search": asked.search,
        "later": [WHAT_IFS, *(figure.name for figure in LATER)],
    }


def _view(found: PageAnswer, *, whole: bool = False) -> dict[str, str]:
    """The headline of an answer: its sentence, and all of it as HTML. whole  as in ``card_of``"""
    card = card_of(_subject(found), whole=whole)
    return {"sentence": card.sentence, "html": card_html(card)}


def _subject(found: PageAnswer) -> Subject:
    return Subject(found.row_wise, found.shown, found.lead)


def drawn(name: str, asked: Said) -> dict[str, Any]:
    """The figure of ``LATER`` with this name, or the headline ``WHAT_IFS``, as JSON for the page's script.

    Limits: it cannot be drawn -> a document that says why;  no figure of this name -> BadInputError
    """
    known = {WHAT_IFS: None} | {each.name: each for each in LATER}
    if name not in known:
        raise unknown_name("figure of this page", name, known)
    figure = known[name]
    with _LATER:
        if figure is None:
            return {"view": _view(answer(asked), whole=True)}
        try:
            return live_block(figure.draw(_subject(answer(asked))))
        except PerfmodelError as error:
            return live_block(figure.missing(error.message))
