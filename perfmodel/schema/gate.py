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
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from perfmodel.errors import BadInputError
from perfmodel.schema.files import SEPARATORS, expected, first_line, shown
from perfmodel.units import format_count

MOST_GPUS = 2**20
MOST_PLANNED_GPUS = 2**18  # GPUs of a plan that lists each GPU; the largest cluster has 200 000 (data/limits)
MOST_TABLES = 100_000
MOST_ROWS = 2**53  # integers are exact up to this in double precision
WIDEST = 2**16
LEAST_POOLING = 1e-6
"""Below it, less than one of a million bags would have a row."""
MOST_POOLING = 1e9

MOST_BATCH = 2**30  # samples per GPU; the ids of so many alone fill 8 GiB
MOST_SKEW = 5  # exponent of Zipf's law; the second row is then asked for 2^50 times less often than the first
STDIN = Path("-")
MIB = 2**20
MOST_BYTES = 64 * MIB
MOST_LOG_BYTES = 512 * MIB
MOST_RUN_BYTES = 1024 * MIB
MOST_TOML_BYTES = MIB  # tomllib takes up to 500 bytes of memory per byte of table headers
MOST_VALUES = 4_000_000  # in a JSON or YAML document
MOST_LEVELS = 32  # in a YAML document
MOST_KEY_PARTS = 16  # a.b.c has three
MOST_DIGITS = 400  # of a number in YAML; the largest double has 309
MOST_RECORDS = 1_000_000
MOST_COLUMNS = 1_000

