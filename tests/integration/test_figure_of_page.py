"""``perfmodel figure`` of pages that were written, and of those that it makes: by names, one or all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.plan import Evaluator, PlanTables, uniform_plan
from perfmodel.plan.outcome import given_outcome
from perfmodel.report import picture_files
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.names import CHIP, COMPARED, EVERY, FIGURES, OTHERS, PLAN
from perfmodel.report.page import assemble
from perfmodel.report.page.assemble import block_data, document, page_html, whole_page
from perfmodel.report.page.plan_page import plan_blocks, plan_page
from perfmodel.report.page.written import WrittenPage

Cli = Callable[..., Outcome]


@pytest.fixture(scope="module")
def blocks() -> dict[str, Block | Missing]:
    return {block.name: block for block in plan_blocks(_answer())}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    path.write_text(page_html(plan_page(_answer(), "perfmodel plan --gpus 4")), encoding="utf-8")
    return path


def _answer() -> Any:
    tables = PlanTables.load("criteo-kaggle")
    evaluator = Evaluator.on("h100-sxm-ib", tables, batch=1024, gpus=4)
    return given_outcome(evaluator, uniform_plan(tables, "table-wise", 4, 4), limit_bytes=68e9)


def test_names_are_those_of_the_pages(blocks: dict[str, Block | Missing]) -> None:
    assert list(blocks) == list(PLAN.figures)
    assert len(EVERY) == len(FIGURES) + sum(len(other.figures) for other in OTHERS), "a name stands twice"


def test_it_is_the_figure_of_the_page(
    cli: Cli, page: Path, blocks: dict[str, Block | Missing], tmp_path: Path
) -> None:
    block, out = blocks["balance"], tmp_path / "balance.json"
    assert isinstance(block, Block)
    done = cli("figure", "balance", "--page", str(page), "--out", str(out), "--json")
    told, kept = json.loads(done.out), json.loads(out.read_text())
    assert told["title"] == block.title and told["how_to_read"] == block.how_to_read
    assert [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]] == list(block.data)
    drawn = go.Figure(kept["figure"])
    assert [trace.name for trace in drawn.data] == [trace.name for trace in block.figure.data]
    for mine, own in zip(drawn.data, block.figure.data, strict=True):
        assert list(mine.y) == pytest.approx(list(own.y), rel=1e-5)


def test_a_page_lists_its_own(cli: Cli, page: Path) -> None:
    done = cli("figure", "--page", str(page))
    assert re.findall(r"^(\S+)  ", done.out, re.M) == list(PLAN.figures)
    assert f"perfmodel figure placements --out placements.svg --page {page}" in " ".join(done.out.split())
    wrong = cli("figure", "balanc", "--page", str(page))
    is_an_error(wrong, 2, "did you mean balance?", *PLAN.figures)
    is_an_error(cli("figure", "slowdown", "--page", str(page)), 2, "of one question", "figure slowdown")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("timeline", ("a figure of a plan", "--report plan.html", "figure timeline --page plan.html")),
        ("cores", ("one chip", "chip plan --chip", "figure cores --page cores.html")),
        ("over-gpus", ("more and more GPUs", "figure over-gpus --model")),
        ("compare-needs", ("two machines", "figure compare-needs --compare")),
    ],
)
def test_figures_of_other_pages_say_what_draws_them(cli: Cli, name: str, says: tuple[str, ...]) -> None:
    is_an_error(cli("figure", name), 2, *says)


def test_a_page_of_one_figure(cli: Cli, page: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.html"
    assert cli("figure", "placements", "--page", str(page), "--draw", "time", "--out", str(out)).code == 0
    before, after = data_of(page), data_of(out)
    (block,) = after["views"][""]["blocks"]
    assert block["name"] == "placements" and [one["label"] for one in block["switches"]] == ["time", "bytes"]
    assert after["views"][""]["heads"] == before["views"][""]["heads"] and after["fixed"] == []
    line = f"perfmodel figure placements --out one.html --page {page} --draw time"
    assert after["command"] == line and f"<code>{line}</code>" in out.read_text()
    assert "Machine <strong>h100-sxm-ib</strong>" in out.read_text()
    assert cli("figure", "placements", "--page", str(out), "--out", str(tmp_path / "a.csv")).code == 0


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


def test_a_written_page_has_the_title_and_the_sources_of_the_page(page: Path) -> None:
    made, kept = plan_page(_answer(), "perfmodel plan --gpus 4"), WrittenPage.read(page)
    assert (kept.title, kept.provenance) == (made.title, made.provenance)
    block = kept.block("balance")
    assert isinstance(block, Block)
    one, other = (document(each.alone(block, "perfmodel figure")) for each in (made, kept))
    assert one == other


def test_all_of_them_into_a_folder(cli: Cli, page: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def write(wanted: Any, scale: float = 2) -> None:
        for figure, path in wanted:
            path.write_text(figure.layout.title.text)

    monkeypatch.setattr(picture_files, "write_pictures", write)
    monkeypatch.setattr("perfmodel.cli.pictures.check_kaleido", lambda: None)
    words = ("figure", "--page", str(page), "--format", "svg", "--out", str(tmp_path / "figures"))
    told = json.loads(cli(*words, "--json").out)
    assert [one["name"] for one in told["figures"]] == list(PLAN.figures) and told["left_out"] == []
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{name}.svg" for name in PLAN.figures
    }
    is_an_error(cli(*words), 2, "exists already", "--force")
    is_an_error(
        cli("figure", "steps", *words[1:]), 2, "--format svg applies to all figures", "--out steps.svg"
    )
    is_an_error(cli(*words[:3], "--format", "svg"), 2, "into which folder", "--out FOLDER")
    is_an_error(cli(*words[:3], "--out", "a.svg"), 2, "which figure", "name one figure")
    is_an_error(cli(*words[:3], "--format", "jpg", "--out", "a"), 2, "--format 'jpg'", "svg")


def test_hatches_are_in_the_legend(blocks: dict[str, Block | Missing]) -> None:
    """What is told apart by its hatch has a name beside the others."""
    seen = 0
    for block in blocks.values():
        bars = [t for t in block.figure.data if t.type == "bar"] if isinstance(block, Block) else []
        hatched = [bar for bar in bars if bar.marker.pattern.shape]
        seen += len(hatched)
        assert all(bar.name and bar.showlegend is not False for bar in hatched)
        assert not hatched or len(bars) > 1
    assert seen > 2


# What the reader chooses


@pytest.fixture
def chosen(tmp_path: Path) -> Path:
    """A page of two sizes and two batches, one of them unknown beside 1 TB, and a figure of three shapes."""

    def drawn(batch: int) -> dict[str, Any]:
        figure = style.new_figure()
        figure.add_bar(x=[1], y=[batch])
        block = Block("slowdown", "", "How.", figure, "Made up.", ({"batch": batch},), (), "8 GPUs")
        other = Block("slowdown", "Of 4.", "How.", figure, "Made up.", ({"batch": 4},), (), "4 GPUs")
        return block_data(block) | {"others": [block_data(other)]}

    def view(batch: int) -> dict[str, Any]:
        titles = {"slowdown": [f"10 TB of {batch}.", f"1 TB of {batch}."]}
        return {
            "heads": [{"sentence": "10 TB"}, {"sentence": "1 TB"}],
            "blocks": [drawn(batch)],
            "titles": titles,
        }

    sizes = {
        "name": "table-bytes",
        "label": "table size",
        "words": ["10 TB", "1 TB"],
        "texts": ["10TB", "1TB"],
    }
    batches = {
        "name": "batch",
        "label": "batch",
        "words": ["1 024", "4 096", "9"],
        "texts": ["1024", "4096", "9"],
    }
    left_out = {"name": "links", "missing": "nothing was measured."}
    shown = {
        "selectors": [{**sizes, "start": 0}, {**batches, "start": 0}],
        "views": {"0": view(1024), "1": view(4096)},
        "fixed": [left_out],
    }
    path = tmp_path / "page.html"
    path.write_text(whole_page("Two", "<p>From nowhere.</p>", shown), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "title", "batch"),
    [
        ((), "10 TB of 1024.", 1024),
        (("--batch", "4096"), "10 TB of 4096.", 4096),
        (("--table-size", "1TB", "--batch", "4 096"), "1 TB of 4096.", 4096),
        (("--draw", "4GPUs"), "Of 4.", 4),
    ],
)
def test_options_choose_in_the_page(
    cli: Cli, chosen: Path, tmp_path: Path, words: tuple[str, ...], title: str, batch: int
) -> None:
    done = cli(
        "figure", "slowdown", "--page", str(chosen), *words, "--json", "--out", str(tmp_path / "a.html")
    )
    told = json.loads(done.out)
    assert told["title"] == title and told["rows"] == [[batch]]
    data = data_of(tmp_path / "a.html")
    assert [len(one["words"]) for one in data["selectors"]] == [1, 1] and list(data["views"]) == ["0"]
    assert [one["sentence"] for one in data["views"]["0"]["heads"]] == ["1 TB" if "1TB" in words else "10 TB"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("slowdown", "--pooling", "8"), 2, ("only one value of --pooling", "--table-size, --batch")),
        (("slowdown", "--batch", "5"), 2, ("--batch '5'", "1024, 4096")),
        (("slowdown", "--batch", "9"), 2, ("lacks table size 10 TB, batch 9",)),
        (("slowdown", "--batch", "1024,4096"), 2, ("one value",)),
        (("slowdown", "--draw", "2 GPUs"), 2, ("known: 4GPUs",)),
        (("links",), 3, ("links cannot be drawn: nothing was measured.",)),
        (("links", "--batch", "4096"), 2, ("always shows the question as", "without --page")),
        (("slowdown", "--compare", "a", "b"), 2, ("has only one value of --compare",)),
    ],
)
def test_what_the_page_does_not_have(
    cli: Cli, chosen: Path, words: tuple[str, ...], code: int, says: tuple[str, ...]
) -> None:
    is_an_error(cli("figure", *words, "--page", str(chosen)), code, *says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<p>something else</p>", ("no data of figures", "perfmodel report")),
        ('<script type="application/json" id="data">{"selectors": [</script>', ("not JSON",)),
        ('<script type="application/json" id="data">{"selectors": []}</script>', ("views: is missing",)),
    ],
)
def test_what_is_no_page(cli: Cli, tmp_path: Path, text: str, says: tuple[str, ...]) -> None:
    path = tmp_path / "page.html"
    path.write_text(text)
    is_an_error(cli("figure", "--page", str(path)), 2, *says)
    is_an_error(cli("figure", "--page", str(tmp_path / "none.html")), 2, "cannot be read")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"type":"bar"', '"type":"cake"', "the drawing of slowdown"),
        ('"figure":{', '"picture":{', "the drawing of slowdown"),
        ('"start":0', '"start":7', "starts beyond its words"),
        ('"heads":[', '"heads":[{"sentence":"Another"},', "do not belong"),
    ],
)
def test_a_page_that_was_changed(cli: Cli, chosen: Path, old: str, new: str, says: str) -> None:
    text = chosen.read_text()
    assert old in text
    chosen.write_text(text.replace(old, new))
    is_an_error(cli("figure", "slowdown", "--page", str(chosen)), 2, says)


# Pages that are made for it


def test_one_of_a_comparison(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "whole_page", None)  # no page is written on the way
    asked = ("--compare", "h100-sxm-ib", "h200-sxm-ib", "--table-size", "10TB", "--batch", "1024")
    done = cli("figure", "compare-differences", *asked, "--pooling", "32", "--dim", "32", "--json")
    told = json.loads(done.out)
    assert told["title"].startswith("For 10 TB B saves")
    assert told["columns"][:3] == ["step", "a_s", "b_s"]


def test_names_of_the_chip_and_of_two() -> None:
    from perfmodel.report.figures import compare, compare_constants, compare_steps
    from perfmodel.report.onechip import cores_figure

    assert list(CHIP.figures) == [cores_figure.NAME]
    own = (compare.TIME, compare.SLOWDOWN, compare_steps.STEPS, compare_steps.DIFFERENCES)
    assert {*own, compare_constants.CONSTANTS, compare_constants.NEEDS} <= set(COMPARED.figures)
