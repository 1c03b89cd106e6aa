"""The only place where files are read: every limit is checked before anything large is built.

No file below 3 MB takes more than 1 GB of memory, whatever it holds: bytes, rows and keys are limited, values
are counted before parsing, and what is parsed is validated by types. An error names the limit.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from perfmodel.errors import BadInputError
from perfmodel.schema.files import SEPARATORS, expected, first_line, key_twice
from perfmodel.units import format_count

MOST_GPUS = 2**20
MOST_PLANNED_GPUS = 2**18
"""GPUs of a plan that lists each GPU; the largest cluster has 200 000 (``data/limits``)."""

MOST_TABLES = 100_000
MOST_ROWS = 2**53
"""Integers are exact up to this in double precision."""

WIDEST = 2**16
LEAST_POOLING, MOST_POOLING = 1e-6, 1e9
"""Below the lower limit, less than one of a million bags would have a row."""

MOST_BATCH = 2**30
"""Samples per GPU; the ids of so many alone fill 8 GiB."""

MOST_SKEW = 5
"""Exponent of Zipf's law; the second row is then asked for 2^50 times less often than the first."""

STDIN = Path("-")
MIB = 2**20
MOST_BYTES = 64 * MIB
MOST_LOG_BYTES = 512 * MIB
MOST_RUN_BYTES = 1024 * MIB
MOST_TOML_BYTES = MIB
"""For settings written by hand: tomllib takes up to 500 bytes of memory per byte of table headers."""
MOST_VALUES = 4_000_000  # in a JSON or YAML document
MOST_LEVELS = 32  # in a YAML document
MOST_KEY_PARTS = 16  # a.b.c has three
LONGEST_KEY = 1_000  # of JSON
MOST_DIGITS = 400  # of a number in YAML; the largest double has 309
MOST_RECORDS, MOST_COLUMNS = 1_000_000, 1_000

