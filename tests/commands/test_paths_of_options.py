"""Every option that takes a path: a folder that may not be searched, and a name of 300 letters."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cli_calls import called, is_an_error

from perfmodel.cli.app import COMMANDS, load_options
from perfmodel.question.spec import Arg

NAMED = (
    *("--model", "--machine", "--calibration", "--chip", "--dense"),
    *("--distribution", "--run", "--only", "NAME"),
)
"""Options whose text is a name or a path, and the argument of the commands that show what is shipped."""
LOG = str(Path(__file__).parents[1] / "calibrate" / "logs" / "blank_redop_alltoall.log")
SET = ("--model", "criteo-kaggle", "--gpus", "8")
LINES: Mapping[str, tuple[str, ...]] = {
    "project": ("--table-size", "1GB", "--gpus", "8"),
    "collective": ("--op", "all_reduce", "--size", "1MiB", "--gpus", "8"),
    "sweep": ("--table-size", "1GB", "--gpus", "8"),
    "plan": (*SET, "--effort", "quick"),
    "chip plan": ("--chip", "ascend-910", "--model", "criteo-kaggle"),
    "report": ("--table-size", "1GB", "--batch", "1024", "--pooling", "32", "--dim", "32"),
    "explore": ("--no-browser", "--port", "0"),
    "check": (LOG, "--machine", "a100-sxm-ib"),
    "import": (LOG, "--machine", "h100-sxm-ib"),
    "calibrate": ("--plan-only", "--device", "cpu"),
}
"""A line of each command that needs one, without the option in question."""
OTHERS = {"--model": ("--table-size",), "LOGS": (LOG,), "--plan": ("--effort",)}
"""What stands in a line instead of an option, and goes with it."""
BESIDE = {"--dense": ("--objective", "training")}


CASES = [
    (name, option.flag, isinstance(option.words, Arg))
    for name in COMMANDS
    for option in load_options(name).declared()
    if "Path" in str(option.kind) or option.flag in NAMED
]


def line_with(command: str, flag: str, path: str, *, argument: bool) -> list[str]:
    """A command line with this path; what cannot stand beside it is left out."""
    words, skip = [], False
    gone = (flag, *OTHERS.get(flag, ()))
    for word in LINES.get(command, ()):
        if not skip and word not in gone:
            words.append(word)
        skip = not skip and word in gone and word.startswith("--")
    return [*command.split(), *words, *([path] if argument else [flag, path]), *BESIDE.get(flag, ())]


_OVERRIDE = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, by which root opens every folder


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that the process may not search, also where it runs as root."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "there.toml").write_text("")
    folder.chmod(0)
    libc, head, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, sets) == 0
    before = sets[0]
    sets[0] = before & ~_OVERRIDE
    assert libc.capset(head, sets) == 0
    with pytest.raises(PermissionError):
        (folder / "there.toml").stat()
    yield folder
    sets[0] = before
    assert libc.capset(head, sets) == 0
    folder.chmod(0o700)


@pytest.mark.parametrize(("command", "flag", "argument"), CASES, ids=lambda case: str(case))
def test_a_folder_that_cannot_be_searched(closed: Path, command: str, flag: str, argument: bool) -> None:
    for name in ("there.toml", "there.json", "there", "there/below.csv"):
        text = f"histogram:{closed / name}.csv" if flag == "--distribution" else str(closed / name)
        is_an_error(called(*line_with(command, flag, text, argument=argument)), 2)


@pytest.mark.parametrize(("command", "flag", "argument"), CASES, ids=lambda case: str(case))
def test_a_name_of_300_letters(command: str, flag: str, argument: bool) -> None:
    for ending in ("", ".toml", ".json", ".html", "/x.csv"):
        text = ("histogram:" if flag == "--distribution" else "") + "a" * 300 + ending
        is_an_error(called(*line_with(command, flag, text, argument=argument)), 2)


@pytest.mark.parametrize(
    "line",
    ["project --table-size 1GB --calibration latest", "validate --run latest", "calibrate --device cpu"],
)
@pytest.mark.parametrize("long", [True, False])
def test_a_home_that_cannot_be_used(
    closed: Path, monkeypatch: pytest.MonkeyPatch, line: str, long: bool
) -> None:
    monkeypatch.setenv("PERFMODEL_HOME", str(closed / ("a" * 300 if long else "home")))
    outcome = called(*line.split())
    assert outcome.code in (2, 3) and "bug" not in outcome.err, outcome
