"""``perfmodel report``: a page of the answer, as HTML or Markdown."""

from __future__ import annotations

from pathlib import Path

import typer

from perfmodel.answer import Question
from perfmodel.cli.output import check_target, emit, emit_json, free_name
from perfmodel.cli.page_file import format_of, uncollected, write, wrote
from perfmodel.cli.question import advised, check_size, question_of, short_below
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.waiting_line import Progress
from perfmodel.engine.schemes import ALL
from perfmodel.errors import BadInputError
from perfmodel.question.groups import NO_POOLING
from perfmodel.question.pages import ReportOptions
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import PAPER, QUESTION, Figure
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.page.parts import Page
from perfmodel.report.page.question_page import paper_page, question_page
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import LAW_BACKENDS
from perfmodel.schema.run_files import measured_groups

_TABLE_SIZE = "10TB"


@uncollected()
def report(context: typer.Context, options: ReportOptions) -> None:
    """Write a page of the answer, and print the name of the file."""
    out = options.out or free_name(Path("report.html"), first=True)
    file_format = format_of(out)
    check_target(out)
    if (options.pooling or "").startswith(NO_POOLING):
        raise BadInputError("--pooling none has no page.", "pool the rows.")
    typed = {**context.params, "sharding": None if options.sharding == ALL else options.sharding}
    if not (options.table_size or options.gpus or options.model):
        typed["table_size"] = _choose_size(question_of({**typed, "table_size": _TABLE_SIZE}))
    question = question_of(typed)
    check_size(question)
    with advised(question):
        command = TypedLine.of(context).pinned().text(without=("out", "as_json"))
        page = make_page(question, command, paper=options.paper)
    size = write(page, out, file_format)
    if options.as_json:
        emit_json("report", file=str(out), bytes=size, blocks=page.contents())
        return
    emit(wrote(out, size, file_format))


def _choose_size(question: Question) -> str:
    """The table size of a question without one: what the largest group of ranks of the user's run holds."""
    known = load_calibration(question.calibration) if question.calibration else None
    if known is None or known.backend in LAW_BACKENDS:
        return _TABLE_SIZE
    groups = measured_groups(known) or measured_groups(known, ("all_to_all",))
    usable = question.machine.value("hbm_bytes") * (1 - question.reserve)
    return f"{short_below(max(groups) * usable):.0f}" if max(groups, default=1) > 1 else _TABLE_SIZE


def make_page(question: Question, command: str, *, paper: bool = False) -> Page:
    """The page of a question, or of the paper on its machine. command  makes it again"""
    progress = Progress(len(PAPER) if paper else len(QUESTION) + 2, "figures")

    def draw(figure: Figure, subject: Subject) -> Block | Missing:
        block = figure.draw(subject)
        progress.advance(1)
        return block

    return (paper_page if paper else question_page)(find_subject(question), command, draw)
