"""Planners side by side: TorchRec's (really run), EMBark's greedy, random search, uniform shardings and ours.

Run:    python benchmarks/planner.py            five table sets at 8, 64 and 128 GPUs (20 min on 2 cores)
        python benchmarks/planner.py --quick    one table set on 8 GPUs (10 s)
        python benchmarks/planner.py --models embark-t180 --gpus 128

Every plan is scored twice: by this program's calibrated model ("step ms"), and by TorchRec's own
EmbeddingPerfEstimator for the same machine ("theirs ms"; "-": it has no such sharding). All planners get the
same tables, batch, machine and memory; rows stay in GPU memory, and ids are uniform. "ours for TorchRec" is
our search kept to what TorchRec can run. "found s" is when our search had the plan that it gave; the rest of
its time went into the bound and into plans that were no better. Without TorchRec its columns are empty, which
is said.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from planner_baselines import embark, random_search

from calibrate.passes import torchrec_pass
from perfmodel.errors import BadInputError
from perfmodel.model.exchanges import Exchange
from perfmodel.plan import Evaluator, Loads, Plan, PlanTables, torchrec, uniform_plan
from perfmodel.plan.memory import Memory
from perfmodel.plan.placement import Placement, Scheme
from perfmodel.plan.search import Search
from perfmodel.report.terminal import table

WORKER = Path(__file__).with_name("planner_torchrec.py")
MODELS = ("mlperf-dlrm-dcnv2", "embark-t180", "embark-t200", "embark-t510", "embark-t7")
"""MLPerf's tables are EMBark's DLRM-DCNv2 as well: embark-dcnv2 has the same."""
OURS, RESTRICTED, THEIRS, EMBARK = "ours", "ours for TorchRec", "TorchRec", "EMBark's greedy"
UNIFORM = ("row-wise", "table-wise", "table-row-wise")
_START_S = 60  # to import TorchRec and to score plans
_TO_MS, _TO_GB = 1e3, 1e-9
_SHORT = {Exchange.TWO_LEVEL: "2-level"}


@dataclass
class Row:
    """One plan, or why there is none."""

    planner: str
    plan_s: float | None = None
    found: tuple[tuple[float, float], ...] = ()  # when our search had a better plan [s], and its step [s]
    step_ms: float | None = None
    torchrec_ms: float | None = None
    gap: float | None = None
    memory_gb: float | None = None
    shardings: str = ""
    why: str = ""


@dataclass
class Loose:
    """A plan that ``Plan`` may refuse: TorchRec puts two parts of a table on a rank, or cuts 3 rows in 8."""

    tables: PlanTables
    placements: tuple[Placement, ...]
    gpus: int
    kinds: Any
    row_parts: Any
    col_parts: Any
    shards: tuple[Any, Any]

    @staticmethod
    def of(tables: PlanTables, placements: list[Placement], gpus: int) -> Loose:
        schemes = [placement.scheme for placement in placements]
        owner = np.repeat(np.arange(len(placements)), [placement.ranks.size for placement in placements])
        return Loose(
            tables,
            tuple(placements),
            gpus,
            np.array([scheme.kind for scheme in schemes]),
            np.array([scheme.row_parts for scheme in schemes]),
            np.array([scheme.col_parts for scheme in schemes]),
            (owner, np.concatenate([placement.ranks for placement in placements])),
        )


class Case:
    """One table set on some GPUs."""

    def __init__(self, model: str, gpus: int, asked: argparse.Namespace) -> None:
        self.model, self.asked = model, asked
        training = asked.objective == "throughput"
        self.evaluator = Evaluator.on(
            asked.machine,
            PlanTables.load(model),
            max(asked.batch // gpus, 1),
            gpus,
            training=training,
            optimizer="rowwise-adagrad" if training else "none",
        )
        self.limit = asked.memory * self.evaluator.setting.machine.value("hbm_bytes")
        self.plans: dict[str, Plan] = {}
        self.rows: list[Row] = []

    def run(self) -> list[Row]:
        """All planners, ours first: random search gets as long as it took."""
        try:
            seconds = self._search(OURS)
        except BadInputError as error:
            return [Row(OURS, why=error.message)]
        try:
            self._search(RESTRICTED)
        except BadInputError as error:
            self.rows.append(Row(RESTRICTED, why=error.message))
        if torchrec_pass.availability().usable:
            self.rows.append(Row(THEIRS))
        self._planned(EMBARK, lambda: embark(self.evaluator, self.limit))
        self._planned("random", lambda: random_search(self.evaluator, self.limit, seconds))
        for name in UNIFORM:
            self._planned(name, lambda name=name: self._uniform(name))
        if torchrec_pass.availability().usable:
            self._torchrec()
        return self.rows

    def _search(self, name: str) -> float:
        began, better = time.monotonic(), [(0.0, np.inf)]

        def watch(best_s: float, bound_s: float) -> None:
            if best_s < better[-1][1]:
                better.append((time.monotonic() - began, best_s))

        search = Search(self.evaluator, self.limit, time_limit_s=self.asked.time_limit, watch=watch)
        if name == RESTRICTED:
            search.options = search.options.kept(torchrec.runnable(search.options, self.evaluator))
        found = search.run()
        self._add(name, found.plan, found.seconds, found.gap)
        self._row(name).found = tuple(better[1:])
        return found.seconds

    def _planned(self, name: str, make: Callable[[], Plan | None]) -> None:
        began = time.monotonic()
        plan = make()
        if plan is None:
            self.rows.append(Row(name, why="no plan fits"))
        else:
            self._add(name, plan, time.monotonic() - began)

    def _uniform(self, name: str) -> Plan:
        return uniform_plan(self.evaluator.tables, name, self.evaluator.gpus, self.evaluator.domain)

    def _add(self, name: str, plan: Plan, seconds: float, gap: float | None = None) -> None:
        row = self._scored(Row(name, seconds, gap=gap), plan)
        if row.memory_gb is not None and row.memory_gb > self.limit * _TO_GB * 1.01:
            row.step_ms, row.why = None, f"does not fit: {row.memory_gb:.0f} GB on a rank"
        else:
            self.plans[name] = plan
        self.rows.append(row)

    def _scored(self, row: Row, plan: Any) -> Row:
        """With the time and memory of our model."""
        model = self.evaluator
        rows = np.maximum(plan.tables.rows, plan.row_parts)  # 3 rows in 8 parts count as 8
        tables = replace(plan.tables, rows=rows)
        loads: Loads = replace(model.model, tables=tables).loads(plan)
        memory: Memory = replace(model.memories, tables=tables).ranks(plan, loads, model.times)
        row.step_ms = model.step(loads).time_s * _TO_MS
        row.memory_gb = float(memory.total_bytes.max()) * _TO_GB
        counts = {_SHORT.get(kind, kind.name.lower()): int(np.sum(plan.kinds == kind)) for kind in Exchange}
        row.shardings = " ".join(f"{name} {count}" for name, count in counts.items() if count)
        return row

    def _torchrec(self) -> None:
        """TorchRec's score of all plans that it could run, and its own plan."""
        base = self._uniform("row-wise")  # always one that it has: its tables and topology
        with tempfile.TemporaryDirectory() as folder:
            files = {}
            for name, plan in {"": base, **self.plans}.items():
                path = Path(folder) / f"{len(files)}.json"
                try:
                    torchrec.write(self.evaluator, plan, path, self.limit)
                except BadInputError:
                    continue  # it has no such sharding: "-"
                files[name] = str(path)
            for line in self._worker(Path(folder), files):
                if "planned" in line:
                    self._theirs(line["planned"])
                elif line["name"]:
                    self._row(line["name"]).torchrec_ms = line["ms"]
        row = self._row(THEIRS)
        if row.plan_s is None and not row.why:
            row.why = f"no plan in {self.asked.limit:g} s"

    def _worker(self, folder: Path, files: dict[str, str]) -> Iterator[dict[str, Any]]:
        """What TorchRec's process says until it ends, or its time does."""
        case = folder / "case.json"
        limit = self.asked.limit
        training = self.asked.objective == "throughput"
        case.write_text(json.dumps({"plans": files, "seconds": limit, "training": training}))
        command = [sys.executable, str(WORKER), str(case)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit + _START_S)
            said, failed = done.stdout, done.returncode != 0
        except subprocess.TimeoutExpired as late:
            said, failed = (late.stdout or b"").decode(), False
        if failed:
            raise RuntimeError(f"TorchRec's process failed:\n{done.stderr[-2000:]}")
        yield from (json.loads(line) for line in said.splitlines() if line.endswith("}"))

    def _theirs(self, planned: dict[str, Any]) -> None:
        """TorchRec's plan in our terms."""
        row = self._row(THEIRS)
        row.plan_s = planned["seconds"]
        if "failed" in planned:
            row.why = f"no plan: {planned['failed']}"
            return
        row.torchrec_ms = planned["ms"]
        gpus, domain = self.evaluator.gpus, self.evaluator.domain
        names = self.evaluator.tables.names
        placements = [placement_of(planned["tables"][name], gpus, domain) for name in names]
        self._scored(row, Loose.of(self.evaluator.tables, placements, gpus))

    def _row(self, name: str) -> Row:
        return next(row for row in self.rows if row.planner == name)


