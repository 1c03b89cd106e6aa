"""Error messages about files, all in one form."""

from __future__ import annotations

import difflib
import heapq
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_SHOWN_PROBLEMS = 5
_LONGEST_VALUE = 60
_LONGEST_PROBLEM = 2_000
_MOST_NEAREST = 3
_MANY_NAMES = 60  # above this, only the nearest names are listed, of as many that share most pairs of letters
_EXPECTED = {
    "machine file": "TOML with name, title and a table [values.KEY] for each value, as in "
    "perfmodel show machines h100-sxm-ib --toml",
    "chip file": "TOML with name, title, [buffers] and a table [values.KEY] for each value, as in "
    "perfmodel show chips ascend-910 --toml",
    "table file": "a list of tables with rows, dim, pooling and dtype; perfmodel show --help",
    "frame": "columns rows and dim, and as wanted pooling, dtype, weighted, distribution, name, count",
    "distribution file": "CSV with row_share and lookup_share, a bin of rows a line, each adding up to 1",
    "sample file": "CSV with collective, payload_bytes, gpus, time_s and more; perfmodel import --help",
    "calibration": "a file that perfmodel import wrote; perfmodel import --help",
}


def expected(what: str) -> str:
    """Expected content of a file of this kind ("machine file"), in a few words, for an error message."""
    text = next((text for kind, text in _EXPECTED.items() if what.startswith(kind)), "")
    instead = f"check {what}." if what.startswith("--") else "check the file."
    return f"expected: {text}." if text else instead


def key_twice(key: object, where: str) -> BadInputError:
    """The error for a file that has one key twice."""
    return BadInputError(f"{where}: key {shown(key)} stands twice in one object.", "leave one of them.")


SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Separators that stand in place of commas in a CSV file, by name."""


def check_separator(header: Sequence[str], where: str) -> None:
    """Check that fields are separated by commas.

    Limits: one field that has other separators -> BadInputError
    """
    names = [name for sign, name in SEPARATORS.items() if len(header) == 1 and sign in header[0]]
    if names:
        raise BadInputError(
            f"{where} has {names[0]} between its fields.",
            "write commas between them and points in numbers: a spreadsheet saves so as CSV (comma).",
        )


def cell(text: str) -> str:
    """A name as a field of a CSV file, made safe for spreadsheets, which run fields that look like formulas.

    Limits: ``=cmd``, ``-2+3`` -> ``'=cmd``, ``'-2+3``; numbers, with or without a unit -> unchanged
    Source: OWASP, CSV injection
    """
    begins = text[:1] in ("=", "@", "\t", "\r") or (text[:1] in ("+", "-") and not _SIGNED.fullmatch(text))
    return f"'{text}" if begins else text


_SIGNED = re.compile(r"[+-](?:[\d.]+(?:[eE][+-]?\d+)?|∞)(?:\s?[%×]|\s[^\W\d]\w*(?:/s)?)?")


def first_line(text: str) -> str:
    """First line of a library's message, cut to one screen width, without the final dot."""
    line = text.splitlines()[0].removesuffix(".") if text else ""
    return line if len(line) <= 2 * _LONGEST_VALUE else line[: 2 * _LONGEST_VALUE] + "…"


def shown(value: object) -> str:
    """A value from a file in short printable form, for a message."""
    text = _SHORT.repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


