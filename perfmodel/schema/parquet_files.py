"""Parquet files within the limits of ``schema.gate``: columns of numbers and text; others are not decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perfmodel.errors import BadInputError
from perfmodel.schema.files import expected, shown
from perfmodel.schema.gate import LONGEST_TEXT, MOST_BYTES, not_valid, over, raised, read_bounded, too_large
from perfmodel.units import format_count


def read_parquet(
    path: Path, what: str, check: Callable[[Sequence[str]], object], most: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """(column names, rows) of a Parquet file. Nothing is decoded before ``check`` has accepted the names.

    what  kind of file, for messages;  most  largest number of rows
    Limits: more than ``most`` rows, columns that are neither numbers nor text, more unpacked bytes than
    ``MOST_BYTES`` by the file's metadata, damage -> BadInputError
    """
    import pyarrow
    import pyarrow.parquet

    raw = read_bounded(path, what)
    where = f"{what} {path}"
    try:
        about = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw))
        if about.metadata.num_rows > most:
            raise over(where, "rows", most)
        names, parts = about.schema_arrow.names, range(about.metadata.num_row_groups)
        check(names)
        plain = {field.name: _plain_type(field.type) for field in about.schema_arrow}
        if odd := [name for name, kind in plain.items() if not kind]:
            raise BadInputError(
                f"{where}: column {shown(odd[0])} holds neither numbers nor text.", expected(what)
            )
        columns = range(about.metadata.num_columns)
        groups = [about.metadata.row_group(part) for part in parts]
        if sum(group.column(i).total_uncompressed_size for group in groups for i in columns) > raised(
            MOST_BYTES
        ):
            raise too_large(path, what, raised(MOST_BYTES), " unpacked")
        words = [name for name, kind in plain.items() if kind == "text"]
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw), read_dictionary=words)
        found = file.read(use_threads=False)
        if found.num_rows > most:
            raise over(where, "rows", most)
        values = [_values(column.combine_chunks()) for column in found.columns]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise not_valid(where, "Parquet", error, expected(what)) from None
    return list(names), [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _plain_type(kind: Any) -> str:
    """``text``, ``number``, or "" for lists and all other types."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_null
    return "number" if any(test(kind) for test in numbers) else ""


def _values(column: Any) -> list[Any]:
    """Values of a column. Equal texts share one object: a small file may repeat one text many times."""
    import pyarrow

    if not isinstance(column, pyarrow.DictionaryArray):
        found: list[Any] = column.to_pylist()
        return found
    words = column.dictionary.to_pylist()
    if any(isinstance(word, str) and len(word) > LONGEST_TEXT for word in words):
        raise ValueError(f"text of more than {format_count(LONGEST_TEXT)} characters")
    return [None if at is None else words[at] for at in column.indices.to_pylist()]
