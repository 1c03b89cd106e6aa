"""Assembles the page: template, style, script, plotly, and the data that the script shows."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Any

from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.page.parts import Page, Selector, View

_PACKAGE = "perfmodel.report.page"


def page_html(page: Page) -> str:
    """The HTML file of a page; the same page always gives the same bytes."""
    return whole_page(page.title, page.provenance, document(page))


def whole_page(title: str, provenance_html: str, shown: Mapping[str, Any]) -> str:
    """The HTML file: the template filled with style, script, plotly and data.

    title  plain text;  provenance_html  the sources at the end;  shown  the data for the script
    """
    parts = {
        "TITLE": escape(title),
        "STYLE": _file("page.css"),
        "PROVENANCE": provenance_html,
        "DATA": script_safe(shown),
        "PLOTLY": _packed_plotly(),
        "SCRIPT": _file("page.js"),
    }
    text = _file("page.html")
    pieces = text.split("@@")
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


@lru_cache(maxsize=1)
def _packed_plotly() -> str:
    """plotly.js as gzip in base64, always the same bytes; compressed, because it is most of a page."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=5, mtime=0)).decode()


def _file(name: str) -> str:
    return resources.files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


def script_safe(value: Any) -> str:
    """``value`` as JSON in which no text can end the script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = _ENDS_SCRIPT.sub("\\\\u003c", text)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


_ENDS_SCRIPT = re.compile("<(?=[/!s])", re.IGNORECASE)
"""Where ``</script``, ``<!--`` or ``<script`` may begin: only these end a script element."""


def document(page: Page) -> dict[str, Any]:
    """The page's data for its script: selectors, views, fixed blocks, question, alerts, command, …."""
    known: dict[int, dict[str, Any]] = {}
    shown = {
        "selectors": [_selector(selector) for selector in page.selectors],
        "views": {_key(view.chosen): _view(view, known) for view in page.views},
        "fixed": [block_data(block) for block in page.fixed],
        "question": page.question,
        "alerts": list(page.alerts),
        "command": page.command,
    }
    if page.selectors:
        shown |= {"again": page.again, "refused": {_key(at): why for at, why in page.refused.items()}}
    return {**shown, **page.besides}


def _key(places: tuple[int, ...]) -> str:
    return "|".join(map(str, places))


def _selector(selector: Selector) -> dict[str, Any]:
    return {
        "name": selector.name.replace("_", "-"),
        "label": selector.label,
        "words": list(selector.words),
        "start": selector.start,
        "option": selector.option,
        "texts": list(selector.texts),
        "typed": selector.typed,
        "off": {str(at): why for at, why in selector.off.items()},
    }


def _view(view: View, known: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """A view's data for the script: headlines (cards), blocks, titles, and perhaps a table.

    known  by id of a figure, its data if another view has it already
    """
    blocks = []
    for block in view.blocks:
        if isinstance(block, Block):
            data = known.get(id(block.figure)) or block_data(block)
            known[id(block.figure)] = data
            blocks.append({**data, "title": block.title})
        else:
            blocks.append(block_data(block))
    shown = {
        "heads": [vars(card) for card in view.cards],
        "blocks": blocks,
        "titles": {name: list(titles) for name, titles in view.titles.items()},
    }
    return shown | ({"table": [list(row) for row in view.table]} if view.table else {})


def block_data(block: Block | Missing) -> dict[str, Any]:
    """A block's data for the script: name, texts, plotly figure, switches, and its rows by column.

    Limits: a missing figure -> name and reason only
    """
    if isinstance(block, Missing):
        return {"name": block.name, "missing": block.why}
    columns = list(dict.fromkeys(name for row in block.data for name in row))
    figure = block.figure.to_dict()
    figure["layout"].pop("template", None)
    return {
        "name": block.name,
        "title": block.title,
        "how": block.how_to_read,
        "source": block.source,
        "figure": {"data": _plain(figure["data"]), "layout": _plain(figure["layout"])},
        "columns": columns,
        "rows": [[_plain(row.get(name), _as_it_is) for name in columns] for row in block.data],
        "switches": [
            {"label": s.label, "traces": _plain(s.traces), "layout": _plain(s.layout), "title": s.title}
            for s in block.switches
        ],
        "choice": block.choice,
        "others": [block_data(other) for other in block.others],
    }


def _plain(value: Any, number: Callable[[float], float | int] | None = None) -> Any:
    """``value`` with types of JSON: dictionaries, lists, numbers, texts; infinite numbers become None.

    number  converts a float; None: it is rounded to ``_DIGITS`` digits, more than figures show
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(item, number) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, number) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), number)
    if isinstance(value, float):
        return (number or _short)(value) if math.isfinite(value) else None
    if isinstance(value, (bool, int)) or value is None:
        return value
    return str(value)


def _short(value: float) -> float | int:
    short = float(f"{value:.{_DIGITS}g}")
    return _as_it_is(short)


def _as_it_is(value: float) -> float | int:
    """The value with all digits, whole numbers without a point: 1048576.0 as 1048576."""
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


_DIGITS = 6
