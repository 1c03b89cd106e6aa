"""What is looked up: tables with rows, dim and pooling, sets of them in files, and the uniform workload."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema import torchrec_tables
from perfmodel.schema.files import (
    expected,
    first_line,
    invalid_fields,
    key_twice,
    load_json,
    looks_like_path,
    read_csv_lines,
    read_text,
    read_toml,
    shown,
    unknown_name,
)
from perfmodel.units import parse_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Number = float | NDArray[np.float64]

DTYPE_BYTES: dict[str, int] = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element of an embedding row."""

ID_DTYPE_BYTES: dict[str, int] = {"int64": 8, "int32": 4}
"""Bytes of one id."""

PAYLOADS = ("fp32", "fp16", "bf16", "fp8")
"""Precisions in which bags travel: one scale for all, none beside the numbers."""

_FOLDER = "models"
_SUFFIX = ".toml"
_FILE_SUFFIXES = (".csv", ".json", ".yaml", ".yml", ".toml")
_WHAT = "table file"
_READ = ".csv, .json, .yaml, .yml or .toml"
_OLD_NUMBER = re.compile(r"[-+]?0[0-9_]+$|.*:")  # 010 is 8 in YAML 1.1, and 1:30:00 is 5400
_WHOLE = ("rows", "dim", "count")
_MOST_TABLES = 100_000
_MOST_ROWS = 2**53
_WIDEST = 2**20


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element; an unknown dtype is BadInputError."""
    if dtype not in DTYPE_BYTES:
        raise unknown_name("dtype", dtype, DTYPE_BYTES)
    return DTYPE_BYTES[dtype]


def payload_element_bytes(payload: str) -> int:
    """Bytes of one element of a bag that travels in a precision; an unknown one is BadInputError."""
    if payload not in PAYLOADS:
        raise unknown_name("payload", payload, PAYLOADS)
    return DTYPE_BYTES[payload]


def id_dtype_bytes(dtype: str) -> int:
    """Bytes of one id; an unknown dtype is BadInputError."""
    if dtype not in ID_DTYPE_BYTES:
        raise unknown_name("id dtype", dtype, ID_DTYPE_BYTES)
    return ID_DTYPE_BYTES[dtype]


@dataclass(frozen=True)
class Table:
    """One embedding table; ``pooling`` is the rows summed for one sample."""

    name: str
    rows: int
    dim: int
    pooling: float
    dtype: str = "fp32"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dim * DTYPE_BYTES[self.dtype]

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole table."""
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class TableSet:
    """Named tables that are looked up together, with where the list comes from."""

    name: str
    tables: tuple[Table, ...]
    source: str = ""
    note: str = ""

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.total_bytes for table in self.tables)

    @cached_property
    def lookups_per_sample(self) -> float:
        """Rows read for one sample, all tables together."""
        return sum(table.pooling for table in self.tables)


