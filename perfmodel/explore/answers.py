"""The answer to a question of the page: the headline (card) and the figures of the report, for its script."""

from __future__ import annotations

import math
import shlex
import threading
from dataclasses import replace
from functools import lru_cache

from perfmodel.cli.question import question_of
from perfmodel.errors import BadInputError
from perfmodel.explore.controls import PRICE, list_controls
from perfmodel.explore.texts import QuestionTexts
from perfmodel.question.passes import SweepOptions
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.page.assemble import build_live_block, render_head, render_page, render_rest
from perfmodel.report.page.question_page import build_card, build_question_page, draw_figure
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import KEYS
from perfmodel.units import counted, format_number, parse_price, parse_quantity

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
    if not any(typed[name] for name in ("table_size", "gpus", "model")):
        raise BadInputError("which tables?", "say how large all of them are, or choose a set.")
    return find_subject(question_of(typed))


def show_answer(texts: QuestionTexts) -> dict[str, object]:
    """The immediate part of the page, as JSON; figures that take longer come with ``draw_later``.

    Limits: as ``compute_answer``
    """
    subject = compute_answer(texts)
    said = dict(texts.pairs)
    machine = subject.base.question.machine
    return {
        "own": {key: str(value) for key, value in machine.values.items() if key not in said},
        "knobs": place_knobs(subject, said),
        "view": _write_view(subject, said.get(PRICE)),
        "blocks": [build_live_block(draw_figure("breakdown", subject))],
        "command": _write_commands(texts, subject),
        "search": texts.search,
        "later": [WHAT_IFS, *LATER],
    }


def place_knobs(subject: Subject, said: dict[str, str]) -> dict[str, int]:
    """For each slider whose box is empty, the number of the stop nearest to the value that applies."""
    base = subject.base
    machine = base.question.machine
    values = {"gpus": base.gpus, "global_batch": base.gpus * float(base.work.batch[0])}
    values |= {key: machine.value(key) for key in KEYS if key in machine.values}
    knobs = {}
    for name, control in list_controls(None, None).items():
        if name in values and name not in said:
            unit = KEYS[name].unit if name in KEYS else "count"
            stops = [
                (abs(math.log(parse_quantity(word, unit) / values[name])), number)
                for number, word in enumerate(control.words)
                if word
            ]
            knobs[name] = min(stops)[1]  # nearest in its logarithm
    return knobs


def _write_view(subject: Subject, price: str | None, *, whole: bool = False) -> dict[str, str]:
    """The headline: its sentence, and all of it as HTML. price  of a GPU;  whole  as in ``build_card``

    Source of the cost: as ``perfmodel sweep --price``, of whole nodes
    """
    card = build_card(subject, whole=whole)
    answer = subject.answer
    if price is not None:
        amount, currency = parse_price(price, "--set price")
        node = answer.gpu_count.gpus_per_node
        paid = math.ceil(answer.gpus / node) * node
        cost = format_number(amount * paid * 1e9 / answer.samples_per_s / 3600)
        words = f"10⁹ samples cost {cost} {currency}, with {counted(paid, 'GPU')} paid."
        card = replace(card, findings=[words, *card.findings])
    return {"sentence": card.sentence, "html": render_head(card) + render_rest(card)}


def _write_commands(texts: QuestionTexts, subject: Subject) -> str:
    """The command that gives the same answer; with a price also the one that gives its cost."""
    commands = [texts.to_words()]
    if price := dict(texts.pairs).get(PRICE):
        pairs = [pair for pair in texts.pairs if pair[0] != "gpus"]
        fixed = QuestionTexts((*pairs, ("gpus", str(subject.answer.gpus))))
        words = fixed.to_words("sweep", {option.name: option for option in SweepOptions.declared()})
        commands.append([*words, "--price", f"{subject.base.question.machine.name}={price}"])
    return "\n".join(map(shlex.join, commands))


def save_page(texts: QuestionTexts) -> str:
    """The page of ``perfmodel report`` of a question, as HTML."""
    return render_page(build_question_page(compute_answer(texts), shlex.join(texts.to_words("report"))))


def draw_later(name: str, texts: QuestionTexts) -> dict[str, object]:
    """The figure of ``LATER`` with this name, or the headline ``WHAT_IFS``, as JSON for the page's script.

    Limits: it cannot be drawn -> a document that says why;  no figure of this name -> BadInputError
    """
    if name not in (WHAT_IFS, *LATER):
        raise unknown_name("figure of this page", name, (WHAT_IFS, *LATER))
    with _LATER:
        subject = compute_answer(texts)
        if name == WHAT_IFS:
            return {"view": _write_view(subject, dict(texts.pairs).get(PRICE), whole=True)}
        return build_live_block(draw_figure(name, subject))