def placement_of(chosen: dict[str, Any], gpus: int, domain: int) -> Placement:
    """What TorchRec decided for a table; its shards go column part by column part."""
    kind, ranks = chosen["type"], chosen["ranks"]
    if kind == "data_parallel":
        return Placement.of(Scheme(Exchange.DP))
    if kind in ("row_wise", "table_row_wise") and len(ranks) == gpus:
        return Placement.of(Scheme(Exchange.RS, gpus), ranks)
    if kind in ("table_row_wise", "grid_shard"):
        columns = len(ranks) // domain
        by_row = np.array(ranks).reshape(columns, domain).T.reshape(-1)
        return Placement(Scheme(Exchange.TWO_LEVEL, domain, columns), by_row)
    return Placement.of(Scheme(Exchange.RB, 1, len(ranks)), ranks)


def text(rows: list[Row]) -> str:
    """The table of one case."""

    def number(value: float | None, digits: int = 3) -> str:
        if value is None:
            return "-"
        return "<0.01" if value < 0.01 else f"{value:#.{digits}g}".rstrip(".")

    best = next((row.step_ms for row in rows if row.planner == OURS), None)
    lines = [
        [
            row.planner,
            number(row.plan_s, 2),
            number(row.found[-1][0], 2) if row.found else "",
            number(row.step_ms, 4),
            f"{row.step_ms / best:.2f}" if row.step_ms and best else "-",
            number(row.torchrec_ms, 4),
            "" if row.gap is None else f"{100 * row.gap:.1f}",
            number(row.memory_gb),
            row.why or row.shardings,
        ]
        for row in rows
    ]
    heads = ["planner", "plan s", "found s", "step ms", "x", "theirs ms", "gap %", "GB", "exchanges"]
    return table(heads, lines, left=(0, 8))