@dataclass(frozen=True, eq=False)
class Workload:
    """Equal tables looked up by every GPU; each number may be an array, and they broadcast.

    batch        samples per GPU                 tables   number of tables
    pooling      rows summed for one sample      dim      elements of one row
    dtype        of a row                        id_bytes bytes of one id
    table_bytes  bytes of all tables together
    Limits: anything that is not a finite number above 0, or less than one row per table -> BadInputError
    """

    batch: Number
    tables: Number
    pooling: Number
    dim: Number
    table_bytes: Number
    dtype: str = "fp32"
    id_bytes: int = 8

    def __post_init__(self) -> None:
        dtype_bytes(self.dtype)
        for name in ("batch", "tables", "pooling", "dim", "table_bytes", "id_bytes"):
            _check_positive(name, getattr(self, name))
        if np.any(np.asarray(self.rows_per_table) < 1):
            raise BadInputError(
                f"table_bytes {shown(self.table_bytes)} is less than one row per table.",
                "give a larger --table-size, or fewer tables, or a smaller dim.",
            )

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of a row."""
        return DTYPE_BYTES[self.dtype]

    @property
    def row_bytes(self) -> Number:
        """Bytes of one row."""
        return self.dim * self.element_bytes

    @property
    def rows_per_table(self) -> Number:
        """Rows of one table (not rounded)."""
        return self.table_bytes / (self.tables * self.row_bytes)


def _check_positive(name: str, value: object) -> None:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadInputError(f"{name} {shown(value)} is not a number.", "give a number above 0.") from None
    bad = ~(np.isfinite(numbers) & (numbers > 0))
    if bad.any() or not numbers.size:
        found = numbers[bad].flat[0] if bad.any() else "nothing"
        raise BadInputError(f"{name} must be a number above 0; found {found}.", f"check {name}.")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{shown(text)} holds what cannot be printed: leave it out")
    return text


_Name = Annotated[str, Field(max_length=200), AfterValidator(_printable)]


class _TableEntry(BaseModel):
    """One row of a table file: ``count`` equal tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = Field(ge=1, le=_MOST_ROWS)
    dim: int = Field(ge=1, le=_WIDEST)
    pooling: float = Field(default=1.0, gt=0, le=1e9, allow_inf_nan=False)
    dtype: Literal["fp64", "fp32", "fp16", "bf16", "fp8", "int8"] = "fp32"
    name: _Name = ""
    count: int = Field(default=1, ge=1, le=_MOST_TABLES)


class _TableFile(BaseModel):
    """A whole table file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Name = ""
    source: str = ""
    note: str = ""
    tables: list[_TableEntry] = Field(min_length=1, max_length=_MOST_TABLES)


def list_models() -> list[str]:
    """Names of the shipped table sets."""
    return resources.data_names(_FOLDER, _SUFFIX)


def load_tables(name_or_path: str | Path) -> TableSet:
    """A shipped table set by name, or a user's CSV, JSON, YAML or TOML file by path.

    Limits: unknown name -> BadInputError listing the known ones; a bad file -> BadInputError with its field
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or looks_like_path(text, _FILE_SUFFIXES):
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
    """A table set from a file, validated; the suffix says which format.

    Tables are our own (rows, dim, pooling, dtype) or TorchRec's (``torchrec_tables``); in JSON and YAML the
    list may stand alone.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        raise BadInputError(f"{_WHAT} {path} is a folder.", f"give one of its files: {_READ}.")
    if suffix == ".csv":
        return _from_csv(path)
    if suffix == ".json":
        return _validated(_read_json(path), path)
    if suffix in (".yaml", ".yml"):
        return _validated(_read_yaml(path), path)
    if suffix == ".toml":
        return _validated(read_toml(path, _WHAT), path)
    raise BadInputError(f"{_WHAT} {path}: suffix {shown(suffix)} is not known.", f"{_READ} are read.")


def _validated(document: Mapping[str, Any], path: Path) -> TableSet:
    if isinstance(tables := document.get("tables"), list):
        document = {**document, "tables": _own_entries(tables, path)}
    try:
        return _table_set(_TableFile.model_validate(document, strict=True), path)
    except ValidationError as error:
        raise invalid_fields(error, _WHAT, str(path)) from None


def _own_entries(tables: list[Any], path: Path) -> list[Any]:
    """The entries of a list of tables with TorchRec's translated; anything else is left to the check."""
    where = f"{_WHAT} {path}"
    return [torchrec_tables.table_entry(t, where) if torchrec_tables.is_config(t) else t for t in tables]


