"""How wrong are the predictions? Every table of docs/accuracy.md, from the shipped samples.

Run:    python benchmarks/accuracy.py            prints the tables (about 2 minutes)
        python benchmarks/accuracy.py --write    also puts them into docs/accuracy.md and docs/model.md, and
                                                 what the report's pages show of them into data/validation
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
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
from perfmodel.fit.curves import fit_curve
from perfmodel.fit.laws import fit_logs, prior_of
from perfmodel.fit.shipped import find_cluster_cells
from perfmodel.model.curves import hockney_time
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import PAIRWISE, RING_TREE
from perfmodel.report.terminal import table
from perfmodel.schema.calibration import list_calibrations, shipped_calibration
from perfmodel.schema.evidence import Backend
from perfmodel.schema.priors import load_priors
from perfmodel.units import counted, format_bytes, format_number
from perfmodel.validate import accuracy, crossover, measured, validate

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("accuracy.md", "model.md")
_NUMBERS = ("n", "median %", "p90 %", "bias %", "inside %", "width")


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def summary_text(points: pd.DataFrame, by: list[str], names: list[str] | None = None) -> str:
    """One line a group: how many points, the error's median, p90 and sign, and what the interval holds."""
    rows = [
        [
            *(str(row[c]) for c in by),
            str(row["n"]),
            *(percent(row[c]) for c in ("median", "p90", "bias", "inside")),
            f"x{row['width']:.2f}",
        ]
        for row in summary(points, by).to_dict("records")
    ]
    return table([*(names or by), *_NUMBERS], rows, left=range(len(by)))


def alpha_beta_errors(cell: pd.DataFrame) -> pd.DataFrame:
    """A cell with |error| of the plain alpha-beta model, each size predicted from the others."""
    sizes, times = cell["payload_bytes"].to_numpy(float), cell["time_s"].to_numpy(float)
    rests = [sizes != size for size in sizes]
    fits = [fit_curve(sizes[rest], times[rest], sharpness=1.0) for rest in rests]
    predicted = [
        hockney_time(size, fit.alpha_s, fit.beta_bytes_per_s, 1.0)
        for size, fit in zip(sizes, fits, strict=True)
    ]
    return cell.assign(alpha_beta_error=np.abs(np.array(predicted) / times - 1))


def in_node() -> str:
    cells = accuracy.leave_one_size_out().groupby(["machine", "collective", "gpus"], observed=True)
    whole = pd.concat([alpha_beta_errors(cell) for _, cell in cells]).assign(all="all")
    rows = []
    for column in ("all", "machine", "collective", "gpus", "size"):
        for row in summary(whole, [column]).to_dict("records"):
            plain = whole[whole[column] == row[column]]["alpha_beta_error"]
            what = f"{row[column]} GPUs" if column == "gpus" else str(row[column])
            errors = [row["median"], row["p90"], plain.median(), plain.quantile(0.9), row["inside"]]
            rows.append([what, str(row["n"]), *map(percent, errors), f"x{row['width']:.2f}"])
    return table(["", "n", "median %", "p90 %", "a-b median %", "a-b p90 %", "inside %", "width"], rows)


def two_nodes() -> str:
    learned = accuracy.one_node_to_two().assign(constants="other clusters'")
    alone = accuracy.one_node_to_two(with_clusters=False).assign(constants="NCCL's own")
    return summary_text(pd.concat([learned, alone]), ["constants", "size"])


def two_nodes_by_machine(machines: tuple[str, ...] = ()) -> str:
    return summary_text(accuracy.one_node_to_two(machines=machines), ["machine", "collective", "size"])


def two_nodes_nvshmem() -> str:
    points = accuracy.one_node_to_two(False, Backend.NVSHMEM)
    return summary_text(points, ["machine", "collective", "size"])


def other_clusters() -> str:
    return summary_text(accuracy.other_clusters(), ["source_id", "collective", "size"], ["cluster", "", ""])


def other_machines() -> str:
    return summary_text(
        left_out.without_the_machine(), ["machine", "like", "where", "size"], ["machine", "from", "", ""]
    )


_SCORED = ["links", "cell", "size"]


@lru_cache(maxsize=1)
def scored() -> pd.DataFrame:
    """Operators left out, ordered for tables, with column ``cell``: what a prediction rests on."""
    points = bands.with_bands_of_others(left_out.operators_left_out())
    order = points["size"].map({size: place for place, size in enumerate(measured.SIZES)})
    points = points.assign(cell=np.where(points["known"], "measured", "law"), _order=order)
    return points.sort_values(["where", "links", "cell", "_order"], kind="stable")


