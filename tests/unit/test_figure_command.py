"""``perfmodel figure``: which there are, what is written, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import own_run
import plotly.graph_objects as go
import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.cli import figure, figure_file, figure_source
from perfmodel.errors import NoHardwareError
from perfmodel.plan.leading import leading
from perfmodel.projections import project_one
from perfmodel.report import picture_files
from perfmodel.report.figures import Block
from perfmodel.report.figures.registry import EVERY, QUESTION
from perfmodel.report.figures.what_if import changes
from perfmodel.report.page.leading_card import leading_card
from perfmodel.schema.run_folders import calibration_in

Cli = Callable[..., Outcome]


def test_without_a_name_they_are_listed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("figure")
    assert done.code == 0 and all(f"\n{name} " in f"\n{done.out}" for name in EVERY)
    told = json.loads(cli("figure", "--json").out)
    assert [one["name"] for one in told["figures"]] == list(EVERY)
    wrong = cli("figure", "slwdown")
    is_an_error(wrong, 2, "did you mean slowdown?", *QUESTION.shows)
    assert max(map(len, [*done.out.splitlines(), *wrong.err.splitlines()])) <= 100
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, cli("figure").out.splitlines())) <= 80


def test_its_numbers_are_those_of_the_figure(cli: Cli, tmp_path: Path) -> None:
    words = ("figure", "changes", "--table-size", "2TB", "--batch", "64", "--machine", "h200-sxm-ib")
    asked = project_one(table_bytes=2e12, batch=64, machine="h200-sxm-ib")
    block = changes(asked, leading(asked))
    assert isinstance(block, Block)
    said = cli(*words, "--out", str(tmp_path / "a.csv")).out
    assert " ".join(said.split()) == f"{block.title} Wrote {tmp_path / 'a.csv'}."
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [row["change"] for row in rows] == [row["change"] for row in block.data]
    assert float(rows[0]["after"]) == pytest.approx(block.data[0]["after"], rel=1e-5)
    told = json.loads(cli(*words, "--json").out)
    assert told["title"] == block.title and told["file"] is None and len(told["rows"]) == len(rows)
    assert told["columns"] == list(rows[0]) and told["source"] == block.source


def test_a_file_of_json_has_the_drawing(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "map.JSON"
    done = cli("figure", "heat-map", "--draw", "tables x dim", "--out", str(out), "--json")
    told, kept = json.loads(done.out), json.loads(out.read_text())
    assert told["file"] == str(out) and kept["rows"] == told["rows"] and kept["title"] == told["title"]
    assert [t.visible for t in go.Figure(kept["figure"]).data] == [False, True]
    assert "dim" in told["title"] and "pooling" not in told["title"]


def page_data(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


@pytest.mark.parametrize("name", ["breakdown", "roofline"])
def test_a_page_has_the_card_and_one_figure(cli: Cli, tmp_path: Path, name: str) -> None:
    out = tmp_path / "one.html"
    words = ("figure", name, "--table-size", "1TB", "--batch", "64")
    assert cli(*words, "--out", str(out)).code == 0
    data = page_data(out)
    (view,) = data["views"].values()
    assert view["heads"] == [vars(leading_card(leading(project_one(table_bytes=1e12, batch=64)), whole=True))]
    assert [block["name"] for block in view["blocks"]] == [name] and data["fixed"] == []
    assert data["command"] == " ".join(("perfmodel", "figure", name, "--out", "one.html", *words[2:]))
    is_an_error(cli(*words, "--out", str(out)), 2, "exists already", "--force")


def test_a_page_of_a_partial_calibration_says_so(cli: Cli, tmp_path: Path) -> None:
    folder = own_run.write_run(tmp_path / "four-cores-01234567")
    whole = calibration_in(folder, None, None)
    text = whole.read_text(encoding="utf-8")
    assert '"complete": true' in text
    whole.write_text(text.replace('"complete": true', '"complete": false'), encoding="utf-8")
    words = ("figure", "roofline", "--calibration", str(whole), "--table-size", "27GB", "--out")
    assert cli(*words, str(tmp_path / "a.html")).code == 0
    (alert,) = page_data(tmp_path / "a.html")["alerts"]
    assert "incomplete" in alert


def test_what_cannot_be_drawn_says_why(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    is_an_error(cli("figure", "tornado", "--table-size", "1GB", "--out", str(out)), 3, "on one GPU", "larger")
    is_an_error(cli("figure", "shardings", "--reduction", "sparse"), 3, "leave it out")
    is_an_error(cli("figure", "changes", "--draw", "linear"), 2, "one way only")
    is_an_error(cli("figure", "slowdown", "--backend", "mpi"), 3, "mpi")
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "a.doc"), "what kind of file"),
        (("--out", "a"), "must end in"),
        (("--out", "nowhere/a.svg"), "not a folder"),
        (("--out", "a.csv", "--width", "500"), "--width applies to pictures"),
        (("--scale", "3"), "--scale applies to pictures"),
        (("--scale", "3", "--out", "a.svg"), "must end in .png"),
        (("--out", "a.png", "--width", "20"), "300 to 4000"),
        (("--out", "a.png", "--scale", "nan"), "0.5 to 8"),
        (("--table-size", "10Tb"), "ambiguous"),
    ],
)
def test_bad_options_are_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    is_an_error(cli("figure", "slowdown", *words), 2, said)
    assert list(tmp_path.iterdir()) == []


def test_without_a_browser_nothing_is_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(pictures: Any, scale: float) -> None:
        pictures[0][1].write_text("half")
        raise NoHardwareError("a picture needs a Chrome or Chromium, and none is here.", "install one")

    monkeypatch.setattr(figure_file, "write_pictures", none)
    monkeypatch.setattr(figure, "check_kaleido", lambda: None)
    is_an_error(cli("figure", "changes", "--out", str(tmp_path / "a.svg")), 4, "Chromium", "install one")
    assert list(tmp_path.iterdir()) == []


def test_without_kaleido_nothing_is_computed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_files.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(figure_source, "page_question", None)
    is_an_error(cli("figure", "changes", "--out", "a.svg"), 2, "pip install 'kaleido>=1'", ".html")


def test_lists_are_of_the_report(cli: Any) -> None:
    is_an_error(cli("figure", "breakdown", "--table-size", "10TB,20TB"), 2, "one value", "report takes lists")
    is_an_error(cli("figure", "breakdown", "--batch", "256..1024"), 2, "--batch 256 or another")
