"""Alternatives to sharding: the best of what was tried, conditions that hold, money by hand, a map."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from perfmodel.errors import BadInputError
from perfmodel.plan.other_ways import winner_map as maps
from perfmodel.plan.other_ways.alternatives import alternatives, best_of, rival_of
from perfmodel.plan.other_ways.conditions import needed
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.plan.other_ways.winner_map import CUTS, WAYS, Crossing, MapCell, WinnerMap, winner_map
from perfmodel.projections import project, project_one
from perfmodel.report.alternatives_text import alternatives_text, crossing_lines, headline, map_table
from perfmodel.report.figures.alternatives import costs
from perfmodel.report.page.alternatives_page import alternatives_page
from perfmodel.report.page.assemble import page_html
from perfmodel.schema.prices import read_prices
from perfmodel.units import format_rate

TB = 1e12
PRICES = '[machine_hour]\nh100-sxm-ib = "80 EUR/h"\n[tb_month]\nmemory = "3_000 EUR/TB/month"\n'


def prices(folder: Path, text: str = PRICES) -> Path:
    path = folder / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Alternative]:
    known = read_prices(prices(tmp_path_factory.mktemp("prices")))
    return {a.name: a for a in alternatives({"table_bytes": 10 * TB, "distribution": "zipf:1.05"}, known)}


def test_every_alternative_of_10_tb_is_there(skewed: dict[str, Alternative]) -> None:
    names = ["row-wise", "best-plan", "host", "gh200", "gb200", "ssd", "one-memory"]
    assert list(skewed) == names
    assert [skewed[name].gpus for name in names] == [152, 152, 48, 92, 52, 1, 1]
    best = best_of(list(skewed.values()))
    assert best.time_s == min(a.time_s for a in skewed.values() if not a.stated)
    assert skewed["best-plan"].time_s <= skewed["row-wise"].time_s
    assert best_of(list(skewed.values()), sold=False).name == "one-memory"


def test_no_number_of_gpus_of_host_memory_is_much_faster(skewed: dict[str, Alternative]) -> None:
    """All whole nodes from 48 to 152 GPUs, both tiers, every exchange."""
    times = []
    for tier in ("uvm", "uvm-caching"):
        for way in ("auto", "two_level", "sparse"):
            gpus = list(range(48, 153, 8))
            options = {"distribution": "zipf:1.05", "tier": tier, "reduction": way}
            times += project(table_bytes=10 * TB, gpus=gpus, **options)["time_s"].to_list()
    assert skewed["host"].time_s <= 1.02 * min(times)


def test_what_would_have_to_be_true_makes_it_as_fast(skewed: dict[str, Alternative]) -> None:
    best = best_of(list(skewed.values()))
    need = needed(skewed["ssd"], best)
    assert need is not None and need.step.name == "read_ssd"
    faster = {
        "ssd_reads_per_s": 7.2e6 * need.factor,
        "ssd_queue_depth": "1000000",
        "ssd_bytes_per_s": "1TB/s",
    }
    faster["ssd_latency_s"] = 90e-6 / need.factor
    answer = project_one(table_bytes=10 * TB, distribution="zipf:1.05", tier="ssd", overrides=faster)
    assert answer.time_s == pytest.approx(best.time_s, rel=1e-6)
    row_wise = needed(skewed["row-wise"], best)
    assert row_wise is not None and not row_wise.alone and row_wise.rest_s > best.time_s
    assert {step.collective != "" for step in row_wise.steps} == {True}
    sent = sum(step.time_s for step in row_wise.steps)
    faster_s = skewed["row-wise"].time_s - sent + sent / row_wise.factor
    assert faster_s == pytest.approx(best.time_s)
    assert needed(best, best) is None and needed(skewed["one-memory"], best) is None


def test_a_stated_memory_wins_down_to_the_rate_that_is_said(skewed: dict[str, Alternative]) -> None:
    best, memory = best_of(list(skewed.values())), skewed["one-memory"]
    rate = memory.least_bytes_per_s
    assert rate is not None and rate < 3e12
    asked: dict[str, Any] = {"table_bytes": 10 * TB, "distribution": "zipf:1.05"}
    assert project_one(**asked, local_memory=(10 * TB, rate)).time_s == pytest.approx(best.time_s, rel=2e-3)
    assert all(each.least_bytes_per_s is None for each in skewed.values() if not each.stated)
    text = " ".join(alternatives_text(list(skewed.values()), [], []).split())
    said = f"one memory faster, if it exists: {format_rate(rate)} per GPU is enough; its 3 TB/s is"
    assert f"{said} enough for {int(3e12 / rate)} GPUs" in text


def test_one_memory_as_it_is_stated_and_one_over_the_network(cli: Any) -> None:
    words = ("alternatives", "--table-size", "10TB", "--no-map", "--json")
    remote = ("--remote-memory", "10TB@3TB/s,shared:16,latency:3us")
    outcome = cli(*words, *remote, "--local-memory", "10TB@1TB/s")
    found = {each["name"]: each for each in json.loads(outcome.out)["alternatives"]}
    alone = project_one(table_bytes=10 * TB, local_memory=(10 * TB, 1e12))
    shared = project_one(table_bytes=10 * TB, local_memory=(10 * TB, 3e12, 3e-6, 16))
    assert found["one-memory"]["time_s"] == alone.time_s and found["one-memory"]["gpus"] == 1
    far = found["remote-memory"]
    assert far["time_s"] == shared.time_s and far["gpus"] == 16 and far["stated"]
    assert far["samples_per_s"] == pytest.approx(16 * 1024 / shared.time_s)
    assert "shared by 16 GPUs, 3.00 µs away" in far["what"]
    small = json.loads(cli(*words, "--local-memory", "1TB@1TB/s").out)["alternatives"]
    assert "1 TB" in next(each["why_not"] for each in small if each["name"] == "one-memory")
    assert "remote-memory" not in {each["name"] for each in small}


def test_costs_by_hand(skewed: dict[str, Alternative]) -> None:
    host, memory = skewed["host"], skewed["one-memory"]
    hours = 1e9 / (48 * 1024) * host.time_s / 3600 * 48
    assert host.gpu_hours == pytest.approx(hours)
    assert host.energy_kwh == pytest.approx(0.7 * hours)
    assert host.cost == pytest.approx(80 * hours / 8)
    alone = 1e9 / 1024 * memory.time_s / 3600
    assert memory.cost == pytest.approx(80 * alone / 8 + 10 * 3000 * alone / 730)
    assert skewed["gb200"].cost is None and skewed["gb200"].unpriced == "machine_hour.gb200-nvl72"
    assert skewed["ssd"].cost is None and skewed["ssd"].unpriced == "tb_month.ssd"
    text = " ".join(alternatives_text(list(skewed.values()), [], [], "EUR").split())
    assert (
        "no price: machine_hour.gh200-slingshot (GH200 over C2C), " in text and "tb_month.ssd (SSDs)" in text
    )
    assert "in use are one memory 1 of 8." in text
    assert "whole machines are paid" in text and "host memory 6 machines" in text and "SSDs 1 machine" in text
    assert host.samples_per_s == pytest.approx(48 * 1024 / host.time_s)


def test_one_gpu_with_the_host_memory_pays_its_machine_as_load_does(cli: Any, tmp_path: Path) -> None:
    line = ("--table-size", "1TB", "--prices", str(prices(tmp_path)))
    rows = json.loads(cli("alternatives", *line, "--no-map", "--json").out)["alternatives"]
    found = {each["name"]: each for each in rows}
    host, best, ssd = found["host"], found["best-plan"], found["ssd"]
    for each in (host, ssd):
        assert each["gpus"] == 1 and each["whole_machines"] and each["machines"] == 1
        assert each["machine_hours"] == pytest.approx(each["gpu_hours"])
    assert host["cost"] == pytest.approx(80 * host["gpu_hours"])
    assert host["energy_kwh_at_most"] == pytest.approx(0.7 * host["gpu_hours"])
    assert not best["whole_machines"] and best["cost"] == pytest.approx(80 * best["gpu_hours"] / 8)
    assert not found["one-memory"]["whole_machines"] and found["one-memory"]["machines"] == 1 / 8
    text = " ".join(cli("alternatives", *line, "--no-map").out.split())
    assert "whole machines are paid" in text and "The lowest cost is that of the best plan in HBM." in text


@pytest.mark.parametrize("size", ["1TB", "10TB", "100TB"])
def test_no_number_breaks_on_a_narrow_terminal(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = ("alternatives", "--table-size", size, "--no-map", "--prices", str(prices(tmp_path)))
    lines = cli(*words).out.split("How\n")[0].splitlines()
    start = next(k for k, line in enumerate(lines) if " GPUs " in line)
    assert max(map(len, lines)) <= 60
    further = [line for line in lines[start + 1 :] if line.startswith(" " * 20)]
    assert not further, further  # the rest of a number that broke would stand alone, below its column


def test_host_memory_takes_what_its_rows_need_as_help_says(cli: Any) -> None:
    words = ("alternatives", "--table-size", "10TB", "--gpus", "8", "--no-map", "--json")
    host = {each["name"]: each for each in json.loads(cli(*words).out)["alternatives"]}["host"]
    assert host["gpus"] == 48 and host["gpus_why"] == "the fewest that hold the rows"
    told = " ".join(cli("alternatives", "--help").out.replace("│", " ").split())
    assert "host memory where its rows do not fit, take as many as they need" in told


def test_the_map_has_the_cells_of_the_answers(
    skewed: dict[str, Alternative], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "SKEWS", ("zipf:1.05",))
    cells = winner_map({"table_bytes": 10 * TB, "machine": "h100-sxm-ib"}).cells
    assert len(cells) == 5 * 3
    cell = next(c for c in cells if (c.batch, c.table_bytes) == (1024, 10 * TB))
    assert cell.times["host two-level"] == pytest.approx(skewed["host"].time_s)
    assert cell.times["SSD"] == pytest.approx(skewed["ssd"].time_s)
    assert cell.times["GB200 sparse"] == pytest.approx(skewed["gb200"].time_s)
    assert cell.times["row-wise"] == pytest.approx(skewed["row-wise"].time_s)
    assert all(c.times[c.winner] == min(c.times.values()) for c in cells)
    assert set(cell.times) <= {*WAYS, *CUTS}
    assert len({c.winner for c in cells}) >= 4


@pytest.mark.parametrize(
    ("size", "ids", "batch"),
    [(100 * TB, "zipf:1.2", 16384), (10 * TB, "zipf:1.2", 16384), (TB, "uniform", 64)],
)
def test_the_winner_of_a_cell_is_the_best_of_all_alternatives(size: float, ids: str, batch: int) -> None:
    """The opponent: the whole question, which tries numbers of GPUs and caches too."""
    (cell,) = WinnerMap({"machine": "h100-sxm-ib"}).at(ids, size, [batch])
    best = best_of(alternatives({"table_bytes": size, "distribution": ids, "batch": batch}))
    assert cell.times[cell.winner] == pytest.approx(best.time_s, rel=1e-3)


@pytest.mark.parametrize(("size", "ids"), [(100 * TB, "zipf:1.2"), (TB, "uniform")])
def test_no_other_way_wins_between_the_crossings(size: float, ids: str) -> None:
    """The opponent: every way at 17 batches between those of the map."""
    found = WinnerMap({"machine": "h100-sxm-ib"})
    found.cells.extend(found.at(ids, size, maps.BATCHES))
    crossed = found.crossings()
    scanned = found.at(ids, size, [round(64 * 2 ** (k / 2)) for k in range(17)])
    assert len(crossed) >= 1
    for cell in scanned:
        passed = [each for each in crossed if each.batch <= cell.batch]
        expected = passed[-1].then if passed else crossed[0].first
        if any(abs(each.batch / cell.batch - 1) < 0.03 for each in crossed):
            continue  # both are as fast there
        assert cell.times[expected] <= 1.01 * cell.times[cell.winner], (cell.batch, expected, cell.winner)
    for each in crossed:
        (cell,) = found.at(ids, size, [round(each.batch)], [each.first, each.then])
        assert cell.times[each.first] == pytest.approx(cell.times[each.then], rel=0.01)
    text = crossing_lines(crossed)
    assert "overtakes" in text and "GPU-hours" in text


def test_a_file_of_tables_is_read_once(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import perfmodel.schema.table_files as files

    path = tmp_path / "tables.csv"
    path.write_text("name,rows,dim,pooling\na,8000000,128,20\nb,4000000,128,20\n")
    read: list[Path] = []
    real = files.read_tables
    monkeypatch.setattr(files, "read_tables", lambda p: (read.append(p), real(p))[1])
    assert cli("alternatives", "--model", str(path), "--gpus", "2", "--no-map").code == 0
    assert len(read) <= 3


def test_the_best_is_compared_with_the_best_of_the_other_side(skewed: dict[str, Alternative]) -> None:
    """Host memory has whichever exchange is its fastest, so what it beats in HBM must have it too."""
    found = list(skewed.values())
    best = best_of(found)
    rival = rival_of(found, best)
    assert best.name == "gb200" and rival is skewed["best-plan"]
    ways = [
        project_one(table_bytes=10 * TB, distribution="zipf:1.05", reduction=way).time_s
        for way in ("auto", "two_level", "sparse")
    ]
    assert rival.time_s <= min(ways) < skewed["row-wise"].time_s
    text = " ".join(headline(found, best).split())
    assert "faster than the best plan in HBM (152 GPUs)" in text and "than row-wise" not in text
    assert "flat exchange (reduce-scatter)" in skewed["row-wise"].what
    in_hbm = rival_of(found, skewed["best-plan"])
    assert in_hbm is skewed["gb200"]


def test_a_cache_of_all_rows_is_no_host_memory(tmp_path: Path) -> None:
    """Two nodes hold these tables in HBM, and so would the cache of uvm-caching."""
    path = tmp_path / "tables.csv"
    path.write_text("name,rows,dim,pooling\n" + "".join(f"t{i},8000000,128,20\n" for i in range(100)))
    found = {a.name: a for a in alternatives({"tables": str(path), "gpus": 16, "distribution": "zipf:1.05"})}
    host = found["host"]
    assert host.answer is not None
    assert host.answer.gpu_count.rows_bytes < 0.9995 * host.answer.gpu_count.shard_bytes
    assert "(a cache of all rows in HBM is left out)" in host.what


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_the_map_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    ids, batches = ("uniform", "zipf:1.05"), (64, 256, 1024, 4096, 16384)
    ways = ("host two-level", "host two-level", "GB200", "host sparse", "host sparse")
    cells = [MapCell(i, b, 1e13, {w: 1.0}, {w: 1}) for i in ids for b, w in zip(batches, ways, strict=True)]
    monkeypatch.setenv("COLUMNS", str(columns))
    crossed = [Crossing(ids[0], 1e13, ways[0], ways[2], 700.0, (256, 1024), (1, 2))]
    text = f"{map_table(cells)}\n{crossing_lines(crossed)}"
    assert max(map(len, text.splitlines())) <= columns
    assert "fewest GPU-hours" in text
    if columns == 60:
        line = " ".join(text.split())
        assert "uniform 64 – 256: host two-level; 1 024: GB200; 4 096 – 16 384: host sparse" in line


def test_the_page_has_all_of_it(skewed: dict[str, Alternative]) -> None:
    found = list(skewed.values())
    page = alternatives_page(found, [], [], "EUR", "perfmodel alternatives --table-size 10TB")
    assert [block.name for block in page.blocks()] == ["alternatives", "costs", "winners"]
    html = page_html(page)
    assert "What would have to be true" in html and "EUR" in html and "gb200-nvl72" in html
    times = page.block("alternatives").data  # type: ignore[union-attr]
    assert {row["part"] for row in times} >= {"exchange of ids", "host memory or SSDs", "kernels in HBM"}
    text = alternatives_text(found, [], [], "EUR")
    assert max(map(len, text.splitlines())) <= 100 and "bands overlap" in text


def test_names_of_costs_are_in_the_legend_and_their_axes_have_room(skewed: dict[str, Alternative]) -> None:
    figure = costs(list(skewed.values()), "EUR").figure  # type: ignore[union-attr]
    go.Figure(figure.to_dict())  # checked by plotly
    assert {trace.mode for trace in figure.data} == {"markers"} and figure.layout.showlegend is not False
    assert [trace.name for trace in figure.data] == [each.label for each in skewed.values()]
    for axis, letter in ((figure.layout.xaxis, "x"), (figure.layout.yaxis, "y")):
        values = [trace[letter][0] for trace in figure.data]
        assert 10 ** axis.range[0] < min(values) / 1.4 and 10 ** axis.range[1] > max(values) * 1.4
        assert "0.1" in axis.ticktext or "100 M" in axis.ticktext


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[machine_hour]\nh100-sxm-ib = 80\n", r"machine_hour.h100-sxm-ib 80 is not a price with a unit"),
        ('[machine_hour]\nh100-sxm-ib = "80 EUR"\n', "is not a price with a unit"),
        ('[tb_month]\nmemory = "80 EUR/h"\n', "is not a price with a unit"),
        ('[machine_hour]\nh100-sxm-ib = "1 EUR/h"\nh200-sxm-ib = "1 USD/h"\n', "EUR and USD"),
        ('[machine_hour]\nmine = "1 EUR/h"\n', "mine"),
        ('[hours]\nmine = "1 EUR/h"\n', "hours"),
        ("[tb_month]\n", "has no price"),
        ('[machine_hour]\nh100-sxm-ib = "-80 EUR/h"\n', "'-80 EUR/h' is negative"),
        ('[machine_hour]\nh100-sxm-ib = "1e400 EUR/h"\n', "'1e400 EUR/h' is too large"),
    ],
)
def test_prices_without_their_units_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        read_prices(prices(tmp_path, text))


def test_help_shows_a_price_file_that_can_be_read(cli: Any, tmp_path: Path) -> None:
    text = cli("alternatives", "--help").out
    example = text[text.index("[machine_hour]") : text.index("Options:")]
    example = "\n".join(line.strip() for line in example.splitlines())
    assert read_prices(prices(tmp_path, example)).tb_month.keys() == {"memory", "ssd"}
    assert "two rows in HBM" in " ".join(text.split())


def test_the_prices_of_the_page_are_those_of_its_example() -> None:
    """The page's command runs with the file (``tests/test_docs.py``), which is the block above it."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    block = (
        (docs / "formats.md")
        .read_text(encoding="utf-8")
        .split("<!-- prices -->\n```toml\n")[1]
        .split("```")[0]
    )
    assert block == (docs / "examples" / "prices.toml").read_text(encoding="utf-8")
    assert read_prices(docs / "examples" / "prices.toml").tb_month == {"memory": 3000.0, "ssd": 60.0}


