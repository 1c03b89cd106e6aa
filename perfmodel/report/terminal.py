"""Plain tables for a terminal or an issue: right-aligned, no boxes, as wide as the terminal, at most 100.

Cells are texts that ``perfmodel.units`` has formatted; nothing here formats a number.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

WIDTH = 100
_LEAST_WIDTH = 60
_GAP = 2
_NARROWEST = 6
_FIXED_SPACE = "\N{NO-BREAK SPACE}"
_INSIDE_NUMBER = re.compile(r"(?<=[\d±–/]) (?=[^\s±–/·(])")
_INDENT = " " * 3  # of a command
_PIECES = r" |(?<=\w-)(?=\w)"
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")


def page_width(stream: TextIO | None = None) -> int:
    """Columns of ``stream`` (None: stdout) to fill: 100, or fewer, but at least 60, on a narrow terminal."""
    text = os.environ.get("COLUMNS", "")
    is_number = text.isascii() and text.isdigit() and len(text) < _NARROWEST
    columns = int(text) if is_number else terminal_columns(stream or sys.stdout)
    return max(_LEAST_WIDTH, min(WIDTH, columns or WIDTH))


def terminal_columns(stream: TextIO | None) -> int | None:
    """Width of the terminal that shows a stream; None if there is none, or its width is unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream else None
    except (OSError, ValueError, AttributeError):
        return None


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[int] = (0,),
    indent: int = 1,
    drop: Sequence[int | tuple[int, ...]] = (),
) -> str:
    """Text of a table: a header, and rows below it; columns are right-aligned except ``left``.

    left    positions of columns of text, aligned left;  indent  spaces before each line
    drop    positions of columns, or groups of them, in the order in which a narrow terminal leaves them out
    Empty columns are left out. On a narrow terminal columns are dropped, and named below the table, until the
    others fit with their text wrapped; then text is wrapped between words, and at hyphens.
    Limits: no rows -> the header alone;  numbers wider than the page -> so are lines
    """
    used = [i for i in range(len(headers)) if headers[i] or any(row[i] for row in rows)]
    room, out = page_width() - indent, list[str]()
    for gone in drop if page_width() < WIDTH else ():
        columns = [[line[i] for line in (headers, *rows)] for i in used]
        sizes = [_measure(c) if i in left else max(map(len, c)) for i, c in zip(used, columns, strict=True)]
        if sum(sizes) + _GAP * (len(sizes) - 1) > room:
            away = gone if isinstance(gone, tuple) else (gone,)
            out += [headers[i] for i in used if i in away and headers[i]]
            used = [i for i in used if i not in away]
    cells = [[line[i] for i in used] for line in (headers, *rows)]
    cells = cells if any(cells[0]) else cells[1:]
    texts = [i in left for i in used]
    widths = _fit_widths(cells, texts, room)
    lines: list[str] = []
    for row in cells:
        parts = [_wrap_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
        for texts_of_line in itertools.zip_longest(*parts, fillvalue=""):
            line = (" " * _GAP).join(
                cell.ljust(width) if text else cell.rjust(width)
                for cell, width, text in zip(texts_of_line, widths, texts, strict=True)
            )
            lines.append(f"{' ' * indent}{line}".replace(_FIXED_SPACE, " ").rstrip())
    if out:
        lines.append(paragraph(f"Left out at {page_width()} columns: {', '.join(out)}.", indent))
    return "\n".join(lines)


def _fit_widths(cells: Sequence[Sequence[str]], texts: Sequence[bool], room: int) -> list[int]:
    """Widths of the columns, wrapped until all are ``room`` wide: text first, from the last column."""
    columns = list(zip(*cells, strict=True))
    loose = [[cell.replace(_FIXED_SPACE, " ") for cell in column] for column in columns]
    widths = [max(map(len, column)) for column in columns]
    room -= _GAP * (len(columns) - 1)
    steps = [
        (True, [_measure(column) for column in columns]),
        (False, [_measure(column) for column in columns]),
        (True, [_measure(column, _PIECES) for column in loose]),
        (True, [_NARROWEST] * len(columns)),
    ]
    for text, narrowest in steps:
        for k in reversed(range(len(columns))):
            if texts[k] is text:
                widths[k] -= min(max(widths[k] - narrowest[k], 0), max(sum(widths) - room, 0))
    return widths


def _measure(cells: Sequence[str], between: str = " ") -> int:
    """Characters of the longest word, with the indent of its cell; a number with its unit is a word.

    between  words, as a pattern
    """
    texts = [(len(cell) - len(cell.lstrip(" ")), _glue(cell.strip(" "))) for cell in cells]
    return max(indent + len(word) for indent, text in texts for word in re.split(between, text))


def unbroken(text: str) -> str:
    """A text that ``table`` breaks only as a last resort: an option to copy."""
    return text.replace(" ", _FIXED_SPACE)


def _glue(text: str) -> str:
    """The text with fixed spaces where no line may break: ``716 ns``, ``± 34 %``, ``– 8 MiB``, ``1 048``."""
    return _INSIDE_NUMBER.sub(_FIXED_SPACE, text)


def _wrap_cell(text: str, room: int) -> list[str]:
    if len(text) <= room:
        return [text]
    lead = " " * (len(text) - len(text.lstrip()))
    return wrapped(text.strip(), room, lead, lead) or [""]


def wrapped(text: str, width: int, lead_line: str = "", rest: str = "", long_words: bool = True) -> list[str]:
    """Lines of at most ``width`` characters, broken between words; if needed at hyphens, or before a unit.

    first, rest  what the first line and the others begin with
    long_words   break words longer than a line; else they stay whole, as paths do
    """
    room, loose = width - len(rest), text.replace(_FIXED_SPACE, " ")
    glued = next(
        (words for words in (_glue(text), _glue(loose)) if _measure([words]) <= room),
        loose,
    )
    if long_words:
        glued = " ".join(_part_word(word, room) for word in glued.split(" "))
    parts = textwrap.wrap(
        glued,
        width,
        initial_indent=lead_line,
        subsequent_indent=rest,
        break_long_words=long_words,
        break_on_hyphens=long_words and max(map(len, glued.split(" "))) > room,
    )
    return [piece.replace(_FIXED_SPACE, " ") for piece in parts]


def _part_word(word: str, room: int) -> str:
    """A word longer than ``room``, with spaces where it may be broken.

    That is after a slash, or a point that is not in a number; else after an underscore.
    """
    for signs in (r"/|\.(?!\d)", "_") if len(word) > room else ():
        cuts = [sign.end() for sign in re.finditer(signs, word) if sign.end() <= room]
        if cuts:
            return f"{word[: cuts[-1]]} {_part_word(word[cuts[-1] :], room)}"
    return word


def facts(pairs: Sequence[tuple[str, str]], indent: int = 0) -> str:
    """Lines of label and text, with the texts aligned and wrapped; empty texts are left out.

    If a text has several lines, all after the first are commands to paste, which are not wrapped.
    """
    shown = [(name, text) for name, text in pairs if text]
    start = indent + max((len(name) for name, _ in shown), default=0) + _GAP
    lines = []
    for name, text in shown:
        lead_line, *commands = text.split("\n")
        lead_line, *tail = _wrap_cell(lead_line, max(page_width() - start, _NARROWEST))
        lines.append(f"{' ' * indent + name:<{start}}{lead_line}")
        lines += [" " * start + line for line in tail]
        lines += [f"{' ' * start}  {line}" for line in commands]
    return "\n".join(line.rstrip() for line in lines)


def paragraph(text: str, indent: int = 0) -> str:
    """Text wrapped at the page; its own line breaks are kept."""
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
    lines: list[str] = []
    for word in _join_values(_SHELL_WORD.findall(words), room - 2):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and len(longer) > room:
            lines.append(f"  {word}")
        else:
            lines[-1:] = [longer]
    return (" \\\n").join(_INDENT + line for line in lines)


def _join_values(words: Sequence[str], room: int) -> list[str]:
    """The words of a command, an option joined with its value where both fit into ``room`` characters."""
    joined: list[str] = []
    for word in words:
        alone = joined and joined[-1].startswith("--") and not set(" =") & set(joined[-1])
        if alone and not word.startswith("-") and len(joined[-1]) + len(word) < room:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def sides(left: str, right: str, indent: int = 5) -> str:
    """Two texts on one line, the second aligned right; if they do not fit, it goes below, indented."""
    if not right:
        return paragraph(left)
    room = page_width() - len(left) - len(right)
    if room >= 2:
        return left + " " * room + right
    return f"{paragraph(left)}\n{paragraph(right, indent=indent)}"
