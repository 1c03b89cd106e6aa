"""The sources at the end of a page: machine, values, calibrations, equations, and the command."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from perfmodel.answer import Answer
from perfmodel.answer.explained import build_explained_pass
from perfmodel.engine.explained import ExplainedPass
from perfmodel.report.explanation_text import explanation_text
from perfmodel.report.page.sources import code, folded, named, values, versions
from perfmodel.units import format_fraction, format_time


def provenance(answer: Answer, command: str) -> str:
    """The sources of a projection as HTML: machine, calibrations, equations, and the command.

    answer   the projection that the page opens with;  command  makes the page again, byte for byte
    """
    machine = answer.setting.machine
    parts = [
        f"<p>{named(machine)}</p>",
        f"<p>{calibrations(answer)} {versions()}</p>",
        values(machine),
        *equations(build_explained_pass(answer)),
        f"<p>To reproduce this page exactly:</p>{code(command)}",
    ]
    return "\n".join(parts)


def calibrations(answer: Answer) -> str:
    """A sentence with the names and clocks of the calibrations behind a projection."""
    names = ", ".join(dict.fromkeys(answer.calibrations)) or "none"
    return f"Calibrations: {escape(names)}. Clock: {escape(', '.join(map(str, answer.clocks)))}."


def equations(explained: ExplainedPass) -> Iterator[str]:
    """HTML for each step: its equations with the numbers in them, which open with a click."""
    for step in explained.rows:
        title = f"{step.label}: {format_time(step.time_s)}, {format_fraction(step.share)} of the time"
        text = escape(explanation_text(explained.explain(step.name)))
        yield folded(f"Equations of {title}", f"<div class='wide'><pre>{text}</pre></div>")
