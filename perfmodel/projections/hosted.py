"""The time of a pass together with the host that launches it: eager PyTorch, compiled, or CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model import bands
from perfmodel.model.issuing import host_time, issued_ends
from perfmodel.passes.settings import Setting
from perfmodel.passes.steps import SPLITS, STEPS, Step, StepRow
from perfmodel.projections.projection import Projection
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.constants import load_service_constants
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.host_fits import IssueTimes
from perfmodel.schema.run_folders import calibrations_of, run_folder

Array = NDArray[np.float64]
EAGER, COMPILED, GRAPH = "eager", "compiled", "graph"
MODES = (EAGER, COMPILED, GRAPH)
_FIRST = "before_splits"
_BEFORE = {
    "all_to_all_lengths": "before_lengths",
    "all_to_all_ids": "before_ids",
    "gather_pool": "before_bags",
}
"""Keys of the counts of the host's work before these steps, and at the start of a pass with exchanges; before
another kernel it calls one operator. Counted in TorchRec's row-wise pass; other passes differ by a tenth."""


@dataclass(frozen=True)
class HostCosts:
    """Time that the host takes to issue work, by kind of work [s].

    call_s, operator_s, launch_s, collective_s  of a Python call, an operator, a kernel launch, a collective
    stretch_s  once for each stretch: the work issued between two waits of the host (one CUDA graph)
    known      evidence of each constant, by its key
    """

    mode: str
    call_s: float
    operator_s: float
    launch_s: float
    collective_s: float
    stretch_s: float
    known: Mapping[str, Evidence]

    @property
    def evidence(self) -> Evidence:
        """The weakest evidence of the constants that are used."""
        return Evidence.weakest(list(self.known.values()))

    @property
    def each(self) -> tuple[float, float, float, float]:
        """(call_s, operator_s, launch_s, collective_s), as ``issuing.host_time`` takes them."""
        return self.call_s, self.operator_s, self.launch_s, self.collective_s

    def of(self, steps: Sequence[Step]) -> Array:
        """Time that the host takes to issue each step [s]."""
        exchanges = any(_waits(steps))
        places = [_FIRST if exchanges and at == 0 else _BEFORE.get(s.alike) for at, s in enumerate(steps)]
        counts = np.array([_counts(*each) for each in zip(steps, places, _lasts(steps), strict=True)])
        calls, operators, launches, collectives = counts.T
        found = host_time(calls, operators, launches, collectives, self.each)
        begins = [True, *_waits(steps)][: len(steps)]
        return found + np.where(begins, self.stretch_s, 0.0)

    @property
    def local_s(self) -> float:
        """Time that the host takes to issue the same look-up in local memory, without exchanges [s]."""
        return float(host_time(*_of_stretch("local"), 0, self.each)) + self.stretch_s


def _waits(steps: Sequence[Step]) -> list[bool]:
    """Whether the host waits after each step: it reads sizes there, to allocate buffers for later steps."""
    return [step.alike == SPLITS for step in steps]


def _lasts(steps: Sequence[Step]) -> list[bool]:
    last = max((at for at, step in enumerate(steps) if step.collective), default=-1)
    return [at == last for at in range(len(steps))]


def _of_stretch(where: str) -> tuple[float, float, float]:
    """(Python calls, operators, launches) that the host issues in the stretch ``where`` between two waits."""
    value = load_service_constants().value
    return value(f"calls_{where}"), value(f"operators_{where}"), value(f"launches_{where}")


def _counts(step: Step, where: str | None, last: bool) -> tuple[float, float, float, int]:
    """Numbers of Python calls, operators, launches and collectives that the host issues for a step.

    where  the stretch before it;  last  whether it is the last exchange
    """
    if where is None:
        one = float(step.is_kernel)
        found = (one * load_service_constants().value("calls_each"), one, one)
    else:
        found = _of_stretch(where)
    more = _of_stretch("after_bags") if last else (0.0, 0.0, 0.0)
    calls, operators, launches = (a + b for a, b in zip(found, more, strict=True))
    return calls, operators, launches, int(bool(step.collective))


_TIMES = {
    EAGER: ("host_call_s", "host_operator_s", "host_launch_s", "host_collective_s", ""),
    COMPILED: ("", "", "host_launch_s", "compiled_collective_s", "compiled_call_s"),
    GRAPH: ("", "", "", "", "graph_launch_s"),
}
"""Keys of the times of a call, an operator, a launch, a collective and a stretch, by mode; "": none."""


def split_host(text: str) -> tuple[str, str | None]:
    """The mode in ``eager:latest``, and the calibration or run whose host times are used.

    Limits: unknown mode, nothing after the colon -> BadInputError
    """
    mode, colon, where = text.partition(":")
    if mode not in MODES:
        raise unknown_name("--host", mode, MODES)
    if colon and not where:
        raise BadInputError(
            f"--host {text} names no run after the colon.",
            f"give a folder or a calibration, for example {mode}:latest, or {mode} alone.",
        )
    return mode, where or None


