"""Reading files that people and programs wrote, and one way to say what is wrong with them."""

from __future__ import annotations

import csv
import difflib
import io
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from pydantic import ValidationError

LARGEST_TEXT_BYTES = 64 * 2**20
_SHOWN_PROBLEMS = 5
_LONGEST_VALUE = 60
FORMATS_PAGE = "the format is described in docs/formats.md."


def read_text(path: Path, what: str) -> str:
    """UTF-8 text of a file; ``what`` names it in a message ("machine file").

    Limits: missing, unreadable, not UTF-8, a folder, empty, or larger than 64 MiB -> BadInputError
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_TEXT_BYTES:
            raise BadInputError(f"{what} {path} is too large: {size} bytes.", "at most 64 MiB are read.")
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInputError(f"{what} {path!s} cannot be read: {reason}.", "check the path.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{what} {path} is not UTF-8 text (byte {error.start}).", "save it as UTF-8, or check the file."
        ) from None
    if not text.strip():
        raise BadInputError(f"{what} {path} is empty.", FORMATS_PAGE)
    if "\x00" in text:
        raise BadInputError(
            f"{what} {path} holds a NUL byte: it is not text, or it was cut short.", FORMATS_PAGE
        )
    return text


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML document as nested dictionaries."""
    text = read_text(path, what)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        reason = first_line(str(error)) or "nested too deeply"
        raise BadInputError(f"{what} {path} is not valid TOML: {reason}.", FORMATS_PAGE) from None


def read_csv_lines(path: Path, what: str) -> list[tuple[int, list[str]]]:
    """Line number and fields of each CSV row that is not blank, header first."""
    return csv_lines(read_text(path, what), f"{what} {path}")


def csv_lines(text: str, where: str) -> list[tuple[int, list[str]]]:
    """Line number and fields of each row of CSV text; ``where`` names it in a message.

    Limits: no row at all, an open quote, a bad line end -> BadInputError with the line
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise BadInputError(
            f"{where}, line {reader.line_num}: not valid CSV ({error}).",
            "the file may have been cut short; " + FORMATS_PAGE,
        ) from None
    if not lines:
        raise BadInputError(f"{where} is empty.", FORMATS_PAGE)
    return lines


def first_line(text: str) -> str:
    """First line of a message, cut to one screen width."""
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= 2 * _LONGEST_VALUE else line[: 2 * _LONGEST_VALUE] + "…"


def shown(value: object) -> str:
    """A value from a file, short enough and printable, for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def invalid_fields(
    error: ValidationError, what: str, where: str, line_numbers: Sequence[int] = ()
) -> BadInputError:
    """One screen of what pydantic found: the path of each field, the reason, and the value.

    line_numbers  of the rows of a CSV file: ``tables.3.rows`` is then said as ``line 5, rows``
    """
    lines = []
    for problem in error.errors(include_url=False)[:_SHOWN_PROBLEMS]:
        field = _field(problem["loc"], line_numbers)
        reason = problem["msg"].removeprefix("Value error, ")
        value = "" if problem["type"] == "missing" else f" (found {shown(problem.get('input'))})"
        lines.append(f"{field}: {reason}{value}")
    left = error.error_count() - len(lines)
    more = f"; and {left} more" if left > 0 else ""
    return BadInputError(f"{what} {where} is not valid: {'; '.join(lines)}{more}.", FORMATS_PAGE)


def _field(location: tuple[int | str, ...], line_numbers: Sequence[int]) -> str:
    if line_numbers and len(location) > 1 and isinstance(location[1], int):
        return ", ".join([f"line {line_numbers[location[1]]}", *(str(part) for part in location[2:])])
    return ".".join(str(part) for part in location) or "the whole file"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> BadInputError:
    """The refusal of a name, with the closest known one first and all of them after it."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}? " if close else ""
    return BadInputError(f"{kind} {shown(name)} is not known.", f"{hint}known: {', '.join(names) or 'none'}.")


def looks_like_path(text: str, suffixes: Sequence[str]) -> bool:
    """Whether a user means a file and not a shipped name."""
    return "/" in text or "\\" in text or text.lower().endswith(tuple(suffixes))
