"""The sources at the end of a page: machine, values, calibrations, equations, and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from html import escape

from perfmodel.errors import PerfmodelError
from perfmodel.passes.alike import Alike, best_alike
from perfmodel.passes.explanation import Explanation
from perfmodel.plan.as_projection import evaluator_of
from perfmodel.plan.explain_step import explain_alike_step, explain_step
from perfmodel.projections import Projection
from perfmodel.report.explanation_text import explanation_text
from perfmodel.report.page.sources import code, folded, named, values, versions
from perfmodel.units import format_fraction, format_time


def provenance(answer: Projection, command: str) -> str:
    """The sources of a projection as HTML: machine, calibrations, equations, and the command.

    answer   the projection that the page opens with;  command  makes the page again, byte for byte
    """
    machine = answer.setting.machine
    parts = [
        f"<p>{named(machine)}</p>",
        f"<p>{calibrations(answer)} {versions()}</p>",
        values(machine),
        *equations(answer),
        f"<p>To reproduce this page exactly:</p>{code(command)}",
    ]
    return "\n".join(parts)


def calibrations(answer: Projection) -> str:
    """A sentence with the names and clocks of the calibrations behind a projection."""
    names = ", ".join(dict.fromkeys(answer.calibrations)) or "none"
    return f"Calibrations: {escape(names)}. Clock: {escape(', '.join(map(str, answer.clocks)))}."


def equations(answer: Projection) -> Iterator[str]:
    """HTML for each step: its equation with the numbers in it, which opens with a click."""
    explain = _explaining(answer)
    for step in answer.steps:
        try:
            text = explanation_text(explain(step.name))
        except PerfmodelError as error:
            text = error.message
        title = f"{step.label}: {format_time(step.time_s)}, {format_fraction(step.share)} of the time"
        yield folded(f"Equation of {title}", f"<div class='wide'><pre>{escape(text)}</pre></div>")


def _explaining(answer: Projection) -> Callable[[str], Explanation]:
    """A function that explains a step of the projection, from the step's name.

    For shardings other than row-wise the plan is made again.
    """
    way = answer.question.sharding if answer.question else None
    if way is None:
        return partial(explain_step, answer)
    evaluator = evaluator_of(answer)
    found = best_alike(evaluator, way, answer.gpu_count.usable_bytes)
    assert isinstance(found, Alike)  # the answer is of this sharding
    return partial(explain_alike_step, answer, evaluator, found)
