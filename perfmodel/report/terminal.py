"""Plain tables for a terminal or an issue: right-aligned, no boxes, as wide as the terminal, at most 100.

Cells are texts that ``perfmodel.units`` has formatted; nothing here formats a number.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

WIDTH = 100
_LEAST_WIDTH = 40
_NARROW = 80  # up to this width, a table whose words do not fit becomes a list
_TOTAL = "total"
_GAP = 2
_NARROWEST = 6
_NAME = 24  # characters of a long name that stay on one line
_FIXED_SPACE = "\N{NO-BREAK SPACE}"
_INSIDE_NUMBER = re.compile(r"(?<=[\d±–/]) (?=[^\s±–/·(])")
_INDENT = " " * 3  # of a command
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")


def page_width(stream: TextIO | None = None) -> int:
    """Columns to fill: 100, or fewer, but at least 40, on a narrow terminal or with COLUMNS set.

    stream  what is written to; None: stdout
    """
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdigit() and len(asked) < _NARROWEST:
        columns = int(asked)
    else:
        columns = terminal_columns(stream or sys.stdout) or 0
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

    left    positions of columns that are aligned left;  indent  spaces before each line
    drop    positions of columns, or groups of them, in the order in which a narrow terminal leaves them out
    Empty columns are left out. On a narrow terminal text is wrapped first; if that is not enough, columns are
    dropped and named below the table; then numbers are wrapped, but not between a number and its unit. Up to
    80 columns, a table whose words would be broken becomes a list of its rows.
    Limits: no rows -> the header alone; a line never ends in spaces and is never wider than the page
    """
    used = [i for i in range(len(headers)) if headers[i] or any(row[i] for row in rows)]
    room = page_width() - indent
    out: list[str] = []
    every = used
    for gone in drop if page_width() < WIDTH else ():
        if _total(_folded(headers, rows, used, left)) > room:
            away = gone if isinstance(gone, tuple) else (gone,)
            out += [headers[i] for i in used if i in away and headers[i]]
            used = [i for i in used if i not in away]
    cells = [[headers[i] for i in used], *([row[i] for i in used] for row in rows)]
    if not any(cells[0]):
        cells = cells[1:]
    lefts = [i in left for i in used]
    if page_width() <= _NARROW and len(every) > 1 and _total(_least(cells, lefts)) > room:
        return _as_list(headers, rows, every, indent)
    widths = _shrunk(cells, _natural(headers, rows, used), lefts, room)
    lines: list[str] = []
    for row in cells:
        parts = [_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
        for k in range(max(map(len, parts), default=1)):
            texts = [
                (part[k] if k < len(part) else "").ljust(w)
                if is_left
                else (part[k] if k < len(part) else "").rjust(w)
                for part, w, is_left in zip(parts, widths, lefts, strict=True)
            ]
            line = " " * indent + (" " * _GAP).join(texts)
            lines.append(line.replace(_FIXED_SPACE, " ").rstrip())
    if out:
        lines.append(paragraph(f"Left out at {page_width()} columns: {', '.join(out)}.", indent))
    return "\n".join(lines)


def _least(cells: Sequence[Sequence[str]], lefts: Sequence[bool]) -> list[int]:
    """Widths of the columns with whole words: texts (``lefts``) are broken at spaces and hyphens."""
    columns = list(zip(*cells, strict=True))
    return [
        max(_piece_letters(_loosened(cell)) for cell in column) if is_left else _longest(column)
        for column, is_left in zip(columns, lefts, strict=True)
    ]


def _as_list(headers: Sequence[str], rows: Sequence[Sequence[str]], used: Sequence[int], indent: int) -> str:
    """The table as a list: each row's first cell, and below it a line "header: cell" for each other cell."""
    first, *others = used
    deeper = indent + _GAP + 1
    width = max((len(headers[i]) for i in others), default=0)
    counts = bool(rows) and all(row[first].replace(" ", "").isdigit() for row in rows)  # such as GPUs
    head, each = ("", f"{headers[first]} ") if counts else (headers[first], "")
    lines = [paragraph(head, indent)] if head else []
    unnamed = [at for at, row in enumerate(rows) if not row[first]]
    total = _TOTAL if unnamed == [len(rows) - 1] else ""  # any other unlabelled row continues the row above
    for row in rows:
        name = _loosened(row[first]) or total
        lines += [paragraph(each + name, indent)] if name else []
        for i in others:
            start = deeper + width + _GAP if headers[i] else deeper
            lines += _labelled(" " * deeper + headers[i], _loosened(row[i]).strip(), start) if row[i] else []
    return "\n".join(lines)


def _natural(headers: Sequence[str], rows: Sequence[Sequence[str]], used: Sequence[int]) -> list[int]:
    return [max(len(headers[i]), *(len(row[i]) for row in rows), 0) for i in used]


def _folded(
    headers: Sequence[str], rows: Sequence[Sequence[str]], used: Sequence[int], left: Sequence[int]
) -> list[int]:
    """Widths of the columns if columns of text (``left``) are only as wide as their longest words."""
    return [
        _longest([headers[i], *(row[i] for row in rows)]) if i in left else width
        for i, width in zip(used, _natural(headers, rows, used), strict=True)
    ]


def _longest(cells: Sequence[str]) -> int:
    """Characters of the longest word, with the indent of its cell; a number with its unit is a word."""
    return max((_own(cell) + len(word) for cell in cells for word in _glued(cell).split(" ")), default=0)


def _own(cell: str) -> int:
    """Spaces before a cell, which are kept on each of its lines."""
    return len(cell) - len(cell.lstrip(" "))


def unbroken(text: str) -> str:
    """A text that ``table`` breaks only as a last resort: an option to copy."""
    return text.replace(" ", _FIXED_SPACE)


def _glued(text: str) -> str:
    """The text with fixed spaces where no line may break: ``716 ns``, ``± 34 %``, ``– 8 MiB``, ``1 048``."""
    return _INSIDE_NUMBER.sub(_FIXED_SPACE, text)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * max(len(widths) - 1, 0)


def _shrunk(cells: Sequence[Sequence[str]], widths: list[int], lefts: Sequence[bool], room: int) -> list[int]:
    """The widths reduced until the table is ``room`` wide; columns of text (``lefts``) shrink first.

    Long names are wrapped first, then lines are broken between words and at hyphens, then in options to copy.
    Only where that is not enough, a number is separated from its unit, and at last a word is broken.
    """
    order = sorted(range(len(widths)), key=lambda k: (not lefts[k], -k))
    columns = [[row[k] for row in cells] for k in range(len(widths))]
    whole, least = [_longest(column) for column in columns], _least(cells, lefts)
    plain = [max(len(word) for cell in column for word in _loosened(cell).split(" ")) for column in columns]
    copied = [each if any(_FIXED_SPACE in cell for cell in column) else 0
              for each, column in zip(whole, columns, strict=True)]  # fmt: skip
    texts = [k for k in order if lefts[k]]
    pieces = [max(map(_piece_letters, column)) for column in columns]
    steps = [(order, whole), (texts, [max(_NAME, each) for each in copied])]
    steps.append((texts, [max(each, fixed) for each, fixed in zip(pieces, copied, strict=True)]))
    steps.append((texts, least))
    steps += [(order, plain), *((order, [most] * len(widths)) for most in (2 * _NARROWEST, _NARROWEST, 0))]
    for some, least_of in steps:
        for k in some:
            floor = max(min(least_of[k], whole[k]), _NARROWEST // 2)
            widths[k] -= min(max(widths[k] - floor, 0), max(_total(widths) - room, 0))
    return widths


def _piece_letters(text: str) -> int:
    """Characters of the longest piece between spaces and hyphens, with the indent; a number has its unit."""
    return _own(text) + max(map(len, re.split(r" |(?<=\w-)(?=\w)", _glued(text))))


def _number_letters(text: str) -> int:
    """Characters of the longest number with its unit."""
    return _longest([word for word in _glued(_loosened(text)).split(" ") if _FIXED_SPACE in word])


def _loosened(text: str) -> str:
    """The text with ordinary spaces in place of fixed spaces."""
    return text.replace(_FIXED_SPACE, " ")


def _lines(text: str, room: int) -> list[str]:
    if len(text) <= room:
        return [text]
    own = " " * (len(text) - len(text.lstrip()))
    return wrapped(text.strip(), room, own, own) or [""]


def wrapped(text: str, width: int, first: str = "", rest: str = "", long_words: bool = True) -> list[str]:
    """Lines of at most ``width`` characters, broken between words; if needed at hyphens, or before a unit.

    first, rest  what the first line and the others begin with
    long_words   break words longer than a line; else they stay whole, as paths do
    """
    room, whole, loose = width - len(rest), _glued(text), _glued(_loosened(text))
    if _longest([whole]) > room:
        whole = loose if _number_letters(text) <= room else _loosened(text)
    if long_words:
        whole = " ".join(_parted(word, room) for word in whole.split(" "))
    parts = textwrap.wrap(
        whole,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=long_words,
        break_on_hyphens=long_words and max(map(len, whole.split(" "))) > room,
    )
    return [part.replace(_FIXED_SPACE, " ") for part in parts]


def _parted(word: str, room: int) -> str:
    """A word longer than ``room``, with spaces where it may be broken.

    That is after a slash, or a point that is not in a number; else after an underscore.
    """
    for signs in (r"/|\.(?!\d)", "_") if len(word) > room else ():
        cuts = [sign.end() for sign in re.finditer(signs, word) if sign.end() <= room]
        if cuts:
            return f"{word[: cuts[-1]]} {_parted(word[cuts[-1] :], room)}"
    return word


def facts(pairs: Sequence[tuple[str, str]], indent: int = 0) -> str:
    """Lines of label and text, with the texts aligned and wrapped; empty texts are left out.

    If a text has several lines, all after the first are commands to paste, which are not wrapped.
    """
    shown = [(name, text) for name, text in pairs if text]
    width = max((len(name) for name, _ in shown), default=0)
    start = indent + width + 2
    lines = []
    for name, text in shown:
        first, *commands = text.split("\n")
        lines += _labelled(" " * indent + name, first, start)
        lines += [f"{' ' * start}  {line}" for line in commands]
    return "\n".join(line.rstrip() for line in lines)


def _labelled(label: str, text: str, start: int) -> list[str]:
    """Lines of a label and its text from column ``start``, or below the label where a word needs the room."""
    longest, below = max(map(len, _glued(text).split(" "))), len(label) - len(label.lstrip()) + _GAP
    if label.strip() and page_width() - start < longest <= page_width() - below:
        return [label, *(" " * below + line for line in _lines(text, page_width() - below))]
    first, *more = _lines(text, max(page_width() - start, _NARROWEST))
    return [f"{label:<{start}}{first}", *(" " * start + line for line in more)]


def paragraph(text: str, indent: int = 0) -> str:
    """Text wrapped at the page; its own line breaks are kept."""
    pad = " " * indent
    lines = []
    for line in text.splitlines():
        own = pad + line[: len(line) - len(line.lstrip())]
        lines += wrapped(line.strip(), page_width(), own, own) or [""]
    return "\n".join(lines)


def command_lines(words: str) -> str:
    """A command to paste; if it is wider than the page, it goes on in further lines after a backslash."""
    room = page_width() - len(_INDENT) - 2
    if len(words) <= room + 2:
        return _INDENT + words
    lines: list[str] = []
    for word in _with_values(_SHELL_WORD.findall(words), room - 2):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and len(longer) > room:
            lines.append(f"  {word}")
        else:
            lines[-1:] = [longer]
    return (" \\\n").join(_INDENT + line for line in lines)


def _with_values(words: Sequence[str], room: int) -> list[str]:
    """The words of a command, an option joined with its value where both fit into ``room`` characters."""
    found: list[str] = []
    for word in words:
        alone = found and found[-1].startswith("--") and not set(" =") & set(found[-1])
        if alone and not word.startswith("-") and len(found[-1]) + len(word) < room:
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def sides(left: str, right: str, indent: int = 5) -> str:
    """Two texts on one line, the second aligned right; if they do not fit, it goes below, indented."""
    if not right:
        return paragraph(left)
    room = page_width() - len(left) - len(right)
    if room >= 2:
        return left + " " * room + right
    return f"{paragraph(left)}\n{paragraph(right, indent=indent)}"
