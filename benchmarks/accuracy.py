"""How wrong are the predictions? Every table of docs/accuracy.md, from the shipped samples.

Run:    python benchmarks/accuracy.py            prints the tables (about 2 minutes)
        python benchmarks/accuracy.py --write    also puts them into docs/accuracy.md, and what the
                                                 report's pages show of them into data/validation
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path

import bands
import left_out
import mlperf_steps
import numpy as np
import pandas as pd
import rival
from left_out import summary

from perfmodel.collectives.link_laws import step_constants
from perfmodel.fit.curve_fits import fit_curve
from perfmodel.fit.law_fits import fit_logs, prior_of
from perfmodel.fit.shipped import find_cluster_cells
from perfmodel.model.curves import hockney_time
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import PAIRWISE, RING_TREE
from perfmodel.report.terminal import table
from perfmodel.schema.priors import load_priors
from perfmodel.units import counted, format_bytes, format_number
from perfmodel.validate import accuracy, crossover, medians

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
_NUMBERS = ("n", "median %", "p90 %", "bias %", "inside %", "width")


def format_percent(value: float) -> str:
    return f"{100 * value:.1f}"


def write_summary(points: pd.DataFrame, by: list[str], names: list[str] | None = None) -> str:
    """One line a group: how many points, the error's median, p90 and sign, and what the interval holds."""
    rows = [
        [
            *(str(row[c]) for c in by),
            str(row["n"]),
            *(format_percent(row[c]) for c in ("median", "p90", "bias", "inside")),
            f"x{row['width']:.2f}",
        ]
        for row in summary(points, by).to_dict("records")
    ]
    return table([*(names or by), *_NUMBERS], rows, left=range(len(by)))


def compare_alpha_beta(cell: pd.DataFrame) -> pd.DataFrame:
    """A cell with |error| of the plain alpha-beta model, each size predicted from the others."""
    sizes, times = cell["payload_bytes"].to_numpy(float), cell["time_s"].to_numpy(float)
    rests = [sizes != size for size in sizes]
    fits = [fit_curve(sizes[remaining], times[remaining], sharpness=1.0) for remaining in rests]
    predicted = [
        hockney_time(size, fit.alpha_s, fit.beta_bytes_per_s, 1.0)
        for size, fit in zip(sizes, fits, strict=True)
    ]
    return cell.assign(alpha_beta_error=np.abs(np.array(predicted) / times - 1))


def judge_in_node() -> str:
    cells = accuracy.predict_left_out_sizes().groupby(["machine", "collective", "gpus"], observed=True)
    points = pd.concat([compare_alpha_beta(cell) for _, cell in cells]).assign(all="all")
    rows = []
    for column in ("all", "machine", "collective", "gpus", "size"):
        for row in summary(points, [column]).to_dict("records"):
            plain = points[points[column] == row[column]]["alpha_beta_error"]
            label = f"{row[column]} GPUs" if column == "gpus" else str(row[column])
            errors = [row["median"], row["p90"], plain.median(), plain.quantile(0.9), row["inside"]]
            rows.append([label, str(row["n"]), *map(format_percent, errors), f"x{row['width']:.2f}"])
    return table(["", "n", "median %", "p90 %", "a-b median %", "a-b p90 %", "inside %", "width"], rows)


def judge_two_nodes() -> str:
    learned = accuracy.predict_two_nodes().assign(constants="other clusters'")
    alone = accuracy.predict_two_nodes(with_clusters=False).assign(constants="NCCL's own")
    return write_summary(pd.concat([learned, alone]), ["constants", "size"])


def judge_other_clusters() -> str:
    return write_summary(
        accuracy.predict_other_clusters(), ["source_id", "collective", "size"], ["cluster", "", ""]
    )


def judge_other_machines() -> str:
    return write_summary(left_out.without_the_machine(), ["where", "size"], ["", ""])


_SCORED = ["links", "cell", "size"]


@lru_cache(maxsize=1)
def score_operators() -> pd.DataFrame:
    """Operators left out, ordered for tables, with column ``cell``: what a prediction rests on."""
    points = bands.with_bands_of_others(left_out.operators_left_out())
    order = points["size"].map({size: place for place, size in enumerate(medians.SIZES)})
    points = points.assign(cell=np.where(points["known"], "measured", "law"), _order=order)
    return points.sort_values(["where", "links", "cell", "_order"], kind="stable")


def judge_operators() -> str:
    """The product with its bands, its law without measured cells, and the rival, on operators left out."""
    product = score_operators()
    answers = product, left_out.operators_left_out(law_alone=True), rival.rival_left_out(product)
    rows = []
    for key, group in product.groupby(_SCORED, sort=False, observed=True):
        row = [*map(str, key), str(group["operator"].nunique()), str(len(group))]
        for points in answers:
            scores = points.loc[group.index]
            row += [format_percent(float(scores["error"].abs().quantile(share))) for share in (0.5, 0.9)]
            if points is product:
                row += [
                    format_percent(scores["inside"].mean()),
                    f"x{(scores['high_s'] / scores['low_s']).median():.2f}",
                ]
        rows.append(row)
    headers = ["median", "p90", "inside", "width", "law's", "p90", "rival's", "p90"]
    return table(["", "", "", "by", "n", *headers], rows, left=(0, 1, 2))


@lru_cache(maxsize=1)
def predict_large_groups() -> pd.DataFrame:
    """Large node counts left out, fitted once."""
    return left_out.large_left_out()


def judge_nodes() -> str:
    return write_summary(predict_large_groups(), ["family", "size"], ["", ""])


