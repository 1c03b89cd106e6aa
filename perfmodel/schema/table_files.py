"""Sets of tables in files: CSV, JSON, YAML and TOML, or a pandas frame; every field checked.

Tables have our own fields (rows, dim, pooling, dtype …), or those of TorchRec's ``EmbeddingBagConfig``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import Strict, validated
from perfmodel.schema.files import find_shipped, looks_like_path, shown, unknown_name
from perfmodel.schema.gate import (
    LEAST_POOLING,
    MOST_POOLING,
    MOST_ROWS,
    MOST_TABLES,
    STDIN,
    WIDEST,
    over,
    read_csv,
    read_json,
    read_text,
    read_toml,
    read_yaml,
)
from perfmodel.schema.workload import Distribution, Table, TableSet, parse_distribution
from perfmodel.units import counted, parse_count

if TYPE_CHECKING:
    import pandas as pd

_WHAT = "table file"
_READERS = {".json": read_json, ".yaml": read_yaml, ".yml": read_yaml, ".toml": read_toml}
TABLE_SUFFIXES = (".csv", *_READERS)  # suffixes of files of tables
MARK = "num_embeddings"  # a field that every EmbeddingBagConfig has, and no table in our format
FIELDS: Mapping[str, Sequence[str]] = read_toml(
    resources.data_path("limits", "torchrec_fields.toml"), "fields of TorchRec"
)
"""Every field of TorchRec: used, irrelevant to time and memory, or refused if it is set; as what, or why."""

_FACTORS = ("pooling_factors", "pooling_factor", "avg_pooling_factor")
_DTYPES = {
    **{name: name for name in ("fp32", "fp16", "bf16", "int8")},
    **{"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "nfp8": "fp8", "uint8": "int8"},
}
_OFF = (None, False, "", "false", "False", "0")  # values of a field that say the same as none
_SEQUENCE = "its rows are not pooled: tables of a file are bags"
_OF_SEQUENCES = "of equal tables that are not pooled: perfmodel project --table-size SIZE --pooling none:50."


def _read_whole(value: object) -> object:
    """``1e6``, ``2_000`` and 1000.0 as integers; anything else unchanged: the validation refuses it."""
    with suppress(BadInputError):
        if isinstance(value, str) and not value.isdecimal():
            return parse_count(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_ids(text: object) -> Distribution | None:
    """A text of a file as a distribution; None: none. Limits: unknown -> ValueError, as pydantic expects"""
    try:
        return parse_distribution(str(text)) if text else None
    except BadInputError as error:
        raise ValueError(f"{error.message} {error.next_step}".rstrip(".")) from None  # who says it ends it


_Name = Annotated[str, StringConstraints(max_length=200, pattern=r"^\P{C}*$")]  # no control characters
_Whole = Annotated[int, BeforeValidator(_read_whole)]


class _TableEntry(Strict):
    """One row of a table file: ``count`` equal tables. A pooling of 0 is taken as ``LEAST_POOLING``."""

    rows: _Whole = Field(ge=1, le=MOST_ROWS)
    dim: _Whole = Field(ge=1, le=WIDEST)
    pooling: float = Field(default=1.0, ge=0, le=MOST_POOLING, allow_inf_nan=False)
    dtype: Literal["fp64", "fp32", "fp16", "bf16", "fp8", "int8"] = "fp32"
    weighted: bool = False
    distribution: Annotated[Distribution | None, BeforeValidator(_parse_ids)] = None
    name: _Name = ""
    count: _Whole = Field(default=1, ge=1, le=MOST_TABLES)
    features: _Whole = Field(default=1, ge=1, le=MOST_TABLES)
    buckets: _Whole = Field(default=0, ge=0, le=MOST_ROWS)

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError for buckets that do not divide the rows."""
        if self.buckets and self.rows % self.buckets:
            raise ValueError(f"{self.rows} rows are not {self.buckets} buckets of one size")
        return self

    def list_tables(self, before: int) -> list[Table]:
        """The tables. before  number of tables before them, for those without a name"""
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "count"}
        values["pooling"] = max(self.pooling, LEAST_POOLING)
        beginning, first = (f"{self.name}_", 0) if self.name else ("t", before)
        names = [f"{beginning}{first + i}" for i in range(self.count)]
        names = [self.name] if self.name and self.count == 1 else names
        return [Table(**{**values, "name": name}) for name in names]


class _TableFile(Strict):
    """A whole table file."""

    name: _Name = ""
    source: str = ""
    note: str = ""
    tables: list[_TableEntry] = Field(min_length=1, max_length=MOST_TABLES)


def list_models() -> list[str]:
    """Names of the shipped table sets."""
    return resources.data_names("models", ".toml")


