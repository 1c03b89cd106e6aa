"""``perfmodel report --format svg``: a picture of every figure, all of them or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.cli import choices
from perfmodel.errors import NoHardwareError
from perfmodel.projections import Projection, project_one
from perfmodel.report.figures import Missing
from perfmodel.report.figures.registry import QUESTION
from perfmodel.report.figures.what_if import changes, tornado
from perfmodel.report.page import question_page

Cli = Callable[..., Outcome]
WORDS = ("report", "--format", "svg", "--out")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two figures and one that is missing, drawn by no browser; the questions that were asked."""
    asked: list[Any] = []

    def every(sizes: Any, selectors: Any, machine: Any, options: Any) -> Any:
        values = {selector.name: selector.values[0] for selector in selectors}
        answer: Projection = project_one(table_bytes=sizes.values[0], machine=machine, **options, **values)
        asked.append(answer)
        return iter([changes(answer), tornado(answer), Missing("links", "nothing was measured.")])

    def write(wanted: Any, scale: float = 2) -> None:
        for figure, path in wanted:
            path.write_text(figure.layout.title.text)

    monkeypatch.setattr(question_page, "every_figure", every)
    monkeypatch.setattr("perfmodel.cli.pictures.write_pictures", write)
    monkeypatch.setattr("perfmodel.cli.pictures.check_kaleido", lambda: None)
    return asked


def test_a_file_each_and_what_is_left_out(cli: Cli, tmp_path: Path, quick: list[Any]) -> None:
    out = tmp_path / "figures"
    done = cli(*WORDS, str(out), "--table-size", "2TB,10TB", "--batch", "64..256", "--pooling", "8,16")
    assert done.code == 0 and done.out == f"Wrote {out}/changes.svg\nWrote {out}/tornado.svg\n"
    assert "links is left out: nothing was measured." in done.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["changes.svg", "figures", "tornado.svg"]
    (asked,) = quick  # the value of each that was typed first
    assert asked.slowdown == project_one(table_bytes=2e12, batch=64, pooling=8).slowdown
    told = json.loads(cli(*WORDS, str(out), "--force", "--json").out)
    assert [one["name"] for one in told["figures"]] == ["changes", "tornado"]
    assert told["left_out"] == [{"name": "links", "left_out": "nothing was measured."}]


def test_what_is_there_stays(cli: Cli, tmp_path: Path) -> None:
    kept = tmp_path / "tornado.svg"
    kept.write_text("mine")
    (tmp_path / "other.txt").write_text("mine")
    is_an_error(cli(*WORDS, str(tmp_path)), 2, "exists already", "--force")
    assert kept.read_text() == "mine"
    assert cli(*WORDS, str(tmp_path), "--force").code == 0
    assert kept.read_text() != "mine" and (tmp_path / "other.txt").read_text() == "mine"


def test_a_place_that_is_no_folder_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    is_an_error(cli(*WORDS, str(tmp_path / "a")), 2, "is a file")
    is_an_error(cli(*WORDS, str(tmp_path / "b" / "c")), 2, "mkdir -p")
    is_an_error(cli(*WORDS, str(tmp_path / "c.svg")), 2, "perfmodel figure slowdown --out")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_all_figures_need_a_format_and_a_folder(cli: Cli) -> None:
    one = ("figure", "changes", "--format", "svg", "--out", "a")
    is_an_error(cli(*one), 2, "--format svg applies to all figures", "--out changes.svg")
    is_an_error(cli("figure", "--format", "svg"), 2, "into which folder", "--out FOLDER")
    is_an_error(cli("figure", "--out", "a.svg"), 2, "which figure", "name one figure")
    is_an_error(cli("figure", "--format", "jpg", "--out", "a"), 2, "--format 'jpg'", "svg")


def test_a_browser_that_fails_leaves_nothing(cli: Cli, tmp_path: Path, monkeypatch: Any) -> None:
    def half(wanted: Any, scale: float = 2) -> None:
        wanted[0][1].write_text("half")
        raise NoHardwareError("the browser that draws pictures failed: it went away", "try it once more")

    monkeypatch.setattr("perfmodel.cli.pictures.write_pictures", half)
    is_an_error(cli(*WORDS, str(tmp_path / "figures")), 4, "browser", "once more")
    assert list(tmp_path.iterdir()) == []


def test_every_figure_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    typed = {**dict.fromkeys(_OPTIONS), "table_size": "1GB", "id_dtype": "int64", "reserve": "0"}
    asked = choices.page_question({**typed, "scenario": "cluster", "reduction": "sparse"})
    sizes, selectors = choices.only(asked)
    options = choices.other_keywords(asked)
    found = list(question_page.every_figure(sizes, selectors, asked.machine, options))
    assert [block.name for block in found] == list(QUESTION.shows)


_OPTIONS = (
    "batch", "tables", "pooling", "dim", "dtype", "machine", "backend", "clock", "gpus_per_node", "alpha",
    "distribution", "payload", "settings", "calibration",
)  # fmt: skip
