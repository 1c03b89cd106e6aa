"""What reaches the screen: one screen, no escape of a file; errors as text and as JSON; files that exist."""

from __future__ import annotations

import json
import sys
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
from cli_calls import called, is_an_error

from perfmodel.cli import output, running
from perfmodel.cli.options import count_values, read_collective, size_values, split_values
from perfmodel.cli.output import fail
from perfmodel.errors import BadInputError, RankLostError

CHARACTERS = [chr(i) for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"]
CHARACTERS += ["\u202e", "\u2066", "\u200f", "\u2028"]  # they turn the order of letters round


def quiet(text: str) -> bool:
    """Whether no character of it moves a cursor or turns the order of letters round."""
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n\t" for c in text)


def test_no_character_of_a_file_moves_a_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    for character in CHARACTERS:
        text = f"GPU {character}[31m H200"
        output.emit(text)
        output.print_reply("x", output.CommandReply(lambda text=text: {"name": text}, str), as_json=True)
        output.warn(text)
        output.note(text)
        output.fail(BadInputError(text, text))
        output.report_bug(ValueError(text), [text])
        out, err = capsys.readouterr()
        assert quiet(out) and quiet(err)
        assert json.loads(out[out.index("{") :])["name"] == text, "JSON keeps what the file says, escaped"
    assert output.escape_controls("a\x1b[31m\tb\u202e") == "a\\x1b[31m\tb\\u202e"
    output.print_reply("x", output.CommandReply(lambda: {"name": "Gerät"}, str), as_json=True)
    assert '"Gerät"' in capsys.readouterr().out


@pytest.mark.parametrize("name", ["\x1b[31mred.csv", "\x9b31mred.json", "a\rb.toml"])
def test_names_of_files_are_shown_and_not_obeyed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("\x1b[2J\x07 nothing that is known\n")
    path = str(tmp_path / name)
    for words in (("import", path, "--machine", "h200-sxm-ib"), ("show", path), ("show", "machines", path)):
        refused = called(*words)
        assert refused.code == 2 and quiet(refused.err), refused.err


def test_a_message_stays_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("x" * 10**6, "x " * 10**5, "x\n" * 10**4):
        output.fail(BadInputError(text, text))
        output.warn(text)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 6 * 25 and max(map(len, lines)) < 1100


def test_warnings_of_libraries_are_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(**_: object) -> None:
        warnings.warn("overflow encountered in exp", RuntimeWarning, stacklevel=1)

    monkeypatch.setattr(running, "app", noisy)
    monkeypatch.setattr(sys, "warnoptions", [])
    for words, said in (([], False), (["-v"], True)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert running.run(words) == 0
        assert bool(seen) == said


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "criteo-kaggle.plan.json"


PLAN = json.loads(EXAMPLE.read_text(encoding="utf-8"))
FILES = {
    "nameless.json": {name: value for name, value in PLAN.items() if name != "model"},
    "misnamed.json": {
        **PLAN,
        "placements": [{**PLAN["placements"][0], "sharding": "ub"}, *PLAN["placements"][1:]],
    },
    "list.json": [1],
}
"""Plans that do not say their tables, and that call a replica unique-row; constraints that are a list."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan --plan nameless.json", "does not say of which tables"),
        ("plan --plan misnamed.json", "its exchange, parts and ranks are data-parallel"),
        ("plan --model criteo-kaggle --gpus 8 --only list.json", "no object with constraints by table name"),
        ("report --table-size 1TB --out folder.html", "is a folder or a device"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    for name, document in FILES.items():
        (tmp_path / name).write_text(json.dumps(document))
    outcome = called(*words.split())
    error = outcome.err[outcome.err.find("error: ") :]  # after what was taken from a plan
    is_an_error(outcome._replace(err=error), 2, said)


def test_a_command_in_an_error_stays_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An indented line is a command: on a line of its own, whole, whatever the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(output, "RUNNING", output.RunningCommand())
    command = "perfmodel calibrate " + "--only mpi:all_to_all " * 8 + "--out '/a place/of my own'"
    fail(BadInputError("a long story " * 9, f"{'go on with ' * 9}\n  {command}"))
    lines = capsys.readouterr().err.splitlines()
    assert lines.count(f"         {command}") == 1
    assert max(len(line) for line in lines if command not in line) <= 60
    fail(BadInputError("short.", f"  {command}"))
    assert capsys.readouterr().err.splitlines()[1] == f"         {command}"
    install = "pip install " + "a-package==1.0 " * 6 + "&& pip install another"
    fail(BadInputError("short.", install))
    assert capsys.readouterr().err.splitlines()[1] == f"       {install}"


def test_lists_and_ranges() -> None:
    assert size_values(["1KiB..8KiB", "64"]) == [64, 1024, 2048, 4096, 8192]
    assert size_values(["1MB..3MB"]) == [1_000_000, 2_000_000, 3_000_000]
    assert count_values(["8..64,3"], "--gpus") == [3, 8, 16, 32, 64]
    assert split_values(["a,b", "c"], "--x") == ["a", "b", "c"]
    names = [read_collective(name) for name in ("all-to-all", "AllReduce", "broadcast")]
    assert names == ["all_to_all", "all_reduce", "broadcast"]
    for bad in (["1MiB,"], ["2MiB..1MiB"], ["1Mb"], ["-1MiB"], ["0"]):
        with pytest.raises(BadInputError):
            size_values(bad)
    many = [str(number) for number in range(1, 4098)]
    assert len(count_values(many[1:], "--gpus")) == 4096
    with pytest.raises(BadInputError, match="4097 values"):
        count_values(many, "--gpus")
    with pytest.raises(BadInputError, match="all_gather"):
        read_collective("all_gatter")


def test_plain_values_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": np.float64("nan"), "b": np.array([1, np.inf]), "d": (True, None, "x"), "e": np.int8(4)}
    output.print_reply("x", output.CommandReply(lambda: value, str), as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "schema_version": 4, "command": "x", "a": None, "b": [1, None], "d": [True, None, "x"], "e": 4
    }  # fmt: skip


def test_a_unit_that_is_apart_is_said_and_a_lost_rank_has_a_next_step() -> None:
    refused = called("project", "--gpus", "8", "--table-size", "10", "TB")
    is_an_error(refused, 2, "a value and its unit are one word: --table-size 10TB")
    assert "8--table" not in refused.err
    steps = [RankLostError("rank 3", "hangs", step).next_step for step in ("", "start again.")]
    assert steps == ["run the same command again: it resumes.", "start again."]
