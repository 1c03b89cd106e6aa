"""``alternatives --machine A,B,C``: the plan on each, sorted, and what each would need to win."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfmodel.errors import BadInputError
from perfmodel.model.differences import difference_band
from perfmodel.schema.prices import HourPrice, read_prices
from perfmodel.units import format_per_second

MACHINES = ("h100-sxm-ib", "h200-sxm-ib", "gb200-nvl72")
NODE = dict(zip(MACHINES, (8, 8, 4), strict=True))
PRICES = """[machine_hour]
h100-sxm-ib = "80 EUR/h"
h200-sxm-ib = "100 EUR/h"
gb200-nvl72 = "{}"
"""


@pytest.fixture
def ask(cli: Any, tmp_path: Path) -> Callable[..., Any]:
    """The document, or with ``text=True`` the screen, of ten tables on 16 GPUs of each machine."""
    tables = tmp_path / "tables.csv"
    tables.write_text("name,rows,dim,pooling\n" + "".join(f"t{i},9000000,128,{4 + i}\n" for i in range(10)))
    prices = tmp_path / "prices.toml"

    def asked(*more: str, gb200: str = "", text: bool = False) -> Any:
        words = [
            "alternatives",
            "--machine",
            ",".join(MACHINES),
            "--model",
            str(tables),
            "--gpus",
            "16",
            *more,
        ]
        if gb200:
            prices.write_text(PRICES.format(gb200), encoding="utf-8")
            words += ["--prices", str(prices)]
        done = cli(*words, *([] if text else ["--json"]))
        assert done.code == 0, done.err
        return " ".join(done.out.split()) if text else json.loads(done.out)

    return asked


def rows_of(document: Any) -> dict[str, Any]:
    return {each["name"]: each for each in document["alternatives"]}


def test_each_machine_has_its_plan_with_money_by_hand(ask: Callable[..., Any]) -> None:
    document = ask(gb200="50 EUR/h")
    rows = rows_of(document)
    assert set(rows) == set(MACHINES) and document["by"] == "cost" and document["map"] == []
    for name, each in rows.items():
        assert (each["what"], each["gpus"], each["samples"]) == ("planned", 16, 16 * 1024)
        hours = 1e9 / each["samples"] * each["time_s"] / 3600
        assert each["gpu_hours"] == pytest.approx(16 * hours)
        assert each["samples_per_s"] == pytest.approx(each["samples"] / each["time_s"])
        price = {"h100-sxm-ib": 80, "h200-sxm-ib": 100, "gb200-nvl72": 50}[name]
        assert each["cost"] == pytest.approx(hours * 16 / NODE[name] * price)
    costs = [each["cost"] for each in document["alternatives"]]
    assert costs == sorted(costs) and document["winner"] == document["alternatives"][0]["name"]


@pytest.mark.parametrize(
    ("by", "key", "sign"),
    [
        ("time", "time_s", 1),
        ("throughput", "samples_per_s", -1),
        ("gpu-hours", "gpu_hours", 1),
        ("cost", "cost", 1),
    ],
)
def test_rows_are_sorted_by_what_is_asked_for(ask: Callable[..., Any], by: str, key: str, sign: int) -> None:
    document = ask("--by", by, gb200="400 EUR/h")
    values = [sign * each[key] for each in document["alternatives"]]
    assert values == sorted(values) and document["by"] == by
    best = document["alternatives"][0]
    for each in document["alternatives"][1:]:
        need = each["needed"]
        of_steps = sum(step["time_s"] for step in each["steps"] if step["name"] in need["steps"])
        faster = each["time_s"] - of_steps + of_steps / need["times_faster"]
        assert faster == pytest.approx(need["target_s"])
        assert need["target_s"] / each["time_s"] == pytest.approx(
            (best[key] / each[key]) ** sign
        )  # as good as the best


def test_the_price_at_which_it_would_win_wins(ask: Callable[..., Any]) -> None:
    """Dear, GB200 says at what price of an hour it wins: a hair below it does, a hair above it does not."""
    rows = rows_of(ask(gb200="1000 EUR/h"))
    price = rows["gb200-nvl72"]["price_to_match"]
    assert price < 1000
    for factor, wins in ((0.999, True), (1.001, False)):
        document = ask(gb200=f"{price * factor:.6f} EUR/h")
        assert (document["winner"] == "gb200-nvl72") is wins
    text = ask(gb200="1000 EUR/h", text=True)
    assert re.search(r"gb200-nvl72 at most [\d.]+ EUR/h \(1000 EUR/h now\); or ", text)
    assert re.search(r"h100-sxm-ib the cheapest up to [\d.]+ EUR/h|h200-sxm-ib the cheapest up to ", text)


def test_an_hour_is_of_a_machine_a_gpu_or_a_rack_and_the_screen_says_which(ask: Callable[..., Any]) -> None:
    """16 GPUs are 4 trays of 4, 16 GPUs, or one rack of 72, which is paid whole."""
    rows = {price: rows_of(ask(gb200=price))["gb200-nvl72"] for price in ("48 EUR/h", "12 EUR/GPU/h")}
    rack = rows_of(ask(gb200="864 EUR/72 GPUs/h"))["gb200-nvl72"]
    tray, gpu = rows.values()
    assert gpu["cost"] == pytest.approx(tray["cost"]) and rack["cost"] == pytest.approx(72 / 16 * gpu["cost"])
    text = ask(gb200="48 EUR/h", text=True)
    assert "gb200-nvl72 48.0 EUR/h, of a machine of 4 GPUs (18 are an NVLink domain of 72)" in text
    assert "h100-sxm-ib 80.0 EUR/h, of a machine of 8 GPUs" in text
    text = ask(gb200="864 EUR/72 GPUs/h", text=True)
    assert "gb200-nvl72 864 EUR/72 GPUs/h, paid 1× for 16 GPUs" in text


def test_units_of_a_price_by_hand(tmp_path: Path) -> None:
    assert [HourPrice(1.0, gpus).units(16, 4) for gpus in (None, 1, 4, 72)] == [16, 64, 16, 1]
    assert [HourPrice(1.0, 72).units(machines, 4) for machines in (18, 19)] == [1, 2]
    path = tmp_path / "prices.toml"
    for bad in ("8 EUR/0 GPUs/h", "8 EUR/99999 GPUs/h", "8 EUR/GPU", "8 EUR/rack/h"):
        path.write_text(PRICES.format(bad), encoding="utf-8")
        with pytest.raises(BadInputError, match="is not a price with a unit"):
            read_prices(path)
    path.write_text('[tb_month]\nssd = "8 EUR/GPU/TB/month"\n', encoding="utf-8")
    with pytest.raises(BadInputError, match="is not a price with a unit"):
        read_prices(path)


def test_a_machine_without_a_price_says_at_which_it_would_win(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('[machine_hour]\nh100-sxm-ib = "80 EUR/h"\n', encoding="utf-8")
    words = ("alternatives", "--machine", "h100-sxm-ib,h200-sxm-ib", "--table-size", "1TB", "--gpus", "16")
    text = " ".join(cli(*words, "--prices", str(path)).out.split())
    assert re.search(r"h200-sxm-ib at most [\d.]+ EUR/h: no price is given", text)
    assert "no price: machine_hour.h200-sxm-ib" in text
    refused = cli(*words, "--by", "cost")
    assert refused.code == 2 and "give --prices FILE as well" in refused.err


def test_training_plans_a_step_forward_and_backward(ask: Callable[..., Any]) -> None:
    forward, both = rows_of(ask()), rows_of(ask("--objective", "training"))
    for name in MACHINES:
        assert both[name]["training"] and both[name]["time_s"] > forward[name]["time_s"]
        assert {step["name"] for step in both[name]["steps"]} > {"gather_pool"}
    assert "Held alike is the training step of all GPUs together: 16 384 samples" in ask(
        "--objective", "training", text=True
    )


def test_it_cannot_tell_where_the_interval_of_the_difference_holds_0(ask: Callable[..., Any]) -> None:
    """Machines share no cause: the difference is of independent bands, worked out again here."""
    document = ask()
    best, *others = document["alternatives"]
    spans = {e["name"]: tuple(e[k] for k in ("low_s", "time_s", "high_s")) for e in document["alternatives"]}
    unsure = {e["name"] for e in others if difference_band(spans[e["name"]], spans[best["name"]])[0] <= 0}
    assert set(document["cannot_tell"]["time"]) == unsure
    text = ask(text=True)
    assert text.startswith("Cannot tell which is the fastest" if unsure else best["name"])


def test_every_machine_takes_what_it_needs_for_the_same_samples(cli: Any) -> None:
    """10 TB: fewer GPUs with more memory each, and as many samples in all as on the first machine."""
    words = ("alternatives", "--machine", "h100-sxm-ib,gb200-nvl72", "--table-size", "10TB")
    rows = rows_of(json.loads(cli(*words, "--json").out))
    h100, gb200 = rows["h100-sxm-ib"], rows["gb200-nvl72"]
    assert h100["gpus"] > gb200["gpus"] and h100["samples"] == gb200["samples"] == 1024 * h100["gpus"]
    assert gb200["batch"] == math.ceil(h100["samples"] / gb200["gpus"])
    own = rows_of(json.loads(cli(*words, "--json", "--equal-batch", "per-gpu").out))
    assert {each["batch"] for each in own.values()} == {1024}
    text = " ".join(cli(*words).out.split())
    assert "samples (1 024 per GPU of h100-sxm-ib)" in text


def test_a_machine_that_is_too_small_is_left_out_with_why(cli: Any, tmp_path: Path) -> None:
    words = ("alternatives", "--machine", "h100-sxm-ib,gb200-nvl72", "--table-size", "10TB", "--gpus")
    done = cli(*words, "72", "--report", str(tmp_path / "page.html"))
    text = " ".join(done.out.split())
    assert done.code == 0 and "Not possible h100-sxm-ib" in text and "above the 68 GB of 80 GB" in text
    assert "gb200-nvl72" in (tmp_path / "page.html").read_text(encoding="utf-8")
    refused = cli(*words, "8")
    assert refused.code == 2 and "above the" in refused.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--local-memory", "10TB@3TB/s"), "--local-memory and several machines"),
        (("--reduction", "two-level"), "the planner chooses the exchanges"),
        (("--calibration", "h100-sxm-ib/nccl-2.29.2-stream"), "--calibration and several machines"),
        (("--by", "slowdown"), "known: cost, gpu-hours, throughput, time"),
    ],
)
def test_what_cannot_be_compared_is_refused(cli: Any, more: tuple[str, ...], says: str) -> None:
    done = cli("alternatives", "--machine", "h100-sxm-ib,h200-sxm-ib", "--table-size", "1TB", *more)
    assert done.code == 2 and says in " ".join(done.err.split())


def test_training_of_one_machine_is_refused(cli: Any) -> None:
    done = cli("alternatives", "--table-size", "1TB", "--objective", "training")
    assert done.code == 2 and "perfmodel plan" in done.err


def test_explain_has_the_money_of_a_rack(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES.format("720 EUR/72 GPUs/h"), encoding="utf-8")
    words = (
        "--machine",
        "h100-sxm-ib,gb200-nvl72",
        "--table-size",
        "1TB",
        "--gpus",
        "16",
        "--prices",
        str(path),
    )
    document = json.loads(cli("alternatives", *words, "--json").out)
    numbers = {
        each["key"]: each
        for each in json.loads(cli("explain", "alternatives", *words, "--json").out)["numbers"]
    }
    for each in document["alternatives"]:
        assert numbers[f"{each['name']}.cost"]["value"] == each["cost"]
    assert "of 72 GPUs at 720 EUR/72 GPUs/h" in " ".join(numbers["gb200-nvl72.cost"]["working"])


def test_a_sweep_of_machines_is_sorted_by_time_and_one_of_a_machine_by_slowdown(cli: Any) -> None:
    """Row-wise, A100 takes longer than H100 and is slowed less: one of its GPUs takes longer too."""
    words = ("sweep", "--table-size", "10TB", "--sharding", "row-wise", "--machine")
    text = cli(*words, "gb200-nvl72,a100-sxm-ib,h100-sxm-ib").out
    frame = rows_of_sweep(cli, *words, "gb200-nvl72,a100-sxm-ib,h100-sxm-ib")
    by_time = sorted(frame, key=lambda row: row["time_s"])
    assert [line.split()[0] for line in text.split("Fastest")[1].splitlines()[2:5]] == [
        row["machine"] for row in by_time
    ]
    assert by_time != sorted(frame, key=lambda row: row["slowdown"])
    assert "slowdown" not in text and "Each GPU has as many samples" in " ".join(text.split())
    for row in by_time:
        assert format_per_second(row["gpus"] * row["batch"] / row["time_s"], "samples") in text
    alone = cli("sweep", "--table-size", "1TB,10TB").out
    assert "Least slowed" in alone and "Fastest" not in alone


def rows_of_sweep(cli: Any, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(cli(*words, "--json").out)["rows"]
    return rows


def test_a_page_of_two_ranks_by_time_and_says_what_is_held(cli: Any, tmp_path: Path) -> None:
    size = ("--table-size", "10TB", "--batch", "1024", "--pooling", "32", "--dim", "32")

    def compared(a: str, b: str, *more: str) -> str:
        done = cli("report", "--compare", a, b, *size, "--out", str(tmp_path / "two.md"), "--force", *more)
        assert done.code == 0, done.err
        return str(done.out)

    found = json.loads(compared("a100-sxm-ib", "h100-sxm-ib", "--json"))
    a, b = found["a"], found["b"]
    assert a["slowdown"] < b["slowdown"] and a["time_s"] > b["time_s"]
    assert not found["finding"].startswith("A a100-sxm-ib is")
    assert a["samples_per_s"] == pytest.approx(1024 * a["gpus"] / a["time_s"])
    assert "on each GPU" not in compared("a100-sxm-ib", "h100-sxm-ib")  # as many GPUs
    text = " ".join(compared("h100-sxm-ib", "gb200-nvl72").split())
    assert "A batch has 1 024 samples on each GPU, so more GPUs process more in it: A 152 GPUs, " in text
