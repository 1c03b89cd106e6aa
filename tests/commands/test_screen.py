"""What reaches the screen: one screen at most, no escape of a file, no warning of a library."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import unicodedata
import warnings
from pathlib import Path

import pytest
from cli_calls import called

from perfmodel.cli import output, running
from perfmodel.errors import BadInputError

CONTROLS = [chr(i) for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"]
TURNING = ["\u202e", "\u2066", "\u200f", "\u2028"]


def quiet(text: str) -> bool:
    """Whether no character of it moves a cursor or turns the order of letters round."""
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n\t" for c in text)


@pytest.mark.parametrize("character", [*CONTROLS, *TURNING])
def test_no_character_of_a_file_moves_a_cursor(
    character: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"GPU {character}[31m H200"
    output.emit(text)
    output.emit_json("x", name=text)
    output.warn(text)
    output.note(text)
    output.fail(BadInputError(text, text), verbose=False)
    output.report_bug(ValueError(text), [text], verbose=False)
    out, err = capsys.readouterr()
    assert quiet(out) and quiet(err)
    assert json.loads(out[out.index("{") :])["name"] == text, "JSON keeps what the file says, escaped"
    output.rewrite(text, "before")
    assert quiet(capsys.readouterr().err[1:])


@pytest.mark.parametrize("name", ["\x1b[31mred.csv", "\x9b31mred.json", "a\rb.toml"])
def test_names_of_files_are_shown_and_not_obeyed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("\x1b[2J\x07 nothing that is known\n")
    for words in (
        ("import", str(tmp_path / name), "--machine", "h200-sxm-ib"),
        ("show", str(tmp_path / name)),
        ("show", "machines", str(tmp_path / name)),
    ):
        found = called(*words)
        assert found.code == 2 and quiet(found.err), found.err


def test_a_message_stays_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("x" * 10**6, "x " * 10**5, "x\n" * 10**4):
        output.fail(BadInputError(text, text), verbose=False)
        output.warn(text)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 6 * 25 and max(map(len, lines)) < 1100


def test_warnings_of_libraries_are_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(arguments: list[str], *, verbose: bool) -> int:
        warnings.warn("overflow encountered in exp", RuntimeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(running, "run", noisy)
    monkeypatch.setattr(sys, "warnoptions", [])
    for words, said in (([], False), (["-v"], True)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert running.command(words) == 0
        assert bool(seen) == said


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "criteo-kaggle.plan.json"


@pytest.mark.parametrize(
    "words",
    [
        ("project", "--table-size", "10TB"),
        ("project", "--model", "criteo-kaggle", "--sharding", "row-wise"),
        ("plan", "--model", "criteo-kaggle", "--plan", str(EXAMPLE)),
        ("plan", "--model", "criteo-kaggle", "--gpus", "2", "--effort", "quick"),
        ("plan", "--model", "criteo-kaggle", "--gpus", "2,4", "--effort", "quick"),
    ],
)
def test_sixty_columns_are_enough(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is longer, but for a word that is: a path to paste."""
    monkeypatch.setenv("COLUMNS", "60")
    done = called(*words)
    assert done.code == 0, done.err
    long = [line for line in done.out.splitlines() if len(line) > 60]
    assert all(len(line.removesuffix(" \\").split()) == 1 for line in long), long
    assert " time " in done.out


def test_stderr_is_as_wide_as_its_own_terminal(tmp_path: Path) -> None:
    """stdout goes to a pipe, and a terminal of 60 columns shows notes, warnings and errors."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    log = Path(__file__).parents[2] / "docs" / "examples" / "two_nodes.log"
    words = ("check", str(log), str(tmp_path / "missing.log"), "--op", "all_reduce", "--gpus", "8")
    own = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "perfmodel", *words],
        stdout=subprocess.PIPE,
        stderr=slave,
        env=own,
        check=False,
    )
    os.close(slave)
    said = os.read(master, 2**16).decode()
    os.close(master)
    lines = said.replace("\r\n", "\n").splitlines()
    assert done.returncode == 2 and any(len(line) > 60 for line in done.stdout.decode().splitlines())
    assert {"machine:", "warning:", "error:"} <= {line.split(" ")[0] for line in lines}
    assert all(len(line) <= 60 or line.strip().startswith("/") for line in lines), lines


@pytest.mark.parametrize("columns", [None, 20])
def test_a_progress_line_stays_on_one_line(monkeypatch: pytest.MonkeyPatch, columns: int | None) -> None:
    monkeypatch.setattr(output, "terminal_columns", lambda _: columns)
    line = "comparing the alternatives   18 s"
    assert output.within_terminal(line) == line[: None if columns is None else 19]