def mean(ratios: list[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def summary(cases: list[list[Row]]) -> str:
    """Each planner against ours: our score, TorchRec's, time to plan; and gaps to the bound."""
    named = [{row.planner: row for row in rows} for rows in cases]
    lines = []
    for name in dict.fromkeys(name for rows in named for name in rows):
        pairs = [(rows[OURS], rows[name]) for rows in named if name in rows]
        times = [theirs.step_ms / ours.step_ms for ours, theirs in pairs if ours.step_ms and theirs.step_ms]
        took = [theirs.plan_s for _, theirs in pairs if theirs.plan_s]
        faster = str(sum(ratio < 0.999 for ratio in times))
        spread = [f"{x:.2f}" for x in (mean(times), min(times), max(times))] if times else ["-"] * 3
        lines.append([name, str(len(times)), *spread, faster, f"{mean(took):.2g}" if took else "-"])
    heads = ["planner", "plans", "x ours, mean", "least", "most", "faster than ours", "plan s, mean"]
    return "\n".join([table(heads, lines), *_against_torchrec(named), *_gaps(named)])


def _against_torchrec(named: list[dict[str, Row]]) -> Iterator[str]:
    known = [rows for rows in named if THEIRS in rows and rows[THEIRS].step_ms]
    own = [
        rows[RESTRICTED].torchrec_ms / rows[THEIRS].torchrec_ms
        for rows in known
        if rows[RESTRICTED].torchrec_ms
    ]
    if own:
        worse = sum(ratio > 1.01 for ratio in own)
        yield (
            f"TorchRec's own score of {RESTRICTED}: {mean(own):.2f} x that of TorchRec's plan, mean "
            f"({min(own):.2f} to {max(own):.2f}); more than 1 % worse in {worse} of {len(own)}."
        )
    sooner, never = [], 0
    for rows in known:
        at = [when for when, step_s in rows[OURS].found if step_s * _TO_MS <= rows[THEIRS].step_ms * 1.001]
        never += not at
        sooner += [rows[THEIRS].plan_s / at[0]] if at else []
    if sooner:
        spread = f"{mean(sooner):.1f} x, mean ({min(sooner):.1f} to {max(sooner):.0f})"
        yield (
            f"TorchRec's planner takes {spread}, as long as ours until it has a plan that is no slower; "
            f"ours never has one in {never} of {len(known)}."
        )


def _gaps(named: list[dict[str, Row]]) -> Iterator[str]:
    gaps = [100 * rows[OURS].gap for rows in named if rows[OURS].gap is not None]
    if gaps:
        yield f"Gap of ours to the bound: {sum(gaps) / len(gaps):.1f} %, mean, {max(gaps):.1f} % at most."


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS, help="table sets, or files of tables")
    parser.add_argument("--gpus", nargs="+", type=int, default=(8, 64, 128))
    parser.add_argument("--machine", default="h100-sxm-ib")
    parser.add_argument("--batch", type=int, default=65536, help="samples of all ranks together")
    parser.add_argument("--objective", choices=("throughput", "latency"), default="throughput")
    parser.add_argument("--memory", type=float, default=0.85, help="share of a GPU's memory for tables")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of our search")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of TorchRec's planner")
    parser.add_argument("--quick", action="store_true", help="one table set on 8 GPUs")
    asked = parser.parse_args()
    if asked.quick:
        asked.models, asked.gpus, asked.time_limit, asked.limit = ("mlperf-dlrm-dcnv2",), (8,), 2.0, 10.0
    if not torchrec_pass.availability().usable:
        print(f"TorchRec is not compared: {torchrec_pass.availability().why_not}.\n")
    cases = []
    for model in asked.models:
        for gpus in asked.gpus:
            rows = Case(model, gpus, asked).run()
            print(f"{model}, {gpus} GPUs of {asked.machine}, {asked.objective}\n{text(rows)}\n", flush=True)
            cases.append(rows)
    print(summary([rows for rows in cases if rows[0].step_ms]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
