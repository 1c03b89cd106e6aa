"""The page as Markdown: its sentences and its smaller tables, to paste into an issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.page.assemble import block_data
from perfmodel.report.page.parts import Card, Page

LARGEST_TABLE = 60
"""Rows of the largest table that is written in full."""
_ESCAPED = str.maketrans({"<": "&lt;", ">": "&gt;", "|": "\\|", "\n": " "})


def page_markdown(page: Page) -> str:
    """The view that the page opens with, as Markdown for an issue; text from files is escaped.

    Limits: a table of more than ``LARGEST_TABLE`` rows -> a line that says so
    """
    parts = [*_card(page.card, page.alerts)]
    if page.first.table:
        parts.append(_table(*page.first.table))
    for block in page.blocks():
        parts += (
            [f"Left out: {_text(block.name)}: {_text(block.why)}"]
            if isinstance(block, Missing)
            else _block(block)
        )
    parts.append(f"Made with\n\n    {page.command}")
    return "\n\n".join(parts) + "\n"


def _text(words: str) -> str:
    return words.translate(_ESCAPED)


def _card(card: Card, alerts: Sequence[str]) -> Iterator[str]:
    yield f"# {_text(card.sentence)}"
    named = {"Question": card.question, "GPUs": card.gpus}
    lines = [card.times, card.sure, *(f"{name}: {words}" for name, words in named.items() if words)]
    yield "  \n".join(_text(line) for line in lines if line)
    for finding in card.findings:
        yield f"## {_text(finding['title'])}"
        if "rows" in finding:
            yield _table(finding["columns"], *finding["rows"])
    if card.evidence:
        yield "Evidence of the time: " + ", ".join(part["words"] for part in card.evidence) + "."
    for text in (card.alert, *alerts, *card.notes):
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
        yield _table(columns, *rows)
    yield _text(block.source)


def _table(head: Sequence[Any], *rows: Sequence[Any]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in row) + " |" for row in cells)


def _cell(value: Any) -> str:
    return "" if value is None else _text(str(value))
