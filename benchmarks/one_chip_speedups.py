"""One chip: how much faster tables with cores of their own are than a slice of every table on every core.

Run:    python benchmarks/one_chip_speedups.py [--chips ascend-910 h100-sxm] [--models …] [--batches 256 8192]
For table sets, batches and distributions of ids: a batch with every table gathered by all cores (GM), with
the best way of each table on all cores (best), with GM where cores do not wait for each other between tables
(any), and with the mapping of ``perfmodel chip plan`` made for these ids (ours); what is busiest, before
and after. Then how much a batch depends on the ids: each mapping with the ids of all others. No chip ran any.
arXiv 2507.01676 has 1.5x to 6.5x on real ids and more than 20x on extreme ones, on Huawei Ascend, with tables
of its own.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.engine.tables import PlanTables
from perfmodel.onechip.answer import ChipAnswer, answer_on, cost_on
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import ONE_ROW, Distribution, parse_distribution
from perfmodel.units import format_fraction, format_ratio, format_time

CHIPS = ("ascend-910", "h100-sxm")
MODELS = ("mlperf-dlrm-dcnv2", "criteo-kaggle", "criteo-1tb", "embark-t7", "embark-t180", "embark-t200")
BATCHES = (256, 8192)
IDS = ("uniform", "histogram:fbgemm-t856", "zipf:1.05", "zipf:1.2", "one-row")
REAL, EXTREME = (1.5, 6.5), 20.0
"""Speed-ups of arXiv 2507.01676 over the default compiler, on real and on extreme ids."""


@dataclass(frozen=True, eq=False)
class Case:
    """One table set and batch: a mapping for each distribution."""

    chip: str
    model: str
    batch: int
    found: dict[Distribution, ChipAnswer]

    def crossed(self) -> dict[Distribution, dict[Distribution, float]]:
        """Time of the mapping made for some ids with other ids [s]."""
        out = {}
        for made, answer in self.found.items():
            out[made] = {
                asked: answer.time_s
                if asked == made
                else answer.mapping.batch(cost_on(answer.cost.chip, answer.tables, self.batch, asked)).seconds
                for asked in self.found
            }
        return out


def solved(chip: str, model: str, batch: int, ids: Sequence[Distribution], effort: str) -> Case:
    """Mappings of one table set."""
    found = {
        each: answer_on(load_chip(chip), PlanTables.load(model, each), batch, each, effort=effort)
        for each in ids
    }
    return Case(chip, model, batch, found)


def line(case: Case, ids: Distribution) -> list[str]:
    """A row of the table of speed-ups."""
    answer = case.found[ids]
    before = Counter()
    for limit, time_s in zip(answer.global_memory.limits, answer.global_memory.table_s, strict=True):
        before[limit] += float(time_s)
    ours = answer.time_s
    return [
        case.model.removesuffix("-dlrm-dcnv2"),
        str(case.batch),
        _short(ids),
        format_time(answer.global_memory.time_s),
        format_time(ours),
        format_ratio(answer.global_memory.time_s / ours),
        format_ratio(answer.best_symmetric.time_s / ours),
        format_ratio(answer.any_order_s / ours),
        "-" if answer.symmetric else format_fraction(answer.gap),
        f"{before.most_common(1)[0][0]}, {answer.limit}",
    ]


HEADERS = ["tables", "batch", "ids", "GM", "ours", "x GM", "x best", "x any", "gap", "busiest"]


def speedups(case: Case) -> list[str]:
    """Speed-up over GM of the mapping for each of the ids."""
    ratios = [format_ratio(answer.global_memory.time_s / answer.time_s) for answer in case.found.values()]
    return [f"{case.model} {case.batch}", *ratios]


def dependence(case: Case) -> list[str]:
    """Worst over best batch: GM; mappings made for each of the ids; one for each."""
    gathered = [answer.global_memory.time_s for answer in case.found.values()]
    own = [answer.time_s for answer in case.found.values()]
    times = [list(times.values()) for times in case.crossed().values()]
    return [
        f"{case.model} {case.batch}",
        *(format_ratio(max(each) / min(each)) for each in (gathered, *times, own)),
    ]


def worst(case: Case) -> list[str]:
    """Worst batch of GM over the worst of each mapping, whatever the ids."""
    gathered = max(answer.global_memory.time_s for answer in case.found.values())
    slowest = [max(times.values()) for times in case.crossed().values()]
    return [f"{case.model} {case.batch}", *(format_ratio(gathered / time_s) for time_s in slowest)]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Rows under a header, right-aligned but for ``left``."""
    cells = [list(headers), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(w) if at in left else cell.rjust(w)
            for at, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(" " + line.rstrip() for line in lines)


def paper(cases: Sequence[Case]) -> list[str]:
    """How many speed-ups are where the paper has them."""
    lines = []
    for extreme, what in ((False, "uniform and skewed ids"), (True, "one row")):
        mine = [
            (answer.global_memory.time_s / answer.time_s, answer.any_order_s / answer.time_s)
            for case in cases
            for ids, answer in case.found.items()
            if (ids == ONE_ROW) == extreme
        ]
        for name, each in zip(("GM", "GM that waits nowhere"), zip(*mine, strict=True), strict=False):
            inside = [x > EXTREME if extreme else REAL[0] <= x <= REAL[1] for x in each]
            where = f"above {EXTREME:.0f}" if extreme else f"{REAL[0]} to {REAL[1]}"
            low, high = format_ratio(min(each)), format_ratio(max(each))
            lines.append(f" {what}, over {name}: {sum(inside)} of {len(each)} {where}; {low} to {high}")
    return lines


def printed(cases: Sequence[Case], ids: Sequence[Distribution], details: bool) -> str:
    """The tables of one chip, and how many speed-ups are where the paper has them."""
    names = [_short(each) for each in ids]
    parts = [table(["x GM", *names], [speedups(case) for case in cases]), *paper(cases)]
    if details:
        rows = [line(case, each) for case in cases for each in ids]
        parts += ["", table(HEADERS, rows, left=(0, 2, 9))]
    parts.append("\n worst to best batch over all these ids: GM, mappings made for one of them, one for each")
    parts.append(table(["", "GM", *names, "each"], [dependence(case) for case in cases]))
    parts.append("\n worst batch of GM over that of the mapping made for")
    parts.append(table(["", *names], [worst(case) for case in cases]))
    return "\n".join(parts)


def _short(ids: Distribution) -> str:
    return ids.name.removeprefix("histogram:")


def main() -> None:
    """Print the tables, a chip after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chips", nargs="+", default=CHIPS)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--ids", nargs="+", default=IDS)
    parser.add_argument("--details", action="store_true", help="times, baselines, gaps, what is busiest")
    parser.add_argument("--effort", choices=EFFORTS, default=DEFAULT_EFFORT, help="of each search")
    asked = parser.parse_args()
    ids = [parse_distribution(text) for text in asked.ids]
    for chip in asked.chips:
        began = time.process_time()
        cases = [
            solved(chip, model, batch, ids, asked.effort) for model in asked.models for batch in asked.batches
        ]
        print(
            f"{chip}\n{printed(cases, ids, asked.details)}\n {time.process_time() - began:.0f} s of CPU\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
