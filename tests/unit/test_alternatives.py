"""Alternatives to sharding: the best of what was tried, conditions that hold, money by hand, a map."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from perfmodel.errors import BadInputError
from perfmodel.plan.other_ways import winner_map as maps
from perfmodel.plan.other_ways.alternatives import (
    alternatives,
    best_of,
    cheapest_of,
    fastest_of,
    held_otherwise,
    rivals_of,
)
from perfmodel.plan.other_ways.conditions import needed
from perfmodel.plan.other_ways.criteria import GPU_HOURS, TIME
from perfmodel.plan.other_ways.map_cells import CUTS, WAYS, Crossing, MapCell, place_of
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.plan.other_ways.winner_map import WinnerMap, winner_map
from perfmodel.projections import project_one, project_row_wise
from perfmodel.report.alternatives_text import (
    alternatives_text,
    by_goal,
    headline,
    headlines,
    needed_words,
)
from perfmodel.report.figures.alternatives import costs
from perfmodel.report.page.alternatives_page import alternatives_page
from perfmodel.report.page.assemble import page_html
from perfmodel.report.winner_map_text import crossing_lines, map_table
from perfmodel.schema.prices import read_prices
from perfmodel.units import format_rate

TB = 1e12
DOCS = Path(__file__).resolve().parents[2] / "docs"
SAMPLES = 152 * 1024
"""Of a batch of the default question: 1 024 on each of the GPUs that hold 10 TB in HBM."""
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
    names = ["row-wise", "best-plan", "host", "gh200", "gh200-fast", "gh200-slingshot", "gb200"]
    assert list(skewed) == [*names, "ssd", "one-memory"]
    assert [skewed[name].gpus for name in ("row-wise", "best-plan", "host", "gb200")] == [152, 152, 48, 52]
    best = best_of(list(skewed.values()))
    assert best.gpu_hours == min(a.gpu_hours for a in skewed.values() if not a.stated)
    assert fastest_of(list(skewed.values())).time_s == min(a.time_s for a in skewed.values() if not a.stated)
    assert skewed["best-plan"].time_s <= skewed["row-wise"].time_s
    assert best_of(list(skewed.values()), sold=False).name == "one-memory"


def test_all_have_as_many_samples_in_a_batch_and_both_winners_are_named(
    skewed: dict[str, Alternative],
) -> None:
    """48 GPUs with 3 243 samples each, not 1 024: slower than the best plan in HBM, for fewer GPU-hours."""
    assert {each.samples for each in skewed.values()} == {SAMPLES}
    assert [skewed[name].batch for name in ("row-wise", "host", "one-memory")] == [1024, 3243, SAMPLES]
    host, plan = skewed["host"], skewed["best-plan"]
    asked: dict[str, Any] = {"table_bytes": 10 * TB, "distribution": "zipf:1.05", "tier": "uvm-caching"}
    alone = project_one(**asked, reduction="two_level", gpus=48, batch=3243)
    assert host.time_s == alone.time_s > plan.time_s and host.gpu_hours < plan.gpu_hours
    only = [each for each in skewed.values() if each.machine == "h100-sxm-ib"]
    assert (best_of(only), fastest_of(only)) == (host, plan)
    text = " ".join(headline(only).split())
    assert text.startswith("Host memory on 48 GPUs takes the fewest GPU-hours for 10 TB: ")
    assert "fewer than the best plan in HBM (152 GPUs)" in text
    assert "Cannot tell which is the fastest: best plan in HBM on 152 GPUs (" in text
    assert (
        "Held alike is the batch of all GPUs together: 155 648 samples (1 024 per GPU in HBM), ids zipf:1.05."
        in text
    )


def test_both_batches_are_shown_where_the_winner_changes_between_them() -> None:
    """The opponent: the question asked with the other batch held. Rows in place, as no cache is another."""
    asked = {"table_bytes": 10 * TB, "machine": "h100-sxm-ib"}
    own = {each.name: each for each in alternatives(asked)}
    other = {each.name: each for each in held_otherwise(list(own.values()))}
    anew = {each.name: each for each in alternatives(asked, equal_batch="per-gpu")}
    for name in ("row-wise", "best-plan", "host", "gh200", "gb200"):
        assert other[name].time_s == pytest.approx(anew[name].time_s, rel=1e-6)
        assert (other[name].samples, other[name].batch) == (anew[name].samples, 1024)
    shown = [own[name] for name in ("row-wise", "best-plan", "host", "ssd")]
    last = headlines(shown)[-1]
    assert last.startswith(
        "With 1 024 samples on each GPU instead, on the same GPUs and with the same caches: "
    )
    assert "best plan in HBM on 152 GPUs (0.153 per 10⁹ samples) or host memory on 48 GPUs (0.158" in last
    assert headlines([own["row-wise"], own["ssd"]])[-1].startswith(
        "Held alike is the batch of all GPUs together"
    )


def test_the_same_samples_on_each_gpu_are_the_option(cli: Any) -> None:
    words = ("alternatives", "--table-size", "1TB", "--no-map", "--equal-batch", "per-gpu")
    found = json.loads(cli(*words, "--json").out)["alternatives"]
    assert {each["batch"] for each in found} == {1024}
    assert all(each["samples"] == 1024 * each["gpus"] for each in found)
    assert not any(each["name"].endswith("-fast") for each in found)
    assert "Held alike is the batch of a GPU: 1 024 samples, ids uniform." in " ".join(
        cli(*words).out.split()
    )
    refused = cli(*words[:-1], "gpu")
    assert refused.code == 2 and "global, per-gpu" in refused.err


def test_who_takes_the_fewest_gpu_hours_of_a_machine_pays_the_least(tmp_path: Path) -> None:
    """SSDs took 1 GPU-hour where 8 were paid; now all 8 GPUs of the node work, and both say the same."""
    options = {"table_bytes": 10 * TB, "distribution": "zipf:1.2", "batch": 64}
    known = read_prices(prices(tmp_path, PRICES + 'ssd = "60 EUR/TB/month"\n'))
    found = [each for each in alternatives(options, known) if each.machine == "h100-sxm-ib"]
    by_name = {each.name: each for each in found}
    ssd = by_name["ssd"]
    assert (ssd.gpus, ssd.gpus_paid, ssd.machines, ssd.batch) == (8, 8, 1, 152 * 64 / 8)
    assert best_of(found) is cheapest_of(found) is ssd
    alone = project_one(**{**options, "batch": 152 * 64}, tier="ssd", gpus=1)
    assert ssd.time_s < alone.time_s  # one GPU of the node, with all the work and all 8 paid
    for each in found:
        assert each.machine_hours == pytest.approx(each.gpu_hours / 8)
        assert each.stated or each.cost == pytest.approx(80 * each.machine_hours, rel=0.02)


def test_tables_in_the_hbm_of_a_part_of_a_node_have_copies_on_the_rest(cli: Any, tmp_path: Path) -> None:
    """100 GB on 2 GPUs: 4 copies in a node of 8, each with its part of the batch."""
    words = ("alternatives", "--table-size", "100GB", "--no-map", "--prices", str(prices(tmp_path)))
    rows = {each["name"]: each for each in json.loads(cli(*words, "--json").out)["alternatives"]}
    plan, ssd = rows["row-wise"], rows["ssd"]
    assert (plan["copies"], plan["gpus"], plan["gpus_paid"], plan["samples"]) == (4, 8, 8, 8 * 1024)
    assert plan["time_s"] == project_one(table_bytes=100e9, gpus=2).time_s
    assert (ssd["gpus"], ssd["gpus_paid"], ssd["batch"]) == (1, 8, 8 * 1024)
    assert ssd["gpu_hours"] == pytest.approx(1e9 / 8192 * ssd["time_s"] / 3600 * 8)
    text = " ".join(cli(*words).out.split())
    assert "4 copies on 2 GPUs each fill a machine" in text
    assert "Paid and not in use: SSDs 7 of 8, one memory 7 of 8." in text


def test_rows_over_c2c_say_whose_network_was_measured(skewed: dict[str, Alternative]) -> None:
    text = " ".join(alternatives_text(list(skewed.values()), [], []).split())
    for name, words in (
        ("gh200", "h100-sxm-ib/nccl-2.29.2-stream: NVLink domains of 4 GPUs, InfiniBand between them"),
        (
            "gh200-slingshot",
            "gh200-slingshot/nccl-2.23.4-stream: NVLink domains of 4 GPUs, Slingshot between",
        ),
        ("gb200", "gb200-nvl72/nccl-2.23-stream: NVLink domains of 72 GPUs; C2C by its datasheet"),
    ):
        assert f"exchanges as measured for {words}" in text
        network = skewed[name].to_dict()["network"]
        assert network.startswith(f"exchanges as measured for {words}"), name
    assert "over C2C" not in text and skewed["gh200"].time_s < skewed["gh200-slingshot"].time_s / 2
    curves = skewed["gh200"].answer.setting.links.calibrations  # type: ignore[union-attr]
    assert curves == project_one(table_bytes=10 * TB).setting.links.calibrations


def test_no_number_of_gpus_of_host_memory_is_much_better(skewed: dict[str, Alternative]) -> None:
    """All whole nodes from 48 to 152 GPUs, both tiers, every exchange, by time and by GPU-hours."""
    times = []
    gpus = np.arange(48, 153, 8)
    for tier in ("uvm", "uvm-caching"):
        for way in ("auto", "two_level", "sparse"):
            options = {"distribution": "zipf:1.05", "tier": tier, "reduction": way}
            batches = np.ceil(SAMPLES / gpus)
            found = project_row_wise(table_bytes=10 * TB, gpus=gpus, batch=batches, **options)
            times.append(found["time_s"].to_numpy())
    host = skewed["host"]  # the fewest GPU-hours, and the shortest time too
    assert host.time_s * host.gpus <= 1.02 * np.min(times @ np.diag(gpus))
    assert host.time_s <= 1.1 * np.min(times)


def test_what_would_have_to_be_true_makes_it_take_as_few_gpu_hours(skewed: dict[str, Alternative]) -> None:
    best = best_of(list(skewed.values()))
    for each in skewed.values():
        need = needed(each, best)
        if need is None:
            assert each is best or each.stated
            continue
        sent = sum(step.time_s for step in need.steps)
        assert each.time_s - sent + sent / need.factor == pytest.approx(need.target_s)
        hours = need.target_s * each.gpus_paid / (best.time_s * best.gpus_paid)
        assert hours == pytest.approx(1) and (need.rest_s <= need.target_s or not need.alone)
    row_wise = needed(skewed["row-wise"], best)
    assert row_wise is not None and {step.collective != "" for step in row_wise.steps} == {True}
    assert needed(best, best) is None and needed(skewed["one-memory"], best) is None


def test_drives_that_much_faster_take_as_few_gpu_hours() -> None:
    asked: dict[str, Any] = {"table_bytes": 10 * TB, "distribution": "zipf:1.2", "batch": 64}
    found = {each.name: each for each in alternatives(asked, equal_batch="per-gpu")}
    best, ssd = best_of(list(found.values())), found["ssd"]
    need = needed(ssd, best)
    assert need is not None and need.step.name == "read_ssd" and need.alone
    faster = {
        "ssd_reads_per_s": 7.2e6 * need.factor,
        "ssd_queue_depth": "1000000",
        "ssd_bytes_per_s": "1TB/s",
        "ssd_latency_s": 90e-6 / need.factor,
    }
    way = ssd.answer.forward.reduction  # type: ignore[union-attr]
    answer = project_one(**asked, tier="ssd", gpus=8, reduction=way, overrides=faster)
    hours = answer.time_s / 64  # 8 of 8 GPUs are paid, as are all of the best
    assert hours == pytest.approx(best.time_s / 64, rel=1e-6)


def test_a_stated_memory_wins_down_to_the_rate_that_is_said(skewed: dict[str, Alternative]) -> None:
    best, memory = best_of(list(skewed.values())), skewed["one-memory"]
    rate = memory.least_bytes_per_s
    assert rate is not None and rate < 3e12
    asked: dict[str, Any] = {"table_bytes": 10 * TB, "distribution": "zipf:1.05", "batch": SAMPLES}
    slow = project_one(**asked, local_memory=(10 * TB, rate)).time_s
    assert 8 * slow == pytest.approx(best.gpus_paid * best.time_s, rel=2e-3)  # 8 GPUs are paid beside it
    assert all(each.least_bytes_per_s is None for each in skewed.values() if not each.stated)
    text = " ".join(alternatives_text(list(skewed.values()), [], []).split())
    said = f"one memory fewer, if it exists: {format_rate(rate)} per GPU is enough; its 3 TB/s is"
    assert f"{said} enough for {int(3e12 / rate)} GPUs" in text


def test_one_memory_as_it_is_stated_and_one_over_the_network(cli: Any) -> None:
    words = ("alternatives", "--table-size", "10TB", "--no-map", "--json")
    remote = ("--remote-memory", "10TB@3TB/s,shared:16,latency:3us")
    outcome = cli(*words, *remote, "--local-memory", "10TB@1TB/s")
    found = {each["name"]: each for each in json.loads(outcome.out)["alternatives"]}
    alone = project_one(table_bytes=10 * TB, batch=SAMPLES, local_memory=(10 * TB, 1e12))
    shared = project_one(table_bytes=10 * TB, batch=SAMPLES / 16, local_memory=(10 * TB, 3e12, 3e-6, 16))
    assert found["one-memory"]["time_s"] == alone.time_s and found["one-memory"]["gpus"] == 1
    far = found["remote-memory"]
    assert far["time_s"] == shared.time_s and far["gpus"] == 16 and far["stated"]
    assert far["samples_per_s"] == pytest.approx(SAMPLES / shared.time_s) and far["gpus_paid"] == 16
    assert "shared by 16 GPUs, 3.00 µs away" in far["what"]
    small = json.loads(cli(*words, "--local-memory", "1TB@1TB/s").out)["alternatives"]
    assert "1 TB" in next(each["why_not"] for each in small if each["name"] == "one-memory")
    assert "remote-memory" not in {each["name"] for each in small}


def test_costs_by_hand(skewed: dict[str, Alternative]) -> None:
    host, memory = skewed["host"], skewed["one-memory"]
    hours = 1e9 / SAMPLES * host.time_s / 3600
    assert host.machines == 6 and host.machine_hours == pytest.approx(6 * hours)
    assert host.gpu_hours == pytest.approx(48 * hours)
    assert host.energy_kwh == pytest.approx(10.2 * 6 * hours)  # NVIDIA's DGX H100, whole
    assert host.cost == pytest.approx(80 * 6 * hours)
    alone = 1e9 / SAMPLES * memory.time_s / 3600
    assert (memory.gpus, memory.gpus_paid, memory.machines) == (1, 8, 1)
    assert memory.cost == pytest.approx(80 * alone + 10 * 3000 * alone / 730)
    assert skewed["gb200"].cost is None and skewed["gb200"].unpriced == "machine_hour.gb200-nvl72"
    assert skewed["ssd"].cost is None and skewed["ssd"].unpriced == "tb_month.ssd"
    assert skewed["gh200"].energy_kwh is None  # no datasheet says what a whole node draws
    text = " ".join(alternatives_text(list(skewed.values()), [], [], "EUR").split())
    assert "no price: machine_hour.gh200-slingshot for GH200 (IB), " in text
    assert "tb_month.ssd for SSDs" in text
    assert "Paid and not in use: one memory 7 of 8." in text
    assert f"Host memory on 48 GPUs costs the least: {host.cost:.3f} EUR" in text
    assert host.samples_per_s == pytest.approx(SAMPLES / host.time_s)


def test_the_page_works_out_a_row_by_hand(cli: Any) -> None:
    """docs/serving.md: each line is worked out again, and its numbers are those of the command above it."""
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    block = page.split("<!-- by hand -->\n```text\n")[1].split("```")[0]
    prices_file = str(DOCS / "examples" / "prices.toml")
    document = json.loads(
        cli("alternatives", "--table-size", "10TB", "--no-map", "--prices", prices_file, "--json").out
    )
    host = next(each for each in document["alternatives"] if each["name"] == "host")
    known = {
        "time of all": 1e9 / host["samples"] * host["time_s"],
        "machine-hours": host["machine_hours"],
        "GPU-hours": host["gpu_hours"],
        "kWh": host["energy_kwh_at_most"],
        "EUR": host["cost"],
    }
    for line in block.splitlines():
        name, sum_, *_ = re.split(r"  +", line.strip())
        terms, result = sum_.split(" = ")
        assert float(result.split()[0]) == pytest.approx(_worked_out(terms), rel=5e-3), line
        assert float(result.split()[0]) == pytest.approx(known.pop(name), rel=5e-3), line
    assert not known


def _worked_out(terms: str) -> float:
    """``1e9 / 155648 x 2 us``, from left to right."""
    value, times = 1.0, True
    for word in re.findall(r"[×/]|[\d.]+(?:e-?\d+)?", terms):
        if word in "×/":
            times = word == "×"
        else:
            value = value * float(word) if times else value / float(word)
    return value


def test_nodes_in_use_are_paid_whole_as_load_does(cli: Any, tmp_path: Path) -> None:
    line = ("--table-size", "1TB", "--prices", str(prices(tmp_path)), "--no-map")
    remote = ("--remote-memory", "1TB@3TB/s,shared:12,latency:3us", "--gpus", "20")
    rows = json.loads(cli("alternatives", *line, *remote, "--json").out)["alternatives"]
    found = {each["name"]: each for each in rows}
    for name, gpus, nodes in (("row-wise", 20, 3), ("remote-memory", 12, 2), ("host", 8, 1)):
        each = found[name]
        assert (each["gpus"], each["machines"], each["gpus_paid"]) == (gpus, nodes, 8 * nodes)
        assert each["gpu_hours"] == pytest.approx(8 * each["machine_hours"])
        assert each["energy_kwh_at_most"] == pytest.approx(10.2 * each["machine_hours"])
    assert found["host"]["cost"] == pytest.approx(80 * found["host"]["machine_hours"])


@pytest.mark.parametrize("size", ["1TB", "10TB", "100TB"])
def test_no_number_breaks_on_a_narrow_terminal(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = ("alternatives", "--table-size", size, "--no-map", "--prices", str(prices(tmp_path)))
    lines = cli(*words).out.split("How\n")[0].splitlines()
    start = next(k for k, line in enumerate(lines) if " paid " in line)
    assert max(map(len, lines)) <= 60
    further = [line for line in lines[start + 1 :] if line.startswith(" " * 20)]
    assert not further, further  # the rest of a number that broke would stand alone, below its column


@pytest.mark.parametrize(("gpus", "left_out"), [(8, {"host", "gh200", "gb200"}), (64, {"gh200"})])
def test_no_row_takes_more_gpus_than_were_asked_for(cli: Any, gpus: int, left_out: set[str]) -> None:
    """GH200 took 92 GPUs, and host memory 48, whatever ``--gpus`` said."""
    words = ("alternatives", "--table-size", "10TB", "--gpus", str(gpus), "--no-map", "--json")
    found = {each["name"]: each for each in json.loads(cli(*words).out)["alternatives"]}
    assert all(each["gpus"] <= gpus for each in found.values() if not each["why_not"])
    for name in left_out:
        assert f"or more, and --gpus {gpus} allows no more" in found[name]["why_not"]
    told = " ".join(cli("alternatives", "--help").out.replace("│", " ").split())
    assert "what needs more is left out, with the reason" in told


def test_where_nothing_that_is_sold_holds_the_tables_it_says_so(cli: Any) -> None:
    done = cli("alternatives", "--table-size", "10PB", "--gpus", "8", "--no-map")
    assert done.code == 2 and "nothing that is sold holds the tables" in done.err
    assert "--gpus 8 allows no more" in done.err


def test_the_map_has_the_cells_of_the_answers(
    skewed: dict[str, Alternative], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "SKEWS", ("zipf:1.05", "zipf:1.2"))
    found = winner_map({"table_bytes": 10 * TB, "machine": "h100-sxm-ib"})
    assert len(found.cells) == 2 * 5 * 3
    (cell,) = found.at("zipf:1.05", 10 * TB, [SAMPLES])
    assert cell.times["host two-level"] > skewed["host"].time_s  # rows in place: the map tries no caches
    assert cell.times["GH200 sparse"] == pytest.approx(skewed["gh200"].time_s)
    assert cell.times["GB200 sparse"] == pytest.approx(skewed["gb200"].time_s)
    assert cell.times["row-wise"] == pytest.approx(skewed["row-wise"].time_s)
    assert cell.cost["row-wise"] == pytest.approx(152 * skewed["row-wise"].time_s)
    assert all(c.cost[c.winner] == min(c.cost.values()) for c in found.cells)
    assert set(cell.times) <= {*WAYS, *CUTS}
    assert len({c.winner for c in found.cells}) >= 4


def test_a_cell_whose_best_are_within_their_bands_names_no_winner(skewed: dict[str, Alternative]) -> None:
    """As the list does, whose ways are the cell's; beyond the bands it names the way."""
    (cell,) = WinnerMap({"machine": "h100-sxm-ib"}).at("zipf:1.05", 10 * TB, [SAMPLES])
    names = {"host": ("host",), "GB200": ("gb200",), "GH200": ("gh200",), "HBM": ("row-wise", "best-plan")}
    listed = {name for each in GPU_HOURS.as_good(skewed.values(), skewed["gb200"]) for name in (each.name,)}
    assert cell.winner == "GB200 sparse" and cell.as_good
    for place, of in names.items():
        own = any(place_of(words) == place for words in cell.as_good)
        assert place == "GB200" or own == bool(listed & set(of)), place
    assert cell.shown == "GB200 or host" and cell.to_dict()["cannot_tell"] == list(cell.as_good)
    assert "GB200 or host" in map_table([cell], of_all=True)
    sure = replace(cell, answers={})
    assert sure.shown == "GB200 sparse" and "or B" not in map_table([sure], of_all=True)


