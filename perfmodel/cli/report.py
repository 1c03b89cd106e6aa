"""``perfmodel report``: a page of the answer."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from perfmodel.answer import Question
from perfmodel.cli.output import check_target, emit, emit_json, find_free_name
from perfmodel.cli.question import advised, check_size, question_of, short_below
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.waiting_line import Progress
from perfmodel.engine.schemes import ALL
from perfmodel.errors import BadInputError
from perfmodel.question.groups import NO_POOLING
from perfmodel.question.pages import ReportOptions
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import FIGURES, PAPER, draw_figure
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.page.assemble import write_page
from perfmodel.report.page.question_page import build_paper_page, build_question_page
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import LAW_BACKENDS
from perfmodel.schema.run_files import measured_groups
from perfmodel.units import format_bytes

_TABLE_SIZE = "10TB"
_WITH_PAPER = ("paper", "out", "as_json", "machine", "calibration", "backend", "clock", "kernels", "settings")


def report(context: typer.Context, options: ReportOptions) -> None:
    """Write a page of the answer, and print the name of the file."""
    out = options.out or find_free_name(Path("report.html"), first=True)
    if out.suffix != ".html":
        raise BadInputError(f"--out {out}: what kind of file?", "its name must end in .html.")
    check_target(out)
    if (options.pooling or "").startswith(NO_POOLING):
        raise BadInputError("--pooling none has no page.", "pool the rows.")
    line = TypedLine.of(context)
    if options.paper:
        _check_paper(line)
    typed = {**context.params, "sharding": None if options.sharding == ALL else options.sharding}
    if not (options.table_size or options.gpus or options.model):
        typed["table_size"] = _choose_size(question_of({**typed, "table_size": _TABLE_SIZE}))
    question = question_of(typed)
    check_size(question)
    progress = Progress(len(PAPER if options.paper else FIGURES), "figures")

    def draw(name: str, subject: Subject) -> Block | Missing:
        block = draw_figure(name, subject)
        progress.advance(1)
        return block

    with advised(question):
        make_page = build_paper_page if options.paper else build_question_page
        page = make_page(find_subject(question), line.pinned().text(without=("out", "as_json")), draw)
    size = write_page(page, out)
    if options.as_json:
        emit_json("report", file=str(out), bytes=size, blocks=page.describe_figures())
        return
    emit(f"Wrote {out} ({format_bytes(size, binary=False)}): open it in a browser, no network needed.")


def _check_paper(line: TypedLine) -> None:
    """Raise BadInputError if an option of tables or of a batch was typed, which the paper's figures have."""
    for name, words in line.options:
        if name not in _WITH_PAPER:
            raise BadInputError(
                f"--paper and {shlex.join(words)} cannot be combined: the figures have the paper's tables.",
                "the machine is yours: --machine, --set of its values, --backend and --calibration.",
            )


def _choose_size(question: Question) -> str:
    """The table size of a question without one: what the largest group of ranks of the user's run holds."""
    fitted = load_calibration(question.calibration) if question.calibration else None
    if fitted is None or fitted.backend in LAW_BACKENDS:
        return _TABLE_SIZE
    groups = measured_groups(fitted) or measured_groups(fitted, ("all_to_all",))
    usable = question.machine.value("hbm_bytes") * (1 - question.reserve)
    return f"{short_below(max(groups) * usable):.0f}" if max(groups, default=1) > 1 else _TABLE_SIZE
