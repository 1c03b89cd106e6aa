"""Which terms of the dense layers MLPerf's steps tell apart: ``python benchmarks/dlrm_terms.py``.

Each line changes one thing and fits the share of the datasheet's rate anew: on all kinds of steps, then
without each machine and without 64 GPUs and more; what is left out is predicted. The first line is
``perfmodel validate --dlrm``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from perfmodel.model.dense import HALF_BYTES, DenseKernel, DenseModel, kernels_time
from perfmodel.model.pipeline import Parts, overlapped
from perfmodel.model.schedule import COMPUTE, Task, steady
from perfmodel.passes.dense import PARTS
from perfmodel.report.terminal import table
from perfmodel.units import format_fraction
from perfmodel.validate.dlrm_dense import FAR_GPUS, SystemKind, dense_of, kinds, stored
from perfmodel.validate.dlrm_inputs import Case, load_inputs

HELD = {"A100": "a100", "H100": "h100", "H200": "h200", "B200": "b200"}
_MOVED = {"top": 4, "top_backward": 8}
"""Activations as wide as a cross layer that x0 * z + x and its gradients move; 2 more are joined."""
_SATURATION_FLOP = 8e9
_SKEW, _SLOWER, _HOST_S = 0.03, 1.2, 3e-4
_LEAST, _MOST, _NONE = 0.05, 5.0, "none"


@dataclass(frozen=True)
class Candidate:
    """One thing that is changed.

    floor_s  of a dense kernel (None: the machine's);  wide  times the bytes of kernels that only move them
    small_flop  added to the operations of every product;  together  one share of all operations, no bytes
    skew  standard deviation of a rank's step;  slower  exchanges across nodes;  host_s  before each step
    uniform  ids: every row of a table alike
    """

    name: str
    floor_s: float | None = None
    wide: float = 0.0
    small_flop: float = 0.0
    together: bool = False
    skew: float = 0.0
    slower: float = 1.0
    host_s: float = 0.0
    uniform: bool = False


CANDIDATES = (
    Candidate("as it is"),
    Candidate("every row asked for alike", uniform=True),
    Candidate("one share of all operations", together=True),
    Candidate("no floor of a kernel", floor_s=0.0),
    Candidate("a floor of 9 µs", floor_s=9e-6),
    Candidate("element-wise kernels too", wide=1.0),
    Candidate("half of their bytes", wide=0.5),
    Candidate("8 GFLOP more a product, no floor", floor_s=0.0, small_flop=_SATURATION_FLOP),
    Candidate("ranks 3 % apart", skew=_SKEW),
    Candidate("network 1.2 times as slow", slower=_SLOWER),
    Candidate("0.3 ms more in every step", host_s=_HOST_S),
)


def slowest(ranks: int) -> float:
    """Expected maximum of as many normal draws, in standard deviations."""
    x = np.linspace(-8, 8, 4001)
    return float(np.trapezoid(x * ranks * norm.cdf(x) ** (ranks - 1) * norm.pdf(x), x))


def _changed(candidate: Candidate, case: Case, share: float) -> Parts:
    if candidate.uniform:
        case = replace(case, conditions=case.conditions.model_copy(update={"skew": ()}))
    costed, dense = stored(case), dense_of(load_inputs(), case.machine, share)
    parts, model = costed.parts(dense), dense.model
    assert isinstance(model, DenseModel)
    elements, machine = float(costed.evaluator.tables.dim.sum()), costed.evaluator.setting.machine
    floor = machine.value("launch_floor_s") if candidate.floor_s is None else candidate.floor_s
    rates = dense.flops_per_s, share, machine.value("local_sum_bytes_per_s"), floor
    if candidate.together:
        of = {"bottom": model.bottom_flops(), "top": model.top_flops(elements)}
        for name, flops in of.items():
            time_s = flops * case.batch / (dense.flops_per_s * share)
            parts = replace(parts, **{name: time_s, f"{name}_backward": 2 * time_s})
    else:
        passes = model.passes(elements, case.batch)
        for part in PARTS:
            found = [
                DenseKernel(k.flops + candidate.small_flop, k.moved_bytes) for k in getattr(passes, part)
            ]
            if candidate.wide and part in _MOVED:
                one = HALF_BYTES * case.batch * model.width(elements) * candidate.wide
                found += [DenseKernel(0.0, 2 * one), *[DenseKernel(0.0, _MOVED[part] * one)] * model.layers]
            parts = replace(parts, **{part: kernels_time(found, *rates)})
    if case.gpus > case.gpus_per_node:
        names = ("keys", "forward", "backward")
        parts = replace(parts, **{name: getattr(parts, name) * candidate.slower for name in names})
    return parts


def step_s(candidate: Candidate, case: Case, share: float) -> float:
    """Predicted step."""
    tasks = list(overlapped(_changed(candidate, case, share)))
    if candidate.host_s:
        tasks.append(Task("host", "host", candidate.host_s, ("update", "dense update"), (), COMPUTE))
        tasks[0] = replace(tasks[0], after_previous=(*tasks[0].after_previous, "host"))
    return float(steady(tasks).step_s) * (1 + candidate.skew * slowest(case.gpus))


def ratios(candidate: Candidate, used: Sequence[SystemKind], share: float) -> np.ndarray:
    """Predicted over measured."""
    times = {case: step_s(candidate, case, share) for case in {kind.case for kind in used}}
    return np.array([times[kind.case] / kind.measured_s for kind in used])


def fitted(candidate: Candidate, used: Sequence[SystemKind]) -> float | None:
    """The share at which the median ratio is 1; None where even ``_MOST`` of the rate are too slow."""

    def middle(share: float) -> float:
        return float(np.median(np.log(ratios(candidate, used, share))))

    return None if middle(_MOST) > 0 else float(brentq(middle, _LEAST, _MOST, xtol=1e-4))


def line(candidate: Candidate) -> list[str]:
    """Share; median error of each machine, and of 64 GPUs and more, left out."""
    every = kinds()
    tests: list[Callable[[SystemKind], bool]] = [
        lambda kind, short=short: kind.case.machine.startswith(short)  # type: ignore[misc]
        for short in HELD.values()
    ]
    tests.append(lambda kind: kind.case.gpus >= FAR_GPUS)
    share = fitted(candidate, every)
    cells = [candidate.name, _NONE if share is None else format_fraction(share)]
    errors = []
    for test in tests:
        out, without = [k for k in every if test(k)], fitted(candidate, [k for k in every if not test(k)])
        found = np.full(len(out), np.nan) if without is None else ratios(candidate, out, without) - 1
        errors.append(np.abs(found))
        cells.append(_NONE if without is None else format_fraction(float(np.median(errors[-1]))))
    machines = float(np.median(np.concatenate(errors[: len(HELD)])))
    return [*cells, _NONE if np.isnan(machines) else format_fraction(machines)]


def text() -> str:
    """The table."""
    headers = ["", "share", *HELD, f"≥ {FAR_GPUS} GPUs", "machines"]
    return table(headers, [line(candidate) for candidate in CANDIDATES])


if __name__ == "__main__":
    sys.stdout.write(text() + "\n")
