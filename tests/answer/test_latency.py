"""``--max-latency``: the largest batch whose 95 % band ends within a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
    ("limit", "where"), [("2ms", ("--gpus", "24")), ("300us", ("--model", "criteo-1tb"))]
)
def test_one_sample_more_takes_longer(cli: Any, limit: str, where: tuple[str, ...]) -> None:
    words = where if where[0] == "--model" else (*SMALL, *where)
    found = json.loads(cli("project", *words, "--max-latency", limit, "--json").out)
    same = json.loads(cli("project", *words, "--batch", str(found["batch"]), "--json").out)
    assert found["time_s"] == same["time_s"] and found["samples_per_s"] == same["samples_per_s"]
    more = ("--gpus", str(found["gpus"])) if "--gpus" not in words else ()
    assert ends_of(cli, [found["batch"] + 1], *words, *more)[found["batch"] + 1] > found["max_latency_s"]
    assert found["high_s"] <= found["max_latency_s"]


def test_a_sweep_has_the_largest_batch_of_each_and_machines_are_ranked_by_it(cli: Any) -> None:
    words = (
        "--table-size",
        "10TB",
        "--machine",
        "h100-sxm-ib,gb200-nvl72",
        "--set",
        "max_latency=3ms",
        "--json",
    )
    rows = {row["machine"]: row for row in json.loads(cli("sweep", *words).out)["rows"]}
    for name, row in rows.items():
        alone = ("--table-size", "10TB", "--machine", name, "--max-latency", "3ms", "--json")
        assert row["batch"] == json.loads(cli("project", *alone).out)["batch"]
    ranked = json.loads(cli("sweep", *words, "--by", "throughput").out)["rows"]
    assert [row["samples_per_s"] for row in ranked] == sorted(
        (row["gpus"] * row["batch"] / row["time_s"] for row in rows.values()), reverse=True
    )
    screen = cli("sweep", *words[:-1], "--by", "throughput").out
    assert "the largest within the latency" in " ".join(screen.split()) and "samples/GPU" in screen


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("project --table-size 10TB --max-latency 1ms", "one sample on each of 144 GPUs takes up to 1."),
        ("project --table-size 10TB --max-latency 1", "a time needs a unit."),
        ("project --table-size 10TB --max-latency 2h", "at most 1h."),
        ("project --table-size 10TB --max-latency 9ms --batch 8", "--max-latency and --batch cannot"),
        ("project --table-size 10TB --max-latency 9ms --set global_batch=144", "--set global_batch cannot"),
        ("project --table-size 10TB --max-latency 9ms --sharding all", "name one of them."),
        ("project --table-size 10TB --max-latency 9ms --gpus 8", "--gpus 144 fits"),
        ("sweep --table-size 10TB --set max_latency=9ms --batch 8,9", "--set max_latency and --batch cannot"),
        ("sweep --table-size 10TB --set max_latency=1us", "or take longer than max_latency."),
    ],
)
def test_what_no_batch_meets_is_refused(line: str, says: str, cli: Any) -> None:
    found = cli(*line.split())
    assert (found.code, found.out) == (2, "")
    assert says in " ".join(found.err.split())
