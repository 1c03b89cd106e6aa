"""Planners side by side: TorchRec's (really run), EMBark's greedy, a greedy per byte, random search and ours.

Run:    python benchmarks/planner.py            five table sets at 8, 64 and 128 GPUs, many different
                                                tables on 96 to 512; forward and training (two hours)
        python benchmarks/planner.py --jobs 2 --without-torchrec --write
                                                the same, two cases side by side, without TorchRec's
                                                planner; the table goes into benchmarks/README.md
        python benchmarks/planner.py --quick    one table set on 8 GPUs (15 s)
        python benchmarks/planner.py --case "distinct-400 forward" colossal    the cases whose names have
                                                the words of the first, and those of the second

All planners get the same tables, batch, machine and memory; rows stay in GPU memory, and ids are uniform. All
plans are costed by this program's calibrated model. Our search ends by counted work (--effort, in counted
seconds), so its plans and gaps are the same in every run. Plans for TorchRec, its planner's and ours that are
kept to what it can run ("for TorchRec"), are costed as TorchRec runs them: one set of exchanges for each
sharding type in use. Without TorchRec their columns are missing, which is said.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from planner_baselines import plan_embark, plan_per_byte, search_at_random

from calibrate.providers import describe
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import COPY, Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan import torchrec
from perfmodel.plan.choices.scheme_options import Options, list_options
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import Table, TableSet

MACHINE, MEMORY = "h100-sxm-ib", 0.85
"""The machine, and the share of a GPU's memory for tables."""
_MODELS = ("mlperf-dlrm-dcnv2", "embark-t180", "embark-t200", "embark-t510", "embark-t7")
"""MLPerf's tables are EMBark's DLRM-DCNv2 as well: embark-dcnv2 has the same."""
_GPUS = (8, 64, 128)
_DRAWN = "distinct-"
_MANY = (
    *((f"{_DRAWN}{count}", 128) for count in (100, 400, 700, 1000)),
    ("distemb-colossal", 512),
    *(("torchrec-production", gpus) for gpus in (96, 256, 512)),
)
"""Sets of many tables, each with its GPUs."""
_SAMPLES, _MANY_SAMPLES = 65_536, 131_072  # of all ranks together

SOON, OURS, OTHERS = "soon ms", "ours ms", ("TorchRec", "EMBark", "per byte", "random")
_README, _WIDTH = Path(__file__).with_name("README.md"), 120
_BLOCK = re.compile(r"(?<=<!-- table planners -->\n```text\n).*?(?=```\n<!-- end -->)", re.DOTALL)
_EQUAL = 0.9995  # of a time: as it is printed, less is faster
_START_S = 60  # of TorchRec's process, to import and to enumerate

Row = dict[str, float | None]
"""Of a case: times of plans by planner [ms], CPU time of our first search, and our gap; None: no plan."""


