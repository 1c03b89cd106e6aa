"""The page as Markdown: its sentences and its smaller tables, to paste into an issue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.page.assemble import Page, block_data
from perfmodel.report.page.headline import headline

LARGEST_TABLE = 60
"""Rows of a table that is written in full."""
_ESCAPED = str.maketrans({"<": "&lt;", ">": "&gt;", "|": "\\|", "\n": " "})


def page_markdown(page: Page) -> str:
    """What the page shows at first; text from files stays text.

    Limits: a table of more than ``LARGEST_TABLE`` rows -> a line that says so
    """
    blocks = (*page.first.blocks, *page.fixed)
    return markdown_of(headline(page.asked), page.alerts, blocks, page.command)


def markdown_of(
    head: Mapping[str, Any], alerts: Sequence[str], blocks: Iterable[Block | Missing], command: str
) -> str:
    """A card, blocks with their tables, and the command that writes it again."""
    parts = [*_card(head, alerts)]
    for block in blocks:
        parts += (
            [f"Left out: {_text(block.name)}: {_text(block.why)}"]
            if isinstance(block, Missing)
            else _block(block)
        )
    parts.append(f"Made with\n\n    {command}")
    return "\n\n".join(parts) + "\n"


def _text(words: str) -> str:
    return words.translate(_ESCAPED)


def _card(head: Mapping[str, Any], alerts: Sequence[str]) -> Iterator[str]:
    yield f"# {_text(head['sentence'])}"
    lines = [head["times"], head["sure"], f"GPUs: {head['gpus']}"]
    yield "  \n".join(_text(line) for line in lines if line)
    if head["evidence"]:
        yield "Evidence of the time: " + ", ".join(part["words"] for part in head["evidence"]) + "."
    for text in (head["alert"], *alerts, *head["notes"]):
        if text:
            yield "\n".join(f"> {line.translate(_ESCAPED)}" for line in text.splitlines())


def _block(block: Block) -> Iterator[str]:
    yield f"## {_text(block.title)}"
    yield _text(block.how_to_read)
    data = block_data(block)
    columns, rows = data["columns"], data["rows"]
    if len(rows) > LARGEST_TABLE:
        yield f"Its {len(rows)} rows are in the HTML page."
    else:
        cells = [columns, ["---"] * len(columns), *rows]
        yield "\n".join("| " + " | ".join(_cell(value) for value in row) + " |" for row in cells)
    yield _text(block.source)


def _cell(value: Any) -> str:
    return "" if value is None else _text(str(value))