def host_costs(host: str, calibration: str | None = None, end: int = 0) -> HostCosts:
    """The times of the host in a mode of PyTorch.

    host  one of ``MODES``, with or without a run whose times are used (``split_host``)
    calibration  its times are used if ``host`` names no run
    end   -1, 0 or 1: the lower end of the 95 % intervals, the centre, the upper end
    Limits: unknown mode, a named run without host times -> an error
    """
    mode, named = split_host(host)
    own = _named_times(named) if named else _own_times(calibration)
    found = [_time(key, own, end) for key in _TIMES[mode]]
    constants, measured = load_service_constants(), own.values if own else {}
    known = {
        key: Evidence.MEASURED if key in measured else constants.quantity(key).evidence
        for key in _TIMES[mode]
        if key
    }
    call, operator, launch, collective, stretch = found
    return HostCosts(mode, call, operator, launch, collective, stretch, known)


def _time(key: str, own: IssueTimes | None, end: int) -> float:
    """A time of the host [s]: measured if ``own`` has the key, else the shipped value; 0 for no key.

    At an end of the interval, its own error and the error of the counts add in quadrature.
    """
    if not key:
        return 0.0
    constants = load_service_constants()
    z, counted = constants.value("normal_quantile_95"), constants.value("host_counts_log_sd")
    if own is None or key not in own.values:
        known = constants.quantity(key)
        return float(known.value * np.exp(end * z * np.hypot(known.log_sd or 0.0, counted)))
    one = own.values[key]
    side = {-1: one.low, 0: one.value, 1: one.high}[end]
    return float(one.value * np.exp(end * np.hypot(np.log(side / one.value), z * counted)))


def _own_times(calibration: str | None) -> IssueTimes | None:
    """Host times of the calibration that a projection uses; None if it has none."""
    if calibration is None:
        return None
    folder = run_folder(calibration)
    return _in_folder(folder) if folder else load_calibration(calibration).host


def _in_folder(folder: Path) -> IssueTimes | None:
    found = (one.host for one in calibrations_of(folder).values() if one.host is not None)
    return next(found, None)


def _named_times(where: str) -> IssueTimes:
    """Host times of the named run or calibration. Limits: it has none -> NoCalibrationError"""
    found = _own_times(where)
    if found is None:
        raise NoCalibrationError(
            f"{where} has no times of the host.", "measure them:\n  perfmodel calibrate --quick"
        )
    return found


@dataclass(frozen=True)
class HostedStep:
    """A step with the host that issues it.

    device_s  its time on the device;  host_s  the host's time to issue it
    idle_s    time that the device waits for the host [s]
    """

    name: str
    label: str
    device_s: float
    host_s: float
    idle_s: float

    @property
    def host_is_slower(self) -> bool:
        """Whether the device waits for the host."""
        return self.idle_s > 0


@dataclass(frozen=True, eq=False)
class Issued:
    """Steps of a pass with the host that issues them.

    time_s, low_s, high_s  of a batch, and its 95 % band [s]
    host_ends_s    (low, high): time of a batch if the host's times are at an end of their interval [s]
    device_ends_s  (low, high): time of a batch if the steps' times are at an end of their bands [s]
    """

    costs: HostCosts
    steps: tuple[HostedStep, ...]
    time_s: float
    low_s: float
    high_s: float
    host_ends_s: tuple[float, float]
    device_ends_s: tuple[float, float]

    @property
    def host_s(self) -> float:
        """The host's time to issue all steps [s]."""
        return sum(step.host_s for step in self.steps)

    @property
    def device_s(self) -> float:
        """The device's time for all steps [s]."""
        return sum(step.device_s for step in self.steps)

    @property
    def idle_s(self) -> float:
        """Time in which the device waits for the host [s]."""
        return self.time_s - self.device_s

    def to_dict(self) -> dict[str, Any]:
        """The numbers and the evidence, for JSON."""
        return {
            "mode": self.costs.mode,
            **{name: getattr(self, name) for name in ("time_s", "low_s", "high_s")},
            **{name: getattr(self, name) for name in ("host_s", "device_s", "idle_s")},
            "call_s": self.costs.call_s,
            "operator_s": self.costs.operator_s,
            "launch_s": self.costs.launch_s,
            "collective_s": self.costs.collective_s,
            "evidence": str(self.costs.evidence),
            "evidence_of": {key: str(evidence) for key, evidence in self.costs.known.items()},
            "steps": [vars(step) for step in self.steps],
        }


@dataclass(frozen=True, eq=False)
class Hosted(Issued):
    """A projection with the host.

    baseline_time_s  the same batch in local memory, with its host [s]
    slowdown_low, slowdown_high  95 % band of the ratio of the two times [-]
    """

    baseline_time_s: float
    slowdown_low: float
    slowdown_high: float

    @property
    def slowdown(self) -> float:
        """The time divided by the time in local memory, both with the host [-]."""
        return self.time_s / self.baseline_time_s

    def to_dict(self) -> dict[str, Any]:
        """The numbers and the evidence, for JSON."""
        names = ("baseline_time_s", "slowdown", "slowdown_low", "slowdown_high")
        return super().to_dict() | {name: getattr(self, name) for name in names}


