"""The only place where files are read: every limit is checked before anything large is built.

No file below 3 MB takes more than 1 GB of memory, whatever it holds: packed files are unpacked up to a size,
values are counted before parsing, columns that are not needed are not decoded, and keys, levels, rows, ranks
and numbers are limited. An error names the limit.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import sys
import tomllib
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from perfmodel.errors import BadInputError
from perfmodel.schema.files import check_separator, expected, first_line, key_twice
from perfmodel.units import format_count

MOST_GPUS = 2**20
MOST_PLANNED_GPUS = 2**18
"""GPUs of a plan that lists each GPU; the largest cluster has 200 000 (``data/limits``)."""

MOST_TABLES = 100_000
MOST_ROWS = 2**53
"""Integers are exact up to this in double precision."""

WIDEST = 2**20
LEAST_POOLING, MOST_POOLING = 1e-6, 1e9
"""Below the lower limit, less than one of a million bags would have a row."""

MOST_BATCH = 2**30
"""Samples per GPU; the ids of so many alone fill 8 GiB."""

MOST_SKEW = 50
"""Exponent of Zipf's law; the second row is then asked for 2^50 times less often than the first."""

STDIN = Path("-")
MIB = 2**20
MOST_BYTES = 64 * MIB
MOST_LOG_BYTES = 512 * MIB
MOST_RUN_BYTES = 1024 * MIB
MOST_TOML_BYTES = MIB
"""For settings written by hand: tomllib takes up to 500 bytes of memory per byte of table headers."""
MOST_VALUES = 4_000_000  # in a JSON or YAML document
MOST_LEVELS = 32
MOST_KEY_PARTS = 16  # a.b.c has three
LONGEST_KEY = 1_000
LONGEST_TEXT = 1_000_000  # characters
MOST_DIGITS = 400  # the largest double has 309
MOST_RECORDS, MOST_COLUMNS = 1_000_000, 1_000
READ_MORE, MOST_MORE = "PERFMODEL_READ_MORE", 1_000
"""Environment variable that multiplies the limits on bytes, CSV rows and values."""


def raised(most: int) -> int:
    """A limit that users may raise, times ``$PERFMODEL_READ_MORE``.

    Limits: not set -> ``most``;  not a whole number from 1 to ``MOST_MORE`` -> BadInputError
    """
    said = os.environ.get(READ_MORE, "1")
    if not (said.isascii() and said.isdigit() and len(said) < MOST_DIGITS and 1 <= int(said) <= MOST_MORE):
        raise BadInputError(
            f"{READ_MORE}={first_line(said)} is not a number of times.",
            f"a whole number from 1 to {format_count(MOST_MORE)}, or unset it.",
        )
    return most * int(said)


def more() -> str:
    """Advice for a message: the environment variable that doubles the present limits, if memory allows."""
    return f"{READ_MORE}={2 * raised(1)} doubles the limit"


def over(
    where: str, what: str, most: int, next_step: str = "split it", *, fixed: bool = True
) -> BadInputError:
    """The error for a file that exceeds a limit.

    what  the plural noun of which there are too many;  most  the limit;  fixed  users cannot raise the limit
    """
    limit = format_count(most)
    return BadInputError(
        f"{where} has more than {limit} {what}.",
        f"{next_step}: at most {limit} are read" + ("." if fixed else f" ({more()})."),
        where=where,
        allowed=f"at most {limit}",
    )


