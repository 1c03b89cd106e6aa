"""Sets of tables in files: CSV, JSON, YAML, TOML and Parquet, or a pandas frame; every field checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema import torchrec_tables
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.fields import Strict, validated
from perfmodel.schema.files import expected, looks_like_path, shown, unknown_name
from perfmodel.schema.gate import (
    LEAST_POOLING,
    MOST_POOLING,
    MOST_ROWS,
    MOST_TABLES,
    STDIN,
    WIDEST,
    read_csv_lines,
    read_json,
    read_text,
    read_toml,
)
from perfmodel.schema.parquet_files import read_parquet
from perfmodel.schema.workload import Table, TableSet
from perfmodel.schema.yaml_files import read_yaml
from perfmodel.units import parse_count

if TYPE_CHECKING:
    import pandas as pd

_FOLDER = "models"
_SUFFIX = ".toml"
_FILE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".json", ".yaml", ".yml", ".toml")
_WHAT = "table file"
_READ = ".csv, .csv.gz, .parquet, .json, .yaml, .yml or .toml"
_WHOLE = ("rows", "dim", "count")
_PLAIN = 15  # digits up to which a number is exact in every format


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{shown(text)} holds what cannot be printed: leave it out")
    return text


_Name = Annotated[str, Field(max_length=200), AfterValidator(_printable)]


def _known_ids(text: str) -> str:
    try:
        if text:
            parse_distribution(text)
    except BadInputError as error:
        raise ValueError(f"{error.message} {error.next_step}".rstrip(".")) from None  # who says it ends it
    return text


class _TableEntry(Strict):
    """One row of a table file: ``count`` equal tables. A pooling of 0 is taken as ``LEAST_POOLING``."""

    rows: int = Field(ge=1, le=MOST_ROWS)
    dim: int = Field(ge=1, le=WIDEST)
    pooling: float = Field(default=1.0, ge=0, le=MOST_POOLING, allow_inf_nan=False)
    dtype: Literal["fp64", "fp32", "fp16", "bf16", "fp8", "int8"] = "fp32"
    weighted: bool = False
    distribution: Annotated[str, AfterValidator(_known_ids)] = ""
    name: _Name = ""
    count: int = Field(default=1, ge=1, le=MOST_TABLES)


_KNOWN = frozenset((*_TableEntry.model_fields, *torchrec_tables.FIELDS))
"""Names of columns, all in lower case."""


class _TableFile(Strict):
    """A whole table file."""

    name: _Name = ""
    source: str = ""
    note: str = ""
    tables: list[_TableEntry] = Field(min_length=1, max_length=MOST_TABLES)


def list_models() -> list[str]:
    """Names of the shipped table sets."""
    return resources.data_names(_FOLDER, _SUFFIX)


def load_tables(name_or_path: str | Path | TableSet) -> TableSet:
    """A shipped table set by name, or a user's file by path: CSV (also gzip), Parquet, JSON, YAML or TOML. A
    ``TableSet`` is returned unchanged.

    ``-`` is stdin: JSON if it begins like JSON, else CSV.

    Limits: unknown name -> BadInputError listing the known ones; a bad file -> BadInputError with its field
    """
    if isinstance(name_or_path, TableSet):
        return name_or_path
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or looks_like_path(text, _FILE_SUFFIXES) or Path(text) == STDIN:
        return read_tables(Path(text))
    if text not in list_models():
        if os.path.exists(text):  # not Path.exists: any text may be a name
            return read_tables(Path(text))
        raise unknown_name("table set", text, list_models())
    return _shipped(text)


@lru_cache(maxsize=32)
def _shipped(name: str) -> TableSet:
    return read_tables(resources.data_path(_FOLDER, name + _SUFFIX))


def read_tables(path: Path) -> TableSet:
    """A table set from a file, validated; the suffix gives the format.

    Tables have our own fields (rows, dim, pooling, dtype) or TorchRec's (``torchrec_tables``); in JSON and
    YAML the list may be the whole document.
    """
    suffix = path.suffix.lower()
    if path == STDIN:
        suffix = ".json" if read_text(path, _WHAT).lstrip()[0] in "[{" else ".csv"
    elif os.path.isdir(path):  # false where its folder cannot be searched
        raise BadInputError(f"{_WHAT} {path} is a folder.", f"give one of its files: {_READ}.")
    if suffix == ".csv" or path.name.lower().endswith(".csv.gz"):
        (_, header), *lines = read_csv_lines(path, _WHAT, MOST_TABLES)
        columns, numbers = [name.strip() for name in header], [line for line, _ in lines]
        return _from_rows(columns, [row for _, row in lines], _WHAT, str(path), path, numbers)
    if suffix == ".parquet":
        where = f"{_WHAT} {path}"
        check = lambda names: _check_columns(_small(names, where), where)  # noqa: E731
        columns, records = read_parquet(path, _WHAT, check, MOST_TABLES)
        return _from_rows(columns, [[*record.values()] for record in records], _WHAT, str(path), path)
    if suffix == ".json":
        return _validated(_document(read_json(path, _WHAT, expected(_WHAT)), path), path)
    if suffix in (".yaml", ".yml"):
        return _validated(_document(read_yaml(path, _WHAT), path), path)
    if suffix == ".toml":
        return _validated(read_toml(path, _WHAT), path)
    raise BadInputError(f"{_WHAT} {path}: suffix {shown(suffix)} is not known.", f"{_READ} are read.")


def _validated(document: Mapping[str, Any], path: Path) -> TableSet:
    if isinstance(tables := document.get("tables"), list):
        document = {**document, "tables": _own_entries(tables, path)}
    return _table_set(validated(_TableFile, document, _WHAT, str(path), strict=True), path)


def _own_entries(tables: list[Any], path: Path) -> list[Any]:
    """The tables of a list in our own fields, translated from TorchRec's; validation reports errors."""
    where = f"{_WHAT} {path}"
    tables = [_named(t, where) if isinstance(t, dict) else t for t in tables]
    return [torchrec_tables.table_entry(t, where) if torchrec_tables.is_config(t) else t for t in tables]


