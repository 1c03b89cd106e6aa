"""Plain tables for a terminal or an issue: right-aligned, no boxes, at most 100 columns.

Cells are text that ``perfmodel.units`` has formatted; nothing here formats a number.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 100
_GAP = 2
_NARROWEST = 10


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), indent: int = 1
) -> str:
    """Rows under a header, columns right-aligned except those named in ``left``.

    A last column that would pass 100 columns is wrapped under itself; empty columns are left out.
    Limits: no rows -> the header alone; a line never ends in spaces
    """
    used = [i for i in range(len(headers)) if headers[i] or any(row[i] for row in rows)]
    cells = [[headers[i] for i in used], *([row[i] for i in used] for row in rows)]
    if not any(cells[0]):
        cells = cells[1:]
    lefts = [i in left for i in used]
    widths = [max((len(row[k]) for row in cells), default=0) for k in range(len(used))]
    room = WIDTH - indent - sum(widths[:-1]) - _GAP * (len(widths) - 1)
    wrap = bool(lefts) and lefts[-1] and widths[-1] > room >= _NARROWEST
    lines: list[str] = []
    for row in cells:
        last = _lines(row[-1], room) if wrap else [row[-1]]
        start = [
            c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(row, widths, lefts, strict=True)
        ]
        end = last[0] if wrap else start[-1]
        lines.append(" " * indent + (" " * _GAP).join([*start[:-1], end]))
        hang = " " * (WIDTH - room)
        lines.extend(hang + more for more in last[1:])
    return "\n".join(line.rstrip() for line in lines)


def _lines(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def facts(pairs: Sequence[tuple[str, str]], indent: int = 0) -> str:
    """``name  text`` lines with the texts aligned and wrapped at 100 columns; empty texts are left out."""
    shown = [(name, text) for name, text in pairs if text]
    width = max((len(name) for name, _ in shown), default=0)
    start = indent + width + 2
    lines = []
    for name, text in shown:
        parts = textwrap.wrap(text, WIDTH - start, break_long_words=False, break_on_hyphens=False) or [""]
        lines.append(" " * indent + name.ljust(width) + "  " + parts[0])
        lines.extend(" " * start + part for part in parts[1:])
    return "\n".join(line.rstrip() for line in lines)


def paragraph(text: str, indent: int = 0) -> str:
    """Text wrapped at 100 columns; its own line breaks are kept."""
    pad = " " * indent
    wrapped = []
    for line in text.splitlines():
        own = line[: len(line) - len(line.lstrip())]
        wrapped += textwrap.wrap(
            line.strip(),
            WIDTH,
            initial_indent=pad + own,
            subsequent_indent=pad + own,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(wrapped)


def sides(left: str, right: str) -> str:
    """Two texts on one line, the right one flush with column 100 (two lines when they do not fit)."""
    room = WIDTH - len(left) - len(right)
    return left + " " * room + right if room >= 2 else f"{left}\n{right.rjust(WIDTH)}"
