"""Assembles the page: template, style, script, plotly, headline and figures."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.style import EVIDENCE_COLOURS
from perfmodel.report.page.parts import Card, Page
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import write_whole
from perfmodel.units import format_fraction

_DIGITS = 6
"""Digits of the numbers in a figure: more than it shows."""


def render_page(page: Page) -> str:
    """The HTML file of a page; the same page always gives the same bytes."""
    head = f"{render_head(page.card)}<div class='pair'>{_render_blocks(page.pair)}</div>"
    body = f"<section id='first'>{head}{render_rest(page.card)}{_render_blocks(page.helps)}</section>"
    parts = {
        "TITLE": escape(page.title),
        "STYLE": _read_file("page.css"),
        "ALERTS": "".join(_write_paragraph(text, "alert") for text in page.alerts),
        "BODY": f"{body}\n{_render_blocks(page.blocks)}",
        "PROVENANCE": page.provenance,
        "DATA": escape_script(build_document(page)),
        "PLOTLY": _pack_plotly(),
        "SCRIPT": _read_file("page.js"),
    }
    pieces = _read_file("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def write_page(page: Page, out: Path) -> int:
    """Write the page to a file, whole or not at all, and return its number of bytes."""
    content = render_page(page).encode()
    write_whole(out, lambda path: path.write_bytes(content))
    return len(content)


@lru_cache(maxsize=1)
def _pack_plotly() -> str:
    """plotly.js as gzip in base64, always the same bytes; compressed, because it is most of a page."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=5, mtime=0)).decode()


def _read_file(name: str) -> str:
    return resources.files("perfmodel.report.page").joinpath(name).read_text(encoding="utf-8")


def escape_script(value: Any) -> str:
    """``value`` as JSON in which no text can end the script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = re.sub("<(?=[/!s])", "\\\\u003c", text, flags=re.IGNORECASE)  # </script, <!--, <script
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def render_head(card: Card) -> str:
    """The headline's sentence, times and bands as HTML."""
    lines = [_write_paragraph(card.times, "times"), _write_paragraph(card.sure)]
    lines += [_write_paragraph(f"Question: {card.question}", "soft") if card.question else ""]
    lines += [_write_paragraph(f"GPUs: {card.gpus}", "soft") if card.gpus else ""]
    return f"<h1>{escape(card.sentence)}</h1>{''.join(lines)}"


def render_rest(card: Card) -> str:
    """The headline's findings, evidence, doubt and notes as HTML."""
    items = "".join(f"<li>{escape(words)}</li>" for words in card.findings)
    notes = "".join(_write_paragraph(f"Note: {note}", "soft") for note in card.notes)
    findings = f"<ul class='findings'>{items}</ul>" if items else ""
    return f"{findings}{_render_evidence(card.evidence)}{_write_paragraph(card.alert, 'alert')}{notes}"


def _render_evidence(shares: Mapping[Evidence, float]) -> str:
    """A bar of the time's evidence, and its words."""
    if not shares:
        return ""
    looks = {kind: f"background:{EVIDENCE_COLOURS[kind]}" for kind in shares}
    bar = "".join(
        f"<span style='flex-grow:{share:.4g};{looks[kind]}'></span>" for kind, share in shares.items()
    )
    words = "".join(
        f"<li><i style='{looks[kind]}'></i>{format_fraction(share)} {kind}</li>"
        for kind, share in shares.items()
    )
    return f"<div class='evidence'>{bar}</div><ul class='key'>{words}</ul>"


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
    place = f"role='img' aria-label='{title}' style='height:{int(block.figure.layout.height)}px'"
    return (
        f"<section id='block-{block.name}'><h2>{title}</h2><p class='how'>{escape(block.how_to_read)}</p>"
        f"<div class='wide'><div class='plot' {place}></div></div><p class='source'>"
        f"{escape(block.source)} <button type='button' class='csv'>Save CSV</button></p></section>"
    )


def build_document(page: Page) -> dict[str, Any]:
    """The page's data for its script: figures with their numbers, the command, and what is besides."""
    blocks = [build_data(block) for block in page.figures]
    return {"blocks": [data for data in blocks if "figure" in data], "command": page.command, **page.besides}


def build_live_block(block: Block | Missing) -> dict[str, Any]:
    """A block for the script of a live page: its data, and its section as HTML."""
    return {**build_data(block), "html": render_block(block)}


def build_data(block: Block | Missing) -> dict[str, Any]:
    """A block's data for the script: name, plotly figure, and its rows by column.

    Limits: a missing figure -> name and reason only
    """
    if isinstance(block, Missing):
        return {"name": block.name, "missing": block.why}
    columns = list(dict.fromkeys(name for row in block.data for name in row))
    figure = block.figure.to_dict()
    figure["layout"].pop("template", None)
    if block.switches:
        buttons = [
            {"label": data.label, "method": "update", "args": [data.traces, data.layout]}
            for data in block.switches
        ]
        figure["layout"]["updatemenus"] = [{**_SWITCHES, "buttons": buttons}]
    return {
        "name": block.name,
        "figure": {
            "data": _make_plain(figure["data"], _DIGITS),
            "layout": _make_plain(figure["layout"], _DIGITS),
        },
        "columns": columns,
        "rows": [[_make_plain(row.get(name)) for name in columns] for row in block.data],
    }


_SWITCHES = {
    "type": "buttons", "direction": "right", "x": 1, "xanchor": "right", "y": -0.12, "yanchor": "top",
    "pad": {"t": 8}, "bgcolor": "rgba(128,128,128,0.15)", "bordercolor": "rgba(128,128,128,0.4)",
}  # fmt: skip
"""Plotly's buttons, below the figure at its right."""


def _make_plain(value: Any, digits: int = 17) -> Any:
    """``value`` with types of JSON: dictionaries, lists, numbers, texts; infinite numbers become None.

    digits  that are kept of a number; whole numbers are written without a point: 1048576.0 as 1048576
    """
    if isinstance(value, Mapping):
        return {str(key): _make_plain(element, digits) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_plain(element, digits) for element in value]
    if hasattr(value, "tolist"):
        return _make_plain(value.tolist(), digits)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{digits}g}")
        return int(short) if short.is_integer() and abs(short) < 1e15 else short
    return value if isinstance(value, (bool, int)) or value is None else str(value)