def load_tables(name_or_path: str | Path | TableSet) -> TableSet:
    """A shipped table set by name, a user's file by path, stdin (``-``: CSV or JSON), or the set as it is."""
    if isinstance(name_or_path, TableSet):
        return name_or_path
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path)
    if not is_path and text not in list_models():  # os.path.exists: any text may be a name
        is_path = text == str(STDIN) or looks_like_path(text, TABLE_SUFFIXES) or os.path.exists(text)
    return read_tables(Path(text)) if is_path else _load_shipped(text)


@lru_cache(maxsize=32)
def _load_shipped(name: str) -> TableSet:
    """A shipped table set by name, read once."""
    return read_tables(find_shipped("table set", name, "models", ".toml"))


def read_tables(path: Path) -> TableSet:
    """A table set from a file, by its suffix. In JSON and YAML the list may be the whole document."""
    suffix = path.suffix.lower()
    where = f"{_WHAT} {path}"
    if path == STDIN:
        suffix = ".json" if read_text(path, _WHAT).lstrip()[0] in "[{" else ".csv"
    elif os.path.isdir(path):  # false where its folder cannot be searched
        raise BadInputError(f"{where} is a folder.", f"give one of its files: {', '.join(TABLE_SUFFIXES)}.")
    if suffix == ".csv":
        header, lines, numbers = read_csv(path, _WHAT, MOST_TABLES)
        rows = _read_rows(header, [[field or None for field in row] for row in lines], where)
        return _build_set(validated(_TableFile, rows, _WHAT, str(path), numbers), path)
    if suffix not in _READERS:
        suffixes = ", ".join(TABLE_SUFFIXES)
        raise BadInputError(f"{where}: suffix {shown(suffix)} is not known.", f"{suffixes} are read.")
    document = _READERS[suffix](path, _WHAT)
    document = {"tables": document} if isinstance(document, list) else document
    if isinstance(document, dict) and isinstance(tables := document.get("tables"), list):
        entries = [_read_entry(table, f"{where}, tables.{i}") for i, table in enumerate(tables)]
        document = {**document, "tables": entries}
    return _build_set(validated(_TableFile, document, _WHAT, str(path), strict=True), path)


def tables_from_frame(frame: pd.DataFrame, name: str = "tables") -> TableSet:
    """A table set from a pandas frame with the columns of a CSV file, one kind of table per row.

    rows, dim  [-] required;  all other columns as in a file; NaN: omitted
    Limits: other columns, values that are invalid in a file -> BadInputError with row and column
    """
    rows = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    document = _read_rows(list(map(str, frame.columns)), list(rows), f"frame {name!r}")
    for entry in document["tables"]:
        entry |= {"name": str(entry["name"])} if "name" in entry else {}
    return _build_set(validated(_TableFile, document, "frame", repr(name), strict=True), Path(name))


def _read_rows(
    header: Sequence[str], rows: Sequence[Sequence[object]], where: str
) -> dict[str, list[dict[str, object]]]:
    """A document with one table a row; the header names its fields; None: omitted."""
    names = _check_names(header, "column", where)
    if not rows:
        raise BadInputError(f"{where} has a header and no table below it.", "a table is a row.")
    entries = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows
    ]
    return {"tables": [read_config(entry, where) if MARK in names else entry for entry in entries]}


def _read_entry(table: object, where: str) -> object:
    """A table of a list in our own fields, in lower case; what is no table is reported by the validation."""
    if not isinstance(table, dict):
        return table
    if table.keys() - _TableEntry.model_fields.keys():
        names = _check_names([str(name) for name in table], "field", where)
        table = dict(zip(names, table.values(), strict=True))
    return read_config(table, where) if MARK in table else table


def _check_names(names: Sequence[str], kind: str, where: str) -> list[str]:
    """Names of columns or fields in lower case: our own, or TorchRec's; else BadInputError."""
    small = [name.strip().casefold() for name in names]
    foreign = bool({MARK, "embedding_dim"} & set(small))
    names_known = FIELDS if foreign else _TableEntry.model_fields
    for name in small:
        if name not in names_known:
            error = unknown_name(kind, name, names_known)
            raise BadInputError(f"{where}: {error.message}", error.next_step)
        if small.count(name) > 1:
            raise BadInputError(f"{where}: {kind} {name} stands twice.", "leave out one of them.")
    required = {MARK, "embedding_dim"} if foreign else {"rows", "dim"} if kind == "column" else set()
    if missing := required - set(small):
        words = ", ".join(sorted(names_known))
        raise BadInputError(f"{where}: missing {kind} {', '.join(sorted(missing))}.", f"known: {words}.")
    return small


