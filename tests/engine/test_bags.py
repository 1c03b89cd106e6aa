"""Bags in another precision, and rows that are not pooled: bytes that divide by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from perfmodel.answer import Answer, Question, project_one
from perfmodel.answer.ranking import answer_question
from perfmodel.engine.steps import StepRow
from perfmodel.model.access import count_unique_uniform
from perfmodel.model.popularity import build_popularity
from perfmodel.schema.workload import zipf

KIB, MIB = 2**10, 2**20


def steps(answer: Answer) -> dict[str, StepRow]:
    return {step.name: step for step in answer.steps}


def test_bytes_by_hand() -> None:
    """B = 1024, D = 32, G = 128, one table: 16 MiB of fp32 bags; 6 bytes an element to convert to fp16."""
    asked: dict[str, Any] = {"table_bytes": 10e12, "reserve": 0, "gpus": 128}
    full, half, quarter = (steps(project_one(**asked, payload=p)) for p in (None, "fp16", "fp8"))
    sizes = [each["reduce_scatter_bags"].payload_bytes for each in (full, half, quarter)]
    assert sizes == [16 * MIB, 8 * MIB, 4 * MIB]
    assert half["convert_out"].payload_bytes == 128 * 1024 * 32 * (4 + 2) == 24 * MIB
    assert half["convert_in"].payload_bytes == 1024 * 32 * (4 + 2) == 192 * KIB
    assert quarter["convert_in"].payload_bytes == 1024 * 32 * (4 + 1) == 160 * KIB
    summed = steps(project_one(**asked, payload="fp16", backend="nvshmem", machine="h200-sxm-ib"))
    assert summed["convert_in"].payload_bytes == 24 * MIB  # all parts come, each in fp16
    assert summed["local_sum"].payload_bytes == 129 * 128 * KIB  # and are added up in fp32
    lengths = {name: half[name] for name in ("all_to_all_lengths", "all_to_all_ids", "gather_pool")}
    for name, step in lengths.items():
        assert step == replace(full[name], share=step.share), name


def test_a_sparse_exchange_keeps_its_positions() -> None:
    """m bags of 32 v + 4 bytes: fp8 is not half of fp16, but for the positions it is."""
    asked: dict[str, Any] = {"table_bytes": 10e12, "reserve": 0, "sharding": "sparse"}
    full, half, quarter = (
        steps(answer_question(Question.of(**asked, payload=p)))["all_to_all_sparse_bags"].payload_bytes
        for p in (None, "fp16", "fp8")
    )
    assert half / full == pytest.approx((64 + 4) / (128 + 4))
    assert quarter / full == pytest.approx((32 + 4) / (128 + 4))


TABLE = ("--table-size", "1TB", "--dim", "64", "--batch", "512", "--gpus", "16")
B, L, G, D, ROWS = 512, 20, 16, 64, 1e12 / 256
COUNT = B * L


def payloads(cli: Any, *words: str) -> dict[str, float]:
    found = json.loads(cli("project", *TABLE, "--pooling", f"none:{L}", *words, "--json").out)
    return {step["name"]: step["payload_bytes"] for step in found["steps"]}


def test_row_wise_by_hand(cli: Any) -> None:
    """Each GPU sends B lengths and 1/G of its B·L ids to each holder, and gets one row of D fp32 for each.

    TorchRec 1.8, RwSequenceEmbeddingSharding: int64 lengths and ids; an index_select undoes the bucketizing.
    """
    found = payloads(cli, "--sharding", "row-wise")
    assert found.pop("gather_pool") > COUNT * (D * 4 + 8)
    assert found.pop("all_to_all_splits") < 10_000
    assert found == {
        "bucketize": G * B * 8 + COUNT * 8,
        "all_to_all_lengths": G * B * 8,
        "all_to_all_ids": COUNT * 8,
        "all_to_all_rows": COUNT * D * 4,
        "place_rows": 2 * COUNT * D * 4,
    }


@pytest.mark.parametrize("skew", [0.0, 1.05])
def test_with_deduplication_by_hand(cli: Any, skew: float) -> None:
    """use_index_dedup: distinct ids travel, and their rows; another index_select makes B·L rows of them."""
    ids = ("--distribution", f"zipf:{skew}") if skew else ()
    found = payloads(cli, "--sharding", "ub", *ids)
    whole = build_popularity(zipf(skew), ROWS) if skew else None
    U = whole.unique(COUNT, slice(None)) if whole else float(count_unique_uniform(ROWS, COUNT))
    assert found["all_to_all_lengths"] == G * B * 8
    assert found["all_to_all_ids"] == pytest.approx(U * 8)
    assert found["bucketize"] == pytest.approx(G * B * 8 + U * 8)
    assert found["all_to_all_rows"] == pytest.approx(U * D * 4)
    assert found["place_rows"] == pytest.approx(2 * U * D * 4 + 2 * COUNT * D * 4)
    assert (
        found["deduplicate"] > 0 and "deduplicate_requests" not in found and "pool_unique_rows" not in found
    )
    assert (U < 0.7 * COUNT) == (skew > 0)


def test_whole_tables_and_columns_by_hand(cli: Any) -> None:
    """16 tables on 16 GPUs: a GPU sends the rows of its table to all; column parts get each id all."""
    words = ("--table-size", "100GB", "--tables", "16", "--dim", "64", "--batch", "512", "--gpus", "16")
    for sharding, parts in (("table-wise", 1), ("column-wise", 2)):
        line = ("project", *words, "--pooling", f"none:{L}", "--sharding", sharding, "--json")
        found = json.loads(cli(*line).out)
        steps = {step["name"]: step["payload_bytes"] for step in found["steps"]}
        assert steps["all_to_all_rows"] == 16 * COUNT * D * 4
        assert (
            steps["all_to_all_ids"] % (16 * COUNT * 8) == 0
            and steps["all_to_all_ids"] >= parts * 16 * COUNT * 8
        )
        assert not {"place_rows", "reduce_scatter_bags", "local_sum"} & set(steps)


def test_limits(cli: Any) -> None:
    """One id a sample: as many rows as bags that are not empty; more ids take longer; one GPU is local."""
    one = project_one(table_bytes=1e12, gpus=16, pooling=1, unpooled=True)
    pooled = answer_question(Question.of(table_bytes=1e12, gpus=16, pooling=1, sharding="sparse"))
    steps, bags = ({step.name: step for step in answer.steps} for answer in (one, pooled))
    assert steps["all_to_all_ids"].payload_bytes == bags["all_to_all_ids"].payload_bytes
    rows, sparse = steps["all_to_all_rows"], bags["all_to_all_sparse_bags"]
    assert rows.payload_bytes == pytest.approx(sparse.payload_bytes, rel=0.1)  # without indices of bags
    times = [project_one(table_bytes=1e12, gpus=16, pooling=n, unpooled=True).time_s for n in (1, 8, 64)]
    assert times == sorted(times)
    alone = project_one(table_bytes=10e9, gpus=1, unpooled=True)
    assert alone.slowdown == 1 and [step.name for step in alone.steps] == ["gather_pool"]