@pytest.mark.parametrize("equal", ["global", "per-gpu"])
@pytest.mark.parametrize(
    ("size", "ids", "batch"),
    [(100 * TB, "zipf:1.2", 16384), (10 * TB, "zipf:1.2", 64), (TB, "uniform", 64), (100e9, "uniform", 64)],
)
def test_the_winner_of_a_cell_is_the_best_of_all_alternatives(
    size: float, ids: str, batch: int, equal: str
) -> None:
    """The opponent: the whole question, which tries numbers of GPUs and caches too."""
    best = best_of(
        alternatives({"table_bytes": size, "distribution": ids, "batch": batch}, equal_batch=equal)
    )
    asked = int(best.samples) if equal == "global" else batch
    (cell,) = WinnerMap({"machine": "h100-sxm-ib"}, equal).at(ids, size, [asked])
    paid = best.time_s * best.gpus_paid / (1 if equal == "global" else best.gpus)
    assert cell.cost[cell.winner] == pytest.approx(paid, rel=1e-3)


@pytest.mark.parametrize(("size", "ids"), [(100 * TB, "zipf:1.2"), (TB, "uniform")])
def test_no_other_way_wins_between_the_crossings(size: float, ids: str) -> None:
    """The opponent: every way at 17 batches between those of the map."""
    found = WinnerMap({"machine": "h100-sxm-ib"})
    found.cells.extend(found.at(ids, size, [4096 * 4**k for k in range(5)]))
    crossed = found.crossings()
    scanned = found.at(ids, size, [round(4096 * 2 ** (k / 2)) for k in range(17)])
    assert len(crossed) >= 1
    for cell in scanned:
        passed = [each for each in crossed if each.batch <= cell.batch]
        expected = passed[-1].then if passed else crossed[0].first
        if any(abs(each.batch / cell.batch - 1) < 0.03 for each in crossed):
            continue  # both take as many GPU-hours there
        assert cell.cost[expected] <= 1.01 * cell.cost[cell.winner], (cell.batch, expected, cell.winner)
    for each in crossed:
        (cell,) = found.at(ids, size, [round(each.batch)], [each.first, each.then])
        assert cell.cost[each.first] == pytest.approx(cell.cost[each.then], rel=0.01)
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
    rivals = rivals_of(found, best)
    assert best.name == "gb200" and rivals == [skewed["row-wise"], skewed["best-plan"]]
    ways = [
        project_one(table_bytes=10 * TB, distribution="zipf:1.05", reduction=way).time_s
        for way in ("auto", "two_level", "sparse")
    ]
    assert skewed["best-plan"].time_s <= min(ways) < skewed["row-wise"].time_s
    text = " ".join(headline([each for each in found if each is not skewed["host"]]).split())
    assert "fewer than the best plan in HBM (152 GPUs)" in text and "than row-wise" not in text
    assert "flat exchange (reduce-scatter)" in skewed["row-wise"].what
    outside = rivals_of(found, skewed["best-plan"])
    assert best_of(outside) is skewed["gb200"] and skewed["one-memory"] not in outside


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
    each = [(i, b, w) for i in ids for b, w in zip(batches, ways, strict=True)]
    cells = [MapCell(i, b, 1e13, {w: 1.0}, {w: 1}, {w: 1.0}) for i, b, w in each]
    monkeypatch.setenv("COLUMNS", str(columns))
    crossed = [Crossing(ids[0], 1e13, ways[0], ways[2], 700.0, (256, 1024), (1, 2))]
    text = f"{map_table(cells, of_all=False)}\n{crossing_lines(crossed)}"
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
    assert max(map(len, text.splitlines())) <= 100 and text.startswith("Cannot tell which takes")