def _build_set(file: _TableFile, path: Path) -> TableSet:
    """The table set of a validated file; its name is the file's own, else that of ``path``.

    Limits: too many tables, or none that says its pooling -> BadInputError
    """
    if sum(entry.count for entry in file.tables) > MOST_TABLES:
        raise over(f"{_WHAT} {path}", "tables", MOST_TABLES)
    if all("pooling" not in entry.model_fields_set for entry in file.tables):
        raise BadInputError(
            f"the tables of {path} do not say how many ids a bag has.",
            "give each table a pooling (beside TorchRec's fields a pooling_factor): 1 where a bag is one id.",
        )
    tables: list[Table] = []
    for entry in file.tables:
        tables += entry.list_tables(len(tables))
    name, source = ("stdin", "stdin") if path == STDIN else (path.name.removesuffix(path.suffix), str(path))
    return TableSet(file.name or name, tuple(tables), file.source or source, file.note)


def read_config(config: Mapping[str, object], where: str) -> dict[str, object]:
    """The fields of a table in our format (rows, dim, pooling, dtype, name), from an ``EmbeddingBagConfig``.

    config  its fields, of ``FIELDS``. TorchRec's config has no number of ids per bag, so one of
            ``pooling_factor``, ``avg_pooling_factor``, ``pooling_factors`` gives it, or a number as
            ``pooling`` (where TorchRec, or its ``pooling_type``, has SUM or MEAN)
    where   names the file in a message
    Limits: a field that is refused, an unknown data_type or pooling, rows that are not pooled
            -> BadInputError; no number of ids -> no pooling
    """
    where = f"{where}, table {shown(config['name'])}" if "name" in config else where
    for field, value in config.items():
        use, why = FIELDS[field]
        if use == "refused" and value not in _OFF:
            raise BadInputError(f"{where}: {field} {shown(value)} is not modelled: {why}.", "leave it out.")
    if _strip_name(config.get("config_class") or "EmbeddingBagConfig") != "EMBEDDINGBAGCONFIG":
        raise BadInputError(f"{where} is {shown(config['config_class'])}: {_SEQUENCE}.", _OF_SEQUENCES)
    dtype = _strip_name(config.get("data_type") or "FP32").lower()
    if dtype not in _DTYPES:
        packed = "is not modelled: FBGEMM packs several elements into a byte, and no such look-up was timed"
        reason = packed if dtype in ("int4", "int2") else "is not known"
        step = f"known: {', '.join(sorted(map(str.upper, _DTYPES)))}."
        raise BadInputError(f"{where}: data_type {shown(config['data_type'])} {reason}.", step)
    entry = {FIELDS[name][1]: value for name, value in config.items() if value is not None}
    entry = {name: value for name, value in entry.items() if name in _TableEntry.model_fields}
    return entry | {"dtype": _DTYPES[dtype]} | _read_bags(config, where)


def _strip_name(value: object) -> str:
    """The last part of a name of Python, in capitals: ``SUM`` of ``PoolingType.SUM``."""
    return str(value).rpartition(".")[2].upper()


def _read_bags(config: Mapping[str, object], where: str) -> dict[str, object]:
    """``features`` of a table, and ``pooling``, the ids of a bag: the mean over features that differ."""
    names = config.get("feature_names") or []
    if isinstance(names, str):  # as in a CSV field
        names = [word for word in names.replace("|", ";").split(";") if word.strip()]
    count = len(names) if isinstance(names, list | tuple) else 1
    pooling = _read_pooling(config, where)
    if isinstance(pooling, list) and pooling:
        count = count or len(pooling)
        if len(pooling) not in (1, count) or not all(isinstance(ids, int | float) for ids in pooling):
            words = f"{where}: pooling_factors {shown(pooling)} for {counted(count, 'feature')}."
            raise BadInputError(words, "give the ids of a bag of each, or one number for all.")
        pooling = sum(pooling) / len(pooling)
    return {"features": max(count, 1)} | ({} if pooling is None else {"pooling": pooling})


def _read_pooling(config: Mapping[str, Any], where: str) -> Any:
    """Mean ids of a bag that a config gives; None: none. Limits: no SUM, MEAN or number -> BadInputError"""
    number: float | None = None
    for field in ("pooling", "pooling_type"):
        word = _strip_name("SUM" if config.get(field) is None else config[field])
        if word == "NONE":
            raise BadInputError(f"{where}: {field} {shown(config[field])}: {_SEQUENCE}.", _OF_SEQUENCES)
        try:
            number = number if word in ("SUM", "MEAN") else float(config[field])
        except (TypeError, ValueError):
            message = f"{where}: {field} {shown(config[field])} is not known."
            raise BadInputError(message, "SUM, MEAN, or the number of ids.") from None
    return next((config[field] for field in _FACTORS if config.get(field) is not None), number)