def tables_from_frame(frame: pd.DataFrame, name: str = "tables") -> TableSet:
    """A table set from a pandas frame with the columns of a CSV file, one kind of table per row.

    rows, dim  [-] required;  pooling, dtype, weighted, distribution, name, count  as in a file; NaN: omitted
    Limits: other columns, values that are invalid in a file -> BadInputError with row and column
    """
    rows = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    return _from_rows([str(column) for column in frame.columns], list(rows), "frame", repr(name), Path(name))


def _from_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    what: str,
    where: str,
    path: Path,
    lines: Sequence[int] = (),
) -> TableSet:
    """One table a row; the columns name its fields. lines  of a CSV file, whose texts become numbers"""
    named = f"{what} {where}"
    names = _small(columns, named)
    _check_columns(names, named)
    for line, row in zip(lines, rows, strict=False):
        if len(row) != len(names):
            raise BadInputError(
                f"{named}, line {line}: {len(row)} fields instead of {len(names)}.",
                "the file may have been cut short; " + expected(what),
            )
    if not rows:
        raise BadInputError(f"{named} has a header and no table below it.", "a table is a row.")
    read = _read_texts if lines else _read_values
    entries: list[Any] = [read(zip(names, row, strict=True)) for row in rows]
    if torchrec_tables.MARK in names:
        entries = _own_entries(entries, path)
    strict = None if lines else True
    return _table_set(validated(_TableFile, {"tables": entries}, what, where, lines, strict), path)


