"""With ``--json`` an error is JSON too: the last line of stderr, with the exit code of the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called

from perfmodel.errors import NoCalibrationError
from perfmodel.schema import machine


def refused(*words: str) -> dict[str, Any]:
    """The error of a command with ``--json``: the text that it has without, in parts."""
    plain, found = called(*words), called(*words, "--json")
    assert found.out == "" and found.code == plain.code
    error: dict[str, Any] = json.loads(found.err.splitlines()[-1])["error"]
    assert list(error) == ["what", "where", "allowed", "next", "exit"] and error["exit"] == found.code
    assert plain.err.split() == ["error:", *error["what"].split(), *(error["next"] or "").split()]
    return error


@pytest.mark.parametrize(
    ("words", "where", "allowed"),
    [
        ("project --table-size 10Tb", "--table-size", None),
        ("project --table-size 10TB --batch 0", "--batch", "more than 0"),
        ("project --table-size 10TB --batch 1e12", "--batch", "at most 1073741824"),
        ("project --nope", "--nope", None),
        ("collective --op all_gather", "--size", None),
        ("collective --op gossip --size 1MiB --gpus 8", "--op", ["all_gather", "all_to_all"]),
        ("chip plan --model criteo-kaggle --chip ascend", "chip", ["ascend-910", "h100-sxm"]),
        ("project --table-size 1TB --explain nothing", None, None),
        ("report --table-size 10Tb", "--table-size", None),
        ("plan --model nowhere.csv --gpus 8", "table file nowhere.csv", None),
    ],
)
def test_an_error_says_where_it_is_and_what_is_allowed(
    words: str, where: str | None, allowed: object
) -> None:
    error = refused(*words.split())
    assert error["exit"] == 2 and error["where"] == where
    if isinstance(allowed, list):
        assert set(allowed) <= set(error["allowed"])
    else:
        assert error["allowed"] == allowed


def test_a_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("rows,dim\n-1,4\n")
    assert refused("plan", "--model", str(file), "--gpus", "8")["where"] == f"table file {file}"


@pytest.mark.parametrize(
    "error", [NoCalibrationError("nobody knows", "measure it"), ZeroDivisionError("oops")]
)
def test_every_exit_code_has_its_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug too, whose traceback ``-v`` shows before the last line."""

    def broken() -> list[str]:
        raise error

    monkeypatch.setattr(machine, "list_machines", broken)
    found = called("show", "machines", "--json")
    said = json.loads(found.err)["error"]
    assert (said["exit"], found.code) == ((3, 3) if isinstance(error, NoCalibrationError) else (1, 1))
    assert str(error).partition("\n")[0] in said["what"] and "Traceback" not in found.err


def test_a_command_after_it_prints_text_again() -> None:
    called("show", "machines", "nope", "--json")
    assert called("show", "machines", "nope").err.startswith("error: ")
    assert called("show", "machines", "--", "--json").err.startswith("error: "), "a name, and no option"
