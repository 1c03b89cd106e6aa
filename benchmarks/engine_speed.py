"""CPU time of the engine: grids of projections, costs of plans, and commands, here and in another commit.

Run:    python benchmarks/engine_speed.py                   this checkout alone (1 min)
        python benchmarks/engine_speed.py --beside HEAD~5   and that commit, in turns, in the same run

Each case runs in a process of its own, three times in each checkout by turns; the least CPU time counts.
Random grids draw size, batch, dim, pooling and number of tables of every configuration (numpy, seed 0).
Plans are of 1 000 different tables on 128 GPUs: all options that a search lists, and times of their loads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from perfmodel.report.terminal import table

_HEAD = """
import sys, time, numpy as np
from perfmodel.projections import project_row_wise
from perfmodel.plan import Evaluator, PlanTables, uniform_plan
from perfmodel.projections.grids import product
from perfmodel.schema.workload import Table, TableSet
rng = np.random.default_rng(0)
def drawn(n):
    return dict(table_bytes=10 ** rng.uniform(10.9, 13.5, n), batch=rng.integers(1, 9000, n).astype(float),
                dim=rng.integers(8, 256, n).astype(float), pooling=rng.uniform(1, 100, n),
                table_count=rng.integers(1, 9, n).astype(float))
def regular():
    return product(table_bytes=np.geomspace(1e11, 1e13, 20), batch=(128, 256, 512, 1024, 2048),
                   dim=(32, 64, 128, 256), pooling=(4, 8, 16, 32), table_count=(1, 8, 64))
def planned(training=False):
    sizes = zip(np.geomspace(1e4, 1e8, 1000).round(), np.tile([32, 64, 128, 256], 250))
    some = tuple(Table(f"t{at}", int(rows), int(dim), 1 + at % 30) for at, (rows, dim) in enumerate(sizes))
    tables = PlanTables.of(TableSet("thousand", some))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 1024, 128, training=training)
    return evaluator, uniform_plan(tables, "table-wise", 128, evaluator.domain)
def taken(work, times=1):
    start = time.process_time()
    for _ in range(times):
        work()
    print((time.process_time() - start) / times)
"""
CASES = {
    "100 000 random projections": "r = drawn(100_000); taken(lambda: project_row_wise(r))",
    "1 000 000 random projections": "r = drawn(1_000_000); taken(lambda: project_row_wise(r))",
    "4 800 projections of a regular grid": (
        "g = regular(); project_row_wise(g); taken(lambda: project_row_wise(g), 3)"
    ),
    "4 800 with Zipf's law": (
        "g = regular(); project_row_wise(g); taken(lambda: project_row_wise(g, distribution='zipf:1.05'), 1)"
    ),
    "20 000 random, the faster library": (
        "r = drawn(20_000); taken(lambda: project_row_wise(r, machine='h200-sxm-ib', backend='best'))"
    ),
    "one plan, with bands": "e, p = planned(); e.cost(p); taken(lambda: e.cost(p), 5)",
    "one plan, for a search": (
        "e, p = planned(); m = e.loads(p).most; e.step_times(m); taken(lambda: e.step_times(m), 2000)"
    ),
    "256 plans, for a search": (
        "e, p = planned(); m = np.tile(e.loads(p).most, (256, 1)); e.step_times(m); "
        "taken(lambda: e.step_times(m), 500)"
    ),
    "all options of 1 000 tables": (
        "from perfmodel.plan.choices.options import options_of; e, p = planned(); "
        "options_of(e, 68e9); taken(lambda: options_of(e, 68e9), 3)"
    ),
    "their times": (
        "from perfmodel.plan.choices.options import options_of; e, p = planned(); "
        "o = options_of(e, 68e9); e.step_times(o.average); taken(lambda: e.step_times(o.average), 5)"
    ),
    "perfmodel --help": "",
    "perfmodel project --table-size 10TB": "",
}
_TIMES = 3


def cpu_s(case: str, folder: Path) -> float:
    """CPU time of a case in a checkout [s]; of a command that of the whole process."""
    where = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    code = f"{_HEAD}\n{CASES[case]}" if CASES[case] else "from perfmodel.cli import main; main()"
    words = [] if CASES[case] else case.split()[1:]
    before = os.times()
    made = subprocess.run(
        [sys.executable, "-c", code, *words], env=where, check=True, capture_output=True, cwd=folder
    )
    after = os.times()
    if CASES[case]:
        return float(made.stdout)
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def main() -> None:
    """Print a line for each case."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--beside", metavar="COMMIT", help="another commit, measured by turns")
    asked = parser.parse_args()
    here = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        folders = [here]
        if asked.beside is not None:
            folders.insert(0, Path(folder) / "beside")
            archive = subprocess.run(
                ["git", "archive", asked.beside], cwd=here, check=True, capture_output=True
            ).stdout
            folders[0].mkdir()
            subprocess.run(["tar", "-x", "-C", str(folders[0])], input=archive, check=True)
        rows = []
        for case in CASES:
            each = [[cpu_s(case, one) for one in folders] for _ in range(_TIMES)]
            best = [min(times) for times in zip(*each, strict=True)]
            ratio = [f"{best[-1] / best[0]:.2f}"] if len(best) > 1 else []
            rows.append((case, *(f"{time * 1e3:.3g} ms" for time in best), *ratio))
    head = ["CPU time", *([asked.beside, "here", "ratio"] if asked.beside else ["here"])]
    sys.stdout.write(table(head, rows, left=(0,)) + "\n")


if __name__ == "__main__":
    main()
