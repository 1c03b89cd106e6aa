"""The page: whole, the same twice, small enough, asks nobody for anything, and takes no text for HTML."""

from __future__ import annotations

import base64
import gc
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import own_run
import pytest
from cli_calls import Outcome, is_an_error
from plotly.offline import get_plotlyjs

from perfmodel.answer import project_one
from perfmodel.answer.ranking import rank_shardings
from perfmodel.cli import page_file, run
from perfmodel.cli import report as report_command
from perfmodel.cli.choices import measured_sizes, page_question
from perfmodel.collectives.library import Faster, Library
from perfmodel.report.figures import Block, Missing, registry, style
from perfmodel.report.page import assemble, contents, markdown
from perfmodel.report.page.assemble import Page, block_data, script_safe
from perfmodel.report.page.provenance import provenance
from perfmodel.report.page.question_card import question_card
from perfmodel.report.page.ranking_card import ranking_card
from perfmodel.report.page.setups import Curves, Loaded
from perfmodel.report.page.views import marks
from perfmodel.schema.machine import load_machine

PARAMETERS: dict[str, Any] = dict.fromkeys(
    ("table_size", "batch", "pooling", "dim", "tables", "dtype", "machine", "backend", "clock",
     "settings", "payload", "distribution", "sharding")
) | {"id_dtype": "int64", "reserve": "0"}  # fmt: skip
WORDS = ("report", "--table-size", "10TB,1TB", "--batch", "1024,256", "--pooling", "32", "--dim", "32")
TYPED: dict[str, Any] = {"pooling": 32, "dim": 32}
LARGEST = 6_000_000


pytestmark = pytest.mark.usefixtures("small_pages")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, small_pages: None) -> tuple[Path, Page]:
    """The file of a page, and the page."""
    path, made, page_of = tmp_path_factory.mktemp("page") / "report.html", [], report_command.page_of

    def kept(*asked: Any, **more: Any) -> Page:
        made.append(page_of(*asked, **more))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_command, "page_of", kept)
        assert run([*WORDS, "--out", str(path)]) == 0
    return path, made[0]