def compare_forced() -> str:
    """Runs in which NCCL_ALGO allowed one algorithm, beside the law fitted to that cluster."""
    priors, samples = load_priors(), medians.load_shipped_samples()
    cluster = next(cells for cells in find_cluster_cells(samples) if cells.name == "pico_mn5_h100")
    cells, steps = cluster.cells["ring_tree"], step_constants(cluster.machine, priors)
    prior = prior_of("ring_tree", cluster.machine, priors)
    logs = fit_logs("ring_tree", cells, cluster.machine, priors, prior).centre
    across = [cell for cell in cells if cell.group.domains > 1]
    sizes = across[0].payload_bytes
    rows = []
    for cell in across:
        law = (cell.collective, cell.group, cell.payload_bytes, cell.algorithm)
        for kind, times in (
            ("measured", cell.time_s),
            ("law", LINK_LAWS["ring_tree"].time_at(logs, steps, *law)),
        ):
            of = [cell.algorithm or "any", str(cell.group.gpus)] if kind == "measured" else ["", ""]
            rows.append([*of, kind, *[format_number(1e6 * float(time)) for time in times]])
    return table(["", "GPUs", "µs at", *[format_bytes(size) for size in sizes]], rows, left=(0, 2))


def list_crossovers() -> str:
    rows = []
    for collective, clocks in product(crossover.COLLECTIVES, crossover.PAIRS):
        crossing = crossover.compare(collective, *clocks)
        said = ["", "", "not measured"]
        if crossing is not None:
            size = crossing.crossover_bytes
            said = [
                f"{crossing.small_ratio:.2f}",
                format_bytes(size) if 0 < size < math.inf else "",
                crossing.winner,
            ]
        rows.append([collective, *map(str, clocks), *said])
    headers = ["collective", "NVSHMEM clock", "NCCL clock", "NCCL/NVSHMEM", "crossover", "faster"]
    return table(headers, rows, left=(0, 1, 2, 5))


def list_networks() -> str:
    """What clusters on each kind of network say of the laws (data/priors/networks.json)."""
    learned, shown = load_priors().learned, ("infiniband", "efa", "slingshot", "roce")
    rows = []
    for law, unknowns in (("ring_tree", RING_TREE), ("pairwise", PAIRWISE)):
        shared = [learned.get(name, {}).get(law) for name in shown]
        title = "rings and trees" if law == "ring_tree" else "all-to-all"
        counts = [f"{counted(len(cluster.clusters), 'cluster')}" if cluster else "" for cluster in shared]
        rows.append([title, *counts])
        for name in (unknown.name for unknown in unknowns if unknown.network):
            values = [cluster.unknowns[name] if cluster else None for cluster in shared]
            short = name.removesuffix("_ratio").removesuffix("_bytes_per_s").removesuffix("_s")
            rows.append([f" {short}", *[format_value(name, value) if value else "" for value in values]])
    return table(["", *shown], rows, left=(0,))


def format_value(name: str, value: float) -> str:
    """A ratio as it is, a latency in µs, a rate of its own in GB/s."""
    scale = 1e6 if name.endswith("_s") and value < 1e-2 else 1e-9 if value > 1e6 else 1.0
    unit = {1e6: " µs", 1e-9: " GB/s", 1.0: ""}[scale]
    return f"{format_number(value * scale)}{unit}"


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "in-node": ("In a node, one size left out (NCCL, 2/4/8 GPUs)", judge_in_node),
    "two-nodes": ("Two nodes predicted from one", judge_two_nodes),
    "other-clusters": ("Clusters that informed no fit", judge_other_clusters),
    "operators-left-out": ("Whole operators left out: product, law alone, rival", judge_operators),
    "nodes-left-out": ("Large node counts left out", judge_nodes),
    "other-machines": ("A machine predicted from its class", judge_other_machines),
    "networks": ("What clusters on one kind of network have in common", list_networks),
    "forced": ("Forced algorithms, measured and by the law fitted to that cluster", compare_forced),
    "crossovers": ("NCCL against NVSHMEM on 8 H200", list_crossovers),
    "mlperf-left-out": ("MLPerf's training steps, each machine left out", mlperf_steps.left_out_text),
}
"""Title and maker of each table; the page holds it between ``<!-- table NAME -->`` and ``<!-- end -->``."""

_BLOCK = re.compile(r"<!-- table (?P<name>[\w-]+) -->\n```text\n(?P<body>.*?)```\n<!-- end -->", re.DOTALL)


def read_blocks() -> dict[str, str]:
    """Tables of the page by name."""
    text = PAGE.read_text(encoding="utf-8")
    return {match["name"]: match["body"].rstrip("\n") for match in _BLOCK.finditer(text)}


def write(made: dict[str, str]) -> None:
    """Put fresh tables into the page."""
    new = _BLOCK.sub(
        lambda m: f"<!-- table {m['name']} -->\n```text\n{made[m['name']]}\n```\n<!-- end -->",
        PAGE.read_text(encoding="utf-8"),
    )
    PAGE.write_text(new, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/accuracy.md")
    parser.add_argument("--only", choices=list(TABLES), help="one table")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs all tables: leave --only out")
    tables = {}
    for name, (title, make) in TABLES.items():
        if options.only in (None, name):
            tables[name] = make()
            print(f"{title}\n{tables[name]}\n", flush=True)
    if options.write:
        write(tables)
        left_out.save(predict_large_groups())
    return 0


if __name__ == "__main__":
    sys.exit(main())