def _from_csv(path: Path) -> TableSet:
    """One table a line; the header names the columns, ``rows`` and ``dim`` among them."""
    (_, header), *lines = read_csv_lines(path, _WHAT)
    names = [name.strip() for name in header]
    foreign = torchrec_tables.MARK in names
    if not foreign:
        _check_columns(names, path)
    entries = []
    for line, row in lines:
        if len(row) != len(names):
            raise BadInputError(
                f"{_WHAT} {path}, line {line}: {len(row)} fields instead of {len(names)}.",
                "the file may have been cut short; " + expected(_WHAT),
            )
        filled = {name: text.strip() for name, text in zip(names, row, strict=True) if text.strip()}
        entries.append({name: _digits(text) if name in _WHOLE else text for name, text in filled.items()})
    if not entries:
        raise BadInputError(f"{_WHAT} {path} has a header and no table below it.", "a table is a line.")
    if foreign:
        entries = _own_entries(entries, path)
    try:
        return _table_set(_TableFile.model_validate({"tables": entries}), path)
    except ValidationError as error:
        raise invalid_fields(error, _WHAT, str(path), [line for line, _ in lines]) from None


def _digits(text: str) -> str:
    """``1000000`` of ``1e6``; what is no whole number is left to the check."""
    try:
        return str(parse_count(text))
    except BadInputError:
        return text


def _check_columns(names: Sequence[str], path: Path) -> None:
    """Columns of a CSV file of our own tables: all known, none twice, rows and dim among them."""
    known = _TableEntry.model_fields
    unknown = [name for name in names if name not in known]
    missing = [name for name in ("rows", "dim") if name not in names]
    if unknown or missing or len(names) != len(set(names)):
        problem = (
            f"unknown column {', '.join(map(shown, unknown[:5]))}" if unknown else "a column appears twice"
        )
        problem = f"missing column {', '.join(missing)}" if missing else problem
        raise BadInputError(f"{_WHAT} {path}: {problem}.", f"columns: {', '.join(known)}.")


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        document = load_json(read_text(path, _WHAT), f"{_WHAT} {path}")
    except (ValueError, RecursionError) as error:
        reason = first_line(str(error)) or "nested too deeply"
        raise BadInputError(f"{_WHAT} {path} is not valid JSON: {reason}.", expected(_WHAT)) from None
    return _document(document, path)


def _document(document: object, path: Path) -> Mapping[str, Any]:
    """A mapping with a list ``tables``, or that list alone."""
    if isinstance(document, list):
        return {"tables": document}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadInputError(f"{_WHAT} {path} is not a mapping with a list 'tables'.", expected(_WHAT))
    return cast("Mapping[str, Any]", document)


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data only: an alias can make a small file large."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not read")
            return super().compose_node(parent, index)

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise key_twice(key.value, f"{_WHAT} {path}, line {key.start_mark.line + 1}")
                seen.add(str(key.value))
            return node

    def plain_number(loader: Any, node: Any) -> Any:
        """Limits: what YAML 1.1 reads as octal or to the base 60 -> YAMLError"""
        if _OLD_NUMBER.match(node.value):
            raise yaml.YAMLError(
                f"line {node.start_mark.line + 1}: {node.value} is octal or to the base 60 in YAML 1.1; "
                "write a decimal number"
            )
        kind = node.tag.rsplit(":", 1)[-1]
        return getattr(yaml.SafeLoader, f"construct_yaml_{kind}")(loader, node)

    for kind in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", plain_number)
    text = read_text(path, _WHAT)
    try:
        document = yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split()) or "nested too deeply"
        raise BadInputError(
            f"{_WHAT} {path} is not valid YAML: {first_line(reason)}.", expected(_WHAT)
        ) from None
    return _document(document, path)


def _table_set(file: _TableFile, path: Path) -> TableSet:
    if sum(entry.count for entry in file.tables) > _MOST_TABLES:
        raise BadInputError(f"{_WHAT} {path} has more than {_MOST_TABLES} tables.", "split it.")
    tables: list[Table] = []
    for entry in file.tables:
        base = entry.name or f"t{len(tables)}"
        for i in range(entry.count):
            name = f"{base}.{i}" if entry.name and entry.count > 1 else entry.name or f"t{len(tables)}"
            tables.append(Table(name, entry.rows, entry.dim, entry.pooling, entry.dtype))
    return TableSet(file.name or path.stem, tuple(tables), file.source or str(path), file.note)
