"""A pass with the host that issues it: eager PyTorch, compiled, or CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import bands
from perfmodel.model.issuing import host_time, issued_ends
from perfmodel.passes.settings import Setting
from perfmodel.passes.steps import SPLITS, STEPS, Step
from perfmodel.project.projection import Projection
from perfmodel.schema.constants import load_service_constants
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.home import SAMPLES_NAME
from perfmodel.schema.machine import Quantity
from perfmodel.schema.run_files import read_run
from perfmodel.schema.run_folders import run_folder

Array = NDArray[np.float64]
EAGER, COMPILED, GRAPH = "eager", "compiled", "graph"
MODES = (EAGER, COMPILED, GRAPH)
_BEFORE = {
    "bucketize": "before_splits",
    "all_to_all_lengths": "before_lengths",
    "all_to_all_ids": "before_ids",
    "gather_pool": "before_bags",
}
"""What the host does before these steps of a row-wise pass; before another kernel it calls one operator."""


@dataclass(frozen=True)
class HostCosts:
    """What the host takes for each thing that it issues [s].

    operator, launch, collective  of each;  stretch  of all that it issues until it waits
    source  of the launch;  evidence  the weakest of those that are not 0
    """

    mode: str
    operator_s: float
    launch_s: float
    collective_s: float
    stretch_s: float
    evidence: Evidence
    source: str

    def of(self, steps: Sequence[Step]) -> Array:
        """Time that the host takes to issue each step [s]."""
        counts = np.array([_counts(step, last) for step, last in zip(steps, _lasts(steps), strict=True)])
        each = (self.operator_s, self.launch_s, self.collective_s)
        operators, launches, collectives = counts.T
        found = host_time(operators, launches, collectives, each)
        begins = [True, *_waits(steps)][: len(steps)]
        return found + np.where(begins, self.stretch_s, 0.0)

    @property
    def local_s(self) -> float:
        """For the same look-up in local memory, which exchanges nothing [s]."""
        value = load_service_constants().value
        each = (self.operator_s, self.launch_s, self.collective_s)
        return float(host_time(value("operators_local"), value("launches_local"), 0, each)) + self.stretch_s


def _waits(steps: Sequence[Step]) -> list[bool]:
    """After which steps the host reads sizes, before it can make buffers for what follows."""
    return [step.alike == SPLITS for step in steps]


def _lasts(steps: Sequence[Step]) -> list[bool]:
    last = max((at for at, step in enumerate(steps) if step.collective), default=-1)
    return [at == last for at in range(len(steps))]


def _counts(step: Step, last: bool) -> tuple[float, float, int]:
    """(operators, launches, collectives) that the host issues for a step."""
    value, where = load_service_constants().value, _BEFORE.get(step.alike)
    exchange = int(bool(step.collective))
    if where is None:
        operators = launches = float(step.is_kernel)
    else:
        operators, launches = value(f"operators_{where}"), value(f"launches_{where}")
    if last:
        operators, launches = (
            operators + value("operators_after_bags"),
            launches + value("launches_after_bags"),
        )
    return operators, launches, exchange


def host_costs(mode: str, calibration: str | None = None, end: int = 0) -> HostCosts:
    """Of a way to run PyTorch.

    mode  one of ``MODES``;  calibration  of one's own run, where launches were timed eagerly
    end   -1, 0 or 1: the lower end of the 95 % intervals, the centre, the upper end
    Limits: unknown mode -> BadInputError
    """
    if mode not in MODES:
        raise unknown_name("--host", mode, MODES)
    constants = load_service_constants()
    wide = constants.value("normal_quantile_95") * end

    def of(key: str) -> float:
        known = constants.quantity(key)
        return float(known.value * np.exp(wide * (known.log_sd or 0.0)))

    if mode == GRAPH:
        only = constants.quantity("graph_launch_s")
        return HostCosts(mode, 0.0, 0.0, 0.0, of("graph_launch_s"), only.evidence, only.source)
    own = _own_launch(calibration)
    launch = constants.quantity("host_launch_s") if own is None else own
    launch_s = of("host_launch_s") if own is None else own.value
    keys = (
        ("host_operator_s", "host_collective_s")
        if mode == EAGER
        else ("compiled_call_s", "compiled_collective_s")
    )
    evidence = Evidence.weakest([launch.evidence, *(constants.quantity(key).evidence for key in keys)])
    if mode == EAGER:
        times = (of(keys[0]), launch_s, of(keys[1]), 0.0)
    else:
        times = (0.0, launch_s, of(keys[1]), of(keys[0]))
    return HostCosts(mode, *times, evidence=evidence, source=launch.source)


def _own_launch(calibration: str | None) -> Quantity | None:
    """Time of an eager call of one small operator, of one's own run; None where it was not timed."""
    folder = (
        run_folder(calibration) or run_folder(calibration.rpartition("/")[0] or ".") if calibration else None
    )
    if folder is None or not (folder / SAMPLES_NAME).is_file():
        return None
    run = read_run(folder)
    kernels = run.kernel_samples()
    rows = kernels[
        (kernels["operation"] == "launch_floor")
        & (kernels["clock"] == str(Clock.EAGER))
        & (kernels["implementation"] == "torch")
    ]
    if rows.empty:
        return None
    return Quantity(
        value=float(rows["time_s"].min()),
        unit="s",
        source=f"run {run.run_id}",
        why="an eager call of the smallest kernel of torch",
        evidence=Evidence.MEASURED,
    )


