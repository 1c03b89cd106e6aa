"""Which part of a timed kernel's look-ups misses the cache, and what half precision costs torch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfmodel import resources
from perfmodel.fit.kernels import count_misses, fit_kernels, predict_gathers
from perfmodel.model import access
from perfmodel.schema.evidence import Clock
from perfmodel.schema.machine import load_machine


def test_uniform_ids_miss_as_the_model_says() -> None:
    """2 000 look-ups in a shard of 1 000 rows, of which the cache holds 500."""
    cells = pd.DataFrame([{"rows": 2000, "shards": 2, "batch": 100, "pooling": 20}])
    hit = access.l2_hit_ratio(1000, 2000, 500, access.unique_rows_uniform(1000, 2000))
    assert count_misses(cells, np.array([64.0]), np.array([32000.0])) == pytest.approx([1 - hit])


def test_half_precision_of_torch_needs_no_factor_where_it_was_timed() -> None:
    """Ten shapes of 32 and 64 elements on an H200, by a fit to fp32 alone: docs/kernels.md says how far."""
    samples = pd.read_csv(resources.data_path("measurements", "kernels", "h200-samples.csv"))
    rows = samples[(samples["operation"] == "gather_pool") & (samples["distribution"] == "uniform")]
    rows = rows[(rows["implementation"] == "torch") & (rows["clock"] == "stream")].assign(held_out=False)
    machine, half = load_machine("h200-sxm-ib"), rows[rows["dtype"] == "fp16"]
    (fit,) = fit_kernels(rows[rows["dtype"] == "fp32"], machine, Clock.STREAM)
    ratios = half["time_s"].to_numpy(float) / predict_gathers(half, machine, fit)
    assert len(half) == 10 and set(half["dim"]) == {32, 64}
    assert [round(float(np.quantile(ratios, q)), 2) for q in (0, 0.5, 1)] == [0.97, 1.16, 1.35]