@pytest.fixture(scope="module")
def page(built: tuple[Path, Page]) -> Path:
    return built[0]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of the choices alone: without the blocks that stay."""
    monkeypatch.setattr(contents, "STAYING", ())


def content(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


def test_the_page_has_a_view_for_every_choice(page: Path) -> None:
    data = content(page)
    words = [s["words"] for s in data["selectors"]]
    assert words[:5] == [["1 TB", "10 TB"], ["256", "1 024"], ["32"], ["32"], ["h100-sxm-ib", "h200-sxm-ib"]]
    assert words[5] == ["NCCL", "NVSHMEM", "best"] and words[6] == ["stream", "graph", "eager", "device"]
    assert [s["start"] for s in data["selectors"]] == [1, 1, 0, 0, 0, 0, 0, 0]
    assert {"0|0|0|0|0|0|0", "1|0|0|0|0|0|0", "1|0|0|1|0|0|0", "1|0|0|0|1|3|0"} <= set(data["views"])
    assert "0|0|0|1|0|0|0" not in data["views"]  # one setting changes at a time, of the asked workload
    assert "nccl at clock device" in data["refused"]["0|0|3"]
    for view in data["views"].values():
        assert len(view["heads"]) == len(view["titles"]["slowdown"]) == 2
        assert [block["name"] for block in view["blocks"]] == ["slowdown", "breakdown"]


def test_cards_have_the_numbers_of_the_projection(page: Path) -> None:
    head = content(page)["views"]["0|0|0|0|0|0|0"]["heads"][0]
    answer = project_one(table_bytes=1e12, batch=256, **TYPED)
    assert head == vars(ranking_card(rank_shardings(answer), whole=False))
    assert str(answer.gpu_count) in head["findings"][0]["title"]
    asked = content(page)["views"]["1|0|0|0|0|0|0"]["heads"][1]
    assert asked == vars(
        ranking_card(rank_shardings(project_one(table_bytes=10e12, batch=1024, **TYPED)), whole=True)
    )
    assert sum(part["share"] for part in head["evidence"]) == pytest.approx(1, abs=1e-3)


def test_another_library_clock_exchange_or_machine_has_its_own_numbers(page: Path) -> None:
    views = content(page)["views"]
    asked = {
        "1|0|0|0|1|3|0": {"backend": "nvshmem", "clock": "device"},
        "1|0|0|0|0|0|1": {"reduction": "two-level"},
        "1|0|0|1|0|0|0": {"machine": "h200-sxm-ib"},
    }
    for key, options in asked.items():
        answer = project_one(table_bytes=10e12, batch=1024, **TYPED, **options)
        chosen = "reduction" in options
        card = question_card(answer) if chosen else ranking_card(rank_shardings(answer), whole=False)
        assert views[key]["heads"][1] == vars(card), key
        slow = views[key]["blocks"][0]
        columns = dict(zip(slow["columns"], zip(*slow["rows"], strict=True), strict=True))
        assert columns["slowdown"][columns["table_bytes"].index(10e12)] == pytest.approx(
            answer.slowdown, rel=1e-5
        )


def test_a_line_keeps_its_colour_whatever_is_chosen(page: Path) -> None:
    def colours(key: str) -> dict[str, str]:
        drawn = content(page)["views"][key]["blocks"][0]["figure"]["data"]
        return {trace["name"]: trace["line"]["color"] for trace in drawn if trace.get("showlegend")}

    asked, best = colours("1|0|0|0|0|0|0"), colours("1|0|0|0|2|0|0")
    assert list(asked)[:2] == ["NCCL fastest sharding", "NCCL row-wise"]
    best.pop("best fastest sharding", None)
    assert next(iter(best)) == "best row-wise"
    both = set(asked) & set(best)
    assert len(both) == 6 and all(asked[name] == best[name] for name in both)
    assert len(set(best.values())) == len(best) == 7


@pytest.mark.usefixtures("small")
def test_lists_of_settings_are_combined_and_only_they_are_shown(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    words = ("--batch", "64", "--pooling", "1", "--dim", "32", "--table-size", "1TB")
    lists = (
        "--machine",
        "h200-sxm-ib",
        "--backend",
        "nvshmem,nccl",
        "--clock",
        "graph,device",
    )
    assert cli("report", *words, *lists, "--out", str(tmp_path / "r.html")).code == 0
    data = content(tmp_path / "r.html")
    sent = {key.split("|", 3)[3] for key in data["views"]}
    # NCCL has no device clock, and NVSHMEM no reduce-scatter inside a node
    assert sent == {"0|0|0|0", "0|0|0|2", "0|0|1|0", "0|0|1|2", "0|1|0|0", "0|1|0|1", "0|1|0|2"}
    assert "device" in data["refused"]["0|1|1"] and "reduce_scatter" in data["refused"]["0|0|0|1"]
    assert data["again"] == "perfmodel report" and data["selectors"][5]["texts"] == ["nvshmem", "nccl"]


@pytest.mark.usefixtures("small")
def test_the_faster_of_two_libraries_has_their_clocks(
    cli: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collecting, own = list[bool](), assemble.page_html
    monkeypatch.setattr(page_file, "page_html", lambda page: collecting.append(gc.isenabled()) or own(page))
    words = ("--batch", "64", "--pooling", "1", "--dim", "32", "--table-size", "1TB", "--backend", "best")
    assert cli("report", *words, "--out", str(tmp_path / "r.html")).code == 0
    data = content(tmp_path / "r.html")
    assert data["selectors"][6]["words"] == ["stream", "graph", "eager", "device"]
    assert "0|0|0|0|0|1|0" in data["views"]
    assert collecting == [False] and gc.isenabled()  # nothing is garbage until the page is written


@pytest.mark.usefixtures("small")
def test_a_setting_without_calibration_says_why(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = ("--batch", "64", "--pooling", "1", "--dim", "32", "--table-size", "1TB")
    lists = ("--machine", "h100-sxm-ib,l40s-pcie", "--backend", "nvshmem")
    assert cli("report", *words, *lists, "--out", str(tmp_path / "r.html")).code == 0
    off = content(tmp_path / "r.html")["selectors"][4]["off"]
    assert list(off) == ["1"] and "nvshmem" in off["1"] and "l40s-pcie" in off["1"]
    is_an_error(cli("report", "--clock", "stream,never", "--out", "x.html"), 2, "never", "device")
    is_an_error(cli("report", "--machine", "", "--out", "x.html"), 2, "--machine is empty")
    is_an_error(cli("report", "--backend", "nccl,never", "--out", "x.html"), 2, "never", "nvshmem")


def test_the_page_is_one_file_that_asks_for_nothing(page: Path) -> None:
    text = page.read_text()
    assert len(text.encode()) <= LARGEST
    assert not re.search(r'<(?:script|link|img)[^>]*\b(?:src|href)="(?!data:)', text)
    assert "default-src 'none'" in text and "@@" not in text.split("<script>")[0]


def test_plotly_is_packed_and_whole(page: Path) -> None:
    found = re.search(r'id="plotly">([^<]*)</script>', page.read_text())
    assert found and gzip.decompress(base64.b64decode(found[1])).decode() == get_plotlyjs()


def test_the_same_command_writes_the_same_bytes(page: Path, tmp_path: Path) -> None:
    assert run([*WORDS, "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
    assert content(page)["command"] == " ".join(("perfmodel", *WORDS))


@pytest.mark.usefixtures("small")
def test_json_tells_what_is_in_the_page(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    out = tmp_path / "small.html"
    words = ("--table-size", "1GB", "--batch", "8", "--pooling", "1", "--dim", "32", "--json")
    done = cli("report", *words, "--out", str(out))
    told = json.loads(done.out)
    assert told["file"] == str(out) and told["bytes"] == out.stat().st_size
    blocks = {block["name"]: block for block in told["blocks"]}
    assert "fit on one GPU" in blocks["slowdown"]["title"] and blocks["breakdown"]["left_out"] is None


def test_a_file_that_is_there_stays(cli: Callable[..., Outcome], page: Path) -> None:
    before = page.read_bytes()
    is_an_error(cli(*WORDS, "--out", str(page)), 2, "exists already", "--force")
    assert page.read_bytes() == before


def test_more_views_than_a_page_holds_are_refused(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    out = str(tmp_path / "x.html")
    is_an_error(cli("report", "--batch", "1..4096", "--dim", "1..64", "--out", out), 2, "fewer values")


@pytest.mark.usefixtures("small")
def test_project_writes_the_page_of_report(
    cli: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "STAYING", (registry.CHANGES, registry.SHARDINGS))
    monkeypatch.setattr(contents, "SIZES", contents.SIZES[:1])
    words = ("--table-size", "2TB", "--batch", "64", "--pooling", "4", "--dim", "64", "--id-dtype", "int32")
    words = (*words, "--machine", "h100-sxm-ib", "--backend", "nccl", "--clock", "stream")
    done = cli("project", *words, "--tables", "2", "--report", str(tmp_path / "beside.html"))
    assert done.code == 0 and " a batch, " in done.out and "Wrote" in done.err and "Wrote" not in done.out
    assert cli("report", *words, "--tables", "2", "--out", str(tmp_path / "page.html")).code == 0
    assert (tmp_path / "beside.html").read_bytes() == (tmp_path / "page.html").read_bytes()
    again = ("project", *words, "--report", str(tmp_path / "beside.html"))
    is_an_error(cli(*again), 2, "exists already", "--report", "beside-2.html")


def test_a_run_of_ones_own_shows_what_it_knows(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    folder, out = own_run.write_run(tmp_path / "four-cores-01234567"), tmp_path / "own.html"
    run_words = ("--calibration", str(folder), "--table-size", "27GB", "--batch", "128")
    words = (*run_words, "--dim", "32", "--pooling", "8")
    done = cli("report", *words, "--out", str(out), "--json")
    assert done.code == 0, done.err
    blocks = {block["name"]: block for block in json.loads(done.out)["blocks"]}
    assert "4 GPUs" in blocks["slowdown"]["title"] and "on 4 GPUs" in blocks["breakdown"]["title"]
    assert "3 points" in blocks["validation"]["title"]  # its own passes
    assert blocks["shardings"]["title"]
    far = ("report", "--calibration", str(folder), "--table-size", "10TB", "--out", str(out), "--force")
    is_an_error(cli(*far), 3, "G = 2, 4")
    asked = page_question(PARAMETERS | {"calibration": str(folder)})
    sizes = measured_sizes(asked)
    assert len(sizes) == 2 and sizes[0] > sizes[1]  # of 4 ranks first, then of 2
    assert asked.table_bytes == sizes[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x.pdf",), "must end in .html or .md"),
        (("x.txt",), "what kind of file"),
        (("-",), "needs the name of a file"),
        (("",), "needs the name of a file"),
        (("-", "--format", "html"), "needs the name of a file"),
        (("/dev/full", "--format", "html"), "a device or a pipe"),
        (("x.html", "--format", "markdown"), "cannot be combined"),
        (("x.md", "--format", "html"), "cannot be combined"),
    ],
)
def test_the_name_of_a_page_says_its_format(
    cli: Callable[..., Outcome], words: tuple[str, ...], said: str
) -> None:
    is_an_error(cli("report", *words[1:], "--out", words[0]), 2, said)


@pytest.mark.parametrize("command", [("project",), ("plan", "--gpus", "8")])
@pytest.mark.parametrize(
    ("name", "said"), [("x.txt", ".html"), ("-", "--report page.html"), ("", "--report page.html")]
)
def test_a_page_beside_an_answer_has_the_name_of_one(
    cli: Callable[..., Outcome], command: tuple[str, ...], name: str, said: str
) -> None:
    is_an_error(cli(*command, "--report", name), 2, said)


def test_markdown_has_the_sentences_and_the_numbers(
    cli: Callable[..., Outcome],
    tmp_path: Path,
    built: tuple[Path, Page],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report_command, "page_of", lambda *asked, **more: built[1])
    done = cli(*WORDS, "--out", str(tmp_path / "r.md"))
    text, answer = (tmp_path / "r.md").read_text(), project_one(table_bytes=10e12)
    assert done.code == 0 and text.startswith("# 10 TB on 144 GPUs: ")
    assert f"| {answer.steps[0].name} | {answer.steps[0].time_s!r} |" in text
    assert text.count("\n## ") > 8 and "rows are in the HTML page" in text
    assert "    perfmodel report --table-size 10TB" in text
    is_an_error(cli("report", "--format", "doc"), 2, "doc", "markdown")


def test_markdown_takes_no_text_for_html() -> None:
    block = Block("n", "<script>", "a | b", style.new_figure(), "s", ({"<b>": "x|y"},))
    text = "\n".join(markdown._block(block))
    assert "<" not in text and "x\\|y" in text


def test_text_from_files_stays_text() -> None:
    bad = "<script>alert(1)</script>"
    for text in (bad, "</SCRIPT>", "<!--", "\u2028<b>"):
        safe = script_safe([text])
        assert json.loads(safe) == [text] and not re.search("<[/!s]|\u2028", safe, re.IGNORECASE)
    answer = project_one(table_bytes=1e12)
    machine = answer.setting.machine.model_copy(update={"name": bad, "title": bad})
    object.__setattr__(answer.setting, "machine", machine)
    text = provenance(answer, f"perfmodel report --machine '{bad}'")
    assert bad not in text and "&lt;script&gt;" in text


def test_the_marks_of_the_paper_are_on_its_question_alone() -> None:
    """10 TB on 128 GPUs, NVLink between all of them; they are given, as other memory takes others."""
    papers = {"table_bytes": 10e12, "reserve": 0.0, "gpus": 128, "machine": "h100-paper"}
    assert len(marks([project_one(**papers)])) == 2
    for other in ({"gpus": 136}, {"machine": "h100-sxm-ib"}, {"table_bytes": 9.9e12}):
        assert marks([project_one(**{**papers, **other})]) == ()


def test_provenance_has_every_equation() -> None:
    answer = project_one(table_bytes=10e12)
    text = provenance(answer, "perfmodel report")
    assert text.count("Equations of") == len(answer.steps)
    assert all(key in text for key in answer.setting.machine.values)


def test_a_card_says_when_much_is_assumed_and_what_to_measure() -> None:
    assert question_card(project_one(table_bytes=10e12)).alert == ""
    assumed = project_one(table_bytes=10e12, overrides={"nic_bytes_per_s": "100GB/s", "hbm_bytes": 80e9})
    alert = question_card(assumed).alert
    assert "assumed" in alert and "perfmodel calibrate" in alert
    h200 = question_card(project_one(table_bytes=1e12, reserve=0, machine="h200-sxm-ib", batch=256)).alert
    assert "of the time rests on something assumed. " in h200 and " numbers not measured here, and" in h200
    small = question_card(project_one(table_bytes=1e9))
    assert "nothing is sharded" in small.sentence and small.sure == ""


def test_settings_of_one_machine_share_the_tables_of_a_library() -> None:
    loaded, machine = Loaded(), load_machine("h100-sxm-ib")
    own = loaded.of(machine, Curves("nccl")).links
    both = loaded.of(machine, Curves("best")).links
    same_clock = loaded.of(machine, Curves("nccl", "stream")).links
    other = loaded.of(machine.with_overrides({"nvlink_bytes_per_s": 1e12}), Curves("nccl")).links
    assert isinstance(own, Library) and isinstance(both, Faster)
    assert isinstance(same_clock, Library) and isinstance(other, Library)
    first, *same, changed = (
        each.table("all_to_all", 64, 8)  # type: ignore[union-attr]
        for each in (own.times, both.first.times, same_clock.times, other.times)
    )
    assert all(each is first for each in same) and changed is not first


def test_a_block_is_plain_data() -> None:
    figure = style.new_figure()
    rows = ({"a": 1.5, "b": "x"}, {"a": float("nan"), "c": None})
    found = block_data(Block("n", "t", "h", figure, "s", rows))
    assert found["columns"] == ["a", "b", "c"] and found["rows"] == [[1.5, "x", None], [None, None, None]]
    assert block_data(Missing("n", "because")) == {"name": "n", "missing": "because"}
