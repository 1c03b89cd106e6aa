"""Small files that would take all memory, or no end of time: refused in words, within 1 GB and few seconds.

Each is read in a process of its own, which may use 40 s of a CPU and whose peak of memory is looked at.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_damages import limited
from fault_inputs import all_readers

from perfmodel.errors import BadInputError
from perfmodel.schema import gate
from perfmodel.units import format_count

READERS = {reader.name: reader for reader in all_readers()}
PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
A_GB = 0.9e9  # beside the program
LARGE = 2_900_000
"""Bytes: what is below 3 MB takes at most 1 GB."""


def _parquet(**columns: object) -> bytes:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out, store_schema=False)
    return out.getvalue()


def _long_word(rows: int) -> object:
    """The same word in many rows, written once."""
    import pyarrow

    return pyarrow.DictionaryArray.from_arrays([0] * rows, ["A" * 60_000])


_ROWS = b"rows,dim\n"
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "rows in gzip": ("tables, CSV in gzip", lambda: _ROWS + b"1,1\n" * 2**23, "more than 100 000 rows"),
    "fields in gzip": ("tables, CSV in gzip", lambda: _ROWS + b"," * 2**25, "more than 1 000 fields"),
    "bytes in gzip": ("tables, CSV in gzip", lambda: _ROWS + b" " * 2**27, "more than 64 MiB unpacked"),
    "a column that nobody asked for": (
        "tables, Parquet",
        lambda: _parquet(rows=[1] * 99_000, dim=[1] * 99_000, note=_long_word(99_000)),
        "unknown column 'note'",
    ),
    "one long word of many rows": (
        "tables, Parquet",
        lambda: _parquet(rows=[1] * 99_000, dim=[1] * 99_000, name=_long_word(99_000)),
        "at most 200 letters",
    ),
    "a column of lists": ("tables, Parquet", lambda: _parquet(rows=[[1, 2]], dim=[4]), "neither numbers"),
    "dotted keys": ("tables, TOML", lambda: b"a" + b".a" * 100_000 + b"=1", "a key of more than 16 parts"),
    "a dotted table": ("machine", lambda: b"[a" + b". 'a'" * 20_000 + b"]", "a key of more than 16 parts"),
    "quotes that do not end": ("machine", lambda: b'\\"' * 400_000, "not valid TOML"),
    "tables of tables": ("chip", lambda: b"".join(b"[%x.a.b.c]\n" % i for i in range(70_000)), "not valid"),
    "much TOML": ("machine", lambda: b"a = 1\n" * 300_000, "more than 1 MiB"),
    "a number of many digits": ("machine", lambda: b"a = 0x" + b"F" * 90_000, "more than 400 digits"),
    "YAML of many tables": ("tables, YAML", lambda: b"- [1]\n" * (LARGE // 20), "100 000 entries"),
    "YAML of levels": ("tables, YAML", lambda: b"[" * LARGE, "more than 32 levels"),
    "YAML of levels in blocks": ("tables, YAML", lambda: b"- " * 100_000, "more than 32 levels"),
    "a tag": ("tables, YAML", lambda: b'- rows: !!int ""\n  dim: 4\n', "tags .* are not read"),
    "JSON of levels": ("tables, JSON", lambda: b"[" * LARGE, "more than 32 levels"),
    "JSON of keys": (
        "calibration",
        lambda: b"{" + b",".join(b'"%d":0' % i for i in range(200_000)) + b"}",
        "more than 100 000 fields",
    ),
    "a key that is there twice": (
        "plan",
        lambda: b"{" + b",".join(b'"%d":0' % i for i in range(200_000)) + b',"0":0}',
        "stands twice",
    ),
    "ranks of the wrong type": (
        "plan",
        lambda: READERS["plan"].whole[0].replace(b"[]", b"[" + b'"",' * (LARGE // 4) + b'""]', 1),
        "must be a whole number",
    ),
    "entries without anything": (
        "TorchRec plan",
        lambda: b'{"tables":[' + b"{}," * (LARGE // 4) + b"{}]}",
        "is missing",
    ),
    "documents in a row": ("log, nccl-tests JSON", lambda: b"{}" * (LARGE // 2), "10 000 documents"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_takes_little(name: str, tmp_path: Path) -> None:
    reader, made, said = BOMBS[name]
    took = limited(READERS[reader], made(), tmp_path)
    assert not took.wrong and took.peak_bytes < A_GB, took
    assert re.search(said, took.said), took


def test_the_page_has_the_limits() -> None:
    said = " ".join(PAGE.read_text(encoding="utf-8").split())
    sizes = (gate.MOST_BYTES, gate.MOST_TOML_BYTES, gate.MOST_LOG_BYTES, gate.MOST_RUN_BYTES)
    for size in sizes:
        assert f" {size // gate.MIB} MiB" in said
    for count, noun in (
        (gate.MOST_VALUES, "values"),
        (gate.MOST_LEVELS, "levels"),
        (gate.LONGEST_KEY, "characters"),
        (gate.MOST_KEY_PARTS, "parts"),
        (gate.MOST_RECORDS, "rows"),
        (gate.MOST_COLUMNS, "fields"),
        (gate.MOST_TABLES, "tables"),
        (gate.MOST_GPUS, "ranks"),
    ):
        assert f" {format_count(count)} {noun}" in said


def test_a_limit_that_somebody_needs_is_raised_by_the_variable_that_the_refusal_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes, rows and values; not what the model itself has a limit of."""
    (path := tmp_path / "large.csv").write_text("a\n" + "1\n" * 30)
    monkeypatch.setattr(gate, "MOST_RECORDS", 20)
    monkeypatch.setattr(gate, "MOST_VALUES", 20)
    values = "[" + ",".join("1" * 30) + "]"

    def by_bytes() -> object:
        return gate.read_text(path, "file", 40)

    asked = by_bytes, lambda: gate.read_csv_lines(path, "file"), lambda: gate.load_json(values, "file")
    for ask in asked:
        with pytest.raises(BadInputError) as refused:
            ask()
        (line,) = re.findall(r"(\w+)=(\d+) doubles the limit", str(refused.value))
        with monkeypatch.context() as patch:
            patch.setenv(*line)
            assert ask()
    monkeypatch.setenv(gate.READ_MORE, "3")
    with pytest.raises(BadInputError, match="more than 20 rows") as refused:
        gate.read_csv_lines(path, "file", 20)
    assert "READ_MORE" not in refused.value.next_step
    assert f"`{gate.READ_MORE}=" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("said", ["", "0", "1.5", "-1", "many", "9999999", "9" * 5000])
def test_a_number_of_times_that_is_none_is_refused(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "small.csv").write_text("a\n1\n")
    monkeypatch.setenv("PERFMODEL_READ_MORE", said)
    with pytest.raises(BadInputError, match="is not a number of times") as refused:
        gate.read_csv_lines(path, "file")
    assert "from 1 to 1 000" in refused.value.next_step