def operators_left_out() -> str:
    """The product, its law without measured cells, and the rival, on operators that none of them saw."""
    product = scored()
    answers = product, left_out.operators_left_out(law_alone=True), rival.rival_left_out(product)
    rows = []
    for key, group in product.groupby(_SCORED, sort=False, observed=True):
        row = [*map(str, key), str(group["operator"].nunique()), str(len(group))]
        for points in answers:
            own = points.loc[group.index]
            row += [percent(float(own["error"].abs().quantile(share))) for share in (0.5, 0.9)]
            row.append(f"{np.sqrt((own['log_error'] ** 2).mean()):.2f}")
        rows.append(row)
    three = ["median", "p90", "rms"]
    return table(["", "", "", "by", "n", *three, *three, *three], rows, left=(0, 1, 2))


def bands_left_out() -> str:
    """What the product's 95 % bands hold of operators that it never saw, as points and by operator."""
    points = scored()
    points = points.assign(
        above=points["time_s"] > points["high_s"],
        below=points["time_s"] < points["low_s"],
        width=points["high_s"] / points["low_s"],
    )
    rows = []
    for by in (_SCORED, ["where"]):
        for key, group in points.groupby(by, sort=False, observed=True):
            parts = group.groupby("operator", observed=True)[["inside", "above", "below"]].mean()
            shares = [group["inside"].mean(), group["above"].mean(), group["below"].mean(), *parts.mean()]
            what = [*map(str, key)] if len(by) > 1 else ["all", str(key[0]), ""]
            counts = str(group["operator"].nunique()), str(len(group))
            rows.append(
                [
                    *what,
                    *counts,
                    *(percent(float(share)) for share in shares),
                    f"x{group['width'].median():.2f}",
                ]
            )
    three = ["inside %", "above", "below"]
    return table(["", "", "", "by", "n", *three, *three, "width"], rows, left=(0, 1, 2))


def by_operator() -> str:
    return summary_text(
        left_out.operators_left_out(), ["operator", "machine", "where", "size"], ["operator", "", "", ""]
    )


@lru_cache(maxsize=1)
def large_groups() -> pd.DataFrame:
    """Large node counts left out, fitted once."""
    return left_out.large_left_out()


def nodes_left_out() -> str:
    return summary_text(large_groups(), ["family", "size"], ["", ""])


def nodes_by_machine(cases: tuple[left_out.NodesLeftOut, ...] = ()) -> str:
    points = left_out.large_left_out(cases) if cases else large_groups()
    most = points.groupby(["machine", "seen_nodes"])["nodes"].transform("max")
    named = points.assign(nodes=[f"{s} -> {m}" for s, m in zip(points["seen_nodes"], most, strict=True)])
    return summary_text(named, ["machine", "nodes", "family", "size"], ["machine", "nodes", "", ""])


def forced() -> str:
    """Runs in which NCCL_ALGO allowed one algorithm, beside the law fitted to that cluster."""
    priors, samples = load_priors(), measured.shipped_samples()
    cluster = next(one for one in find_cluster_cells(samples) if one.name == "pico_mn5_h100")
    cells, steps = cluster.cells["ring_tree"], step_constants(cluster.machine, priors)
    prior = prior_of("ring_tree", cluster.machine, priors)
    logs = fit_logs("ring_tree", cells, cluster.machine, priors, prior).logs
    across = [cell for cell in cells if cell.group.domains > 1]
    sizes = across[0].payload_bytes
    rows = []
    for cell in across:
        law = (cell.collective, cell.group, cell.payload_bytes, cell.algorithm)
        for what, times in (
            ("measured", cell.time_s),
            ("law", LINK_LAWS["ring_tree"].time_at(logs, steps, *law)),
        ):
            of = [cell.algorithm or "any", str(cell.group.gpus)] if what == "measured" else ["", ""]
            rows.append([*of, what, *[format_number(1e6 * float(time)) for time in times]])
    return table(["", "GPUs", "µs at", *[format_bytes(size) for size in sizes]], rows, left=(0, 2))


def crossovers() -> str:
    rows = []
    for collective, clocks in product(crossover.COLLECTIVES, crossover.PAIRS):
        found = crossover.compare(collective, *clocks)
        said = ["", "", "not measured"]
        if found is not None:
            size = found.crossover_bytes
            said = [f"{found.small_ratio:.2f}", format_bytes(size) if size else "", found.winner]
        rows.append([collective, *map(str, clocks), *said])
    headers = ["collective", "NVSHMEM clock", "NCCL clock", "NCCL/NVSHMEM", "crossover", "faster"]
    return table(headers, rows, left=(0, 1, 2, 5))


def claims() -> str:
    lines, pad = [], " " * 17
    for v in validate(paper=True):
        start = f"{v.identifier:4} {v.verdict:10}  "
        lines += textwrap.wrap(v.claim, 100, initial_indent=start, subsequent_indent=pad)
        lines += textwrap.wrap(f"got {v.got}", 100, initial_indent=pad, subsequent_indent=pad)
    return "\n".join(lines)