def test_the_page_leads_with_the_criterion_that_was_asked_for(skewed: dict[str, Alternative]) -> None:
    """As the screen does: its first sentence, and what the others would have to do."""
    for by in (TIME, GPU_HOURS):
        found = by.order(skewed.values())
        page = alternatives_page(found, [], [], "", "perfmodel alternatives --table-size 10TB", by)
        assert page.card.sentence == headlines(found, "", by)[0] and page.card.sentence in page.title
        assert f"What would have to be true to {by_goal(by)} as {best_of(found, by).label}" in page.provenance
        assert all(escape(words) in page.provenance for _, words in needed_words(found, "", by))


def test_names_of_costs_are_in_the_legend_and_their_axes_have_room(skewed: dict[str, Alternative]) -> None:
    figure = costs(list(skewed.values()), "EUR").figure  # type: ignore[union-attr]
    go.Figure(figure.to_dict())  # checked by plotly
    assert {trace.mode for trace in figure.data} == {"markers"} and figure.layout.showlegend is not False
    assert [trace.name for trace in figure.data] == [each.label for each in skewed.values()]
    looks = [(trace.marker.color, trace.marker.symbol) for trace in figure.data]
    assert len(set(looks)) == len(looks) > 8
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
    assert "GPUs of the alternatives in HBM" in " ".join(text.split())