_TOO_DEEP = "nested too deeply"
_TOO_MANY = f"more than {format_count(MOST_VALUES)} values"
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}""")
_QUOTED_PART = re.compile(r"""[^\s\[=,{]["'][ \t]*+\.""")  # a quote that ends a part, and a point
_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9_]*+)(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
"""Plain words of YAML that are no text."""
_piped: dict[TextIO, tuple[str, bytes]] = {}
"""(kind of file, bytes) that were read from stdin, since a command may read its tables twice."""


def over(where: str, what: str, most: int, next_step: str = "split it") -> BadInputError:
    """The error for a file that exceeds a limit. what  plural noun of which there are too many"""
    limit, words = format_count(most), f"{where} has more than {format_count(most)} {what}."
    return BadInputError(
        words, f"{next_step}: at most {limit} are read.", where=where, allowed=f"at most {limit}"
    )


def read_bounded(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    """Bytes of a file, a pipe, a device or stdin (``-``), at most ``most``.

    Limits: missing, unreadable, a folder, larger than ``most`` (or endless) -> BadInputError
    """
    named = f"{what} {path}"
    try:
        if path == STDIN:
            raw = _read_stdin(what, most)
        else:
            with path.open("rb") as stream:
                raw = stream.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInputError(f"{named} cannot be read: {reason}.", "check the path.", where=named) from None
    if len(raw) > most:
        limit = f"at most {most // MIB} MiB"
        words = f"{named} is too large: more than {most // MIB} MiB."
        raise BadInputError(words, f"{limit} are read.", where=named, allowed=limit)
    return raw


def _read_stdin(what: str, most: int) -> bytes:
    """The bytes of stdin. Limits: closed, or read before as another kind of file -> BadInputError"""
    if (stream := sys.stdin) is None:
        raise BadInputError(f"{what} -: stdin is closed.", "give a file, or pipe into the command.")
    if stream not in _piped:
        _piped.clear()
        _piped[stream] = what, stream.buffer.read(most + 1)
    kind, raw = _piped[stream]
    if kind != what:
        raise BadInputError(
            f"{kind} and {what} cannot both be read from stdin.", "give a file for one of them."
        )
    return raw


def read_text(path: Path, what: str, most: int = MOST_BYTES) -> str:
    """UTF-8 text of a file; ``what`` names its kind in a message.

    Limits: as ``read_bounded``; not UTF-8, empty, NUL bytes -> BadInputError
    """
    raw = read_bounded(path, what, most)
    named = f"{what} {path}"
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        step = "save it as UTF-8, or check the file."
        raise BadInputError(f"{named} is not UTF-8 text (byte {error.start}).", step) from None
    if not text.strip():
        raise BadInputError(f"{named} is empty.", expected(what))
    if "\x00" in text:
        raise BadInputError(f"{named} holds a NUL byte: it is not text, or it was cut short.", expected(what))
    return text


def not_valid(where: str, kind: str, error: Exception, next_step: str) -> BadInputError:
    """The error for a file that a library could not parse, with its reason."""
    text = _TOO_DEEP if isinstance(error, RecursionError) else " ".join(str(error).split())
    return BadInputError(f"{where} is not valid {kind}: {first_line(text)}.", next_step, where=where)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML document as nested dictionaries."""
    text = read_text(path, what, MOST_TOML_BYTES)
    try:
        for line in text.splitlines():
            long = line.count(".") >= MOST_KEY_PARTS and _LONG_KEY.search(line)
            if long or (long is None and len(_QUOTED_PART.findall(line)) >= MOST_KEY_PARTS):
                raise ValueError(f"a key of more than {MOST_KEY_PARTS} parts ({first_line(line)})")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_valid(f"{what} {path}", "TOML", error, expected(what)) from None


def load_json(text: str, where: str, next_step: str = "the file may have been cut short.") -> Any:
    """The value of a JSON text; ``where`` names it in a message.

    Limits: not JSON, too many values, a key twice in one object -> BadInputError
    """

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(document := dict(pairs)) < len(pairs):
            raise key_twice(Counter(name for name, _ in pairs).most_common(1)[0][0], where)
        if max(map(len, document), default=0) > LONGEST_KEY:
            raise ValueError(f"a key of more than {format_count(LONGEST_KEY)} characters")
        return document

    try:
        return decode_json(text, json.JSONDecoder(object_pairs_hook=build))
    except ValueError as error:
        raise not_valid(where, "JSON", error, next_step) from None


def read_json(path: Path, what: str, next_step: str = "the file may have been cut short.") -> Any:
    """The parsed value of a JSON file. Limits: as ``load_json``"""
    return load_json(read_text(path, what), f"{what} {path}", next_step)


def decode_json(text: str, decoder: json.JSONDecoder | None = None) -> Any:
    """The value of a JSON text. Limits: not JSON, or too many values -> ValueError"""
    if len(text) > MOST_VALUES and sum(map(text.count, ",[{")) > MOST_VALUES:
        raise ValueError(_TOO_MANY)
    try:
        return (decoder or json.JSONDecoder()).decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def read_yaml(path: Path, what: str) -> Any:
    """A YAML document of plain data. Tags and aliases, which can make a small file large, are refused."""
    import yaml

    text = read_text(path, what)
    try:
        return _build_yaml(text, f"{what} {path}")
    except (yaml.YAMLError, ValueError) as error:
        raise not_valid(f"{what} {path}", "YAML", error, expected(what)) from None


def _build_yaml(text: str, where: str) -> Any:
    """The document, built event by event: each open level is a list, or a mapping with its next key."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    levels: list[tuple[Any, list[Any]]] = [([], [])]  # outermost: a list of the documents
    for number, event in enumerate(yaml.parse(text, Loader=loader)):
        if number > MOST_VALUES:
            raise ValueError(_TOO_MANY)
        line = f"line {event.start_mark.line + 1}" if event.start_mark else "at the end"
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{line}: aliases (*name) are not read")
        if isinstance(event, yaml.CollectionEndEvent):
            levels.pop()
        if not isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            continue
        if event.tag not in (None, "!"):
            raise ValueError(f"{line}: tags ({first_line(str(event.tag))}) are not read")
        value: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        if isinstance(event, yaml.ScalarEvent):
            value = _read_word(event.value, line) if event.implicit[0] else event.value
        holder, keys = levels[-1]
        if isinstance(holder, list):
            holder.append(value)
        elif keys:
            holder[keys.pop()] = value
        elif not isinstance(value, str | int | float | None):
            raise ValueError(f"{line}: a list or a mapping is no name of a field")
        elif value in holder:
            raise key_twice(value, f"{where}, {line}")
        else:
            keys.append(value)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(levels) > MOST_LEVELS:
                raise ValueError(_TOO_DEEP)
            levels.append((value, []))
    documents = levels[0][0]
    if len(documents) > 1:
        raise ValueError("several documents in one file")
    return documents[0] if documents else None


def _read_word(text: str, line: str) -> Any:
    """Value of a plain scalar: null, true, false, a decimal number, else text.

    Text are also the words that YAML 1.1 reads as something else: 010, 1:30, yes.
    Limits: numbers of many digits -> ValueError
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _DECIMAL.fullmatch(text):
        return text
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{line}: a number of more than {MOST_DIGITS} digits")
    if text.lstrip("-+").replace("_", "").isdigit():
        return int(text)
    number = float(text)
    return int(number) if "." not in text and number.is_integer() else number


def read_csv_lines(path: Path, what: str, most: int = MOST_RECORDS) -> list[tuple[int, list[str]]]:
    """(line number, fields) of each CSV row that is not blank, header first."""
    return split_csv(read_text(path, what), f"{what} {path}", most)


def split_csv(text: str, where: str, most: int = MOST_RECORDS) -> list[tuple[int, list[str]]]:
    """(line number, fields) of each row of CSV text; ``where`` names it in a message.

    most  rows below the header
    Limits: no row at all, more than ``most``, an open quote, a bad line end, other separators than commas
            -> BadInputError
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        for row in itertools.islice(filter(None, reader), most + 2):
            if len(row) > MOST_COLUMNS:
                raise over(f"{where}, line {reader.line_num}:", "fields", MOST_COLUMNS, "check the line")
            lines.append((reader.line_num, row))
    except csv.Error as error:
        step = f"the file may have been cut short; {expected(where)}"
        raise BadInputError(f"{where}, line {reader.line_num}: not valid CSV ({error}).", step) from None
    if not lines:
        raise BadInputError(f"{where} is empty.", expected(where))
    if len(lines) > most + 1:
        raise over(where, "rows", most)
    header = lines[0][1]
    for sign, name in SEPARATORS.items():
        if len(header) == 1 and sign in header[0]:
            step = "write commas between them and points in numbers: a spreadsheet saves so as CSV (comma)."
            raise BadInputError(f"{where} has {name} between its fields.", step)
    return lines