def curve_family() -> str:
    """Leave-one-out errors that calibrations store of their curves."""
    names = ("loo_median", "loo_p90")
    curves = pd.DataFrame(
        [
            {"calibration": name, **{each: getattr(curve, each) for each in names}}
            for name in list_calibrations()
            for curve in shipped_calibration(name).curves
            if curve.loo_median is not None
        ]
    )
    rows = [
        [str(name), str(len(own)), *map(percent, own[list(names)].median())]
        for name, own in pd.concat([curves, curves.assign(calibration="all")]).groupby(
            "calibration", sort=False
        )
    ]
    return table(["calibration", "curves", "median %", "p90 %"], rows)


def networks() -> str:
    """What clusters on each kind of network say of the laws (data/priors/networks.json)."""
    learned, shown = load_priors().learned, ("infiniband", "efa", "slingshot", "roce")
    rows = []
    for law, unknowns in (("ring_tree", RING_TREE), ("pairwise", PAIRWISE)):
        found = [learned.get(name, {}).get(law) for name in shown]
        title = "rings and trees" if law == "ring_tree" else "all-to-all"
        counts = [f"{counted(len(one.clusters), 'cluster')}" if one else "" for one in found]
        rows.append([title, *counts])
        for name in (unknown.name for unknown in unknowns if unknown.network):
            own = [one.unknowns[name] if one else None for one in found]
            short = name.removesuffix("_ratio").removesuffix("_bytes_per_s").removesuffix("_s")
            rows.append([f" {short}", *[_value_text(name, value) if value else "" for value in own]])
    return table(["", *shown], rows, left=(0,))


def _value_text(name: str, value: float) -> str:
    """A ratio as it is, a latency in µs, a rate of its own in GB/s."""
    scale = 1e6 if name.endswith("_s") and value < 1e-2 else 1e-9 if value > 1e6 else 1.0
    unit = {1e6: " µs", 1e-9: " GB/s", 1.0: ""}[scale]
    return f"{format_number(value * scale)}{unit}"


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "curve-family": ("All shipped curves, one size left out", curve_family),
    "in-node": ("In a node, one size left out (NCCL, 2/4/8 GPUs)", in_node),
    "two-nodes": ("Two nodes predicted from one", two_nodes),
    "two-nodes-by-machine": ("The same by machine (constants of other clusters)", two_nodes_by_machine),
    "two-nodes-nvshmem": ("The same for NVSHMEM on a stream", two_nodes_nvshmem),
    "other-clusters": ("Clusters that informed no fit", other_clusters),
    "operators-left-out": ("Whole operators left out: product, law alone, rival", operators_left_out),
    "operators-left-out-bands": ("The same: what the product's bands hold", bands_left_out),
    "operators-left-out-by-operator": ("The product's by operator", by_operator),
    "nodes-left-out": ("Large node counts left out", nodes_left_out),
    "nodes-left-out-by-machine": ("The same by machine (nodes seen -> predicted)", nodes_by_machine),
    "other-machines": ("A machine predicted from its class", other_machines),
    "networks": ("What clusters on one kind of network have in common", networks),
    "forced": ("Forced algorithms, measured and by the law fitted to that cluster", forced),
    "crossovers": ("NCCL against NVSHMEM on 8 H200", crossovers),
    "claims": ("Claims of papers", claims),
    "mlperf-steps": ("MLPerf's training steps", mlperf_steps.steps_text),
    "mlperf-left-out": ("MLPerf's training steps, each machine left out", mlperf_steps.left_out_text),
}
"""Title and maker of each table; a page holds it between ``<!-- table NAME -->`` and ``<!-- end -->``."""

_BLOCK = re.compile(r"<!-- table (?P<name>[\w-]+) -->\n```text\n(?P<body>.*?)```\n<!-- end -->", re.DOTALL)


def blocks(page: str) -> dict[str, str]:
    """Tables of a page by name."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return {match["name"]: match["body"].rstrip("\n") for match in _BLOCK.finditer(text)}


def write(made: dict[str, str]) -> None:
    """Put fresh tables into the pages."""
    for page in PAGES:
        path = DOCS / page
        text = path.read_text(encoding="utf-8")
        new = _BLOCK.sub(
            lambda m: f"<!-- table {m['name']} -->\n```text\n{made[m['name']]}\n```\n<!-- end -->", text
        )
        path.write_text(new, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/")
    parser.add_argument("--only", choices=list(TABLES), help="one table")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs all tables: leave --only out")
    made = {}
    for name, (title, make) in TABLES.items():
        if options.only in (None, name):
            made[name] = make()
            print(f"{title}\n{made[name]}\n", flush=True)
    if options.write:
        write(made)
        left_out.save(large_groups())
    return 0


if __name__ == "__main__":
    sys.exit(main())