@dataclass(frozen=True)
class Case:
    """Which tables on how many GPUs, a forward pass or a step of training, samples of all ranks."""

    model: str
    gpus: int
    training: bool
    samples: int

    @property
    def name(self) -> str:
        """As it is printed, and chosen by ``--case``."""
        return f"{self.model} x {self.gpus} {'training' if self.training else 'forward'}"

    def build_evaluator(self) -> Evaluator:
        """What costs plans of this case."""
        tables, batch = load_tables(self.model), max(self.samples // self.gpus, 1)
        optimizer = "rowwise-adagrad" if self.training else "none"
        return Evaluator.on(MACHINE, tables, batch, self.gpus, training=self.training, optimizer=optimizer)


def load_tables(model: str) -> PlanTables:
    """Shipped tables, or so many drawn ones: rows log-uniform, columns, pooling uniform."""
    if not model.startswith(_DRAWN):
        return PlanTables.load(model)
    count = int(model.removeprefix(_DRAWN))
    random = np.random.default_rng(17 + count)
    rows = np.rint(10 ** random.uniform(3.0, 7.3, count)).astype(int)
    dims, pooling = random.choice((16, 32, 64, 128, 256), count), np.round(random.uniform(1, 50, count), 2)
    shapes = zip(rows.tolist(), dims.tolist(), pooling.tolist(), strict=True)
    return PlanTables.of(
        TableSet(model, tuple(Table(f"t{number}", *shape) for number, shape in enumerate(shapes)))
    )


def list_cases(wanted: Sequence[str]) -> list[Case]:
    """Cases whose names have all words of one of the wanted; ``distinct-400`` is two words, and one."""
    sets = [(model, gpus, _SAMPLES) for model in _MODELS for gpus in _GPUS]
    sets += [(model, gpus, _MANY_SAMPLES) for model, gpus in _MANY]
    cases = [
        Case(model, gpus, training, samples) for model, gpus, samples in sets for training in (False, True)
    ]
    words_of = {case: {*case.name.split(), *re.split(r"[ -]", case.name)} for case in cases}
    return [case for case in cases if any(set(words.split()) <= words_of[case] for words in wanted)]


@dataclass(frozen=True, eq=False)
class Loose(Plan):
    """What ``Plan`` would refuse: TorchRec puts two parts of a table on a rank, or cuts 3 rows in 8 parts."""

    def __post_init__(self) -> None:
        """Nothing is checked."""


def run_case(case: Case, options: argparse.Namespace) -> Row:
    """All planners; random search gets as much of the CPU as our longer search took."""
    evaluator = case.build_evaluator()
    limit_bytes = MEMORY * evaluator.setting.machine.value("hbm_bytes")
    soon_s, ours_s = options.effort
    row: Row = {}
    row[SOON], row["CPU s"], _ = search(evaluator, limit_bytes, soon_s)
    row[OURS], seconds, row["gap %"] = search(evaluator, limit_bytes, ours_s)
    if options.ours:
        return row
    if options.torchrec:
        in_torchrec = evaluator.exchange_by(ExchangeSets())
        row["TorchRec"] = time_torchrec(in_torchrec, limit_bytes, case.training, options.limit)
        row["for TorchRec"], _, _ = search(in_torchrec, limit_bytes, ours_s, for_torchrec=True)
    baselines: dict[str, Callable[[Evaluator, float], Plan | None]] = {
        "EMBark": plan_embark,
        "per byte": plan_per_byte,
        "random": partial(search_at_random, seconds=seconds),
    }
    for name, make in baselines.items():
        plan = make(evaluator, limit_bytes)
        row[name] = None if plan is None else evaluator.cost(plan).time_s * 1e3
    return row


def search(
    evaluator: Evaluator, limit_bytes: float, effort_s: float, *, for_torchrec: bool = False
) -> tuple[float | None, float, float | None]:
    """Our search: time of its plan [ms], its CPU time [s], its gap [%]. Limits: no plan -> None"""

    def list_allowed(more: Sequence[set[Scheme]]) -> Options:
        options = list_options(evaluator, limit_bytes, more)
        return torchrec.restrict_to_torchrec(options, evaluator) if for_torchrec else options

    began = process_time()
    keywords = {"effort_s": effort_s, "options": list_allowed, "ruled": for_torchrec}
    try:
        result = Search(evaluator, limit_bytes, **keywords).run()
    except BadInputError:
        return None, process_time() - began, None
    return result.costed.time_s * 1e3, process_time() - began, 100 * result.gap


def time_torchrec(evaluator: Evaluator, limit_bytes: float, training: bool, seconds: float) -> float | None:
    """Time of the plan of TorchRec's planner by our model [ms]. Limits: none in time -> None"""
    tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tables.json"
        copies = Plan(tables, (Placement.of(COPY),) * len(tables), gpus, domain)  # the tables are what counts
        torchrec.write_for_torchrec(evaluator, copies, path, limit_bytes)
        answer = ask_torchrec(path, seconds, training)
    if "tables" not in answer:
        print(f"TorchRec: {answer['why']}", file=sys.stderr)
        return None
    chosen = [answer["tables"][name] for name in tables.names]
    placements = tuple(find_placement(entry, gpus, domain) for entry in chosen)
    plan = Loose(tables, placements, gpus, domain)
    model = evaluator.exchange_by(ExchangeSets(tuple(entry["type"] for entry in chosen)))
    rows = np.maximum(tables.rows, plan.schemes[1])  # 3 rows in 8 parts count as 8
    loads = replace(model.model, tables=replace(tables, rows=rows)).sum_shards(plan)
    return model.step(loads).time_s * 1e3


def ask_torchrec(path: Path, seconds: float, training: bool) -> dict[str, Any]:
    """What ``planner_torchrec.find_plan`` says in a process of its own."""
    program = Path(__file__).with_name("planner_torchrec.py")
    words = [sys.executable, str(program), str(path), str(seconds), *["--training"][:training]]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=seconds + _START_S, check=True)
    except subprocess.TimeoutExpired:
        return {"why": f"no plan in {seconds:g} s"}
    return dict(json.loads(done.stdout))


