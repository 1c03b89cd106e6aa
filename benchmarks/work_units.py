"""What a unit of a search's work takes: constants fitted to the CPU time of searches.

Run:    python benchmarks/work_units.py             twelve cases of benchmarks/planner.py (1 min of one core)
        python benchmarks/work_units.py --case "distinct-400 forward" --effort 10

A search ends by counted work (perfmodel/effort.py). Each unit of it counts a constant
(perfmodel/effort.py), which is right where counted seconds are CPU seconds. The first table
has the constants, now and fitted (non-negative least squares of the relative error); the second one, for each
search, CPU seconds, and counted seconds over them. A unit that takes little in all searches is fitted badly.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np
from numpy.typing import NDArray
from planner import MEMORY, Case, list_cases
from scipy.optimize import nnls

from perfmodel import effort
from perfmodel.effort import Work
from perfmodel.plan.searching.search import Search
from perfmodel.report.terminal import table

CASES = [f"{name} 128 training" for name in ("t180", "t200", "t510", "t7", "distinct-100", "distinct-1000")]
CASES += [f"{name} 64 training" for name in ("mlperf", "t180", "t510")]
CASES += [f"distinct-{count} forward" for count in (400, 700, 1000)]
UNITS = {name: value for name, value in vars(effort).items() if isinstance(value, float)}


class Recorded(Work):
    """Work that also keeps how much of it each unit was, ``of`` [ns]; units are vectors, one axis each."""

    def __init__(self) -> None:
        super().__init__()
        self.of = np.zeros(len(UNITS))

    def add(self, unit_ns: NDArray[np.float64], count: float = 1.0) -> None:
        """As ``Work.add``."""
        self.of += unit_ns * count
        super().add(float(unit_ns.sum()), count)


def run_search(case: Case, effort_s: float) -> tuple[Recorded, float]:
    """What a search counted, and its CPU time [s]."""
    evaluator = case.build_evaluator()
    evaluator.work = Recorded()
    limit_bytes = MEMORY * evaluator.setting.machine.value("hbm_bytes")
    began = process_time()
    Search(evaluator, limit_bytes, effort_s=effort_s).run()
    return evaluator.work, process_time() - began


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--case", nargs="+", default=CASES, help="cases whose names have all words of one")
    parser.add_argument("--effort", nargs="+", type=float, default=(0.3, 2.0), help="counted seconds")
    options = parser.parse_args()
    now = np.array(list(UNITS.values()))
    for name, vector in zip(UNITS, np.diag(now), strict=True):
        setattr(effort, name, vector)
    cases = list_cases(options.case)
    run_search(cases[0], min(options.effort))  # imports what searches need
    ran = [(f"{q.name}, {e:g}", *run_search(q, e)) for q in cases for e in options.effort]
    cpu_s = np.array([seconds for _, _, seconds in ran])
    share = np.array([work.of for _, work, _ in ran]) * 1e-9 / cpu_s[:, np.newaxis]
    fitted, _ = nnls(share, np.ones(len(ran)))
    rows = zip(UNITS, now, now * fitted, strict=True)
    lines = [[name, *(f"{ns:,.1f}" for ns in values)] for name, *values in rows]
    print(table(["unit", "ns now", "ns fitted"], lines))
    ratios = np.stack([cpu_s, share.sum(axis=1), share @ fitted], axis=1)
    lines = [[name, *(f"{x:.2f}" for x in row)] for (name, *_), row in zip(ran, ratios, strict=True)]
    print(f"\n{table(['search, effort', 'CPU s', 'counted / CPU', 'fitted / CPU'], lines)}")


if __name__ == "__main__":
    main()
