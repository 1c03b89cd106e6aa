"""Assembles the page: template, style, script, plotly, headline and figures."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Any

from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.page.parts import Card, Page
from perfmodel.units import format_bytes, format_count, format_rate, format_time

_PACKAGE = "perfmodel.report.page"
_DIGITS = 6
"""Digits of the numbers in a figure: more than it shows."""


def page_html(page: Page) -> str:
    """The HTML file of a page; the same page always gives the same bytes."""
    head = f"{head_html(page.card)}<div class='pair'>{_blocks_html(page.pair)}</div>"
    body = f"<section id='first'>{head}{rest_html(page.card)}{_blocks_html(page.helps)}</section>"
    parts = {
        "TITLE": escape(page.title),
        "STYLE": _read_file("page.css"),
        "ALERTS": "".join(_paragraph(text, "alert") for text in page.alerts),
        "BODY": f"{body}\n{_blocks_html(page.blocks)}",
        "PROVENANCE": page.provenance,
        "DATA": script_safe(document(page)),
        "PLOTLY": _pack_plotly(),
        "SCRIPT": _read_file("page.js"),
    }
    pieces = _read_file("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


@lru_cache(maxsize=1)
def _pack_plotly() -> str:
    """plotly.js as gzip in base64, always the same bytes; compressed, because it is most of a page."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=5, mtime=0)).decode()


def _read_file(name: str) -> str:
    return resources.files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


def script_safe(value: Any) -> str:
    """``value`` as JSON in which no text can end the script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = _ENDS_SCRIPT.sub("\\\\u003c", text)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


_ENDS_SCRIPT = re.compile("<(?=[/!s])", re.IGNORECASE)
"""Where ``</script``, ``<!--`` or ``<script`` may begin: only these end a script element."""


def card_html(card: Card) -> str:
    """The whole headline as HTML."""
    return head_html(card) + rest_html(card)


def head_html(card: Card) -> str:
    """The headline's sentence, times and bands as HTML."""
    lines = [_paragraph(card.times, "times"), _paragraph(card.sure)]
    lines += [_paragraph(f"Question: {card.question}", "soft") if card.question else ""]
    lines += [_paragraph(f"GPUs: {card.gpus}", "soft") if card.gpus else ""]
    return f"<h1>{escape(card.sentence)}</h1>{''.join(lines)}"


def rest_html(card: Card) -> str:
    """The headline's findings, evidence, doubt and notes as HTML."""
    items = "".join(f"<li>{escape(words)}</li>" for words in card.findings)
    notes = "".join(_paragraph(f"Note: {note}", "soft") for note in card.notes)
    findings = f"<ul class='findings'>{items}</ul>" if items else ""
    return f"{findings}{_evidence_html(card.evidence)}{_paragraph(card.alert, 'alert')}{notes}"


def _evidence_html(parts: Iterable[Mapping[str, Any]]) -> str:
    """A bar of the time's evidence, and its words."""
    words = "".join(
        f"<li><i style='background:{part['colour']}'></i>{escape(part['words'])}</li>" for part in parts
    )
    pieces = "".join(
        f"<span style='flex-grow:{part['share']};background:{part['colour']}'></span>" for part in parts
    )
    return f"<div class='evidence'>{pieces}</div><ul class='key'>{words}</ul>" if words else ""


def _paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>" if text else ""


def _blocks_html(blocks: Iterable[Block | Missing]) -> str:
    return "\n".join(map(block_html, blocks))


def block_html(block: Block | Missing) -> str:
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


def document(page: Page) -> dict[str, Any]:
    """The page's data for its script: figures with their numbers, the command, and what is besides."""
    blocks = [block_data(block) for block in page.figures]
    return {"blocks": [data for data in blocks if "figure" in data], "command": page.command, **page.besides}


def live_block(block: Block | Missing) -> dict[str, Any]:
    """A block for the script of a live page: its data, and its section as HTML."""
    return {**block_data(block), "html": block_html(block)}