def read_bounded(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    """Bytes of a file, a pipe, a device or stdin (``-``), at most ``most``, which users may raise.

    Limits: missing, unreadable, a folder, larger than ``most`` (or endless) -> BadInputError
    """
    most = raised(most)
    try:
        if path == STDIN:
            raw = _of_stdin(what, most)
        else:
            with path.open("rb") as stream:
                raw = stream.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        named = f"{what} {path}"
        raise BadInputError(f"{named} cannot be read: {reason}.", "check the path.", where=named) from None
    if len(raw) > most:
        raise too_large(path, what, most)
    return raw


_piped: dict[TextIO, tuple[str, bytes]] = {}
"""(kind of file, bytes) that were read from stdin, since a command may read its tables twice."""


def _of_stdin(what: str, most: int) -> bytes:
    """The bytes of stdin. Limits: closed, or read before as another kind of file -> BadInputError"""
    if (stream := sys.stdin) is None:
        raise BadInputError(f"{what} -: stdin is closed.", "give a file, or pipe into the command.")
    if stream not in _piped:
        _piped.clear()
        _piped[stream] = what, stream.buffer.read(most + 1)
    first, raw = _piped[stream]
    if first != what:
        raise BadInputError(
            f"{first} and {what} cannot both be read from stdin.", "give a file for one of them."
        )
    return raw


def too_large(path: Path, what: str, most: int, unpacked: str = "") -> BadInputError:
    """The error for a file of more than ``most`` bytes."""
    limit = f"{most // MIB} MiB{unpacked}"
    named, most_read = f"{what} {path}", f"at most {limit}"
    step = f"{most_read} are read ({more()})."
    return BadInputError(f"{named} is too large: more than {limit}.", step, where=named, allowed=most_read)


def read_text(path: Path, what: str, most: int = MOST_BYTES) -> str:
    """UTF-8 text of a file, unpacked if its name ends in .gz; ``what`` names its kind in a message.

    Limits: missing, unreadable, not UTF-8, a folder, empty, or larger than ``most`` -> BadInputError
    """
    raw = read_bounded(path, what, most)
    if path.suffix.lower() == ".gz":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
                raw = stream.read(raised(most) + 1)
        except (OSError, EOFError, zlib.error) as error:
            reason = first_line(str(error))
            raise BadInputError(f"{what} {path} is not gzip: {reason}.", expected(what)) from None
        if len(raw) > raised(most):
            raise too_large(path, what, raised(most), " unpacked")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{what} {path} is not UTF-8 text (byte {error.start}).", "save it as UTF-8, or check the file."
        ) from None
    if not text.strip():
        raise BadInputError(f"{what} {path} is empty.", expected(what))
    if "\x00" in text:
        raise BadInputError(
            f"{what} {path} holds a NUL byte: it is not text, or it was cut short.", expected(what)
        )
    return text


def require_bounded(document: object) -> None:
    """Check the size of a parsed document.

    Limits: too many levels or fields, a key, text or number too long -> ValueError
    """
    level: list[Any] = [document]
    for _ in range(MOST_LEVELS + 1):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                if len(one) > MOST_TABLES:
                    raise ValueError(f"more than {format_count(MOST_TABLES)} fields in one object")
                if any(isinstance(key, str) and len(key) > LONGEST_KEY for key in one):
                    raise ValueError(f"a key of more than {format_count(LONGEST_KEY)} characters")
                below += [each for each in one.values() if type(each) in _LONG]
            elif isinstance(one, list):
                below += [each for each in one if type(each) in _LONG]
            elif isinstance(one, str) and len(one) > LONGEST_TEXT:
                raise ValueError(f"text of more than {format_count(LONGEST_TEXT)} characters")
            elif isinstance(one, int) and abs(one) >= _TOO_LARGE:
                raise ValueError(f"a number of more than {MOST_DIGITS} digits")
        if not below:
            return
        level = below
    raise ValueError(f"nested too deeply: more than {MOST_LEVELS} levels")


_LONG = (dict, list, str, int)
_TOO_LARGE = 10**MOST_DIGITS


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML document as nested dictionaries."""
    text = read_text(path, what, MOST_TOML_BYTES)
    try:
        for found in _DOTTED.finditer(text):
            words = "" if found[0].startswith(_NO_KEY) else found[0]
            if words.count(".") >= MOST_KEY_PARTS and len(_PART.findall(words)) > MOST_KEY_PARTS:
                raise ValueError(f"a key of more than {MOST_KEY_PARTS} parts ({first_line(words)})")
        document = tomllib.loads(text)
        require_bounded(document)
    except (ValueError, RecursionError) as error:
        raise not_valid(f"{what} {path}", "TOML", error, expected(what)) from None
    return document


_PART = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\.)*+(?:"|$)|'[^'\n]*+(?:'|$)""", re.MULTILINE)
_NO_KEY = ('"""', "'''", "#")
_DOTTED = re.compile(
    r'''"""(?:[^"\\]++|\\.|"(?!""))*+(?:"""|\Z)|'''
    r"""'''(?:[^']++|'(?!''))*+(?:'''|\Z)|\#[^\n]*+|"""
    rf"(?:{_PART.pattern})(?:[ \t]*+\.[ \t]*+(?:{_PART.pattern}))*+",
    re.MULTILINE | re.DOTALL,
)
"""Long strings and comments, which hold no key, and candidates for keys; every character is read once."""


