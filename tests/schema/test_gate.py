"""The gate: all that is read goes through it, and small files take little; ``-`` is stdin; whole files."""

from __future__ import annotations

import ast
import io
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from cli_calls import called
from fault_files import all_readers, limited

from perfmodel.errors import BadInputError
from perfmodel.schema import gate
from perfmodel.schema.files import write_whole
from perfmodel.schema.gate import STDIN, read_bounded
from perfmodel.schema.table_files import load_tables
from perfmodel.units import format_count

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "formats.md"
EXAMPLES = ROOT / "docs" / "examples"
READERS = {reader.name: reader for reader in all_readers()}
A_GB = 0.9e9  # beside the program
LARGE = 2_900_000
"""Bytes: what is below 3 MB takes at most 1 GB."""

_ROWS, _PLAN = b"rows,dim\n", READERS["plan"].whole[0]
_KEYS = b",".join(b'"%d":0' % i for i in range(200_000))
_RANKS, _EMPTY = b"[" + b'"",' * (LARGE // 4) + b'""]', b"{}," * (LARGE // 4)
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "rows": ("tables, CSV", lambda: _ROWS + b"1,1\n" * 2**20, "more than 100 000 rows"),
    "fields": ("tables, CSV", lambda: _ROWS + b"," * LARGE, "more than 1 000 fields"),
    "bytes": ("tables, CSV", lambda: _ROWS + b" " * 2**26, "more than 64 MiB"),
    "dotted keys": ("tables, TOML", lambda: b"a" + b".a" * 100_000 + b"=1", "a key of more than 16 parts"),
    "a dotted table": ("machine", lambda: b"[a" + b". 'a'" * 20_000 + b"]", "a key of more than 16 parts"),
    "quotes that do not end": ("machine", lambda: b'\\"' * 400_000, "not valid TOML"),
    "tables of tables": ("chip", lambda: b"".join(b"[%x.a.b.c]\n" % i for i in range(30_000)), "not valid"),
    "much TOML": ("machine", lambda: b"a = 1\n" * 300_000, "more than 1 MiB"),
    "a number of many digits": ("machine", lambda: b"a = 0x" + b"F" * 90_000, "not valid"),
    "YAML of many tables": ("tables, YAML", lambda: b"- [1]\n" * (LARGE // 20), "at most 100000 items"),
    "YAML of levels": ("tables, YAML", lambda: b"[" * LARGE, "nested too deeply"),
    "YAML of levels in blocks": ("tables, YAML", lambda: b"- " * 100_000, "nested too deeply"),
    "a tag": ("tables, YAML", lambda: b'- rows: !!int ""\n  dim: 4\n', "tags .* are not read"),
    "JSON of levels": ("tables, JSON", lambda: b"[" * LARGE, "nested too deeply"),
    "JSON of keys": ("calibration", lambda: b"{" + _KEYS + b"}", "calibration_id"),
    "a key that is there twice": ("plan", lambda: b"{" + _KEYS + b',"0":0}', "stands twice"),
    "ranks of the wrong type": ("plan", lambda: _PLAN.replace(b"[]", _RANKS, 1), "must be a valid integer"),
    "entries without anything": ("TorchRec plan", lambda: b'{"tables":[' + _EMPTY + b"{}]}", "is missing"),
    "documents in a row": ("log, nccl-tests JSON", lambda: b"{}" * (LARGE // 2), "no sample"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_takes_little(name: str, tmp_path: Path) -> None:
    reader, made, said = BOMBS[name]
    took = limited(READERS[reader], made(), tmp_path)
    assert not took.wrong and took.peak_bytes < A_GB, took
    assert re.search(said, took.said), took


AT_LIMITS: dict[str, tuple[int, Callable[[int], str], Callable[[Path], object]]] = {
    "bytes": (9, lambda n: "x" * n, lambda path: read_bounded(path, "x", 9)),
    "rows": (9, lambda n: "a,b\n" + "1,2\n" * n, lambda path: gate.read_csv(path, "x", 9)),
    "fields": (gate.MOST_COLUMNS, lambda n: "a," * (n - 1) + "a\n", lambda path: gate.read_csv(path, "x")),
    "parts": (gate.MOST_KEY_PARTS, lambda n: "a." * (n - 1) + "a=1", lambda path: gate.read_toml(path, "x")),
    "quotes": (
        gate.MOST_KEY_PARTS,
        lambda n: "'a b'." * (n - 1) + "a=1",
        lambda path: gate.read_toml(path, "x"),
    ),
    "digits": (gate.MOST_DIGITS, lambda n: "1" * n, lambda path: gate.read_yaml(path, "x")),
    "levels": (gate.MOST_LEVELS, lambda n: "[" * n + "]" * n, lambda path: gate.read_yaml(path, "x")),
    "values": (99, lambda n: "[" + "1," * (n - 1) + "1]", lambda path: gate.read_json(path, "x")),
    "values of YAML": (99, lambda n: "- 1\n" * n, lambda path: gate.read_yaml(path, "x")),
}
"""Limit, text with so many, reader."""


@pytest.mark.parametrize("name", AT_LIMITS)
def test_as_many_as_the_limit_are_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, write, read = AT_LIMITS[name]
    monkeypatch.setattr(gate, "MOST_VALUES", 99)
    path = tmp_path / "file"
    path.write_text(write(most))
    assert read(path)
    path.write_text(write(most + 1))
    with pytest.raises(BadInputError, match=r"more than|too deeply"):
        read(path)


def test_the_page_has_the_limits() -> None:
    said = " ".join(PAGE.read_text(encoding="utf-8").split())
    sizes = (gate.MOST_BYTES, gate.MOST_TOML_BYTES, gate.MOST_LOG_BYTES, gate.MOST_RUN_BYTES)
    for size in sizes:
        assert f" {size // gate.MIB} MiB" in said
    for count, noun in (
        (gate.MOST_VALUES, "values"),
        (gate.MOST_LEVELS, "levels"),
        (gate.MOST_KEY_PARTS, "parts"),
        (gate.MOST_RECORDS, "rows"),
        (gate.MOST_COLUMNS, "fields"),
        (gate.MOST_TABLES, "tables"),
        (gate.MOST_GPUS, "ranks"),
    ):
        assert f" {format_count(count)} {noun}" in said


ASKS = {
    *("read_bounded", "read_text", "read_toml", "read_json", "load_json", "decode_json", "read_yaml"),
    *("read_csv", "split_csv", "read_as"),
}
"""Functions by which files are read, of which all callers are tried."""
LIBRARIES = ("json", "tomllib", "yaml", "pd", "np", "pickle")
RAW = ("load", "loads", "read_csv", "read_parquet", "fromfile", "loadtxt", "open", "parse")
"""Functions of these that read, or parse, a file whatever it holds."""
OWN = {
    "perfmodel/report/page/assemble.py": "files of the package",
    "perfmodel/schema/fields.py": "shipped limits",
    "perfmodel/schema/machine.py": "a shipped machine or chip",
    "perfmodel/explore/page.py": "files of the package",
    "perfmodel/engine/loads.py": "bytes of a row, by the equation of that name",
}
"""Files with such a call of their own, and what it reads."""
MEASURES = tuple(f"calibrate/{room}" for room in ("cuda", "machine", "ranks", "running", "providers"))
SHIPPED = {
    *("load_priors", "load_kernel_constants", "load_rates", "load_plan", "load_samples"),
    *("load_claims", "read_table", "parse_samples", "_find_machine", "load_reasons", "_describe_host"),
    *("load_embark", "_find_shipped"),
    *("_read_token", "write_reply"),  # of the live page, which its own tests try
}
"""Functions that ask for what is shipped, was measured or written here, or is copied as it is."""


def calls(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """Of each call in a file: the function that it stands in, and what is called."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    yield function.name, node.func


def sources() -> list[Path]:
    paths = [path for room in ("perfmodel", "calibrate") for path in (ROOT / room).rglob("*.py")]
    return [path for path in paths if path.name != "gate.py"]


def test_nothing_reads_past_the_gate() -> None:
    past = set()
    for path in sources():
        where = str(path.relative_to(ROOT))
        if not where.startswith(MEASURES):
            past |= {where for _, called in calls(path) if _reads(called)}
    assert past == set(OWN)


def _reads(called: ast.expr) -> bool:
    """Whether that is a function of a library, or a method of a path."""
    if not isinstance(called, ast.Attribute):
        return getattr(called, "id", "") == "open"
    of = getattr(called.value, "id", "")
    return called.attr in ("read_text", "read_bytes") or (of in LIBRARIES and called.attr in RAW)


def test_every_reader_is_in_the_registry(tmp_path: Path) -> None:
    """What asks the gate runs when the registry's whole files are read."""
    asking = {
        (str(path), function)
        for path in sources()
        if not str(path.relative_to(ROOT)).startswith(MEASURES)
        for function, called in calls(path)
        if getattr(called, "id", "") in ASKS
    }
    ran: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.add((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        for reader in all_readers():
            for content in reader.whole:
                reader.read(reader.written(content, tmp_path))
    finally:
        sys.setprofile(None)
    left = {function for path, function in asking - ran if function not in SHIPPED}
    assert not left, f"readers that benchmarks/fault_files.py does not try: {sorted(left)}"
    assert len(READERS) == len(all_readers()), "two readers of one name"


# --- stdin -----------------------------------------------------------------------------------------------

CSV = b"name,rows,dim,pooling\nusers,1000,64,2\nitems,2000,32,1\n"
Pipe = Callable[[bytes], None]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    def fill(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return fill


@pytest.mark.parametrize(
    "content", [CSV, b' [ {"rows": 1000, "dim": 64, "pooling": 2, "name": "u"}, {"rows": 2000, "dim": 32}]']
)
def test_tables_are_csv_or_json(pipe: Pipe, content: bytes, tmp_path: Path) -> None:
    pipe(content)
    found = load_tables("-")
    assert [(table.rows, table.dim, table.pooling) for table in found.tables] == [
        (1000, 64, 2),
        (2000, 32, 1),
    ]
    assert found.name == found.source == "stdin"


def test_a_command_that_asks_twice_reads_once(pipe: Pipe, tmp_path: Path) -> None:
    """A projection looks at the tables before it, and may plan them after it."""
    (tmp_path / "stdin.csv").write_bytes(CSV)
    from_file = called("project", "--model", str(tmp_path / "stdin.csv"), "--gpus", "8")
    pipe(CSV)
    piped = called("project", "--model", "-", "--gpus", "8")
    assert piped.out.splitlines()[0] == from_file.out.splitlines()[0], piped.err
    pipe(CSV.replace(b"2000", b"bad"))
    assert "table file - is not valid: line 3" in called("project", "--model", "-", "--gpus", "8").err


def test_two_things_cannot_both_come_from_it(pipe: Pipe) -> None:
    pipe((EXAMPLES / "criteo-kaggle.plan.json").read_bytes())
    found = called("plan", "--model", "-", "--plan", "-")
    assert found.code == 2 and "- is empty" in found.err, found.err


def test_the_limits_of_a_file_are_its_limits(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"too large": CSV * 2**15, "empty": b"", "UTF-8": b"\xff\xfe", "NUL": b"a\0b"}
    for why, content in contents.items():
        pipe(content)
        with pytest.raises(BadInputError, match=why):
            gate.read_text(STDIN, "table file", 2**20)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInputError, match="stdin is closed"):
        read_bounded(STDIN, "log")


def test_a_file_is_written_whole_beside_links_and_under_a_random_name(tmp_path: Path) -> None:
    mine, target = tmp_path / "mine", tmp_path / "machine.toml"
    mine.write_text("mine")
    target.symlink_to(mine)
    for name in (f".machine.toml.{os.getpid()}.tmp", f".machine.toml.{os.getpid()}.part", "machine.toml.new"):
        (tmp_path / name).symlink_to(mine)
    write_whole(target, "ours")
    assert mine.read_text() == "mine" and target.read_text() == "ours" and not target.is_symlink()
    mask = os.umask(0)
    os.umask(mask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "machine.toml"
    target.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(BadInputError, match=r"machine file .* cannot be written: file too large") as full:
            write_whole(target, "new" * 100, "machine file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "free some space" in full.value.next_step and "another" not in full.value.next_step
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["machine.toml"]
