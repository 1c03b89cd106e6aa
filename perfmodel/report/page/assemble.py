"""A page: its headline (the card) and its figures, and the HTML file that they become with plotly inside."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib import resources
from pathlib import Path

from perfmodel.answer import Answer
from perfmodel.report.figures.chart import Block, Missing
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.files import write_whole
from perfmodel.units import format_fraction

_DIGITS = 6
"""Digits of the numbers in a figure: more than it shows."""


@dataclass(frozen=True)
class Card:
    """The headline (card) at the top of a page, all as plain text, which is never interpreted as HTML.

    sentence  the answer;  lines  below it: times, bands, the question, evidence;  findings  sentences
    alert     a doubt that the reader must see;  notes  further sentences
    """

    sentence: str
    lines: Sequence[str] = ()
    findings: Sequence[str] = ()
    alert: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """The contents of a page.

    title       plain text;  provenance  sources of the numbers, as HTML
    first       figures of the first screen: two side by side, and those below the findings
    blocks      the other figures, in the order of the reader's questions
    """

    title: str
    card: Card
    blocks: Sequence[Block | Missing]
    provenance: str = ""
    first: Sequence[Block | Missing] = ()


def write_page(page: Page, out: Path) -> int:
    """Write the page to a file, whole or not at all, and return its number of bytes."""
    content = render_page(page).encode()
    write_whole(out, content)
    return len(content)


def render_page(page: Page) -> str:
    """The HTML file of a page; the same page always gives the same bytes."""
    pair = f"<div class='pair'>{_render_blocks(page.first[:2])}</div>"
    screen = f"{render_head(page.card)}{pair}{render_rest(page.card)}{_render_blocks(page.first[2:])}"
    blocks = [build_data(block) for block in (*page.first, *page.blocks) if isinstance(block, Block)]
    parts = {
        "TITLE": escape(page.title),
        "STYLE": read_file("page.css"),
        "BODY": f"<section id='first'>{screen}</section>\n{_render_blocks(page.blocks)}",
        "PROVENANCE": page.provenance,
        "DATA": escape_script({"blocks": blocks}),
        "PLOTLY": _pack_plotly(),
        "SCRIPT": read_file("page.js"),
    }
    pieces = read_file("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


@lru_cache(maxsize=1)
def _pack_plotly() -> str:
    """plotly.js as gzip in base64, always the same bytes; compressed, because it is most of a page."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=5, mtime=0)).decode()


def read_file(name: str) -> str:
    """The text of a file of this page."""
    return resources.files("perfmodel.report.page").joinpath(name).read_text(encoding="utf-8")


def escape_script(value: object) -> str:
    """``value`` as JSON in which no text can end the script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = re.sub("<(?=[/!s])", "\\\\u003c", text, flags=re.IGNORECASE)  # </script, <!--, <script
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def render_head(card: Card) -> str:
    """The headline's sentence and the lines below it as HTML."""
    lines = (_write_paragraph(text, "soft" if place > 1 else "") for place, text in enumerate(card.lines))
    return f"<h1>{escape(card.sentence)}</h1>{''.join(lines)}"


def render_rest(card: Card) -> str:
    """The headline's findings, doubt and notes as HTML."""
    items = "".join(f"<li>{escape(words)}</li>" for words in card.findings)
    notes = "".join(_write_paragraph(f"Note: {note}", "soft") for note in card.notes)
    findings = f"<ul class='findings'>{items}</ul>" if items else ""
    return f"{findings}{_write_paragraph(card.alert, 'alert')}{notes}"


def describe_evidence(answer: Answer) -> str:
    """Shares of the time by evidence: ``Evidence: 90 % measured, 10 % transferred``."""
    shares = answer.evidence_shares().items()
    return f"Evidence: {', '.join(f'{format_fraction(share)} {kind}' for kind, share in shares)}"


def _write_paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>" if text else ""


def _render_blocks(blocks: Iterable[Block | Missing]) -> str:
    return "\n".join(map(render_block, blocks))


def render_block(block: Block | Missing) -> str:
    """A figure's section as HTML: finding, how to read it, a place for the drawing, source.

    Limits: a missing figure -> the reason
    """
    if isinstance(block, Missing):
        words = f"Left out: {escape(block.name)}: {escape(block.why)}"
        return f"<section id='block-{block.name}'><p class='missing'>{words}</p></section>"
    title = escape(block.title)
    place = f"role='img' aria-label='{title}' style='height:{block.figure['layout']['height']}px'"
    return (
        f"<section id='block-{block.name}'><h2>{title}</h2><p class='how'>{escape(block.how_to_read)}</p>"
        f"<div class='wide'><div class='plot' {place}></div></div><p class='source'>"
        f"{escape(block.source)} <button type='button' class='csv'>Save CSV</button></p></section>"
    )


def build_live_block(block: Block | Missing) -> dict[str, object]:
    """A block for the script of a live page: its data, and its section as HTML."""
    data = build_data(block) if isinstance(block, Block) else {"name": block.name}
    return {**data, "html": render_block(block)}


def build_data(block: Block) -> dict[str, object]:
    """A block's data for the script: name, plotly figure, and its rows by column."""
    columns = list(dict.fromkeys(name for row in block.data for name in row))
    return {
        "name": block.name,
        "figure": _make_plain(block.figure, _DIGITS),
        "columns": columns,
        "rows": [[_make_plain(row.get(name)) for name in columns] for row in block.data],
    }


def _make_plain(value: object, digits: int = 17) -> object:
    """``value`` with types of JSON: dictionaries, lists, numbers, texts; infinite numbers become None.

    digits  that are kept of a number; whole numbers are written without a point: 1048576.0 as 1048576
    """
    if isinstance(value, Mapping):
        return {str(key): _make_plain(element, digits) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_plain(element, digits) for element in value]
    if isinstance(value, float):
        short = float(f"{value:.{digits}g}")
        if not math.isfinite(short):
            return None
        return int(short) if short.is_integer() else short
    return value if isinstance(value, (bool, int)) or value is None else str(value)


def write_sources(answer: Answer, command: str, reproducing: str = "To reproduce this page exactly") -> str:
    """The machine with its values, calibrations, versions, and the command that makes the page again: HTML.

    reproducing  words above the command
    """
    import plotly

    from perfmodel import __version__

    machine = answer.setting.machine
    clocks = ", ".join(map(str, answer.clocks))
    names = ", ".join(dict.fromkeys(answer.calibrations)) or "none"
    if answer.setting.calibration is not None:
        fitted = load_calibration(answer.setting.calibration)
        names += "" if fitted.complete else " (partial: points of its plan are missing)"
        names += "" if fitted.checked else " (results were not checked: it may have timed nothing)"
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