def not_valid(where: str, kind: str, error: Exception, next_step: str) -> BadInputError:
    """The error for a file that a library could not parse, with its reason."""
    text = " ".join(str(error).split())
    if isinstance(error, RecursionError):
        text = f"nested too deeply: more than {MOST_LEVELS} levels"
    return BadInputError(f"{where} is not valid {kind}: {first_line(text)}.", next_step, where=where)


def load_json(text: str, where: str, next_step: str = "the file may have been cut short.") -> Any:
    """The value of a JSON text; ``where`` names it in a message.

    Limits: not JSON, too many values, a key twice in one object -> BadInputError
    """

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(document := dict(found)) < len(found):
            raise key_twice(Counter(name for name, _ in found).most_common(1)[0][0], where)
        return document

    try:
        return decode_json(text, json.JSONDecoder(object_pairs_hook=pairs))[0]
    except ValueError as error:
        raise not_valid(where, "JSON", error, next_step) from None


def read_json(path: Path, what: str, next_step: str = "the file may have been cut short.") -> Any:
    """The parsed value of a JSON file. Limits: as ``load_json``"""
    return load_json(read_text(path, what), f"{what} {path}", next_step)


_PLAIN = json.JSONDecoder()


def many_values() -> ValueError:
    """The error for a document with too many values."""
    return ValueError(f"more than {format_count(raised(MOST_VALUES))} values ({more()})")


def decode_json(text: str, decoder: json.JSONDecoder = _PLAIN, start: int | None = None) -> tuple[Any, int]:
    """(a JSON value, its end): of the whole text, or from ``start`` on.

    Limits: not JSON, or too many values -> ValueError
    """
    if not start and len(text) > MOST_VALUES and sum(map(text.count, ",[{")) > raised(MOST_VALUES):
        raise many_values()
    try:
        found = (decoder.decode(text), len(text)) if start is None else decoder.raw_decode(text, start)
    except RecursionError:
        raise ValueError(f"nested too deeply: more than {MOST_LEVELS} levels") from None
    require_bounded(found[0])
    return found


def read_csv_lines(path: Path, what: str, most: int | None = None) -> list[tuple[int, list[str]]]:
    """(line number, fields) of each CSV row that is not blank, header first."""
    return csv_lines(read_text(path, what), f"{what} {path}", most)


def csv_lines(text: str, where: str, most: int | None = None) -> list[tuple[int, list[str]]]:
    """(line number, fields) of each row of CSV text; ``where`` names it in a message.

    most  rows below the header; None: ``MOST_RECORDS``, which users may raise
    Limits: no row at all, more than ``most``, an open quote, a bad line end -> BadInputError
    """
    allowed = raised(MOST_RECORDS) if most is None else most
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        for row in itertools.islice(filter(None, reader), allowed + 2):
            if len(row) > MOST_COLUMNS:
                where = f"{where}, line {reader.line_num}:"
                raise over(where, "fields", MOST_COLUMNS, "check the line")
            lines.append((reader.line_num, row))
    except csv.Error as error:
        raise BadInputError(
            f"{where}, line {reader.line_num}: not valid CSV ({error}).",
            "the file may have been cut short; " + expected(where),
        ) from None
    if not lines:
        raise BadInputError(f"{where} is empty.", expected(where))
    if len(lines) > allowed + 1:
        raise over(where, "rows", allowed, fixed=most is not None)
    check_separator(lines[0][1], where)
    return lines
