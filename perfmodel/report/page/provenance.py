"""The sources at the end of a page as HTML; each function escapes the text that it is given."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from perfmodel.engine.explained import ExplainedPass
from perfmodel.report.explanation_text import explanation_text
from perfmodel.schema.machine import Machine
from perfmodel.units import format_fraction, format_time


def describe_machine(machine: Machine) -> str:
    """The name and title of a machine: ``Machine NAME: what it is``."""
    return f"Machine <strong>{escape(machine.name)}</strong>: {escape(machine.title)}"


def describe_versions() -> str:
    """Versions of the programs that made the page."""
    import plotly

    from perfmodel import __version__

    return escape(f"perfmodel {__version__}, plotly {plotly.__version__}.")


def write_code(command: str) -> str:
    """A command as HTML, for readers to copy."""
    return f"<pre><code>{escape(command)}</code></pre>"


def list_machine_values(machine: Machine) -> str:
    """All values of a machine, as an HTML table that opens with a click."""
    rows = "".join(
        f"<tr><th scope='row'>{escape(key)}</th><td>{escape(str(quantity))}</td><td>{quantity.evidence}</td>"
        f"<td>{escape(quantity.source)}</td></tr>"
        for key, quantity in sorted(machine.values.items())
    )
    head = "<tr><th>value of the machine</th><th></th><th>evidence</th><th>source</th></tr>"
    return _write_fold(f"Values of the machine ({len(machine.values)})", f"<table>{head}{rows}</table>")


def _write_fold(summary: str, html: str) -> str:
    """HTML that is shown when the reader clicks ``summary``, which is plain text."""
    return f"<details><summary>{escape(summary)}</summary><div class='wide'>{html}</div></details>"


def list_equations(explained: ExplainedPass) -> Iterator[str]:
    """HTML for each step: its equations with the numbers in them, which open with a click."""
    for step in explained.rows:
        title = f"{step.label}: {format_time(step.time_s)}, {format_fraction(step.share)} of the time"
        text = escape(explanation_text(explained.explain(step.name)))
        yield _write_fold(f"Equations of {title}", f"<pre>{text}</pre>")
