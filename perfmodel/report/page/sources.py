"""HTML parts of the end of any page; each function escapes the text that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from perfmodel.schema.machine import Machine


def named(machine: Machine) -> str:
    """The name and title of a machine: ``Machine NAME: what it is``."""
    return f"Machine <strong>{escape(machine.name)}</strong>: {escape(machine.title)}"


def versions() -> str:
    """Versions of the programs that made the page."""
    import plotly

    from perfmodel import __version__

    return escape(f"perfmodel {__version__}, plotly {plotly.__version__}.")


def code(command: str) -> str:
    """A command as HTML, for readers to copy."""
    return f"<pre><code>{escape(command)}</code></pre>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of plain text; the first cell of each row is its header."""
    columns = "".join(f"<th scope='col'>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th scope='row'>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    return f"<div class='wide'><table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"


def folded(summary: str, html: str) -> str:
    """HTML that is shown when the reader clicks ``summary``, which is plain text."""
    return f"<details><summary>{escape(summary)}</summary>{html}</details>"


def values(machine: Machine) -> str:
    """All values of a machine, as an HTML table that opens with a click."""
    rows = [
        (key, str(quantity), str(quantity.evidence), quantity.source)
        for key, quantity in sorted(machine.values.items())
    ]
    head = ("value of the machine", "", "evidence", "source")
    return folded(f"Values of the machine ({len(rows)})", table(head, rows))