class _Short(reprlib.Repr):
    """Shortens a value's text without writing all of a large value first."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxdict = self.maxtuple = self.maxset = _LONGEST_VALUE
        self.maxstring = self.maxother = 4 * _LONGEST_VALUE

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 10**_LONGEST_VALUE else "a number of many digits"


_SHORT = _Short()


def invalid_fields(
    error: ValidationError, what: str, where: str, line_numbers: Sequence[int] = ()
) -> BadInputError:
    """pydantic's errors on at most one screen: path, reason and value of each field.

    line_numbers  of the rows of a CSV file: ``tables.3.rows`` is then printed as ``line 5, rows``
    """
    lines = []
    for problem in error.errors(include_url=False)[:_SHOWN_PROBLEMS]:
        field = _field(problem["loc"], line_numbers)
        if (
            problem["type"] == "value_error"
        ):  # our own validators state the value and, for a whole file, the field
            lines.append(f"{field}: {_reason(problem)}" if field else _reason(problem))
            continue
        value = "" if problem["type"] in _SAY_IT_ALL else f" (found {shown(problem.get('input'))})"
        lines.append(f"{field or 'the whole file'}: {_reason(problem)}{value}")
    lines = [line if len(line) <= _LONGEST_PROBLEM else line[:_LONGEST_PROBLEM] + "…" for line in lines]
    left = error.error_count() - len(lines)
    more = f"; and {left} more" if left > 0 else ""
    words = f"{what} {where} is not valid: {'; '.join(lines)}{more}."
    return BadInputError(words, expected(what), where=f"{what} {where}")


_LONG = 1e16  # above this, a limit is printed with an exponent
_SAY_IT_ALL = ("missing", "extra_forbidden")
_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is not a field",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be finite",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too large",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} letters",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "list_type": "must be a list",
    "dict_type": "must be a table of fields",
    "model_type": "must be a table of fields",
    "model_attributes_type": "must be a table of fields",
    "mapping_type": "must be a table of fields",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
}
"""Plain words for pydantic's error types."""


def _reason(problem: ErrorDetails) -> str:
    context = {key: _plain(value) for key, value in problem.get("ctx", {}).items()}
    if problem["type"] == "greater_than_equal":
        return "must not be negative" if context["ge"] == "0" else f"must be at least {context['ge']}"
    plain = _REASONS.get(problem["type"])
    return plain.format(**context) if plain else problem["msg"].removeprefix("Value error, ")


def _plain(limit: Any) -> Any:
    """A limit for a message: long numbers shortened, whole numbers with all digits, ``1 048 576``."""
    if isinstance(limit, bool) or not isinstance(limit, (int, float)):
        return limit
    return f"{int(limit):,}".replace(",", " ") if limit == int(limit) and abs(limit) < _LONG else f"{limit:g}"


def _field(location: tuple[int | str, ...], line_numbers: Sequence[int]) -> str:
    if line_numbers and len(location) > 1 and isinstance(location[1], int):
        return ", ".join([f"line {line_numbers[location[1]]}", *(str(part) for part in location[2:])])
    return ".".join(str(part) for part in location)


def unknown_name(kind: str, name: str, known: Iterable[str], usual: str = "") -> BadInputError:
    """The error for an unknown name: the nearest known names first, then all known names.

    usual  known name that is preferred to others with the same beginning
    """
    names = sorted(known)
    where = "" if kind.startswith("--") else kind
    if len(names) > _MANY_NAMES:
        pairs = {name[i : i + 2] for i in range(len(name[:_LONGEST_VALUE]) - 1)}
        alike = heapq.nlargest(_MANY_NAMES, names, key=lambda known: sum(map(known.__contains__, pairs)))
        near = difflib.get_close_matches(name, alike, n=_MOST_NEAREST, cutoff=0.0)
        step = f"the nearest of {len(names)}: {', '.join(near)}."
    else:
        nearest = nearest_names(name, sorted(names, key=lambda known: known != usual))
        hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
        step = f"{hint}known: {', '.join(names) or 'none'}."
    return BadInputError(f"{kind} {shown(name)} is not known.", step, where=where, allowed=names)


def nearest_names(name: str, names: Sequence[str]) -> list[str]:
    """The known names that are probably meant, at most three.

    That is another case; else all that begin so; else a typing error; else all whose first word, up to a
    dash, is the nearest.  Limits: no name is near -> none
    """
    text = name.strip().casefold()
    plain = {known.casefold(): known for known in reversed(names)}
    if text in plain:
        return [plain[text]]
    begins = [known for known in names if len(text) >= 2 and known.casefold().startswith(text)]
    if begins:
        return begins[:_MOST_NEAREST]
    alike = difflib.get_close_matches(text, list(plain), n=1, cutoff=0.75)
    if alike:
        return [plain[alike[0]]]
    words = {known: known.casefold().partition("-")[0] for known in names}
    nearest = difflib.get_close_matches(text.partition("-")[0], sorted(set(words.values())), n=1)
    return [known for known in names if words[known] in nearest][:_MOST_NEAREST]


def looks_like_path(text: str, suffixes: Sequence[str]) -> bool:
    """Whether a text looks like a path, not like a shipped name."""
    return "/" in text or "\\" in text or text.lower().endswith(tuple(suffixes))
