"""``-`` is stdin for tables and for logs: the answer and the limits of a file, and one of the two."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_calls import called

from perfmodel.errors import BadInputError
from perfmodel.schema import gate
from perfmodel.schema.gate import STDIN, read_bounded
from perfmodel.schema.table_files import load_tables

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CSV = b"name,rows,dim,pooling\nusers,1000,64,2\nitems,2000,32,1\n"
Pipe = Callable[[bytes], None]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    def fill(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return fill


@pytest.mark.parametrize(
    "content",
    [CSV, b'[{"rows": 1000, "dim": 64, "pooling": 2, "name": "users"}, {"rows": 2000, "dim": 32}]'],
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
    assert piped.code == 0, piped.err
    assert piped.out.splitlines()[0] == from_file.out.splitlines()[0]
    pipe(CSV.replace(b"2000", b"bad"))
    assert "table file - is not valid: line 3" in called("project", "--model", "-", "--gpus", "8").err


def test_logs(pipe: Pipe) -> None:
    log = EXAMPLES / "alltoall.log"
    options = ("--machine", "h200-sxm-ib", "--json")
    named = json.loads(called("import", str(log), *options).out)
    pipe(log.read_bytes())
    found = called("import", "-", *options)
    assert found.code == 0, found.err
    piped = json.loads(found.out)
    assert piped["samples"] == named["samples"]
    anchors = [
        [curve["anchor_times_s"] for curve in each["calibration"]["curves"]] for each in (piped, named)
    ]
    assert anchors[0] == anchors[1]


def test_a_plan_of_piped_tables_names_no_file(pipe: Pipe, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    pipe(CSV)
    assert called("plan", "--model", "-", "--gpus", "8", "--out", str(out)).code == 0
    assert json.loads(out.read_text())["made_for"]["model_file"] is None
    asked = ("plan", "--explain", "gather-pool", "--plan", str(out))
    assert "give their file" in called(*asked).err
    pipe(CSV)
    assert called(*asked, "--model", "-").code == 0


def test_two_things_cannot_both_come_from_it(pipe: Pipe) -> None:
    pipe((EXAMPLES / "criteo-kaggle.plan.json").read_bytes())
    found = called("plan", "--model", "-", "--plan", "-")
    assert found.code == 2 and "cannot both be read from stdin" in " ".join(found.err.split()), found.err


def test_the_limits_of_a_file_are_its_limits(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, why in (
        (CSV * 2**15, "too large"),
        (b"", "empty"),
        (b"\xff\xfe", "UTF-8"),
        (b"a\0b", "NUL"),
    ):
        pipe(content)
        with pytest.raises(BadInputError, match=why):
            gate.read_text(STDIN, "table file", 2**20)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInputError, match="stdin is closed"):
        read_bounded(STDIN, "log")
