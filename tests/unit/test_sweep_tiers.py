"""Tiers below the HBM as an axis of ``perfmodel sweep``: each row is that of ``project``."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from perfmodel.schema.tiers import parse_tiers

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.projections import feasible_below, project_one, project_row_wise
from perfmodel.projections.grids import product

TB = 1e12


def test_tiers_are_an_axis_and_each_row_is_a_projection(cli: Any) -> None:
    words = ("sweep", "--table-size", "1TB,2TB", "--tier", "hbm,uvm,uvm-caching:1%,lfu", "--alpha", "1.05")
    words += ("--reduction", "reduce-scatter")  # row-wise
    rows = json.loads(cli(*words, "--json").out)["rows"]
    assert {row["sharding"] for row in rows} == {"row-wise"}
    tiers = ["hbm", "hbm", "uvm", "uvm", "uvm-caching:1%,lfu", "uvm-caching:1%,lfu"]
    assert [row["tier"] for row in rows] == tiers
    assert {row["distribution"] for row in rows} == {"zipf:1.05"}
    for row in rows:
        tier = None if row["tier"] == "hbm" else row["tier"]
        alone = project_one(table_bytes=row["table_bytes"], tier=tier, distribution="zipf:1.05")
        assert (row["gpus"], row["time_s"]) == (alone.gpus, pytest.approx(alone.time_s))
        steps = sum(v for k, v in row.items() if k.endswith("_time_s") and k.split("_time_s")[0] in STEPS)
        assert steps == pytest.approx(row["time_s"])
        assert (row["cache_lookup_time_s"] > 0) == (row["tier"] == "uvm-caching:1%,lfu")


STEPS = (
    *("bucketize", "all_to_all_splits", "all_to_all_lengths", "all_to_all_ids", "gather_pool"),
    *("reduce_scatter_bags", "gather_host", "cache_lookup", "fetch_rows", "handover"),
)


def test_what_a_tier_has_no_room_for_is_what_a_projection_refuses() -> None:
    """Every configuration alone is the opponent of the mask."""
    axes = product(table_bytes=[4e6, 0.5 * TB, TB, 5 * TB, 20 * TB], gpus=[1, 8, 24, 64], batch=[1024, 2**24])
    for tier in ("uvm", "uvm-caching:10%", "ssd:50%", "uvm-caching"):
        kept = feasible_below(axes, tier=tier)
        alone = []
        for at in range(kept.size):
            try:
                project_one({name: column[at] for name, column in axes.items()}, tier=tier)
                alone.append(True)
            except PerfmodelError:
                alone.append(False)
        assert kept.tolist() == alone
        assert 0 < np.count_nonzero(kept) < kept.size


def test_a_sweep_leaves_out_what_a_tier_has_no_room_for(cli: Any) -> None:
    done = cli("sweep", "--table-size", "1TB,10TB", "--gpus", "8", "--tier", "uvm,uvm-caching:1%", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["tier"], float(row["table_bytes"])) for row in rows] == [
        ("uvm", TB),
        ("uvm-caching:1%", TB),
    ]
    assert "2 of 4 configurations left out" in done.err and "a tier or a cache" in " ".join(done.err.split())


def test_sets_of_tables_are_swept_over_tiers(cli: Any) -> None:
    words = ("sweep", "--model", "mlperf-dlrm-dcnv2", "--gpus", "1,8", "--tier", "hbm,uvm-caching:1%")
    rows = json.loads(cli(*words, "--json").out)["rows"]
    assert [(row["tier"], row["gpus"]) for row in rows] == [
        ("hbm", 8),
        ("uvm-caching:1%", 1),
        ("uvm-caching:1%", 8),
    ]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--gpus", "8", "--tier", "uvm"), ("--tier uvm needs the size of the tables", "--table-size")),
        (("--table-size", "1TB", "--tier", "lfu,uvm"), ("tier 'lfu': lfu is no tier",)),
        (("--table-size", "1TB", "--tier", "uvm-caching:0%"), ("a cache of 0 % of the rows",)),
        (("--table-size", "1TB", "--tier", "uvm,,ssd"), ("an empty value", "--tier hbm,uvm")),
        (
            ("--table-size", "1TB", "--tier", "uvm", "--machine", "l40s-pcie"),
            ("does not say its host_bytes",),
        ),
    ],
)
def test_tiers_that_cannot_be_swept(cli: Any, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    done = cli("sweep", *words)
    assert done.code == 2
    assert all(part in " ".join(done.err.split()) for part in parts)


def test_words_of_a_tier_stay_with_it() -> None:
    found = parse_tiers(["uvm-caching:10%", "lru", "prefetch", "hbm", "uvm", "uvm", "ssd"])
    assert [str(tier) for tier in found] == ["uvm-caching:10%,prefetch", "None", "uvm", "ssd"]
    with pytest.raises(BadInputError, match="lru is no tier"):
        parse_tiers(["lru"])


def test_a_grid_in_python_needs_its_sizes_too() -> None:
    with pytest.raises(BadInputError, match="needs the size of the tables"):
        project_row_wise({"gpus": np.array([8.0, 16.0])}, tier="uvm")
