"""Writes a figure to a file: a picture, a page, its numbers as CSV, or its plotly JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli.output import SCHEMA_VERSION, plain
from perfmodel.report.page.assemble import block_data, page_html
from perfmodel.report.picture_files import SCALE, write_pictures
from perfmodel.report.static import WIDTH, printed
from perfmodel.schema.files import cell

if TYPE_CHECKING:
    from perfmodel.cli.figure_source import FoundFigure
    from perfmodel.report.figures.block import Block


def told(block: Block) -> dict[str, Any]:
    """The figure's name, texts and rows, as ``--json`` prints them and a JSON file holds them."""
    data = block_data(block)
    return {
        "name": block.name,
        "title": block.title,
        "how_to_read": block.how_to_read,
        "source": block.source,
        "columns": data["columns"],
        "rows": data["rows"],
    }


def write_figure(
    path: Path, ending: str, found: FoundFigure, width: int | None, height: int | None, scale: float | None
) -> None:
    """Write the figure in the format of the ending. width, height, scale  of a picture; None: default"""
    block = found.block
    if ending == "html":
        path.write_text(page_html(found.page(block)), encoding="utf-8")
    elif ending == "csv":
        path.write_text(_csv(block), encoding="utf-8")
    elif ending == "json":
        drawing = json.loads(block.figure.to_json(engine="json"))
        document = {"schema_version": SCHEMA_VERSION, **told(block), "figure": drawing}
        text = json.dumps(plain(document), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
    else:
        write_pictures([(printed(block, width or WIDTH, height), path)], scale or SCALE)


def _csv(block: Block) -> str:
    what, out = told(block), io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([what["columns"], *map(_cells, what["rows"])])
    return out.getvalue()


def _cells(row: list[Any]) -> list[Any]:
    return [cell(value) if isinstance(value, str) else value for value in row]
