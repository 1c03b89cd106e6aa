"""data/reference and data/priors: rectangular, SI, and each source is on the page."""

from __future__ import annotations

import csv

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
