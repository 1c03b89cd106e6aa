"""The answer to a question of the page: the headline (card) and the figures of the report, for its script."""

from __future__ import annotations

import math
import shlex
import threading
from functools import lru_cache
from typing import Any

from perfmodel.cli.question import advised, check_size, question_of
from perfmodel.errors import BadInputError
from perfmodel.explore.controls import list_controls
from perfmodel.explore.texts import QuestionTexts
from perfmodel.report.figures.registry import draw_figure
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.page.assemble import build_live_block, render_head, render_rest
from perfmodel.report.page.question_page import build_card
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import KEYS
from perfmodel.units import parse_quantity

LATER = ("over-gpus", "changes")
"""Figures that need many answers: they are computed once the question stays unchanged."""
WHAT_IFS = "what-ifs"
"""Name of the headline with changes that would help, which is computed once the question stays unchanged."""
_LATER = threading.Lock()
"""Only one figure of many answers is made at a time."""


@lru_cache(maxsize=16)
def compute_answer(texts: QuestionTexts) -> Subject:
    """The answer to a question. Limits: as ``perfmodel project``;  nothing fits -> BadInputError"""
    typed = texts.to_values()
    if not (typed["table_size"] or typed["gpus"] or typed["model"]):
        raise BadInputError("which tables?", "say how large all of them are, or choose a set.")
    question = question_of(typed)
    check_size(question)
    with advised(question):
        return find_subject(question)


def show_answer(texts: QuestionTexts) -> dict[str, Any]:
    """The immediate part of the page, as JSON; figures that take longer come with ``draw_later``.

    Limits: as ``compute_answer``
    """
    subject, said = compute_answer(texts), dict(texts.pairs)
    machine = subject.base.question.machine
    return {
        "own": {key: str(value) for key, value in machine.values.items() if key not in said},
        "knobs": place_knobs(subject, said),
        "view": _write_view(subject),
        "blocks": [build_live_block(draw_figure("breakdown", subject))],
        "command": shlex.join(texts.to_words()),
        "search": texts.search,
        "later": [WHAT_IFS, *LATER],
    }


def place_knobs(subject: Subject, said: dict[str, str]) -> dict[str, int]:
    """For each slider whose box is empty, the number of the stop nearest to the value that applies."""
    base, machine = subject.base, subject.base.question.machine
    values = {"gpus": base.gpus, "global_batch": base.gpus * float(base.work.batch[0])}
    values |= {key: machine.value(key) for key in KEYS if key in machine.values}
    knobs = {}
    for name, control in list_controls(None, None).items():
        if name in values and not control.only and name not in said:
            unit = KEYS[name].unit if name in KEYS else "count"
            stops = [
                (abs(math.log(parse_quantity(word, unit) / values[name])), number)
                for number, word in enumerate(control.words)
                if word
            ]
            knobs[name] = min(stops)[1]
    return knobs


def _write_view(subject: Subject, *, whole: bool = False) -> dict[str, str]:
    """The headline of an answer: its sentence, and all of it as HTML. whole  as in ``card_of``"""
    card = build_card(subject, whole=whole)
    return {"sentence": card.sentence, "html": render_head(card) + render_rest(card)}


def draw_later(name: str, texts: QuestionTexts) -> dict[str, Any]:
    """The figure of ``LATER`` with this name, or the headline ``WHAT_IFS``, as JSON for the page's script.

    Limits: it cannot be drawn -> a document that says why;  no figure of this name -> BadInputError
    """
    if name not in (WHAT_IFS, *LATER):
        raise unknown_name("figure of this page", name, (WHAT_IFS, *LATER))
    with _LATER:
        subject = compute_answer(texts)
        if name == WHAT_IFS:
            return {"view": _write_view(subject, whole=True)}
        return build_live_block(draw_figure(name, subject))