@dataclass(frozen=True)
class HostedStep:
    """A step with the host. device_s  alone;  host_s  to issue it;  idle_s  that the device waits for that"""

    name: str
    label: str
    device_s: float
    host_s: float
    idle_s: float

    @property
    def host_is_slower(self) -> bool:
        """Whether the device waits."""
        return self.idle_s > 0


@dataclass(frozen=True, eq=False)
class Hosted:
    """A projection with the host.

    time_s, low_s, high_s  of a batch;  baseline_time_s  of the same batch in local memory, with its host
    slowdown_low, slowdown_high  95 % band of the ratio of the two
    host_s  that the host works in a pass;  device_s  that the device does
    """

    costs: HostCosts
    steps: tuple[HostedStep, ...]
    time_s: float
    low_s: float
    high_s: float
    baseline_time_s: float
    slowdown_low: float
    slowdown_high: float

    @property
    def slowdown(self) -> float:
        """Time over that in local memory, both with the host."""
        return self.time_s / self.baseline_time_s

    @property
    def host_s(self) -> float:
        """Work of the host."""
        return sum(step.host_s for step in self.steps)

    @property
    def device_s(self) -> float:
        """Work of the device."""
        return sum(step.device_s for step in self.steps)

    @property
    def idle_s(self) -> float:
        """Time in which the device waits for the host."""
        return self.time_s - self.device_s

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        times = ("time_s", "low_s", "high_s", "baseline_time_s")
        names = (*times, "slowdown", "slowdown_low", "slowdown_high", "host_s", "device_s", "idle_s")
        return {
            "mode": self.costs.mode,
            **{name: getattr(self, name) for name in names},
            "operator_s": self.costs.operator_s,
            "launch_s": self.costs.launch_s,
            "collective_s": self.costs.collective_s,
            "evidence": str(self.costs.evidence),
            "steps": [vars(step) for step in self.steps],
        }


def hosted(answer: Projection, mode: str, calibration: str | None = None) -> Hosted:
    """A projection with the host that issues it.

    Limits: one local memory, or times that have the host in them already (eager clock) -> BadInputError
    """
    check_clock(answer.setting, mode)
    steps = [STEPS[row.name] for row in answer.steps]
    times = np.array([[row.time_s, row.low_s, row.high_s] for row in answer.steps])
    costs = [host_costs(mode, calibration, end) for end in (0, -1, 1)]
    shown, total = with_host(costs[0], steps, times[:, 0])
    ends = [float(with_host(one, steps, times[:, 0])[1]) for one in costs[1:]]
    own = [float(with_host(costs[0], steps, times[:, at])[1]) for at in (1, 2)]
    centre = float(total)
    low = centre - float(bands.quadrature(centre - ends[0], centre - own[0]))
    high = centre + float(bands.quadrature(ends[1] - centre, own[1] - centre))
    host = costs[0].of(steps)
    rows = tuple(
        HostedStep(row.name, row.label, row.time_s, float(h), _idle(float(t), row.time_s))
        for row, h, t in zip(answer.steps, host, shown, strict=True)
    )
    base = answer.baseline_time_s
    local = costs[0].local_s + base
    of_host = [end / (cost.local_s + base) for end, cost in zip(ends, costs[1:], strict=True)]
    of_base = [centre / (costs[0].local_s + answer.totals[f"baseline_{end}_s"]) for end in ("low", "high")]
    ratios = _ratio_band(centre / local, of_host, [end / local for end in own], of_base)
    return Hosted(costs[0], rows, centre, low, high, local, *ratios)


def _ratio_band(centre: float, *changed: Sequence[float]) -> tuple[float, float]:
    """Band of a ratio of times whose errors are independent: their logarithms add in quadrature.

        r exp(-+ sqrt(sum_k d_k^2)),   d_k = the largest |ln(r_k / r)| on that side        [-]

    changed  for each error the ratio at both ends of its interval: the costs of the host move both times
             together, those of the device move one
    Source: variances of independent variables add, here of relative errors
    Limits: no error -> r, r
    """
    moved = [np.log(np.asarray(ends) / centre) for ends in changed]
    low, high = (float(np.hypot.reduce([max(0.0, *(s * each)) for each in moved])) for s in (-1, 1))
    return centre * float(np.exp(-low)), centre * float(np.exp(high))


def _idle(shown_s: float, alone_s: float) -> float:
    """What the step took longer; 0 where that is rounding."""
    return shown_s - alone_s if shown_s > alone_s * (1 + _ROUNDING) else 0.0


_ROUNDING = 1e-9


def with_host(costs: HostCosts, steps: Sequence[Step], device: ArrayLike) -> tuple[Array, Array]:
    """Times of the steps with what each waits for the host [S, ...], and that of the pass [...].

    device  times of the steps alone [S, ...]
    """
    alone = np.asarray(device, dtype=np.float64)
    issue = costs.of(steps).reshape(-1, *[1] * (alone.ndim - 1))
    ends, issued = issued_ends(np.where(alone > 0, issue, 0.0), alone, _waits(steps))
    ends[-1] = np.maximum(ends[-1], issued[-1])
    return np.diff(ends, axis=0, prepend=0.0), ends[-1]


def check_clock(setting: Setting, mode: str) -> None:
    """Refuse to add the host twice. Limits: times on the eager clock -> BadInputError"""
    if mode not in MODES:
        raise unknown_name("--host", mode, MODES)
    clocks = {*setting.links.clocks, setting.kernel_clock}
    if Clock.EAGER in clocks:
        raise BadInputError(
            f"--host {mode} and times on the eager clock cannot be combined: those have the host in them.",
            "leave --host out, or use --clock stream or graph.",
        )
