"""``load --sharding``: the pass that is served is the named one, and best is the fastest that fits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_service_load import ONE

import perfmodel
from perfmodel.errors import BadInputError
from perfmodel.plan.as_projection import compared
from perfmodel.plan.leading import RUN, leading
from perfmodel.projections import project_one
from perfmodel.report.load_headline import band_words, headline
from perfmodel.service.service_load import service_load
from perfmodel.service.sharded import sharded_pass
from perfmodel.service.sizing import ServiceQuestion
from perfmodel.units import counted

ASKED = (
    "load",
    "--model",
    "criteo-kaggle",
    "--gpus",
    "8",
    "--qps",
    "100k",
    "--p99",
    "3ms",
    "--requests",
    "10000",
)


@pytest.mark.parametrize("way", ["row-wise-ub", "table-wise"])
def test_the_pass_is_that_of_the_projection_of_the_way(way: str) -> None:
    for batch in (256, 4096):
        base = project_one(tables="criteo-kaggle", gpus=8, batch=batch)
        (one,) = compared(base, [way])
        served = sharded_pass(base, way)
        assert one.answer is not None
        assert served.total(batch) == pytest.approx(one.answer.time_s)
        assert served.evidence_at(batch) is one.answer.main_evidence
        assert (served.way, served.gpus) == (way, 8)


@pytest.mark.parametrize(
    "asked",
    [
        {"table_bytes": 10e12, "qps": 500e3, "p99_s": 10e-3, "samples": 200.0},
        {"table_bytes": 10e12, "p99_s": 5e-3},
        {"table_bytes": 2e12, "table_count": 100, "dim": 128, "qps": 200e3, "p99_s": 5e-3},
    ],
)
def test_the_fastest_of_all_ways_in_batches_of_the_load_is_served(asked: dict[str, Any]) -> None:
    """The opponent: every way, one by one, at the batch that the load has."""
    answer = perfmodel.load(**asked, requests=10_000).attrs["answer"]
    found, own = answer["choice"], ("qps", "p99_s", "samples")
    tables = {name: value for name, value in asked.items() if name not in own}
    gpus, samples = answer["gpus_per_replica"], found["samples_per_gpu"]
    mean = answer["asked"]["requests_per_batch"] * answer["samples_per_request"] / gpus
    assert samples / 1.5 <= max(mean, 1) <= 1.5 * samples
    base = project_one(**tables, gpus=gpus, batch=samples)
    times = {each.way: each.answer.time_s for each in compared(base, RUN) if each.answer and each.fits}
    name, _, how = answer["sharding"].partition(", ")
    assert found["pass_s"] == pytest.approx(times[name])
    assert f"the fastest for a batch of {counted(samples, 'sample')} per GPU" in how
    assert how.startswith("the fastest") == (found["pass_s"] == pytest.approx(min(times.values()), 1e-6))
    assert found["pass_s"] <= 1.05 * min(times.values())
    assert found["row_wise_s"] == pytest.approx(base.time_s)
    assert all(found["pass_s"] < times[way] for way in found["as_good"])


def test_a_set_of_tables_is_planned_where_that_is_faster(cli: Any) -> None:
    words = ("load", "--model", "criteo-kaggle", "--gpus", "8", "--qps", "100k", "--p99", "3ms")
    words += ("--requests", "10000", "--wait", "0s", "--no-overlap", "--batch", "1024")
    found = json.loads(cli(*words, "--json").out)
    base = project_one(tables="criteo-kaggle", gpus=8, batch=found["choice"]["samples_per_gpu"])
    alike = leading(base)
    planned = alike.planned_answer
    best = planned.time_s if planned else alike.answer.time_s
    assert found["choice"]["pass_s"] <= best * 1.05
    assert found["sharding"].startswith("planned table by table" if planned else alike.way)
    asked = ("load", "--model", "mlperf-dlrm-dcnv2", "--gpus", "16", "--qps", "100000", "--p99", "10ms")
    text = " ".join(cli(*asked, "--requests", "10000").out.split())
    batches = re.findall(r"for (?:a batch of )?(\d+) samples? (?:on each|per) GPU", text)
    assert len(batches) == 2 and len(set(batches)) == 1


def test_the_first_lines_name_the_sharding_and_what_cannot_be_told(cli: Any) -> None:
    """Without options best, in Python and in ``explain`` alike; row-wise where something else asks for it."""
    asked = ("--table-size", "10TB", "--qps", "500k", "--p99", "10ms", "--samples", "200")
    asked += ("--requests", "10000")
    text, document = cli("load", *asked).out, json.loads(cli("load", *asked, "--json").out)
    words = " ".join(text.partition("Batch  ")[0].split())
    assert (
        document["sharding"].startswith("row-wise-ub, the fastest for a batch of ")
        and document["runs"] == "EMBark"
    )
    assert "row-wise-ub (as in the paper EMBark; TorchRec does not run it; used here)" in words
    assert "cannot tell which sharding is faster: " in words and document["choice"]["as_good"]
    assert "or row-wise-two-level (as in the paper EMBark), " in words and "row-wise (TorchRec's): " in words
    best = cli("load", *asked, "--sharding", "best").out
    assert best.partition("The equation")[0] == text.partition("The equation")[0]
    explained = json.loads(cli("explain", "load", *asked, "--json").out)["numbers"]
    assert {each["key"]: each["value"] for each in explained}["asked.p99_s"] == document["asked"]["p99_s"]
    python = {"table_bytes": 10e12, "qps": 500e3, "p99_s": 10e-3, "samples": 200.0, "requests": 10_000}
    assert perfmodel.load(**python).attrs["answer"]["choice"] == document["choice"]
    for more in (("--tier", "uvm"), ("--reduction", "sparse"), ("--sharding", "row-wise")):
        other = json.loads(cli("load", *asked, *more, "--json").out)
        assert other["sharding"] == "row-wise" and other["choice"] is None
    shown = " ".join(cli("load", *asked, "--sharding", "row-wise").out.split())
    assert "sharded row-wise (TorchRec's)" in shown and "cannot tell which" not in shown


def test_how_many_gpus_cannot_be_told_is_said_first() -> None:
    question = ServiceQuestion(served=ONE, requests=10_000, limit_s=3e-3, qps=1e6, batch=64, wait_s=0.0)
    found = service_load(question)
    alike = replace(found, low_per_s=found.best.rate_per_s, high_per_s=found.best.rate_per_s)
    assert headline(alike).startswith("1 M requests/s within 3.00 ms (p99) take ")
    apart = replace(alike, low_per_s=1e6 / 9.5, high_per_s=1e6 / 2.5)  # 10 and 3 replicas of 4 GPUs
    words = " ".join(headline(apart).split())
    assert words.startswith("Cannot tell how many GPUs 1 M requests/s within 3.00 ms (p99) take: 12 – 40 by")
    assert f"{apart.gpus} in the middle of it" in words
    never = " ".join(headline(replace(apart, low_per_s=0.0)).split())
    assert "take: 12 or more by the band" in never
    given = replace(apart, question=replace(question, replicas=apart.replicas))
    assert headline(given).startswith("1 M requests/s") and "carried" in band_words(given)


def test_on_the_screen_in_json_and_in_python(cli: Any, tmp_path: Path) -> None:
    words = (*ASKED, "--sharding", "ub", "--batch", "512")
    document = json.loads(cli(*words, "--json").out)
    assert document["sharding"] == "row-wise-ub, the fastest for a batch of 512 samples per GPU"
    assert "pass row-wise-ub, the fastest for a batch of 512 samples" in " ".join(cli(*words).out.split())
    path = tmp_path / "prices.toml"
    path.write_text('[machine_hour]\nh100-sxm-ib = "80 EUR/h"\n')
    asked: dict[str, Any] = {"tables": "criteo-kaggle", "gpus": 8, "batch": 512, "requests": 10000}
    frame = perfmodel.load(qps=100e3, p99_s=3e-3, sharding="ub", prices=path, **asked)
    answer = frame.attrs["answer"]
    assert answer["sharding"] == document["sharding"] and answer["asked"] == document["asked"]
    assert answer["cost"]["per_hour"] == 80.0 and answer["cost"]["currency"] == "EUR"
    assert json.loads(cli(*words, "--json", "--prices", str(path)).out)["cost"] == answer["cost"]
    explained = cli("explain", *words)
    assert "--sharding row-wise-ub" in " ".join(explained.out.replace("\\\n", "").split())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--sharding", "all"), "a service runs one: --sharding best"),
        (
            ("--sharding", "best", "--reduction", "sparse"),
            "best and --reduction cannot be combined",
        ),
        (("--sharding", "ub", "--plan", "plan.json"), "--plan and --sharding cannot be combined"),
        (("--sharding", "rows"), "rows"),
    ],
)
def test_what_cannot_be_asked(cli: Any, more: tuple[str, ...], said: str) -> None:
    outcome = cli(*ASKED, *more)
    assert outcome.code == 2 and said in " ".join(outcome.err.split())


def test_a_way_that_does_not_fit_says_why() -> None:
    with pytest.raises(BadInputError, match="one table is 10 TB, larger than a GPU"):
        sharded_pass(project_one(table_bytes=10e12), "table-wise")