def issued(
    setting: Setting,
    rows: Sequence[StepRow],
    host: str,
    calibration: str | None = None,
    training: bool = False,
) -> Issued:
    """Steps of a pass with the host that issues them.

    host, calibration  as in ``host_costs``;  training  whether it is a training step
    Limits: a training step, or times on the eager clock, which include the host -> BadInputError
    """
    check_pass(host, training)
    check_clock(setting, host)
    steps = [STEPS[row.name] for row in rows]
    times = np.array([[row.time_s, row.low_s, row.high_s] for row in rows])
    costs, low_costs, high_costs = (host_costs(host, calibration, end) for end in (0, -1, 1))
    shown, total = with_host(costs, steps, times[:, 0])
    of_host = [float(with_host(one, steps, times[:, 0])[1]) for one in (low_costs, high_costs)]
    of_device = [float(with_host(costs, steps, times[:, at])[1]) for at in (1, 2)]
    centre = float(total)
    low = centre - float(bands.quadrature(centre - of_host[0], centre - of_device[0]))
    high = centre + float(bands.quadrature(of_host[1] - centre, of_device[1] - centre))
    of_rows = zip(rows, costs.of(steps), shown, strict=True)
    found = tuple(
        HostedStep(row.name, row.label, row.time_s, float(h), _idle(float(t), row.time_s))
        for row, h, t in of_rows
    )
    return Issued(costs, found, centre, low, high, (of_host[0], of_host[1]), (of_device[0], of_device[1]))


def hosted(answer: Projection, host: str, calibration: str | None = None) -> Hosted:
    """A projection with the host that issues it. host, calibration, limits  as in ``issued``"""
    found = issued(answer.setting, answer.steps, host, calibration, answer.forward.training)
    base = answer.baseline_time_s
    centre, local = found.time_s, found.costs.local_s + base
    at_ends = [host_costs(host, calibration, end).local_s + base for end in (-1, 1)]
    of_host = [end / local_end for end, local_end in zip(found.host_ends_s, at_ends, strict=True)]
    of_base = [centre / (found.costs.local_s + answer.totals[f"baseline_{end}_s"]) for end in ("low", "high")]
    of_device = [end / local for end in found.device_ends_s]
    ratios = _ratio_band(centre / local, of_host, of_device, of_base)
    return Hosted(**vars(found), baseline_time_s=local, slowdown_low=ratios[0], slowdown_high=ratios[1])


def _ratio_band(centre: float, *changed: Sequence[float]) -> tuple[float, float]:
    """Band of a ratio of times whose errors are independent: their logarithms add in quadrature.

        r exp(-+ sqrt(sum_k d_k^2)),   d_k = the largest |ln(r_k / r)| on that side        [-]

    changed  for each error, the ratio at both ends of its interval: an error of the host's times moves both
             times, an error of the device moves one
    Source: variances of independent variables add, here of relative errors
    Limits: no error -> r, r
    """
    moved = [np.log(np.asarray(ends) / centre) for ends in changed]
    low, high = (float(np.hypot.reduce([max(0.0, *(s * each)) for each in moved])) for s in (-1, 1))
    return centre * float(np.exp(-low)), centre * float(np.exp(high))


def _idle(shown_s: float, alone_s: float) -> float:
    """How much longer the step took because of the host [s]; 0 within rounding."""
    return shown_s - alone_s if shown_s > alone_s * (1 + _ROUNDING) else 0.0


_ROUNDING = 1e-9


def with_host(costs: HostCosts, steps: Sequence[Step], device: ArrayLike) -> tuple[Array, Array]:
    """(times of the steps with their waits for the host [S, ...], time of the pass [...]) [s].

    device  times of the steps without the host [S, ...] [s]
    """
    alone = np.asarray(device, dtype=np.float64)
    issue = costs.of(steps).reshape(-1, *[1] * (alone.ndim - 1))
    ends, issued = issued_ends(np.where(alone > 0, issue, 0.0), alone, _waits(steps))
    ends[-1] = np.maximum(ends[-1], issued[-1])
    return np.diff(ends, axis=0, prepend=0.0), ends[-1]


def check_pass(host: str, training: bool) -> None:
    """Refuse a pass whose Python calls nobody counted. Limits: a training step, an unknown mode -> error"""
    split_host(host)
    if training:
        raise BadInputError(
            f"--host {host} counts what a host issues of a forward pass alone.", "leave out --host."
        )


def check_clock(setting: Setting, host: str) -> None:
    """Refuse times that already include the host. Limits: times on the eager clock -> BadInputError"""
    split_host(host)
    clocks = {*setting.links.clocks, setting.kernel_clock}
    if Clock.EAGER in clocks:
        raise BadInputError(
            f"--host {host} and times on the eager clock cannot be combined: those have the host in them.",
            "leave --host out, or use --clock stream or graph.",
        )
