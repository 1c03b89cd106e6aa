"""Small files that would take all memory, or no end of time: refused in words, within 1 GB and few seconds.

Each is read in a process of its own, which may use 40 s of a CPU and whose peak of memory is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_damages import limited
from fault_inputs import all_readers

from perfmodel.schema import gate
from perfmodel.units import format_count

READERS = {reader.name: reader for reader in all_readers()}
PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
A_GB = 0.9e9  # beside the program
LARGE = 2_900_000
"""Bytes: what is below 3 MB takes at most 1 GB."""


_ROWS = b"rows,dim\n"
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "rows": ("tables, CSV", lambda: _ROWS + b"1,1\n" * 2**20, "more than 100 000 rows"),
    "fields": ("tables, CSV", lambda: _ROWS + b"," * LARGE, "more than 1 000 fields"),
    "bytes": ("tables, CSV", lambda: _ROWS + b" " * 2**26, "more than 64 MiB"),
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