def block_data(block: Block | Missing) -> dict[str, Any]:
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
        "figure": {"data": _plain(figure["data"]), "layout": _plain(figure["layout"])},
        "columns": columns,
        "rows": [[_plain(row.get(name), _as_it_is) for name in columns] for row in block.data],
    }


_SWITCHES = {
    "type": "buttons", "direction": "right", "x": 1, "xanchor": "right", "y": -0.12, "yanchor": "top",
    "pad": {"t": 8}, "bgcolor": "rgba(128,128,128,0.15)", "bordercolor": "rgba(128,128,128,0.4)",
}  # fmt: skip
"""Plotly's buttons, below the figure at its right."""


def _plain(value: Any, number: Callable[[float], float | int] | None = None) -> Any:
    """``value`` with types of JSON: dictionaries, lists, numbers, texts; infinite numbers become None.

    number  converts a float; None: it is rounded to ``_DIGITS`` digits
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(element, number) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(element, number) for element in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), number)
    if isinstance(value, float):
        return (number or _round_short)(value) if math.isfinite(value) else None
    if isinstance(value, (bool, int)) or value is None:
        return value
    return str(value)


def _round_short(value: float) -> float | int:
    return _as_it_is(float(f"{value:.{_DIGITS}g}"))


def _as_it_is(value: float) -> float | int:
    """The value with all digits, whole numbers without a point: 1048576.0 as 1048576."""
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


LARGEST_TABLE = 60
"""Rows of the largest table that is written in full in Markdown."""
_ESCAPED = str.maketrans({"<": "&lt;", ">": "&gt;", "|": "\\|", "\n": " "})


def page_markdown(page: Page) -> str:
    """The page as Markdown for an issue: sentences and smaller tables; text from files is escaped.

    Limits: a table of more than ``LARGEST_TABLE`` rows -> a line that says so
    """
    parts = [*_write_card(page.card, page.alerts)]
    for block in page.figures:
        if isinstance(block, Missing):
            parts.append(f"Left out: {_write(block.name)}: {_write(block.why)}")
        else:
            parts += _write_block(block)
    return "\n\n".join([*parts, f"Made with\n\n    {page.command}"]) + "\n"


def _write(words: str) -> str:
    return words.translate(_ESCAPED)


def _write_card(card: Card, alerts: Iterable[str]) -> Iterator[str]:
    yield f"# {_write(card.sentence)}"
    named = {"Question": card.question, "GPUs": card.gpus}
    lines = [card.times, card.sure, *(f"{name}: {words}" for name, words in named.items() if words)]
    yield "  \n".join(_write(line) for line in lines if line)
    if card.findings:
        yield "\n".join(f"- {_write(words)}" for words in card.findings)
    if card.evidence:
        yield "Evidence of the time: " + ", ".join(part["words"] for part in card.evidence) + "."
    for text in (card.alert, *alerts, *card.notes):
        if text:
            yield "\n".join(f"> {line.translate(_ESCAPED)}" for line in text.splitlines())


def _write_block(block: Block) -> Iterator[str]:
    yield f"## {_write(block.title)}"
    yield "  \n".join(map(_write, block.how_to_read.splitlines()))
    if len(block.data) > LARGEST_TABLE:
        yield f"Its {len(block.data)} rows are in the HTML page."
    else:
        columns = list(dict.fromkeys(name for row in block.data for name in row))
        heads = [name.removesuffix("_per_s").removesuffix("_s").removesuffix("_bytes") for name in columns]
        rows = [[_write_cell(name, row.get(name)) for name in columns] for row in block.data]
        table = [heads, ["---"] * len(columns), *rows]
        yield "\n".join(f"| {' | '.join(row)} |" for row in table)
    yield _write(block.source)


def _write_cell(name: str, value: Any) -> str:
    """A value to three digits with its unit, which the end of its column's name says; None: empty."""
    if value is None or isinstance(value, str):
        return _write(value or "")
    if name.endswith("_bytes_per_s"):
        return format_rate(value)
    if name.endswith("_s") and not name.endswith("_per_s"):
        return format_time(value)
    if name.endswith("_bytes"):
        return format_bytes(value, binary=False)
    return format_count(value) if float(value).is_integer() else f"{value:.3g}"
