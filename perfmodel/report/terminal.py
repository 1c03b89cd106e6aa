"""Plain tables for a terminal or an issue: right-aligned, no boxes, as wide as the terminal, at most 100.

Cells are texts that ``perfmodel.units`` has formatted; nothing here formats a number.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TextIO

WIDTH = 100
_LEAST_WIDTH = 60
_GAP = 2
_NARROWEST = 6
_COLUMNS = re.compile(r"[0-9]{1,5}")
_FIXED_SPACE = "\N{NO-BREAK SPACE}"
_INSIDE_NUMBER = re.compile(r"(?<=[\d±–/]) (?=[^\s±–/·(])")
_OPTION = re.compile(r"(--[\w-]+) (?=[^\s(·-])")
_INDENT = " " * 3  # of a command
_PIECES = r"( +|(?<=\w-)(?=\w)|(?<=[/_])(?=\w))"  # what a word longer than its line is parted into
_SHELL_WORD = re.compile(r"""(?:--[\w-]+ (?!-))?(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")  # with its option


class _Wrapper(textwrap.TextWrapper):
    wordsep_re = re.compile(_PIECES)


def page_width(stream: TextIO | None = None) -> int:
    """Columns of ``stream`` (None: stdout) to fill: 100, or fewer, but at least 60, on a narrow terminal."""
    text = os.environ.get("COLUMNS", "")
    columns = int(text) if _COLUMNS.fullmatch(text) else terminal_columns(stream or sys.stdout)
    return max(_LEAST_WIDTH, min(WIDTH, columns or WIDTH))


def terminal_columns(stream: TextIO) -> int:
    """Width of the terminal that shows a stream; 0 if there is none, or its width is unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):  # a stream of a test, a closed one, none
        return 0


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[int] = (0,),
    indent: int = 1,
    drop: Sequence[int] = (),
    below: Mapping[int, str] | None = None,
) -> str:
    """Text of a table: a header, and rows below it; columns are right-aligned except ``left``.

    left    positions of columns of text, aligned left;  indent  spaces before each line
    drop    positions of columns, in the order in which a narrow terminal leaves them out
    below   lines of no column, by the number of the row (from 1) that they follow
    Columns of empty cells are left out. On a narrow terminal columns are dropped, and named below the table,
    until the others fit with their text wrapped; then text is wrapped between words, and at hyphens.
    Limits: no rows -> the header alone;  numbers wider than the page -> so are lines
    """
    columns = dict(enumerate(zip(headers, *rows, strict=True)))
    is_empty = not any(map(any, rows))
    columns = {place: cells for place, cells in columns.items() if any(cells[1:]) or is_empty}
    room = page_width() - indent + _GAP  # each column has a gap behind it
    gone: list[str] = []
    for place in drop if page_width() < WIDTH else ():
        least = [_measure(cells) if i in left else max(map(len, cells)) for i, cells in columns.items()]
        if sum(least) + _GAP * len(least) > room:
            gone += columns.pop(place, ("",))[:1]
    widths = _fit_widths(columns, left, room)
    lines: list[str] = []
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        if number == 0 and not any(row):
            continue
        parts = [_wrap_cell(cell, width) for cell, width in zip(row, widths.values(), strict=True)]
        for cells in itertools.zip_longest(*parts, fillvalue=""):
            texts = [
                cell.ljust(widths[i]) if i in left else cell.rjust(widths[i])
                for i, cell in zip(widths, cells, strict=True)
            ]
            lines.append((" " * indent + (" " * _GAP).join(texts)).replace(_FIXED_SPACE, " ").rstrip())
        lines += [below[number]] if below and number in below else []
    if names := ", ".join(filter(None, gone)):
        lines.append(paragraph(f"Left out at {page_width()} columns: {names}.", indent))
    return "\n".join(lines)


def _fit_widths(columns: Mapping[int, Sequence[str]], left: Sequence[int], room: int) -> dict[int, int]:
    """Widths of the columns, wrapped until all are ``room`` wide: text first, from the last column."""
    widths = {i: max(map(len, cells)) for i, cells in columns.items()}
    room -= _GAP * len(columns)
    for of_text, between in ((True, " "), (False, " "), (True, _PIECES), (True, "")):
        for i in reversed(list(columns)):
            if (i in left) is of_text:
                narrowest = max(_measure(columns[i], between), _NARROWEST)
                beyond = sum(widths.values()) - room
                widths[i] = min(widths[i], max(narrowest, widths[i] - beyond))
    return widths


def _measure(cells: Sequence[str], between: str = " ") -> int:
    """Characters of the longest word, with the indent of its cell; a number with its unit is a word.

    between  words, as a pattern; other than a space: what ``unbroken`` keeps together is broken as well
    """
    loose = cells if between == " " else [cell.replace(_FIXED_SPACE, " ") for cell in cells]
    texts = [(len(cell) - len(cell.lstrip(" ")), _glue(cell.strip(" "))) for cell in loose]
    return max(indent + len(word) for indent, text in texts for word in re.split(between, text))


def unbroken(text: str) -> str:
    """A text that ``table`` breaks only as a last resort: an option to copy."""
    return text.replace(" ", _FIXED_SPACE)


def _glue(text: str) -> str:
    """The text with fixed spaces where no line may break: ``716 ns``, ``– 8 MiB``, ``--sharding all``."""
    return _OPTION.sub(rf"\1{_FIXED_SPACE}", _INSIDE_NUMBER.sub(_FIXED_SPACE, text))


def _wrap_cell(text: str, room: int) -> list[str]:
    """The lines of a cell of ``room`` columns; further lines keep its indent."""
    lead = " " * (len(text) - len(text.lstrip()))
    return wrapped(text.strip(), room, lead, lead) or [""]


def wrapped(text: str, width: int, lead_line: str = "", rest: str = "", long_words: bool = True) -> list[str]:
    """Lines of at most ``width`` characters, broken between words; if needed at hyphens, or before a unit.

    lead_line, rest  what the first line and the others begin with
    long_words   break words longer than a line; else they stay whole, as paths do
    """
    room = width - len(rest)
    loose = text.replace(_FIXED_SPACE, " ")
    fitting = [words for words in (_glue(text), _glue(loose)) if _measure([words]) <= room]
    wrapper = _Wrapper(width, initial_indent=lead_line, subsequent_indent=rest, break_long_words=long_words)
    wrapper.break_on_hyphens = long_words and not fitting
    return [line.replace(_FIXED_SPACE, " ") for line in wrapper.wrap([*fitting, loose][0])]


def facts(pairs: Sequence[tuple[str, str]], indent: int = 0) -> str:
    """Lines of label and text, with the texts aligned and wrapped; empty texts are left out.

    If a text has several lines, all after the first are commands to paste, which are not wrapped.
    """
    shown = [(name, text) for name, text in pairs if text]
    start = indent + len(max((name for name, _ in shown), key=len, default="")) + _GAP
    lines = []
    for name, text in shown:
        lead_line, *commands = text.split("\n")
        lead_line, *tail = _wrap_cell(lead_line, max(page_width() - start, _NARROWEST))
        lines.append(f"{' ' * indent + name:<{start}}{lead_line}")
        lines += [" " * start + line for line in tail]
        lines += [f"{' ' * start}  {line}" for line in commands]
    return "\n".join(line.rstrip() for line in lines)


def paragraph(text: str, indent: int = 0) -> str:
    """Text wrapped at the page, each line behind ``indent`` spaces; its own line breaks are kept."""
    lines = []
    for line in text.splitlines():
        lead = " " * indent + line[: len(line) - len(line.lstrip())]
        lines += wrapped(line.strip(), page_width(), lead, lead) or [""]
    return "\n".join(lines)


def command_lines(words: str) -> str:
    """A command to paste; if it is wider than the page, it goes on in further lines after a backslash."""
    room = page_width() - len(_INDENT) - 2
    if len(words) <= room + 2:
        return _INDENT + words
    pieces: list[str] = []
    for pair in _SHELL_WORD.findall(words):  # an option longer than a line leaves its value
        pieces += pair.split(" ", 1) if pair.startswith("--") and len(pair) > room - 2 else [pair]
    line, *rest = pieces
    lines = []
    for word in rest:
        longer = f"{line} {word}"
        if len(longer) > room:
            lines.append(line)
            longer = f"  {word}"
        line = longer
    return " \\\n".join(_INDENT + text for text in (*lines, line))


def sides(left: str, right: str, indent: int = 5) -> str:
    """Two texts on one line, the second aligned right; if they do not fit, it goes below, indented."""
    if not right:
        return paragraph(left)
    room = page_width() - len(left) - len(right)
    if room >= 2:
        return left + " " * room + right
    return f"{paragraph(left)}\n{paragraph(right, indent=indent)}"
