"""Planners side by side: TorchRec's (really run), EMBark's greedy, random search, uniform shardings and ours.

Run:    python benchmarks/planner.py            five table sets at 8, 64 and 128 GPUs, many different
                                                tables on 128 and 512; forward and training (two hours)
        python benchmarks/planner.py --jobs 2 --without-torchrec --write
                                                the same, two cases side by side, without TorchRec's
                                                planner; the last table goes into benchmarks/README.md
        python benchmarks/planner.py --quick    one table set on 8 GPUs (15 s)
        python benchmarks/planner.py --case "distinct-400 forward" colossal    the cases whose names have
                                                the words of the first, and those of the second
        python benchmarks/planner.py --models embark-t180 --gpus 128

Our search ends by counted work (--effort, in counted seconds), so its plans and gaps are the same in every
run; all times of planning are CPU seconds. Every plan is scored twice: by this program's calibrated model
("step ms"), and by TorchRec's own EmbeddingPerfEstimator for the same machine ("theirs ms"; "-": it has no
such sharding). All planners get the same tables, batch, machine and memory; rows stay in GPU memory, and ids
are uniform. "found s" is when our search had the plan that it gave; the rest of its time went into the bound
and into plans that were no better. "gap %" is what a plan of the listed schemes can save of its time, at most
(docs/commands.md). Without TorchRec its columns and rows are missing, which is said. Plans for TorchRec, its
planner's and ours, are costed as TorchRec runs them: one set of exchanges for each sharding type in use.
"ours for TorchRec" is our search kept to what TorchRec can run. After all cases: a line for each case, and
the cases in which another planner is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from time import process_time
from typing import Any

import numpy as np
from planner_baselines import embark, random_search
from planner_cases import Question, questions, tables_of
from planner_greedy import per_byte
from planner_report import (
    EMBARK,
    OURS,
    OURS_SOON,
    PER_BYTE,
    PLANNERS,
    RANDOM,
    RESTRICTED,
    THEIRS,
    UNIFORM,
    Row,
    compared,
    into_readme,
    summary,
    text,
)
from planner_worker import Worker

from calibrate.providers import describe
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.loads import Loads
from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.placement import Placement, Plan, Scheme, uniform_plan
from perfmodel.engine.schemes import Exchange
from perfmodel.errors import BadInputError
from perfmodel.plan import torchrec
from perfmodel.plan.choices.options import Options, list_options
from perfmodel.plan.searching.search import Search

_TO_MS, _TO_GB = 1e3, 1e-9
_SHORT = {Exchange.TWO_LEVEL: "2-level"}


@dataclass(frozen=True, eq=False)
class Loose(Plan):
    """What ``Plan`` would refuse: TorchRec puts two parts of a table on a rank, or cuts 3 rows in 8 parts."""

    def __post_init__(self) -> None:
        """Nothing is checked."""


class Better:
    """When a search had a better plan [s of the CPU], and its time [s]."""

    def __init__(self) -> None:
        self.began = process_time()
        self.found: list[tuple[float, float]] = []

    def watch(self, best_s: float) -> None:
        """The search calls it with every plan that it keeps."""
        if not self.found or best_s < self.found[-1][1]:
            self.found.append((self.took_s, best_s))

    @property
    def took_s(self) -> float:
        """Since it began [s]."""
        return process_time() - self.began


class Case:
    """One table set on some GPUs."""

    def __init__(self, question: Question, asked: argparse.Namespace) -> None:
        self.question, self.asked = question, asked
        training = question.training
        self.evaluator = Evaluator.on(
            asked.machine,
            tables_of(question.model),
            question.batch,
            question.gpus,
            training=training,
            optimizer="rowwise-adagrad" if training else "none",
        )
        self.in_torchrec = self.evaluator.exchange_by(ExchangeSets())
        self.limit = asked.memory * self.evaluator.setting.machine.value("hbm_bytes")
        self.plans: dict[str, Plan] = {}
        self.rows: list[Row] = []

    def run(self) -> list[Row]:
        """All planners; random search gets as much of the CPU as our longer search took."""
        for name, effort_s in ((OURS_SOON, self.asked.soon), (OURS, self.asked.ours_s)):
            began = process_time()
            self._tried(name, lambda name=name, effort_s=effort_s: self._search(name, effort_s))
            seconds = process_time() - began
        if not self.asked.ours:
            self._others(seconds)
        return sorted(self.rows, key=lambda row: PLANNERS.index(row.planner))

    def _others(self, seconds: float) -> None:
        """What our plan is compared with."""
        if not self.question.many:
            self._tried(RESTRICTED, partial(self._search, RESTRICTED, self.asked.ours_s))
        self._planned(EMBARK, lambda: embark(self.evaluator, self.limit))
        self._planned(PER_BYTE, lambda: per_byte(self.evaluator, self.limit))
        self._planned(RANDOM, lambda: random_search(self.evaluator, self.limit, seconds))
        for name in UNIFORM:
            self._planned(name, lambda name=name: self._uniform(name))
        if describe("torchrec").usable and not self.asked.without_torchrec:
            training = self.question.training
            with Worker(self.evaluator, self._uniform("row-wise"), self.limit, training) as worker:
                self._torchrec(worker)

    def _tried(self, name: str, run: Callable[[], Any]) -> None:
        """A row that says why, where there is no plan."""
        try:
            run()
        except BadInputError as error:
            self.rows.append(Row(name, why=error.message))

    def _search(self, name: str, effort_s: float) -> None:
        better, evaluator, restricted = Better(), self._model(name), name == RESTRICTED

        def list_allowed(more: Sequence[set[Scheme]]) -> Options:
            options = list_options(evaluator, self.limit, more)
            return torchrec.restrict_to_torchrec(options, evaluator) if restricted else options

        keywords = {"effort_s": effort_s, "options": list_allowed, "ruled": restricted, "watch": better.watch}
        result = Search(evaluator, self.limit, **keywords).run()
        self._add(Row(name, better.took_s, tuple(better.found), gap=result.gap), result.plan)

    def _planned(self, name: str, make: Callable[[], Plan | None]) -> None:
        began = process_time()
        plan = make()
        if plan is None:
            self.rows.append(Row(name, why="no plan fits"))
        else:
            self._add(Row(name, process_time() - began), plan)

    def _uniform(self, name: str) -> Plan:
        return uniform_plan(self.evaluator.tables, name, self.evaluator.gpus, self.evaluator.domain)

    def _add(self, row: Row, plan: Plan) -> None:
        self._scored(row, plan)
        if row.memory_gb is not None and row.memory_gb > self.limit * _TO_GB * 1.01:
            row.step_ms, row.why = None, f"does not fit: {row.memory_gb:.0f} GB on a rank"
        else:
            self.plans[row.planner] = plan
        self.rows.append(row)

    def _model(self, name: str) -> Evaluator:
        """What costs a planner's plans."""
        return self.in_torchrec if name == RESTRICTED else self.evaluator

    def _scored(self, row: Row, plan: Plan, types: tuple[str, ...] | None = None) -> Row:
        """With the time and memory of our model; ``types`` that TorchRec's planner chose for its tables."""
        model = self.in_torchrec.exchange_by(ExchangeSets(types)) if types else self._model(row.planner)
        rows = np.maximum(plan.tables.rows, plan.schemes[1])  # 3 rows in 8 parts count as 8
        tables = replace(plan.tables, rows=rows)
        loads: Loads = replace(model.model, tables=tables).sum_shards(plan)
        held = replace(model.memories, tables=tables).count_held(plan)
        memory = GpuMemory(*held, model.times.count_buffers(loads.values))
        row.step_ms = model.step(loads).time_s * _TO_MS
        row.memory_gb = float(memory.total_bytes.max()) * _TO_GB
        counts = {_SHORT.get(kind, kind.name.lower()): int(np.sum(plan.kinds == kind)) for kind in Exchange}
        row.shardings = " ".join(f"{name} {count}" for name, count in counts.items() if count)
        return row

    def _torchrec(self, worker: Worker) -> None:
        """TorchRec's plan, and its score of all plans that it could run."""
        worker.score(self._uniform("row-wise"))  # it has imported TorchRec
        self._theirs(worker.planned(self.asked.limit))
        for name, plan in self.plans.items():
            with contextlib.suppress(BadInputError):  # it has no such sharding: "-"
                self._row(name).torchrec_ms = worker.score(plan)["ms"]

    def _theirs(self, planned: dict[str, Any] | None) -> None:
        """TorchRec's plan in our terms."""
        row = Row(THEIRS)
        self.rows.append(row)
        if planned is None or "failed" in planned:
            row.why = f"no plan: {planned['failed']}" if planned else f"no plan in {self.asked.limit:g} s"
            row.plan_s = planned and planned["seconds"]
            return
        row.plan_s, row.torchrec_ms = planned["seconds"], planned["ms"]
        gpus, domain = self.evaluator.gpus, self.evaluator.domain
        names = self.evaluator.tables.names
        placements = tuple(placement_of(planned["tables"][name], gpus, domain) for name in names)
        types = [planned["tables"][name]["type"] for name in names]
        self._scored(row, Loose(self.evaluator.tables, placements, gpus, domain), tuple(types))

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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", help="table sets, or files of tables")
    parser.add_argument("--gpus", nargs="+", type=int)
    parser.add_argument(
        "--case", nargs="+", default=[""], help="only cases whose names have all words of one"
    )
    parser.add_argument("--machine", default="h100-sxm-ib")
    parser.add_argument("--batch", type=int, help="samples of all ranks together")
    parser.add_argument("--objective", choices=("throughput", "latency"))
    parser.add_argument("--memory", type=float, default=0.85, help="share of a GPU's memory for tables")
    parser.add_argument(
        "--effort",
        nargs=2,
        type=float,
        default=(2.0, 10.0),
        metavar=("SOON", "OURS"),
        help="counted seconds of our two searches",
    )
    parser.add_argument("--jobs", type=int, default=1, help="cases side by side")
    parser.add_argument("--ours", action="store_true", help="our two searches alone")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of TorchRec's planner")
    parser.add_argument("--without-torchrec", action="store_true", help="do not run TorchRec's planner")
    parser.add_argument("--quick", action="store_true", help="one table set on 8 GPUs")
    parser.add_argument("--write", action="store_true", help="put the last table into benchmarks/README.md")
    options = parse_options(parser)
    if not describe("torchrec").usable:
        print(f"TorchRec is not compared: {describe('torchrec').why_not}.\n")
    cases = {}
    pending = list(questions(options.models, options.gpus, options.objective, options.batch, options.case))
    with ProcessPoolExecutor(options.jobs, get_context("fork")) as pool:
        map_cases = pool.map if options.jobs > 1 else map
        for question, rows in zip(pending, map_cases(partial(_run, asked=options), pending), strict=True):
            print(f"{question.name}, on {options.machine}\n{text(rows)}\n", flush=True)
            cases[question.name] = rows
    print(f"{summary(list(cases.values()))}\n")
    said = compared(cases, options.soon, options.ours_s)
    print(said)
    if options.write:
        command = shlex.join(["python", "benchmarks/planner.py", *sys.argv[1:]])
        into_readme(f"$ {command}\n{said}")
    return 0


def _run(question: Question, asked: argparse.Namespace) -> list[Row]:
    return Case(question, asked).run()


def parse_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options; ``soon`` and ``ours_s``: counted seconds of our searches."""
    options = parser.parse_args()
    if options.quick:
        options.models, options.gpus, options.objective = ("mlperf-dlrm-dcnv2",), (8,), "throughput"
        options.effort, options.limit = (0.2, 0.5), 10.0
    options.soon, options.ours_s = options.effort
    if not 0 < options.soon <= options.ours_s:
        parser.error("--effort is two numbers above 0, the smaller one first")
    if options.jobs < 1:
        parser.error("--jobs is 1 or more")
    if options.write and options.ours:
        parser.error("--write is of all planners, and --ours runs no other")
    return options


if __name__ == "__main__":
    sys.exit(main())