def find_placement(chosen: dict[str, Any], gpus: int, domain: int) -> Placement:
    """What TorchRec decided for a table; its shards go column part by column part."""
    kind, ranks = chosen["type"], chosen["ranks"]
    if kind == "data_parallel":
        return Placement.of(COPY)
    if kind in ("row_wise", "table_row_wise") and len(ranks) == gpus:
        return Placement.of(Scheme(Exchange.RS, gpus), ranks)
    if kind in ("table_row_wise", "grid_shard"):
        columns = len(ranks) // domain
        by_row = np.array(ranks).reshape(columns, domain).T.reshape(-1)
        return Placement(Scheme(Exchange.TWO_LEVEL, domain, columns), by_row)
    return Placement.of(Scheme(Exchange.RB, 1, len(ranks)), ranks)


def format_table(rows: dict[str, Row]) -> Iterator[str]:
    """Lines of the table of all cases. lead: the best other plan over ours soon"""
    columns = list(next(iter(rows.values())))
    others = any(name in OTHERS for name in columns)
    cells = [["case", *columns, *["lead"][:others]]]
    for name, row in rows.items():
        values = [format_cell(column, row[column]) for column in columns]
        best, soon = find_best(row), row[SOON]
        cells.append([name, *values, *["-" if not best or not soon else f"{best / soon:.2f}"][:others]])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *values in cells:
        yield f" {first:<{widths[0]}}  " + "  ".join(map(str.rjust, values, widths[1:]))


def format_cell(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if column in ("CPU s", "gap %") else f"{value:#.4g}".rstrip(".")


def find_best(row: Row) -> float | None:
    """Time of the best plan of another planner [ms]."""
    return min((time for name in OTHERS if (time := row.get(name))), default=None)


def sum_up(rows: dict[str, Row], soon_s: float, ours_s: float) -> Iterator[str]:
    """What the columns are, the cases that another planner wins, and those without a plan."""
    words = (
        f"soon: our plan with an effort of {soon_s:g} counted seconds, and CPU s what it took; ours: with "
        f"{ours_s:g}; gap %: what a plan of the listed schemes can save of its time at most; lead: the best "
        "other plan over soon."
    )
    yield from textwrap.wrap(words, _WIDTH, break_on_hyphens=False)
    lost = [
        name
        for name, row in rows.items()
        if (best := find_best(row)) and best < (row[SOON] or math.inf) * _EQUAL
    ]
    none = [name for name, row in rows.items() if not row[SOON] and name not in lost]
    yield f"Lost, as another plan is faster than ours soon: {name_cases(lost, len(rows) - len(none))}."
    if none:
        yield f"No plan fits in {name_cases(none, len(rows))}."


def name_cases(names: Sequence[str], count: int) -> str:
    return f"{len(names)} of {count} cases{': ' * bool(names)}{', '.join(names)}"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--case", nargs="+", default=[""], help="only cases whose names have all words of one")
    add("--effort", nargs=2, type=float, default=(2, 10), help="counted seconds of our two searches")
    add("--jobs", type=int, default=1, help="cases side by side")
    add("--ours", action="store_true", help="our two searches alone")
    add("--limit", type=float, default=120.0, help="seconds of TorchRec's planner")
    add("--without-torchrec", action="store_true", help="do not run TorchRec's planner")
    add("--quick", action="store_true", help="one table set on 8 GPUs")
    add("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    if options.quick:
        options.case, options.effort, options.limit = ["mlperf 8 training"], (0.2, 0.5), 10.0
    options.torchrec = describe("torchrec").usable and not options.without_torchrec
    return options


def main() -> None:
    options, rows = parse_options(), dict[str, Row]()
    if not options.torchrec and not options.ours:
        print(f"TorchRec is not compared: {describe('torchrec').why_not or '--without-torchrec'}.\n")
    cases = list_cases(options.case)
    with ProcessPoolExecutor(options.jobs, get_context("fork")) as pool:
        map_cases = pool.map if options.jobs > 1 else map
        for case, row in zip(cases, map_cases(partial(run_case, options=options), cases), strict=True):
            rows[case.name] = row
            print(f"{case.name}: {row[SOON]} ms", file=sys.stderr, flush=True)
    text = "\n".join([*format_table(rows), *sum_up(rows, *options.effort)])
    print(text)
    if options.write:
        command = shlex.join(["python", "benchmarks/planner.py", *sys.argv[1:]])
        page = _README.read_text(encoding="utf-8")
        _README.write_text(_BLOCK.sub(lambda _: f"$ {command}\n{text}\n", page), encoding="utf-8")


if __name__ == "__main__":
    main()
