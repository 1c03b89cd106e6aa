"""``plan --on-chip``, ``explain WAY --on-chip``, ``chips NAME --ways``, ``simulate``: hidden, as ``chip``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_calls import called
from cli_calls import planned as asked

TABLES = "rows,dim,pooling,name\n3000,64,10,big\n100,64,2,small\n"
SHAPE = ("--dim", "32", "--pooling", "4", "--alpha", "1.1", "--set", "cores=4")


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (("plan", "--on-chip"), ("chip", "plan", "--chip"), ()),
        (("simulate", "--chip"), ("chip", "simulate", "--chip"), ("--json",)),
    ],
    ids=lambda words: " ".join(words),
)
def test_mappings(old: tuple[str, ...], new: tuple[str, ...], more: tuple[str, ...], model: str) -> None:
    words = ("ascend-910", "--model", model, "--batch", "64", "--alpha", "1.1", "--set", "cores=4", *more)
    told = [called(*spelled, *words) for spelled in (old, new)]
    assert told[0] == told[1] and told[0].code == 0


@pytest.mark.parametrize("more", [(), ("--json", *SHAPE)])
def test_one_core(more: tuple[str, ...]) -> None:
    for old, new in (
        (("chips", "ascend-910", "--ways"), ("chip", "ways", "--chip", "ascend-910")),
        (
            ("explain", "l1-ub", "--on-chip", "ascend-910", "--rows", "500"),
            ("chip", "explain", "l1-ub", "--chip", "ascend-910", "--rows", "500"),
        ),
    ):
        found = called(*old, *more)
        assert found == called(*new, *more) and found.code == 0


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("plan", ("--on-chip", "--robust")),
        ("explain", ("--on-chip", "--rows")),
        ("chips", ("--ways", "--dim", "--dtype", "--pooling", "--alpha", "--distribution")),
    ],
)
def test_no_help_has_them(command: str, options: tuple[str, ...]) -> None:
    shown = called(command, "--help").out
    assert not [option for option in options if re.search(rf"{option}\b", shown)]
    assert "Samples per GPU (default" in called("plan", "--help").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("plan", "--model", "criteo-kaggle", "--gpus", "8", "--robust"),
            "--robust applies to mappings to cores.",
        ),
        (("explain", "GM"), "GM is a way to look a table up on a core"),
        (("explain", "gather", "--rows", "5"), "--rows applies to a table on a chip"),
        (
            ("explain", "GM", "--on-chip", "h100-sxm", "--rows", "5", "--gpus", "8"),
            "--gpus and --on-chip cannot be combined",
        ),
        (("chips", "--ways"), "--ways needs one chip"),
        (("chips", "ascend-910", "--dim", "4"), "--dim belongs to --ways"),
    ],
)
def test_what_belongs_to_a_chip_is_refused_without_one(words: tuple[str, ...], message: str) -> None:
    code, out, err = called(*words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


@pytest.mark.parametrize(
    "words",
    [
        *(("--gpus", "8"), ("--objective", "latency"), ("--max-hbm", "1GB"), ("--reserve", "1%"), ("--csv",)),
        *(("--optimizer", "sgd"), ("--payload", "fp16"), ("--machine", "h100-dgx"), ("--backend", "nccl")),
        *(
            ("--clock", "stream"),
            ("--gpus-per-node", "8"),
            ("--scenario", "cluster"),
            ("--id-dtype", "int32"),
        ),
        *(("--calibration", "latest"), ("--plan", "plan.json"), ("--out", "plan.json"), ("--force",)),
        *(("--dense", "3ms"), ("--format", "plan")),
    ],
    ids=lambda words: words[0],
)
def test_options_of_gpus_are_refused_by_name(words: tuple[str, ...]) -> None:
    code, out, err = asked("--on-chip", "ascend-910", "--model", "criteo-kaggle", *words)
    assert (code, out) == (2, "")
    assert f"{words[0]} and --on-chip cannot be combined" in " ".join(err.split())
    assert "--batch" in err
