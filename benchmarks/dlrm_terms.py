"""What might be missing where MLPerf's steps are predicted too fast: ``python benchmarks/dlrm_terms.py``.

Each line changes one thing, fits the share of the datasheet's rate anew on the same row, and gives predicted
over measured of the H100 rows and A100. The first line is ``perfmodel validate --dlrm``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from planner_baselines import embark
from scipy.optimize import brentq

from perfmodel.model.pipeline import Parts, overlapped
from perfmodel.model.schedule import COMPUTE, Task, steady
from perfmodel.plan.training import CostedPlan
from perfmodel.report.terminal import table
from perfmodel.units import format_fraction
from perfmodel.validate.dlrm import dense_of
from perfmodel.validate.dlrm_inputs import Case, load_inputs, mlperf_case, mlperf_steps

Change = Callable[[Case, Parts], Parts]
_GPUS = ("NVIDIA H100-SXM5-80GB", "NVIDIA A100-SXM-80GB CTS")
_HOST_S = 3e-4
_SLOWER = 1.2


@dataclass(frozen=True)
class Row:
    """A measured step, what it is called here, and the plan that is costed for it."""

    name: str
    case: Case
    measured_s: float
    costed: CostedPlan


def rows(planned: Callable[[Case], CostedPlan]) -> Iterator[Row]:
    """One row of each shape: nodes × GPUs of each, then what is special. The fitted one is the first."""
    inputs = load_inputs()
    known = {gpu.name: gpu for gpu in inputs.gpu if gpu.name in _GPUS}
    seen: dict[str, Row] = {}
    for row in sorted(mlperf_steps(inputs), key=lambda row: row.system != inputs.mlperf.fit_system):
        if row.gpu not in known:
            continue
        case = mlperf_case(inputs, known[row.gpu], row)
        more = row.system.split()[0] if row.gpus > 8 else "A100" if "A100" in row.gpu else ""
        more = "8192" if case.batch == 8192 else more
        shape = f"{row.nodes}×{row.gpus // row.nodes} {more}".strip()
        if shape not in seen:
            seen[shape] = Row(shape, case, row.step_time_s, planned(case))
    yield from seen.values()


def ours(case: Case) -> CostedPlan:
    """The stored plan."""
    evaluator = case.evaluator()
    return CostedPlan.of(evaluator, case.plan(evaluator))


def greedy(case: Case) -> CostedPlan:
    """EMBark's."""
    evaluator = case.evaluator()
    plan = embark(evaluator, case.usable_bytes(evaluator))
    assert plan is not None
    return CostedPlan.of(evaluator, plan)


def waves(rows_of_tile: int, columns_of_tile: int) -> Change:
    """Products in tiles, one for each streaming multiprocessor at a time: the last wave is not full.

    Sums over the batch (gradients of weights) are split until they fill the GPU.
    """

    def change(case: Case, parts: Parts) -> Parts:
        m, used, ideal = case.batch, 0.0, 0.0
        multiprocessors = int(case.evaluator().setting.machine.value("sm_count"))
        for k, n in _products():
            for height, width, depth in ((m, n, k), (m, k, n), (k, n, m)):
                tiles = ceil(height / rows_of_tile) * ceil(width / columns_of_tile)
                split = max(1, multiprocessors // tiles) if depth == m else 1
                filled = ceil(tiles * split / multiprocessors) * multiprocessors / split
                used += filled * rows_of_tile * columns_of_tile * depth
                ideal += height * width * depth
        names = ("top", "top_backward", "bottom", "bottom_backward")
        return replace(parts, **{name: getattr(parts, name) * used / ideal for name in names})

    return change


def _products() -> list[tuple[int, int]]:
    """Inputs and outputs of every layer of DLRM-DCNv2 on 26 tables of 128."""
    bottom, top, width, rank = (13, 512, 256, 128), (1024, 1024, 512, 256, 1), 27 * 128, 512
    chain = (width, *top)
    cross = [(width, rank), (rank, width)] * 3
    return [*pairwise(bottom), *cross, *pairwise(chain)]


def slower(case: Case, parts: Parts) -> Parts:
    """All exchanges of embeddings across nodes take longer."""
    if case.gpus == case.gpus_per_node:
        return parts
    return replace(
        parts, **{name: getattr(parts, name) * _SLOWER for name in ("keys", "forward", "backward")}
    )


def as_it_is(case: Case, parts: Parts) -> Parts:
    """Nothing is changed."""
    return parts


def no_optimizer(case: Case, parts: Parts) -> Parts:
    """Dense weights are not updated."""
    return replace(parts, dense_update=0.0)


def step_s(row: Row, efficiency: float, change: Change, host_s: float) -> float:
    """Predicted step; ``host_s`` passes before each."""
    parts = change(row.case, row.costed.parts(dense_of(load_inputs(), row.case.machine, efficiency)))
    tasks = list(overlapped(parts))
    if host_s:
        tasks.append(Task("host", "host", host_s, ("update", "dense update"), (), COMPUTE))
        tasks[0] = replace(tasks[0], after_previous=(*tasks[0].after_previous, "host"))
    return steady(tasks).step_s


CASES: tuple[tuple[str, Callable[[Case], CostedPlan], Change, float], ...] = (
    ("as it is", ours, as_it_is, 0.0),
    ("without the dense optimizer", ours, no_optimizer, 0.0),
    ("EMBark's greedy plans", greedy, as_it_is, 0.0),
    ("products in tiles of 128×128", ours, waves(128, 128), 0.0),
    ("products in tiles of 256×128", ours, waves(256, 128), 0.0),
    ("network 1.2 times as slow", ours, slower, 0.0),
    ("0.3 ms more in every step", ours, as_it_is, _HOST_S),
)


def text() -> str:
    """The table."""
    headers, lines = [], []
    for name, planned, change, host_s in CASES:
        found = list(rows(planned))
        fitted = found[0]

        def miss(
            efficiency: float, row: Row = fitted, change: Change = change, host: float = host_s
        ) -> float:
            return step_s(row, efficiency, change, host) - row.measured_s

        efficiency = float(brentq(miss, 0.05, 2.0, xtol=1e-6))
        ratios = [step_s(row, efficiency, change, host_s) / row.measured_s for row in found]
        order = sorted(range(len(found)), key=lambda k: (found[k].case.gpus, found[k].name))
        headers = ["", "fitted", *(found[k].name for k in order)]
        lines.append([name, format_fraction(efficiency), *(f"{ratios[k]:.2f}" for k in order)])
    return table(headers, lines)


if __name__ == "__main__":
    sys.stdout.write(text() + "\n")