def _read_texts(row: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A row of a CSV file: empty fields omitted, ``1e6`` written out."""
    filled = ((name, text.strip()) for name, text in row if text.strip())
    return {name: _digits(text) if name in _WHOLE else text for name, text in filled}


def _read_values(row: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A row of a frame as in a file: missing values omitted, whole numbers as integers, names as text."""
    record = {}
    for key, value in row:
        if value is None or value != value:
            continue
        plain = value.item() if hasattr(value, "item") else value
        if key in _WHOLE and isinstance(plain, float) and plain.is_integer():
            plain = int(plain)
        record[key] = str(plain) if key == "name" and isinstance(plain, int) else plain
    return record


def _digits(text: str) -> str:
    """``1000000`` for ``1e6``; other text is unchanged, and checked later."""
    if len(text) <= _PLAIN and text.isascii() and text.isdigit():
        return str(int(text))  # most numbers of a file with many tables
    try:
        return str(parse_count(text))
    except BadInputError:
        return text


def _small(names: Sequence[str], where: str) -> list[str]:
    """Column names in lower case (small letters).

    Limits: two names that differ only in case -> BadInputError
    """
    found: dict[str, str] = {}
    for name in names:
        small = name.casefold() if name.casefold() in _KNOWN else name
        if found.setdefault(small, name) != name:
            raise BadInputError(
                f"{where}: {found[small]} and {name} are one column.", "leave out one of them."
            )
    return [name.casefold() if name.casefold() in _KNOWN else name for name in names]


def _named(entry: dict[Any, Any], where: str) -> dict[Any, Any]:
    """A table with lower-case names of its fields."""
    if all(name in _KNOWN for name in entry) or not all(isinstance(name, str) for name in entry):
        return entry
    return dict(zip(_small(list(entry), where), entry.values(), strict=True))


def _check_columns(names: Sequence[str], where: str) -> None:
    """Check that columns are our own, with rows and dim, or TorchRec's, and that no name occurs twice."""
    foreign = torchrec_tables.MARK in names
    known = sorted(torchrec_tables.FIELDS) if foreign else list(_TableEntry.model_fields)
    unknown = [name for name in names if name not in known]
    missing = [name for name in ("rows", "dim") if name not in names and not foreign]
    if unknown or missing or len(names) != len(set(names)):
        problem = (
            f"unknown column {', '.join(map(shown, unknown[:5]))}" if unknown else "a column appears twice"
        )
        problem = f"missing column {', '.join(missing)}" if missing else problem
        raise BadInputError(f"{where}: {problem}.", f"columns: {', '.join(known)}.")


def _document(document: object, path: Path) -> Mapping[str, Any]:
    """The document as a mapping with a list ``tables``; a document that is only that list is accepted too."""
    if isinstance(document, list):
        return {"tables": document}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadInputError(f"{_WHAT} {path} is not a mapping with a list 'tables'.", expected(_WHAT))
    return cast("Mapping[str, Any]", document)


def _table_set(file: _TableFile, path: Path) -> TableSet:
    if sum(entry.count for entry in file.tables) > MOST_TABLES:
        raise BadInputError(f"{_WHAT} {path} has more than {MOST_TABLES} tables.", "split it.")
    if all("pooling" not in entry.model_fields_set for entry in file.tables):
        raise BadInputError(
            f"the tables of {path} do not say how many ids a bag has.",
            "give each table a pooling (beside TorchRec's fields a pooling_factor): 1 where a bag is one id.",
        )
    texts = {entry.distribution for entry in file.tables} - {""}
    laws = {text: parse_distribution(text) for text in sorted(texts)}
    tables: list[Table] = []
    for entry in file.tables:
        base, pooling = entry.name or f"t{len(tables)}", max(entry.pooling, LEAST_POOLING)
        for i in range(entry.count):
            name = f"{base}_{i}" if entry.name and entry.count > 1 else entry.name or f"t{len(tables)}"
            known = laws[entry.distribution] if entry.distribution else None
            tables.append(Table(name, entry.rows, entry.dim, pooling, entry.dtype, entry.weighted, known))
    stem = path.name.removesuffix(".gz").removesuffix(path.suffix).removesuffix(".csv")
    name, source = ("stdin", "stdin") if path == STDIN else (stem, str(path))
    return TableSet(file.name or name, tuple(tables), file.source or source, file.note)
