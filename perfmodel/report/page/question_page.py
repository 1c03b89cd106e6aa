"""The page of a question: headline, two figures, findings, what would help, and the other figures."""

from __future__ import annotations

import re
from collections.abc import Callable

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import FIGURES, PAPER, draw_figure
from perfmodel.report.figures.subject import Subject
from perfmodel.report.page.alerts import list_alerts
from perfmodel.report.page.parts import Card, Page
from perfmodel.report.page.provenance import write_sources
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
from perfmodel.schema.calibration import list_calibrations

Draw = Callable[[str, Subject], Block | Missing]


def build_question_page(subject: Subject, command: str, draw: Draw = draw_figure) -> Page:
    """The page of a question. command  makes it again;  draw  draws a figure, and may tell the progress"""
    answer, card = subject.answer, build_card(subject)
    second = "over-gpus" if subject.base.question.model is not None else "slowdown"
    drawn = {name: draw(name, subject) for name in FIGURES if name != "slowdown" or name == second}
    return Page(
        title=f"{card.sentence}: {answer.setting.machine.name}",
        provenance=write_sources(answer, command),
        card=card,
        pair=(drawn.pop("breakdown"), drawn.pop(second)),
        helps=(drawn.pop("changes"),),
        blocks=tuple(drawn.values()),
        command=command,
        alerts=list_alerts(answer, answer.question.calibration),
    )


def build_paper_page(subject: Subject, command: str, draw: Draw = draw_figure) -> Page:
    """The page of the paper's figures alone, on the machine of a question. command, draw  as above"""
    blocks = [draw(name, subject) for name in PAPER]
    sentence = f"The figures of arXiv 2512.05831, on {subject.answer.setting.machine.name}"
    titles = [block.title for block in blocks if isinstance(block, Block)]
    note = "Above each figure: what the paper says, what is found here, and whether it holds."
    card = Card(sentence, note, "All of its claims: perfmodel validate --paper.", findings=titles)
    return Page(sentence, write_sources(subject.answer, command), card, blocks, command)


def build_card(subject: Subject, *, whole: bool = True) -> Card:
    """The headline of an answer: its time and both ratios, and three findings.

    whole  whether to say which change helps most: this takes many answers
    """
    answer, ranking = subject.answer, subject.lead
    shown = ranking or Ranking(subject.base, (answer,))
    beside = beside_words(ranking, whole=False) if ranking else f"sharded {answer.sharding}"
    facts = "; ".join(f"{label} {text}" for label, text in question_facts(subject.base))
    findings = [f"Memory: {gpu_words(answer)}."]
    findings += [limit_words(answer)] if answer.gpus > 1 else ["Nothing is sharded."]
    findings += [help_words(ranking)] if whole and ranking and answer.gpus > 1 else []
    return Card(
        headline(shown),
        _write_sentence(throughput_words(answer)),
        _write_sentence(beside),
        evidence=answer.evidence_shares(),
        alert=re.sub(r"\n(?=\S)", " ", measure_text(shown, _find_file(answer))),
        notes=answer.every_note,
        question=f"{facts}; on {setting_words(subject.base)}",
        findings=findings,
    )


def _write_sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}." if words else ""


def _find_file(answer: Answer) -> str | None:
    """The user's calibration file behind the answer; None for a shipped calibration."""
    named = answer.setting.calibration
    return None if named is None or str(named) in list_calibrations() else str(named)