def test_the_prices_of_the_page_are_those_of_its_example() -> None:
    """The page's command runs with the file (``tests/test_docs.py``), which is the block above it."""
    block = (
        (DOCS / "formats.md")
        .read_text(encoding="utf-8")
        .split("<!-- prices -->\n```toml\n")[1]
        .split("```")[0]
    )
    assert block == (DOCS / "examples" / "prices.toml").read_text(encoding="utf-8")
    assert read_prices(DOCS / "examples" / "prices.toml").tb_month == {"memory": 3000.0, "ssd": 60.0}


def test_a_set_of_tables_may_be_in_hbm_and_in_host_memory(cli: Any, tmp_path: Path) -> None:
    """On one node, some in HBM and others in host memory; all in HBM, or all in host memory, takes more."""
    path = tmp_path / "tables.csv"
    path.write_text(
        "name,rows,dim,pooling\nbig,1600000000,128,1\nsmall,4000000,128,40\nmore,4000000,128,40\n"
    )
    words = ("alternatives", "--model", str(path), "--no-map", "--json")
    found = {each["name"]: each for each in json.loads(cli(*words).out)["alternatives"]}
    both, host, plan = found["best-plan-host"], found["host"], found["best-plan"]
    assert both["gpus_paid"] == 8 < plan["gpus"] and both["what"] == "planned, 1 table of 3 in host memory"
    assert both["gpu_hours"] < min(host["gpu_hours"], plan["gpu_hours"])
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