def test_a_set_of_tables_may_be_in_hbm_and_in_host_memory(cli: Any, tmp_path: Path) -> None:
    """Some in HBM and the others in host memory beats all in one tier, and all in the HBM of more GPUs."""
    path = tmp_path / "tables.csv"
    path.write_text("name,rows,dim,pooling\nbig,160000000,128,1\nsmall,4000000,128,40\nmore,4000000,128,40\n")
    words = ("alternatives", "--model", str(path), "--no-map", "--json")
    found = {each["name"]: each for each in json.loads(cli(*words).out)["alternatives"]}
    both, host, plan = found["best-plan-host"], found["host"], found["best-plan"]
    assert both["gpus"] == 1 < plan["gpus"] and both["what"] == "planned, 1 table of 3 in host memory"
    assert both["time_s"] < min(host["time_s"], plan["time_s"])
    gather = next(step for step in both["steps"] if step["name"].startswith("gather"))
    assert gather["name"] == "gather_pool"  # the rows that it reads in place take no longer than the others


def test_the_command_answers_in_text_and_json(cli: Any, tmp_path: Path) -> None:
    words = ("alternatives", "--table-size", "1TB", "--no-map", "--machine", "l40s-pcie")
    outcome = cli(*words)
    assert outcome.code == 0 and "does not say its host_bytes" in outcome.out
    document = json.loads(cli(*words, "--json", "--prices", str(prices(tmp_path))).out)
    assert document["currency"] == "EUR" and document["winner"]
    assert [a["name"] for a in document["alternatives"]][:2] == ["row-wise", "best-plan"]
    assert cli("alternatives").code == 2
    assert cli("alternatives", "--table-size", "1TB", "--prices", str(prices(tmp_path, "x=1"))).code == 2


