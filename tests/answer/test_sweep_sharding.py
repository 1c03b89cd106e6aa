"""Shardings of ``perfmodel sweep``: each row is what ``project`` leads with, or a sharding that was named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.engine.schemes import ROW_WISE, WAYS

TRAINING = ("--table-size", "10TB", "--set", "objective=training")
SHARDINGS = (None, None, ROW_WISE, "row-wise-ub", "table-wise", "grid", "data-parallel")
SAME = ("gpus", "gpus_needed", "time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high")
QUESTIONS = st.fixed_dictionaries(
    {
        "--table-size": st.sampled_from(["20GB", "300GB", "1TB", "1.2TB", "10TB"]),
        "--batch": st.sampled_from(["64", "1024", "65536"]),
        "--dim": st.sampled_from(["4", "128"]),
    },
    optional={
        "--tables": st.sampled_from(["3", "64"]),
        "--pooling": st.sampled_from(["1", "100"]),
        "--gpus": st.sampled_from(["1", "8", "20", "24"]),
        "--set": st.sampled_from(["dtype=fp16", "reserve=0", "payload=fp16"]),
        "--distribution": st.just("zipf:1.05"),
        "--machine": st.sampled_from(["gb200-nvl72", "a100-sxm-ib"]),
    },
)


@settings(max_examples=25)
@given(question=QUESTIONS, sharding=st.sampled_from(SHARDINGS))
def test_one_configuration_is_the_headline_of_project(cli: Any, question: Any, sharding: Any) -> None:
    if sharding is not None:
        question = question | {"--sharding": sharding}
    words = [word for pair in question.items() for word in pair]
    alone, swept = cli("project", *words, "--json"), cli("sweep", *words, "--json")
    if alone.code and not swept.code:
        assert [row["fits"] for row in json.loads(swept.out)["rows"]] == [False]
        return
    assert swept.code == alone.code
    if alone.code:
        return
    answer, (row,) = json.loads(alone.out), json.loads(swept.out)["rows"]
    assert {name: row[name] for name in SAME} == pytest.approx({name: answer[name] for name in SAME})
    fits = answer["gpu_count"]["fits"]
    assert (row["fits"], row["evidence"]) == (fits, answer["evidence"])
    assert row["sharding"] == answer.get("sharding", ROW_WISE) or (fits, row["sharding"]) == (False, ROW_WISE)


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
    words = (
        "sweep",
        "--table-size",
        "1TB..64TB",
        "--batch",
        "1..65536",
        "--dim",
        "16..512",
        "--pooling",
        "1,2,3",
    )
    refused = cli(*words, "--json")
    assert refused.code == 2 and "--sharding row-wise" in refused.err and "2 142" in refused.err
    done = cli(*words, "--sharding", "row-wise", "--json")
    assert len(json.loads(done.out)["rows"]) == 7 * 17 * 6 * 3
