"""The end of the page: where every number comes from, the equations, and the command that makes it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from html import escape

from perfmodel.errors import PerfmodelError
from perfmodel.passes.explanation import Explanation
from perfmodel.plan.alike import Alike, best_alike
from perfmodel.plan.answer import evaluator_of
from perfmodel.plan.explain_plan import explain_alike_step
from perfmodel.project import Projection
from perfmodel.project.explain_step import explain_step
from perfmodel.report.explain import explanation_text
from perfmodel.report.projection import short_label
from perfmodel.schema.machine import Machine
from perfmodel.units import format_fraction, format_time


def provenance(answer: Projection, command: str) -> str:
    """HTML of the machine, its values, the calibrations, the equation of every step and the command.

    answer   the one that was asked for;  command  makes the page again, byte for byte
    """
    machine = answer.setting.machine
    parts = [
        f"<p>Machine <strong>{escape(machine.name)}</strong>: {escape(machine.title)}</p>",
        f"<p>Calibrations: {escape(', '.join(dict.fromkeys(answer.calibrations)) or 'none')}. "
        f"Clock: {escape(', '.join(map(str, answer.clocks)))}. {escape(versions())}</p>",
        machine_values(machine),
        *equations(answer),
        f"<p>This page again, byte for byte:</p><pre><code>{escape(command)}</code></pre>",
    ]
    return "\n".join(parts)


def versions() -> str:
    """Of what made the page."""
    import plotly

    from perfmodel import __version__

    return f"perfmodel {__version__}, plotly {plotly.__version__}."


def machine_values(machine: Machine) -> str:
    """HTML of all values of a machine with evidence and source, folded."""
    rows = "".join(
        f"<tr><th scope='row'>{escape(key)}</th><td>{escape(str(quantity))}</td>"
        f"<td>{escape(str(quantity.evidence))}</td><td>{escape(quantity.source)}</td></tr>"
        for key, quantity in sorted(machine.values.items())
    )
    head = "".join(
        f"<th scope='col'>{name}</th>" for name in ("value of the machine", "", "evidence", "source")
    )
    return (
        f"<details><summary>Values of the machine ({len(machine.values)})</summary><div class='wide'>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def equations(answer: Projection) -> Iterator[str]:
    """HTML of the equation of every step with its numbers, folded."""
    explain = _explaining(answer)
    for step in answer.steps:
        try:
            text = explanation_text(explain(step.name))
        except PerfmodelError as error:
            text = error.message
        title = f"{short_label(step)}: {format_time(step.time_s)}, {format_fraction(step.share)} of the time"
        yield (
            f"<details><summary>Equation of {escape(title)}</summary>"
            f"<div class='wide'><pre>{escape(text)}</pre></div></details>"
        )


def _explaining(answer: Projection) -> Callable[[str], Explanation]:
    """What explains a step: of another sharding than row-wise, its plan, which is made again."""
    way = answer.question.sharding if answer.question else None
    if way is None:
        return partial(explain_step, answer)
    evaluator = evaluator_of(answer)
    found = best_alike(evaluator, way, answer.gpu_count.usable_bytes)
    assert isinstance(found, Alike)  # the answer is of it
    return partial(explain_alike_step, answer, evaluator, found)
