"""Histograms of ``--distribution`` from published traces: what is shipped, and how well it repeats them.

python benchmarks/reuse_histograms.py            a table: distinct rows said and counted
python benchmarks/reuse_histograms.py --write    and data/distributions/*.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from perfmodel.fit.reuse import Rates, Reuse, counted_rates, rates_of
from perfmodel.resources import data_path

TRACES = {
    "fbgemm-t856": "fbgemm_t856_bs65536.pt",
    "fbgemm-t788": "fbgemm_t788_bs131072_0.pt",
    "reuse-low": "reuse_low_table_500K",
    "reuse-medium": "reuse_medium_table_500K",
}
"""Name of each shipped histogram, and of its trace in data/reference/reuse_histograms.csv."""


def reuse_of(dataset: str) -> Reuse:
    """Counts of one trace."""
    with data_path("reference", "reuse_histograms.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["dataset"] == dataset]
    total = next(row for row in rows if row["stat"] == "indices_unique")
    edges, shares = [], []
    for stat in ("row_fraction_by_reuse", "access_fraction_by_reuse"):
        found = {row["bucket"]: float(row["value"]) for row in rows if row["stat"] == stat}
        edges = [tuple(float(x) for x in bucket.strip("(]").split(",")) for bucket in found]
        shares.append(np.array(list(found.values())))
    low, high = np.array(edges).T
    return Reuse(low, high, *shares, float(total["ids"]), float(total["unique_ids"]))


def csv_text(rates: Rates) -> str:
    """A distribution file."""
    lines = [f"{rows:.6g},{asked:.6g}" for rows, asked in zip(*rates.shares(), strict=True)]
    return "\n".join(["row_share,lookup_share", *lines]) + "\n"


def table() -> str:
    """Distinct rows of every trace, as counted and as said."""
    lines = [
        "| histogram | look-ups | distinct rows | counts as popularities | rates | rows of the table |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, dataset in TRACES.items():
        reuse = reuse_of(dataset)
        rates = rates_of(reuse)
        counted, fitted = (each.unique / reuse.unique - 1 for each in (counted_rates(reuse), rates))
        lines.append(
            f"| {name} | {reuse.lookups:,.0f} | {reuse.unique:,.0f} | {counted:+.1%} | {fitted:+.2%} | "
            f"{float(f'{rates.table_rows:.4g}'):,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print, and write if asked."""
    print(table())  # the third and the fourth number: distinct rows, drawn anew
    if "--write" in sys.argv:
        folder = Path(data_path("distributions"))
        folder.mkdir(exist_ok=True)
        for name, dataset in TRACES.items():
            (folder / f"{name}.csv").write_text(csv_text(rates_of(reuse_of(dataset))), encoding="utf-8")


if __name__ == "__main__":
    main()
