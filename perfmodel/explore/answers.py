"""The answer to a question of the page: the headline (card) and the figures of the report, for its script."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from perfmodel.answer import Answer, Question, answer_on
from perfmodel.answer.answers import note_idle
from perfmodel.answer.inputs import DEFAULTS
from perfmodel.answer.ranking import Ranking, answer_question, is_ranked, rank, rank_shardings
from perfmodel.cli.question import advised, check_size, question_of
from perfmodel.engine.schemes import AUTO, ROW_WISE
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.explore import commands
from perfmodel.explore.asked import Said
from perfmodel.question.passes import ProjectOptions
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.line_traces import SlowdownLine
from perfmodel.report.figures.registry import BREAKDOWN, CHANGES, OVER_GPUS, SLOWDOWN, Figure
from perfmodel.report.page.assemble import block_data
from perfmodel.report.page.gpu_views import sharded
from perfmodel.report.page.lines import Lines, frame_of
from perfmodel.report.page.parts import Card
from perfmodel.report.page.ranking_card import asked_words, card_of, completed
from perfmodel.report.page.setups import Curves, Loaded, Setup
from perfmodel.schema.files import unknown_name
from perfmodel.units import counted, format_ratio, format_time

LATER = (OVER_GPUS, CHANGES, SLOWDOWN)
"""Figures that need many answers: they are computed once the question stays unchanged."""
WHAT_IFS = "what-ifs"
"""Name of the headline with changes that would help, which is computed once the question stays unchanged."""
_NUMBERS = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
"""Of the GPUs of the answer: those that the figure over them has."""
_LATER = threading.Lock()
"""Only one figure of many answers is made at a time."""


@dataclass(frozen=True, eq=False)
class PageAnswer:
    """The answer to one question of the page.

    row_wise  the answer with row-wise sharding, with which other shardings are compared
    shown     the answer that the page shows;  way  the sharding that the user chose, if any
    lead      the best sharding, with the changes that would help most; None if the user chose a sharding
    """

    question: Question
    row_wise: Answer
    shown: Answer
    lead: Ranking | None
    way: str | None = None


@lru_cache(maxsize=16)
def answer(asked: Said) -> PageAnswer:
    """Compute the answer to ``asked``. Limits and errors: as ``perfmodel project``"""
    typed = asked.typed(ProjectOptions)
    if not (typed["table_size"] or typed["gpus"] or typed["model"]):
        raise BadInputError("which tables?", "say how large all of them are, or choose a set.")
    question = question_of(typed)
    check_size(question)
    with advised(question):
        if question.sharding is None:
            ranking = rank(question)
            lead = ranking if is_ranked(ranking.base) else None
            return PageAnswer(question, ranking.base, note_idle(ranking.answer, answer_question), lead)
        named = note_idle(answer_question(question), answer_question)
        base = answer_on(question, named.gpus) if named.sharding != ROW_WISE else named
        return PageAnswer(question, base, named, None, None if base is named else named.sharding)


def shown(asked: Said, beside: Said | None) -> dict[str, Any]:
    """The immediate part of the page, as JSON; figures that take longer come with ``drawn``.

    beside  the pinned question, with whose answer this answer is compared, or None
    Limits: as ``answer``
    """
    found = answer(asked)
    return {
        "view": _view(asked, found),
        "blocks": [block_data(BREAKDOWN.draw(answers=[found.shown]))],
        "against": _against(found, beside),
        "command": shlex.join(commands.line(asked)),
        "search": asked.search,
    }


def _view(asked: Said, found: PageAnswer, *, whole: bool = False) -> dict[str, Any]:
    """The headline of an answer, as the page's script takes it. whole  with changes that help"""
    return {"heads": [vars(_card(asked, found, whole=whole))]}


def _card(asked: Said, found: PageAnswer, *, whole: bool) -> Card:
    base = found.shown if found.lead is None else found.row_wise
    card = card_of(base, found.lead, whole=False, elsewhere="")
    card = replace(card, question=asked_words(found.row_wise))
    return completed(card, found.lead) if whole and found.lead is not None else card


def _against(found: PageAnswer, beside: Said | None) -> str:
    """Compares the pinned question's time with this answer's. Limits: none, or no answer -> empty"""
    if beside is None:
        return ""
    try:
        pinned = answer(beside).shown
    except PerfmodelError:
        return ""
    first, second = (
        f"{format_time(each.time_s)} per batch on {counted(each.gpus, 'GPU')}"
        for each in (pinned, found.shown)
    )
    ratio = format_ratio(found.shown.time_s / pinned.time_s)
    return f"A, pinned: {first}. B, now: {second}. B takes {ratio} the time of A."


def drawn(name: str, asked: Said, wanted: Callable[[], bool]) -> dict[str, Any] | None:
    """The figure of ``LATER`` with this name, or the headline ``WHAT_IFS``, as JSON for the page's script.

    wanted  returns, when the figure's turn comes, whether the page still needs it
    Limits: it cannot be drawn -> a document that says why;  it is not needed any more -> None;  no figure of
            this name -> BadInputError
    """
    known = {WHAT_IFS: None} | {each.name: each for each in LATER}
    if name not in known:
        raise unknown_name("figure of this page", name, known)
    figure = known[name]
    with _LATER:
        if not wanted():
            return None
        if figure is None:
            return {"view": _view(asked, answer(asked), whole=True)}
        try:
            return block_data(_figure(figure, answer(asked)))
        except PerfmodelError as error:
            return block_data(figure.missing(error.message))


def _figure(figure: Figure, found: PageAnswer) -> Block | Missing:
    if figure is OVER_GPUS:
        return figure.draw(lines=list(_over_gpus(found)), asked=found.shown, first="time")
    if figure is SLOWDOWN:
        if found.question.tables is not None:
            return figure.missing("a set of tables has one size.")
        return figure.draw(lines=list(_over_sizes(found.question, found.row_wise)), asked=found.shown)
    return figure.draw(asked=found.row_wise, lead=found.lead)


def _over_gpus(found: PageAnswer) -> Iterator[SlowdownLine]:
    """Curves over the number of GPUs: the sharding that is shown, and row-wise sharding."""
    question = found.question
    if question.tables is None:
        question = replace(question, table_bytes=found.row_wise.gpu_count.table_bytes)
    bases, best = [], []
    for part in _NUMBERS:
        gpus = round(part * found.shown.gpus)
        with suppress(PerfmodelError):  # too few for the tables, or more than rows
            base = answer_on(question, gpus) if gpus >= 1 else None
            if base is not None:
                led = found.lead is not None and is_ranked(base)
                best.append(rank_shardings(base).answer if led else sharded(base, found.way))
                bases.append(base)
    if found.way or found.lead:
        yield SlowdownLine(found.way or "the fastest of TorchRec's", frame_of(best), style=1)
    yield SlowdownLine(ROW_WISE, frame_of(bases), style=0)


def _over_sizes(question: Question, answer: Answer) -> Iterator[SlowdownLine]:
    """Curves over the size of the tables, as in the report, for the library of the question only."""
    own = Curves(question.backend, question.clock)
    setup = Setup(question.machine, own, AUTO)
    names = ("batch", "pooling", "dim")
    workload = {name: getattr(question, name) or DEFAULTS[name] for name in names}
    rest = question.list_keywords("machine", "table_bytes", "gpus", *names, *setup.options, "setting")
    sizes = [answer.gpu_count.table_bytes]
    return Lines(sizes, [workload], Loaded(question.kernels), rest, (own,)).of(setup, workload)
