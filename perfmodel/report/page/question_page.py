"""The page of a question: headline, two figures, findings, what would help, and the other figures."""

from __future__ import annotations

import re
from collections.abc import Callable

from perfmodel.answer import Question
from perfmodel.answer.ranking import Ranking
from perfmodel.effort import tell
from perfmodel.errors import PerfmodelError
from perfmodel.report.figures.bars import draw_breakdown, draw_changes, draw_shardings
from perfmodel.report.figures.chart import Block, Missing
from perfmodel.report.figures.heat_maps import draw_grids, draw_shapes
from perfmodel.report.figures.lines import draw_over_gpus, draw_roofline, draw_slowdown
from perfmodel.report.figures.measured_curves import draw_collectives, draw_validation
from perfmodel.report.figures.paper import draw_ends, draw_links, draw_paper_collectives, draw_stages
from perfmodel.report.figures.subject import Subject
from perfmodel.report.page.assemble import Card, Page, describe_evidence, write_sources
from perfmodel.report.projection_text import question_facts
from perfmodel.report.ranking_text import (
    beside_words,
    gpu_words,
    headline,
    help_words,
    limit_words,
    measure_text,
    setting_words,
    throughput_words,
)

FIGURES: dict[str, Callable[[Subject], Block]] = {
    "breakdown": draw_breakdown,
    "slowdown": draw_slowdown,
    "changes": draw_changes,
    "shardings": draw_shardings,
    "over-gpus": draw_over_gpus,
    "shapes": draw_shapes,
    "collectives": draw_collectives,
    "roofline": draw_roofline,
    "paper-collectives": draw_paper_collectives,
    "paper-stages": draw_stages,
    "paper-links": draw_links,
    "paper-grids": draw_grids,
    "paper-slowdown": draw_ends,
    "validation": draw_validation,
}
"""The figures by their names, in the order of the page."""


def list_figures(question: Question, *, paper: bool = False) -> list[str]:
    """The names of the figures on a page. paper  whether only figures of arXiv 2512.05831 are drawn

    Limits: a set of tables -> none of the paper's, whose tables are equal;  no slowdown over sizes
    """
    if paper:
        return [name for name in FIGURES if name.startswith("paper")]
    if question.model is None:
        return list(FIGURES)
    names = ["breakdown", "over-gpus", *FIGURES]
    return [x for x in dict.fromkeys(names) if x != "slowdown" and not x.startswith("paper")]


def draw_figure(name: str, subject: Subject) -> Block | Missing:
    """The figure of this name; where it cannot be drawn, the reason."""
    tell(f"figure {name}")
    try:
        return FIGURES[name](subject)
    except PerfmodelError as error:
        return Missing(name, error.message)


def build_question_page(subject: Subject, command: str) -> Page:
    """The page of a question, with all figures. command  the line that makes it again"""
    card = build_card(subject)
    blocks = [draw_figure(name, subject) for name in list_figures(subject.base.question)]
    return Page(
        title=f"{card.sentence}: {subject.answer.setting.machine.name}",
        card=card,
        blocks=blocks[3:],
        provenance=write_sources(subject.answer, command),
        first=blocks[:3],
    )


def build_paper_page(subject: Subject, command: str) -> Page:
    """The page of the paper's figures alone. command  the line that makes it again"""
    blocks = [draw_figure(name, subject) for name in list_figures(subject.base.question, paper=True)]
    sentence = "The figures of arXiv 2512.05831"
    titles = [block.title for block in blocks if isinstance(block, Block)]
    lines = (
        "Above each figure: its machine, what the paper says, what is found here, and whether it holds.",
        "All of its claims: perfmodel validate --paper.",
    )
    return Page(sentence, Card(sentence, lines, titles), blocks, write_sources(subject.answer, command))


def build_card(subject: Subject, *, whole: bool = True) -> Card:
    """The headline of an answer: its time and both ratios, and three findings.

    whole  whether to say which change helps most: this takes many answers
    """
    answer = subject.answer
    ranking = subject.lead
    shown = ranking or Ranking(subject.base, (answer,))
    beside = beside_words(ranking) if ranking else f"sharded {answer.sharding}"
    facts = "; ".join(f"{label} {text}" for label, text in question_facts(subject.base))
    findings = [f"Memory: {gpu_words(answer)}."]
    findings += [limit_words(answer)] if answer.gpus > 1 else ["Nothing is sharded."]
    findings += [help_words(ranking)] if whole and ranking else []
    question = f"Question: {facts}; on {setting_words(subject.base)}"
    sentences = [
        f"{words[:1].upper()}{words[1:].rstrip('.')}." if words else ""
        for words in (throughput_words(answer), beside)
    ]
    return Card(
        headline(shown),
        (*sentences, question, describe_evidence(answer)),
        findings,
        re.sub(r"\n(?=\S)", " ", measure_text(shown)),
        answer.every_note,
    )
