"""``perfmodel report``: a page of the answer, as HTML or Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.build_page import page_of
from perfmodel.cli.choices import (
    lists_of,
    measured_sizes,
    page_question,
    wanted,
    workload_selectors,
)
from perfmodel.cli.output import check_target, emit, emit_json
from perfmodel.cli.page_file import DEFAULTS, format_of, uncollected, write, wrote
from perfmodel.cli.question import advised, check_size, question_of
from perfmodel.cli.report_gpus import gpus_page, numbers_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.engine.schemes import ALL
from perfmodel.errors import BadInputError
from perfmodel.question.pages import ReportOptions

if TYPE_CHECKING:
    from perfmodel.answer.ranking import Ranking
    from perfmodel.report.page.parts import Page


@uncollected()
def report(context: typer.Context, options: ReportOptions) -> None:
    """Write a page of the answer, and print the name of the file."""
    params = context.params
    share_batch(context)
    file_format = format_of(options.out, options.file_format)
    out = options.out or Path(DEFAULTS[file_format])
    check_target(out, force=options.force)
    page = _page(params, TypedLine.of(context).pinned())
    size = write(page, out, file_format)
    if options.as_json:
        emit_json("report", file=str(out), bytes=size, blocks=page.contents())
        return
    emit(wrote(out, size, file_format))


def _page(typed: Mapping[str, Any], line: TypedLine, lead: Ranking | None = None) -> Page:
    """The page of ``perfmodel report`` for typed options. typed  their values by name

    line  the command that makes the page;  lead  the fastest sharding; None: it is not known yet
    """
    if over_gpus(typed):
        return gpus_page(typed, line, lead)
    lists = lists_of(typed)
    question = page_question(typed)
    if not lists["table_size"]:
        lists["table_size"] = [f"{size:.0f}" for size in measured_sizes(question)]
    sizes, workload = workload_selectors(lists)
    asked = wanted(question, lists, typed)
    check_size(question, *sizes.values)
    with advised(question):
        return page_of(question, sizes, workload, asked, lists, line, lead=lead)


def share_batch(context: typer.Context) -> None:
    """Replace ``--global-batch`` by the ``--batch`` of each GPU, in the options of ``context``.

    Limits: several numbers of GPUs -> BadInputError;  as ``share_of``
    """
    params = context.params
    if params["global_batch"] is None:
        return
    if len(numbers_of(params["gpus"])) > 1:
        raise BadInputError(
            "--global-batch and several --gpus cannot be combined in a page: each number has its own batch.",
            "give one number, or compare them: perfmodel sweep or perfmodel plan with --global-batch.",
        )
    question = question_of(params) if over_gpus(params) else page_question(params)
    params["batch"], params["global_batch"] = [str(question.batch)], None
    said, unsaid = (context.get_parameter_source(name) for name in ("global_batch", "batch"))
    assert said is not None and unsaid is not None
    context.set_parameter_source("batch", said)
    context.set_parameter_source("global_batch", unsaid)


def over_gpus(params: Mapping[str, Any]) -> bool:
    """Whether the page is over numbers of GPUs, with fixed tables, not over table sizes."""
    fixed = params["gpus"] is not None or params["model"] is not None
    return fixed or params["sharding"] not in (None, ALL)


@uncollected()
def write_beside(context: typer.Context, out: Path, lead: Ranking | None) -> str:
    """Write the page for ``perfmodel project --report``, and return the line to print about it.

    lead  the fastest sharding, with which the text begins; None: shardings were not compared
    """
    share_batch(context)
    line = TypedLine.of(context).pinned().to("report", ReportOptions)
    kind = format_of(out, None, "--report")
    return wrote(out, write(_page(context.params, line, lead), out, kind), kind)


def check_beside(out: Path, force: bool) -> None:
    """Raise BadInputError for a page that cannot be written, before any work is done."""
    format_of(out, None, "--report")
    check_target(out, force=force, option="--report")
