"""The sources at the end of a page as HTML."""

from __future__ import annotations

from html import escape

from perfmodel.answer import Answer


def write_sources(answer: Answer, command: str, reproducing: str = "To reproduce this page exactly") -> str:
    """The machine with all its values, calibrations, versions, and the command that makes the page again.

    reproducing  words above the command
    """
    import plotly

    from perfmodel import __version__

    machine, clocks = answer.setting.machine, ", ".join(map(str, answer.clocks))
    names = ", ".join(dict.fromkeys(answer.calibrations)) or "none"
    versions = f"perfmodel {__version__}, plotly {plotly.__version__}"
    rows = "".join(
        f"<tr><th scope='row'>{escape(key)}</th><td>{escape(str(quantity))}</td><td>{quantity.evidence}</td>"
        f"<td>{escape(quantity.source)}</td></tr>"
        for key, quantity in sorted(machine.values.items())
    )
    head = "<tr><th>value of the machine</th><th></th><th>evidence</th><th>source</th></tr>"
    table = f"<div class='wide'><table>{head}{rows}</table></div>"
    return (
        f"<p>Machine <strong>{escape(machine.name)}</strong>: {escape(machine.title)}</p>\n"
        f"<p>Calibrations: {escape(names)}. Clock: {escape(clocks)}. {escape(versions)}.</p>\n"
        f"<details><summary>Values of the machine ({len(machine.values)})</summary>{table}</details>\n"
        f"<p>{escape(reproducing)}:</p><pre><code>{escape(command)}</code></pre>"
    )
