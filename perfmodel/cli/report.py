"""``perfmodel report``: a page of the answer."""

from __future__ import annotations

from pathlib import Path

import typer

from perfmodel.cli.options import apart
from perfmodel.cli.output import CommandReply, check_target
from perfmodel.cli.question import question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.engine.schemes import ALL
from perfmodel.errors import BadInputError
from perfmodel.question.groups import NO_POOLING
from perfmodel.question.passes import ReportOptions
from perfmodel.report.figures.subject import find_subject
from perfmodel.report.page.assemble import write_page
from perfmodel.report.page.question_page import build_paper_page, build_question_page
from perfmodel.units import format_bytes

_WITH_PAPER = ("paper", "out", "as_json", "machine", "calibration", "backend", "clock", "kernels", "settings")


def report(context: typer.Context, options: ReportOptions) -> CommandReply:
    """Write a page of the answer, and print the name of the file."""
    out = options.out or Path("report.html")
    check_target(out, ".html", what="a page")
    if (options.pooling or "").startswith(NO_POOLING):
        raise BadInputError("--pooling none has no page.", "pool the rows.")
    defaults = {option.name: option.default for option in options.declared()}
    changed = {name: value for name, value in vars(options).items() if value != defaults[name]}
    of_tables = {name: value for name, value in changed.items() if name not in _WITH_PAPER}
    apart("--paper", options.paper, "leave out {other}: the figures have the paper's tables.", **of_tables)
    typed = {**context.params, "sharding": None if options.sharding == ALL else options.sharding}
    if not any((options.table_size, options.gpus, options.model)):
        typed["table_size"] = "10TB"
    question = question_of(typed)
    make_page = build_paper_page if options.paper else build_question_page
    command = TypedLine.of(context).text(without=("out", "as_json"))
    page = make_page(find_subject(question), command)
    size = write_page(page, out)
    said = f"Wrote {out} ({format_bytes(size, binary=False)}): open it in a browser, no network needed."
    blocks = [
        {"name": x.name, "title": getattr(x, "title", None), "left_out": getattr(x, "why", None)}
        for x in (*page.first, *page.blocks)
    ]
    record = {"file": str(out), "bytes": size, "blocks": blocks}
    return CommandReply(lambda: record, lambda: said)