def test_ctrl_c_in_the_search_for_the_best_plan_ends_the_command(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that is stopped keeps its best plan: here nobody wants the rest any more."""

    def stopped(evaluator: Any, *args: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("perfmodel.plan.searching.search.Bounding", stopped)
    found = cli("alternatives", "--model", "criteo-kaggle", "--gpus", "8")
    assert found.code == 130 and found.out == ""


def test_a_terminal_shows_what_takes_more_than_two_seconds(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line comes after two seconds, not before, and goes away with the answer."""
    lines: list[str] = []
    monkeypatch.setattr("perfmodel.cli.plan_progress.on_terminal", lambda: True)
    monkeypatch.setattr("perfmodel.cli.plan_progress.rewrite", lambda text, before="": lines.append(text))
    monkeypatch.setattr("perfmodel.cli.alternatives_answer._PROGRESS_AFTER_S", 1e-3)
    assert cli("alternatives", "--table-size", "1TB", "--no-map").code == 0
    assert re.match(r"comparing the alternatives +\d+ s", lines[0]) and lines[-1] == ""
    lines.clear()
    monkeypatch.setattr("perfmodel.cli.alternatives_answer._PROGRESS_AFTER_S", 60.0)
    assert cli("alternatives", "--table-size", "1TB", "--no-map").code == 0
    assert not lines
