"""The line that was typed is printed so that it can be pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from perfmodel.cli import typed_line
from perfmodel.cli.typed_line import TypedLine


def test_options_of_several_words_and_repeated_ones_are_typed_as_they_were() -> None:
    app = typer.Typer()
    seen: list[str] = []

    @app.command()
    def one(
        context: typer.Context,
        compare: tuple[str, str] | None = typer.Option(None, "--compare"),
        also: list[str] | None = typer.Option(None, "--set"),
        force: bool = typer.Option(False, "--force"),
        out: str | None = typer.Option(None, "--out"),
    ) -> None:
        seen.append(TypedLine.of(context).text(without=["out"]).partition(" ")[2])

    given = ["--compare", "A", "B c", "--set", "x=1", "--set", "y=2", "--force", "--out", "f"]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert seen == ["--compare A 'B c' --set x=1 --set y=2 --force"]


def test_latest_is_pinned_to_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_line, "latest_run", lambda: Path("runs/mine"))
    line = TypedLine(("perfmodel", "report"), (("calibration", ("--calibration", "latest")),))
    assert line.pinned().text() == "perfmodel report --calibration runs/mine"
    other = TypedLine(("perfmodel", "report"), (("calibration", ("--calibration", "latest.json")),))
    assert other.pinned() == other
