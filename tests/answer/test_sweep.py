"""Many configurations: shardings, machines side by side, the largest batch within a latency."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from perfmodel.engine.schemes import ROW_WISE, WAYS

TRAINING = ("--table-size", "10TB", "--set", "objective=training")


def test_the_default_is_what_project_leads_with(cli: Any, tmp_path: Path) -> None:
    (row,) = json.loads(cli("sweep", *TRAINING, "--json").out)["rows"]
    lead = json.loads(cli("project", *TRAINING[:2], "--objective", "training", "--json").out)
    assert (row["sharding"], row["time_s"]) == (lead["sharding"], pytest.approx(lead["time_s"]))
    (other,) = json.loads(cli("sweep", *TRAINING, "--sharding", "ub", "--json").out)["rows"]
    assert other["sharding"] == "row-wise-ub" and other["time_s"] < row["time_s"]
    import pandas as pd

    file = tmp_path / "sweep.parquet"
    assert cli("sweep", *TRAINING, "--out", str(file)).code == 0
    assert list(pd.read_parquet(file)["sharding"]) == [lead["sharding"]]


def test_all_is_a_row_for_each_sharding_that_is_possible(cli: Any) -> None:
    rows = json.loads(
        cli("sweep", "--table-size", "1TB,2TB", "--dim", "128", "--sharding", "all", "--json").out
    )["rows"]
    for size in (1e12, 2e12):
        ways = [row["sharding"] for row in rows if row["table_bytes"] == size]
        assert ways == [way for way in WAYS if way in ways] and {"column-wise", ROW_WISE} <= set(ways)
    left = cli("sweep", "--table-size", "20GB,1TB", "--gpus", "16", "--sharding", "table-wise", "--json")
    (row,) = json.loads(left.out)["rows"]
    assert row["table_bytes"] == 2e10
    assert "1 of 2 configurations left out" in left.err and "do not allow the sharding" in left.err


def test_more_than_can_be_compared_are_refused_and_row_wise_is_not(cli: Any) -> None:
    line = "sweep --table-size 1TB..64TB --batch 1..65536 --dim 16..512 --pooling 1,2,3"
    words = line.split()
    refused = cli(*words, "--json")
    assert refused.code == 2 and "--sharding row-wise" in refused.err and "2 142" in refused.err
    done = cli(*words, "--sharding", "row-wise", "--json")
    assert len(json.loads(done.out)["rows"]) == 7 * 17 * 6 * 3


MACHINES = ("h100-sxm-ib", "gb200-nvl72", "h200-sxm-ib")
NODES = {"h100-sxm-ib": 8, "gb200-nvl72": 4, "h200-sxm-ib": 8}
PRICES = {"h100-sxm-ib": 2.5, "gb200-nvl72": 4.0, "h200-sxm-ib": 3.0}
PRICED = [word for name, price in PRICES.items() for word in ("--price", f"{name}={price}USD/GPU/h")]
TABLES = ("--table-size", "10TB", "--tables", "20")
COMPARED = ("sweep", *TABLES, "--machine", ",".join(MACHINES))


def rows_of(cli: Any, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli(*COMPARED, *words, "--json").out)["rows"]
    return found


def answer_of(cli: Any, machine: str, gpus: int, batch: int) -> dict[str, Any]:
    words = ("--machine", machine, "--gpus", str(gpus), "--batch", str(batch))
    answer: dict[str, Any] = json.loads(cli("project", *TABLES, *words, "--json").out)
    return answer


def test_each_row_is_the_answer_of_project_with_its_share(cli: Any) -> None:
    """The fullest GPU has ceil(samples / GPUs), and every step waits for it."""
    rows = rows_of(cli, "--by", "time", "--set", "global_batch=100001")
    assert [row["time_s"] for row in rows] == sorted(row["time_s"] for row in rows)
    for row in rows:
        assert row["batch"] == math.ceil(100001 / row["gpus"])
        answer = answer_of(cli, row["machine"], row["gpus"], row["batch"])
        assert (row["sharding"], row["time_s"]) == (answer["sharding"], pytest.approx(answer["time_s"]))
        assert row["samples_per_s"] == pytest.approx(100001 / row["time_s"])


def test_the_default_is_the_batch_of_the_first_machine(cli: Any) -> None:
    rows = {row["machine"]: row for row in rows_of(cli, "--by", "throughput")}
    first = json.loads(cli("project", *TABLES, "--json").out)
    assert rows["h100-sxm-ib"]["time_s"] <= first["time_s"] * (1 + 1e-9)
    assert {row["samples"] for row in rows.values()} == {1024 * first["gpus"]}
    assert {row["batch"] for row in rows_of(cli, "--by", "throughput", "--batch", "64")} == {64}


def test_a_cost_is_price_times_gpus_paid_times_hours(cli: Any) -> None:
    for row in rows_of(cli, "--by", "time", *PRICED, "--gpus", "150"):
        paid = {"h100-sxm-ib": 152, "h200-sxm-ib": 152, "gb200-nvl72": 152}[row["machine"]]
        assert row["gpus_paid"] == paid
        hours = 1e9 / row["samples"] * row["time_s"] / 3600
        assert row["cost_of_1e9_samples"] == pytest.approx(PRICES[row["machine"]] * paid * hours)
    words = ("--table-size", "60GB", "--machine", "h100-sxm-ib,gb200-nvl72", "--by", "time", "--json")
    small = json.loads(cli("sweep", *words).out)["rows"]
    assert {row["machine"]: (row["gpus"], row["gpus_paid"]) for row in small} == {
        "h100-sxm-ib": (1, 8),
        "gb200-nvl72": (1, 4),  # a tray
    }


def test_it_cannot_tell_exactly_where_bands_overlap(cli: Any) -> None:
    decided = set()
    for words in (("--by", "time"), ("--by", "cost", *PRICED), ("--by", "throughput", "--batch", "4096")):
        first, *others = rows_of(cli, *words)
        key = {"time": "time_s", "throughput": "sample_time_s", "cost": "cost_of_1e9_samples"}[words[1]]
        for row in others:
            low = row[key] * row["low_s"] / row["time_s"]
            assert row["decided"] == (low > first[key] * first["high_s"] / first["time_s"])
            assert row["ratio"] == pytest.approx(row[key] / first[key])
            decided.add(row["decided"])
        text = cli(*COMPARED, *words).out
        assert text.count(" ≈") == sum(not row["decided"] for row in others)
    assert decided == {True, False}


def test_without_gpus_each_has_the_best_of_several_numbers(cli: Any) -> None:
    """Whole nodes up to twice the fewest that fit: the fewest are no better by the criterion."""
    for by, key in (("time", "time_s"), ("cost", "cost_of_1e9_samples")):
        for row in rows_of(cli, "--by", by, *PRICED):
            name = row["machine"]
            words = ("--machine", name, "--price", f"{name}={PRICES[name]}USD/GPU/h", "--by", by)
            words += ("--set", f"global_batch={row['samples']}")
            fewest = json.loads(cli("project", *TABLES, *words[:2], "--json").out)["gpus"]
            (few,) = json.loads(cli("sweep", *TABLES, *words, "--gpus", str(fewest), "--json").out)["rows"]
            assert row["gpus"] % NODES[name] == 0 and fewest <= row["gpus"] <= 2.1 * fewest
            assert row[key] <= few[key] * (1 + 1e-9)


def test_typed_numbers_of_gpus_have_a_row_each_and_what_does_not_fit_is_left_out(cli: Any) -> None:
    batch = ("--by", "time", "--set", "global_batch=81920")
    both = {(row["machine"], row["gpus"]): row["time_s"] for row in rows_of(cli, *batch, "--gpus", "80,160")}
    alone = {
        (row["machine"], row["gpus"]): row["time_s"]
        for count in ("80", "160")
        for row in rows_of(cli, *batch, "--gpus", count)
    }
    assert both == alone and ("h100-sxm-ib", 80) not in both and len(both) == 5


def test_several_machines_are_compared_by_time(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(cli(*COMPARED, "--json").out)["rows"] == rows_of(cli, "--by", "time")
    text = cli(*COMPARED, *PRICED, "--by", "cost").out
    assert "USD/10⁹" in text and "cost ratio" in text and "1.00×" in text and "cheapest" not in text
    lines: list[str] = []
    monkeypatch.setattr("perfmodel.cli.sweep.tell", lines.append)
    assert "time ratio" in cli(*COMPARED).out and lines[-1] == "3 of 3 configurations"
    assert "median" in cli(*COMPARED, "--gpus", "160,320").out and lines[-1].startswith("6 of 6 ")  # a sweep
    monkeypatch.setenv("COLUMNS", "60")
    assert " h100-sxm-ib " in (text := cli(*COMPARED).out) and "samples/s, evidence." in text


@pytest.mark.parametrize(
    "line",
    [
        "sweep --table-size 1TB --machine h100-sxm-ib,h200-sxm-ib,h100-sxm-ib",
        "sweep --table-size 1TB --machine h100-sxm-ib,own.toml",
    ],
)
def test_a_machine_named_twice_is_refused(
    cli: Any, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a file of the same name: its rows could not be told apart."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(cli("show", "machines", "h100-sxm-ib", "--toml").out)
    outcome = cli(*line.split())
    assert outcome.code == 2 and "twice" in outcome.err and "name of its own" in " ".join(outcome.err.split())


SMALL = ("--table-size", "1TB", "--tables", "4", "--dim", "64")


def ends_of(cli: Any, batches: list[int], *words: str) -> dict[int, float]:
    """Upper ends of the bands by batch, one after the other."""
    listed = ",".join(map(str, batches))
    rows = json.loads(cli("sweep", *words, "--batch", listed, "--json").out)["rows"]
    return {row["batch"]: row["high_s"] for row in rows if row["fits"]}


@pytest.mark.parametrize("more", [(), ("--sharding", "row-wise"), ("--machine", "gb200-nvl72")])
def test_it_is_the_largest_of_all_batches(cli: Any, more: tuple[str, ...]) -> None:
    """Brute force: every batch from 1 to 64, on the GPUs of the answer."""
    gpus = json.loads(cli("project", *SMALL, *more, "--json").out)["gpus"]
    words = (*SMALL, *more, "--gpus", str(gpus))
    ends = ends_of(cli, list(range(1, 65)), *words)
    for batch in (1, 2, 7, 8, 33):
        limit = ends[batch] * (1 + 1e-9)
        largest = max(other for other, end in ends.items() if end <= limit)
        found = json.loads(cli("project", *SMALL, *more, "--max-latency", f"{limit!r}s", "--json").out)
        assert (found["batch"], found["gpus"]) == (largest, gpus)
        assert found["high_s"] == pytest.approx(ends[largest])


@pytest.mark.parametrize(
    ("limit", "words", "more_batch"),
    [("2ms", (*SMALL, "--gpus", "24"), 1), ("300us", ("--model", "criteo-1tb"), 124)],
)
def test_more_samples_take_longer(cli: Any, limit: str, words: tuple[str, ...], more_batch: int) -> None:
    """One more; where a plan is searched for each batch, 2 %."""
    found = json.loads(cli("project", *words, "--max-latency", limit, "--json").out)
    same = json.loads(cli("project", *words, "--batch", str(found["batch"]), "--json").out)
    assert found["time_s"] == same["time_s"] and found["samples_per_s"] == same["samples_per_s"]
    more = ("--gpus", str(found["gpus"])) if "--gpus" not in words else ()
    (end,) = ends_of(cli, [found["batch"] + more_batch], *words, *more).values()
    assert end > found["max_latency_s"]
    assert found["high_s"] <= found["max_latency_s"]


def test_a_batch_that_memory_limits_says_so(cli: Any) -> None:
    """An hour is far longer than the largest batch that fits takes; 2 ms are not."""
    ends = [" ".join(cli("project", *SMALL, "--max-latency", limit).out.split()) for limit in ("1h", "2ms")]
    assert ["the memory holds no more." in end for end in ends] == [True, False]


def test_a_plan_takes_the_largest_batch_that_its_memory_holds(cli: Any) -> None:
    """One sharding for all tables holds a fifth less; 2 % more is held by neither."""
    words = ("--model", "mlperf-dlrm-dcnv2", "--gpus", "16")
    batch = json.loads(cli("project", *words, "--max-latency", "1h", "--json").out)["batch"]
    assert cli("project", *words, "--batch", str(int(1.02 * batch))).code == 2
    assert batch > 2_000_000


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("project --table-size 10TB --max-latency 1ms", "--sharding 3d (EMBark) takes up to 755 µs; or"),
        ("project --table-size 10TB --max-latency 1", "a time needs a unit."),
        ("project --table-size 10TB --max-latency 2h", "at most 1h."),
        ("project --table-size 10TB --max-latency 9ms --batch 8", "--max-latency and --batch cannot"),
        ("project --table-size 10TB --max-latency 9ms --set global_batch=144", "--set global_batch cannot"),
        ("project --table-size 10TB --max-latency 9ms --sharding all", "name one sharding."),
        ("project --table-size 10TB --max-latency 9ms --gpus 8", "--gpus 144 fits"),
    ],
)
def test_what_no_batch_meets_is_refused(line: str, says: str, cli: Any) -> None:
    found = cli(*line.split())
    assert (found.code, found.out) == (2, "")
    assert says in " ".join(found.err.split())
