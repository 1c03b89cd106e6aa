"""The sources at the end of a page as HTML; each function escapes the text that it is given."""

from __future__ import annotations

from html import escape

from perfmodel.schema.machine import Machine


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
    table = f"<div class='wide'><table>{head}{rows}</table></div>"
    return f"<details><summary>Values of the machine ({len(machine.values)})</summary>{table}</details>"
