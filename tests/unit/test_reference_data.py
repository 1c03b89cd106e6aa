"""data/reference and data/priors: rectangular, SI, and each source is on the page."""

from __future__ import annotations

import csv
import json

import pytest

from perfmodel import resources

FILES = sorted(resources.data_path("reference").glob("*.csv"))
PAGES = ("reference/SOURCES.md", "measurements/SOURCES.md")


def test_the_files_are_there() -> None:
    names = ["deepep", "dlrm_steps", "embedding_kernels", "memory_tiers", "one_sided"]
    assert [path.stem for path in FILES] == [*names, "reuse_histograms"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_are_whole_and_times_are_seconds(path: object) -> None:
    pages = "".join(resources.data_path(page).read_text(encoding="utf-8") for page in PAGES)
    with open(str(path), encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, strict=True, restkey="extra", restval=None))
    assert len(rows) > 20
    for row in rows:
        assert "extra" not in row and None not in row.values()
        assert row["source_id"] in pages
        times = [
            float(row[name])
            for name in ("time_s", "step_time_s", "forward_s", "train_s", "eval_s")
            if row.get(name)
        ]
        assert all(1e-7 < time < 10 for time in times)


def test_nccl_tuning_constants_by_hand() -> None:
    prior = json.loads(resources.data_path("priors", "nccl_tuning.json").read_text(encoding="utf-8"))
    assert prior["base_latency_s"]["Ring"] == [6.6e-6, 14e-6, 8.4e-6]
    assert prior["step_latency_s"]["network"]["Ring"] == [2.7e-6, 4e-6, 14e-6]
    assert prior["step_latency_s"]["nvlink"]["Tree"][0] == 0.6e-6
    assert prior["channel_max_bytes_per_s"]["ring_ll128"]["hopper"][0] == 36.7e9
    assert prior["source"] and prior["why"] and prior["protocols"] == ["LL", "LL128", "Simple"]
