"""Lines that are printed to be pasted: every one of them runs."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import own_run
import pytest

from perfmodel.cli import run
from perfmodel.cli.suggest import after_calibration
from perfmodel.schema.calibration import read_calibration, save_calibration
from perfmodel.schema.evidence import Clock
from perfmodel.schema.home import HOME_VARIABLE

FULL = "mpi-5.0.11-eager.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks of 8 GB: 2 and 4 of them were measured together."""
    return own_run.write_run(tmp_path_factory.mktemp("runs") / "four-cores-01234567")


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "my home"))
    return Path(shutil.copytree(made, tmp_path / "my home" / "runs" / made.name))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(*words: str) -> SimpleNamespace:
        code = run(list(words))
        seen = capsys.readouterr()
        return SimpleNamespace(code=code, out=seen.out, err=seen.err)

    return call


def pasted(text: str) -> list[list[str]]:
    """The words of every command that stands on a line of its own."""
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("perfmodel ")]


@pytest.mark.parametrize(
    ("words", "fitting"),
    [
        ("project --table-size 10TB --calibration latest", "--table-size 27GB --gpus 4 --calibration latest"),
        ("project --gpus 8 --batch 64 --calibration latest", "--gpus 4 --batch 64 --calibration latest"),
        ("project --table-size 10TB --calibration latest --backend mpi", "--backend mpi"),
        ("explain reduce-scatter --sharding row-wise --calibration latest", "--table-size 27GB --gpus 4"),
        ("project --table-size 10TB --reserve 50% --calibration latest", "--table-size 15GB --gpus 4"),
    ],
)
def test_beyond_what_was_measured_there_are_lines_that_run(
    folder: Path, cli: Any, words: str, fitting: str
) -> None:
    refused = cli(*words.split())
    assert refused.code == 3 and "--ranks" not in refused.err
    inside, shipped = pasted(refused.err)
    assert fitting in " ".join(inside) and "--calibration" not in shipped
    for line in (inside, shipped):
        done = cli(*line)
        assert done.code == 0 and done.out, done.err


def test_tables_of_a_model_are_not_cut(folder: Path, cli: Any) -> None:
    refused = cli("project", "--model", "embark-t510", "--calibration", "latest")
    assert refused.code == 3
    (shipped,) = pasted(refused.err)
    assert cli(*shipped).code == 0


def test_after_a_calibration_comes_a_projection_that_runs(folder: Path, cli: Any) -> None:
    line = after_calibration(str(folder), "latest", 1e9, False)
    assert line == "perfmodel project --table-size 1GB --gpus 4 --calibration latest"
    assert cli(*pasted(line)[0]).code == 0
    line = after_calibration(str(folder), str(folder), 10e12, True)
    assert f"--table-size 27GB --gpus 4 --calibration '{folder}'" in line
    assert cli(*pasted(line)[0]).code == 0


@pytest.mark.parametrize(
    ("kept", "words"), [(["all_to_all"], "--reduction all-to-all"), (["all_reduce"], "perfmodel show latest")]
)
def test_after_a_part_of_the_collectives(folder: Path, cli: Any, kept: list[str], words: str) -> None:
    full = read_calibration(folder / FULL)
    curves = [curve for curve in full.curves if curve.collective in kept]
    save_calibration(full.model_copy(update={"curves": curves}), folder / FULL)
    line = after_calibration(str(folder), "latest", 1e9, False)
    assert words in line and cli(*pasted(line)[0]).code == 0


def test_a_partial_file_of_another_clock_changes_nothing(folder: Path, cli: Any) -> None:
    full = read_calibration(folder / FULL)
    few = [curve for curve in full.curves if curve.collective == "all_to_all"]
    stream = full.model_copy(update={"curves": few, "clock": Clock.STREAM, "preferred": True})
    save_calibration(stream, folder / "mpi-5.0.11-stream.json")
    line = after_calibration(str(folder), "latest", 1e9, False)
    done = cli(*pasted(line)[0], "--json")
    assert done.code == 0 and "eager" in done.out


def test_the_equation_behind_it_is_asked_as_it_was_typed(folder: Path, cli: Any) -> None:
    words = ("--table-size", "1GB", "--gpus", "2")
    for named in ("latest", str(folder)):
        shown = cli("project", *words, "--calibration", named, "--sharding", "row-wise")
        line = pasted(shown.out.replace(" \\\n", " "))[-1]
        assert line[:2] == ["explain", "gather-pool"] and line[-3:] == [named, "--sharding", "row-wise"]
        assert cli(*line).code == 0


def test_key_columns_stay_on_a_narrow_terminal(
    folder: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    asked = ("--table-size", "1GB", "--gpus", "2", "--calibration", "latest")
    for words, columns in (
        (("project", *asked), ("step", "time", "share", "evidence")),
        (("show", "latest"), ("collective", "G", "α", "β (algbw)", "range")),
        (("calibrations",), ("calibration", "clock", "LOO p50/p90")),
        (("show", "latest", "--samples"), ("collective", "G", "variant", "size", "median")),
        (("validate", "--run", "latest"), ("pass", "B", "T", "L", "D", "measured", "error", "band")),
        (("machines",), ("machine", "HBM", "link/GPU", "NIC/GPU")),
        (("models",), ("model", "tables", "rows", "bytes", "dim")),
        (
            ("collective", "--op", "all_to_all", "--size", "1MiB", "--gpus", "128"),
            ("time", "busbw", "evidence"),
        ),
    ):
        page = cli(*words).out
        (header,) = [line for line in page.splitlines() if all(name in line for name in columns)]
        table = page[page.index(header) :].split("\n\n")[0]
        assert max(map(len, table.splitlines())) <= 60
        assert len(page.splitlines()[0]) <= 60


def test_tables_that_do_not_fit_are_told_what_would(folder: Path, cli: Any) -> None:
    """2 ranks of 8 GB."""
    refused = cli("project", "--table-size", "10TB", "--gpus", "2", "--calibration", "latest")
    assert refused.code == 2 and "2 have room for 13.6 GB of rows" in " ".join(refused.err.split())
    assert cli("project", "--table-size", "13GB", "--gpus", "2", "--calibration", "latest").code == 0


def test_a_shipped_machine_of_ones_own_is_suggested_first(cli: Any, tmp_path: Path) -> None:
    """An all-to-all of gloo, fitted for H200: what is shipped for H200 answers, not another machine."""
    log, out = tmp_path / "log.csv", tmp_path / "gloo.json"
    rows = "".join(f"all_to_all,{2**n},4,1,{2e-5 + 2**n / 1e9},gloo\n" for n in range(10, 20))
    log.write_text("collective,payload_bytes,gpus,nodes,time_s,backend\n" + rows, encoding="utf-8")
    assert cli("import", str(log), "--machine", "h200-sxm-ib", "--out", str(out)).code == 0
    refused = cli("project", "--table-size", "10TB", "--machine", "h200-sxm-ib", "--calibration", str(out))
    assert refused.code == 3 and "what is shipped for h200-sxm-ib has an answer" in refused.err
    assert pasted(refused.err)[-1] == ["project", "--table-size", "10TB", "--machine", "h200-sxm-ib"]
