"""``perfmodel load``: the latencies of a service under a load, and the number of GPUs that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from perfmodel.cli.load_answer import LoadAnswer, answered
from perfmodel.cli.options import (
    one_output,
)
from perfmodel.cli.output import emit, emit_json, note, warn
from perfmodel.cli.plan_options import check_page
from perfmodel.cli.typed_line import TypedLine
from perfmodel.question.passes import LoadOptions
from perfmodel.report.load_text import load_text

_OF_OUTPUT = ("report", "force", "as_json", "as_csv")


def load(context: typer.Context, options: LoadOptions) -> None:
    """Compute how many GPUs a service needs, and its latencies; print them, or write a page."""
    one_output(json=options.as_json, csv=options.as_csv)
    check_page(options.report, None, force=options.force)
    asked = answered(context.params)
    answer, setting, file = asked.answer, asked.setting, asked.file
    if options.report is not None:
        _write_page(context, asked, options.report)
    if options.as_csv:
        emit(answer.to_frame().to_csv(index=False))
    elif options.as_json:
        cost = asked.hourly.to_dict()
        known = {**answer.to_dict(), "cost": cost, "calibration_file": file}
        emit_json("load", machine=setting.machine.name, host=options.host, **known)
    else:
        explained = replace(TypedLine.of(context), command=("perfmodel", "explain", "load"))
        explain = explained.text(without=_OF_OUTPUT)
        emit(load_text(answer, asked.hourly, setting, explain, file, options.host))
        for line in setting.notes:
            warn(line)


def _write_page(context: typer.Context, asked: LoadAnswer, path: Path) -> None:
    """Write the page of a service, which names the command that makes it again."""
    from perfmodel.cli.page_file import write
    from perfmodel.report.page.alerts import alerts
    from perfmodel.report.page.load_page import load_page

    line = TypedLine.of(context)
    command = line.text(without=_OF_OUTPUT, more=["--report", path.name])
    doubts = alerts(None, asked.question.calibration)
    write(load_page(asked.answer, asked.hourly, asked.setting, command, doubts), path, "html")
    note(f"wrote {path}")