_TOO_DEEP = "nested too deeply"
_TOO_MANY = f"more than {format_count(MOST_VALUES)} values"
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}""")
_QUOTED_PART = re.compile(r"""[^\s\[=,{]["'][ \t]*+\.""")  # a quote that ends a part, and a point
_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9_]*+)(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_END = object()
CsvRows = tuple[list[str], list[list[str]], list[int]]
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
"""Plain words of YAML that are no text."""


def over(where: str, what: str, most: int, next_step: str = "split it") -> BadInputError:
    """The error for a file that exceeds a limit. what  plural noun of which there are too many"""
    limit = f"at most {format_count(most)}"
    words = f"{where} has more than {format_count(most)} {what}."
    return BadInputError(words, f"{next_step}: {limit} are read.", where=where, allowed=limit)


def read_bounded(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    """Bytes of a file, a pipe, a device or stdin (``-``). Limits: more than ``most`` -> BadInputError"""
    named = f"{what} {path}"
    try:
        if path == STDIN:
            raw = _read_stdin(sys.stdin, what, most)
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


@lru_cache(maxsize=2)
def _read_stdin(stream: TextIO | None, what: str, most: int) -> bytes:
    """Bytes of stdin, which a command may read twice as one kind of file; closed: ValueError."""
    if stream is None:
        raise ValueError("stdin is closed")
    return stream.buffer.read(most + 1)


def read_text(path: Path, what: str, most: int = MOST_BYTES) -> str:
    """UTF-8 text of a file; ``what`` names its kind. Limits: empty, NUL bytes -> BadInputError"""
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
    """The error for a file that a library could not parse as ``kind`` (TOML, …), with its reason."""
    text = _TOO_DEEP if isinstance(error, RecursionError) else " ".join(str(error).split())
    return BadInputError(f"{where} is not valid {kind}: {first_line(text)}.", next_step, where=where)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML document as nested dictionaries. what  it is, for messages. Limits: not TOML -> BadInputError"""
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
    """The value of a JSON text; ``where`` names it. Limits: a key twice in one object -> BadInputError"""

    def build(pairs: list[tuple[str, object]]) -> dict[str, object]:
        """The dict of an object's pairs, which the decoder calls for each object."""
        if len(document := dict(pairs)) < len(pairs):
            raise _refuse_twice(Counter(name for name, _ in pairs).most_common()[0][0], where)
        return document

    try:
        return decode_json(text, json.JSONDecoder(object_pairs_hook=build))
    except ValueError as error:
        raise not_valid(where, "JSON", error, next_step) from None


def _refuse_twice(key: object, where: str) -> BadInputError:
    """The error for a key that one object of a file has twice; ``where``  names the place."""
    return BadInputError(f"{where}: key {shown(key)} stands twice in one object.", "leave one of them.")


def read_json(path: Path, what: str, next_step: str = "the file may have been cut short.") -> Any:
    """The parsed value of a JSON file. what  it is, for messages. Limits: as ``load_json``"""
    return load_json(read_text(path, what), f"{what} {path}", next_step)


def decode_json(text: str, decoder: json.JSONDecoder | None = None) -> Any:
    """The value of a JSON text. Limits: not JSON, or too many values -> ValueError"""
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise ValueError(_TOO_MANY)
    try:
        return (decoder or json.JSONDecoder()).decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def read_yaml(path: Path, what: str) -> Any:
    """A YAML document of plain data. Tags and aliases, which can make a small file large, are refused."""
    import yaml

    text = read_text(path, what)
    events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        nodes = (event for event in events if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent))
        document = _build_yaml(nodes, f"{what} {path}", itertools.count())
        if next(nodes, None) is not None:
            raise ValueError("several documents in one file")
        return document
    except (yaml.YAMLError, ValueError) as error:
        raise not_valid(f"{what} {path}", "YAML", error, expected(what)) from None


def _build_yaml(events: Iterator[Any], where: str, numbers: Iterator[int], level: int = 0) -> Any:
    """The next value of the document whose parser gives ``events``; ``_END`` at the end of a list or mapping.

    numbers  counts the values of the document;  level  lists and mappings around the value
    """
    import yaml

    event = next(events, None)
    if event is None or isinstance(event, yaml.CollectionEndEvent):
        return _END if event else None
    line = f"line {event.start_mark.line + 1}"
    if next(numbers) > MOST_VALUES:
        raise ValueError(_TOO_MANY)
    if isinstance(event, yaml.AliasEvent):
        raise ValueError(f"{line}: aliases (*name) are not read")
    if event.tag not in (None, "!"):
        raise ValueError(f"{line}: tags ({first_line(str(event.tag))}) are not read")
    if isinstance(event, yaml.ScalarEvent):
        return _read_word(event.value, line) if event.implicit[0] else event.value
    if level == MOST_LEVELS:
        raise ValueError(_TOO_DEEP)
    values = iter(lambda: _build_yaml(events, where, numbers, level + 1), _END)
    if isinstance(event, yaml.SequenceStartEvent):
        return list(values)
    mapping: dict[Any, Any] = {}
    for key in values:
        if not isinstance(key, str | int | float | None):
            raise ValueError(f"{line}: a list or a mapping is no name of a field")
        if key in mapping:
            raise _refuse_twice(key, f"{where}, {line}")
        mapping[key] = next(values)
    return mapping


def _read_word(text: str, line: str) -> Any:
    """Value of a plain scalar; text is also what YAML 1.1 reads as something else: 010, 1:30, yes."""
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


def read_csv(path: Path, what: str, most: int = MOST_RECORDS) -> CsvRows:
    """The rows of a CSV file (``split_csv``). what  it is, for messages;  most  rows. Limits: as there"""
    return split_csv(read_text(path, what), f"{what} {path}", most)


def split_csv(text: str, where: str, most: int = MOST_RECORDS) -> CsvRows:
    """(names of columns, at most ``most`` rows with as many fields, line number of each row) of a CSV."""
    header = text.strip().partition("\n")[0]
    for sign, name in SEPARATORS.items():
        if sign in header and "," not in header:
            step = "write commas between them and points in numbers: a spreadsheet saves so as CSV (comma)."
            raise BadInputError(f"{where} has {name} between its fields.", step)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    numbers: list[int] = []
    cut_short = f"the file may have been cut short; {expected(where)}"
    try:
        for row in itertools.islice(filter(None, reader), most + 2):
            rows.append([field.strip() for field in row])
            numbers.append(reader.line_num)
            if len(row) > MOST_COLUMNS:
                raise over(f"{where}, line {reader.line_num}:", "fields", MOST_COLUMNS, "check the line")
            if len(row) != len(rows[0]):
                words = f"{where}, line {reader.line_num}: {len(row)} fields instead of {len(rows[0])}."
                raise BadInputError(words, cut_short)
    except csv.Error as error:
        words = f"{where}, line {reader.line_num}: not valid CSV ({error})."
        raise BadInputError(words, cut_short) from None
    if not rows:
        raise BadInputError(f"{where} is empty.", expected(where))
    if len(rows) > most + 1:
        raise over(where, "rows", most)
    return rows[0], rows[1:], numbers[1:]
