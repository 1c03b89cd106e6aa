"""A run to its calibrations: one for each library and clock that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from perfmodel.errors import NoCalibrationError
from perfmodel.fit.build import Identity, domain_gpus_of, fit_calibration
from perfmodel.fit.kernels import fit_kernels
from perfmodel.fit.links import rounded
from perfmodel.model.curves import anchored_time
from perfmodel.schema.calibration import (
    Calibration,
    Curve,
    Interval,
    KernelConstants,
    list_calibrations,
    shipped_calibration,
)
from perfmodel.schema.evidence import COLLECTIVES, LAW_BACKENDS, Backend, Clock
from perfmodel.schema.machine import Machine
from perfmodel.schema.run_files import Run
from perfmodel.schema.runs import Kind

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

DEFAULT_VARIANT, AFTER_KERNEL = "default", "after_kernel"
CLOCK_ORDER = (Clock.STREAM, Clock.GRAPH, Clock.EAGER, Clock.DEVICE)
"""Which clock a projection takes when nobody says: that of the shipped calibrations first."""

_FEWEST_DIFFERENCES = 3
_MEDIAN_OVER_MEAN = 1.2533
"""Standard error of a median over that of a mean, of normal values: the square root of pi / 2."""


def fit_run(run: Run, machine: Machine, complete: bool | None = None) -> list[Calibration]:
    """Calibrations of a run, the preferred one first.

    machine   whose cells these are: the shipped one that the run names, or ``machine_from_run``
    complete  whether the plan was measured to its end (None: whether every point that was begun has ended)
    Limits: no collective was measured -> NoCalibrationError
    """
    samples = run.collective_samples()
    known = samples[samples["backend"].isin(list(Backend)) & samples["collective"].isin(COLLECTIVES)]
    groups = {
        (Backend(backend), Clock(clock)): rows
        for (backend, clock), rows in _by_library(known[known["variant"] == DEFAULT_VARIANT])
    }
    if not groups:
        raise NoCalibrationError(
            f"run {run.run_id} holds no finished point of a collective.",
            "perfmodel calibrate goes on where it stopped.",
        )
    order = sorted(groups, key=lambda key: (list(Backend).index(key[0]), CLOCK_ORDER.index(key[1])))
    ended = run.complete if complete is None else complete
    found: list[Calibration] = []
    for backend, clock in order:
        rows = groups[backend, clock]
        identity = Identity(
            machine=machine.name,
            backend=backend,
            library_version=run.library_version(backend),
            clock=clock,
            preferred=not found,
            complete=ended,
            checked=_checked(run, backend, clock),
            note=f"measured by run {run.run_id}, started {run.header.started_at}",
            environment=dict(run.header.environment),
        )
        like = _shipped(machine, backend)
        calibration = fit_calibration(rows, machine, identity, like=like)
        own = known[(known["backend"] == backend) & (known["clock"] == clock)]
        after = own[own["variant"] == AFTER_KERNEL]
        more = {
            "kernels": _kernels(run, machine, clock),
            "handover_s": handovers(calibration, after, machine),
        }
        found.append(calibration.model_copy(update=more))
    return found


def calibration_file_name(calibration: Calibration) -> str:
    """Name of its file in the folder of its run: ``mpi-5.0.11-eager.json``."""
    return calibration.calibration_id.rsplit("/", 1)[-1] + ".json"


def handovers(calibration: Calibration, after: pd.DataFrame, machine: Machine) -> dict[str, Interval]:
    """By collective: how much longer it takes right after a kernel than in a loop of its own [s].

    The median over sizes and groups of ranks of the difference of medians, with the interval of a median.
    Limits: fewer than 3 differences, or an interval that holds 0 -> the collective is left out
    """
    found = {}
    usable = after[after["flag"] != "throttled"]
    cells = ["gpus", "gpus_per_node", "payload_bytes"]
    for name, rows in usable.groupby("collective"):
        differences = []
        for key, times in rows.groupby(cells)["time_s"]:
            gpus, node, size = (int(str(part)) for part in _parts(key))
            curve = calibration.curve(str(name), gpus, domain_gpus_of(machine, node))
            if curve is not None:
                differences.append(float(times.median()) - _curve_time(curve, size))
        interval = _median_interval(np.array(differences))
        if interval is not None:
            found[str(name)] = interval
    return found


def _median_interval(values: Floats) -> Interval | None:
    if values.size < _FEWEST_DIFFERENCES:
        return None
    centre = float(np.median(values))
    error = _MEDIAN_OVER_MEAN * float(np.std(values, ddof=1)) / float(np.sqrt(values.size))
    reach = float(student_t.ppf(0.975, values.size - 1)) * error
    if centre - reach <= 0:
        return None
    value = rounded(centre)
    low, high = min(rounded(centre - reach, 3), value), max(rounded(centre + reach, 3), value)
    return Interval(value=value, low=low, high=high)


def _curve_time(curve: Curve, payload_bytes: float) -> float:
    time = anchored_time(
        payload_bytes,
        curve.alpha_s.value,
        curve.beta_bytes_per_s.value,
        curve.p.value,
        np.array(curve.anchor_bytes),
        np.array(curve.anchor_times_s),
    )
    return float(time)


def _by_library(samples: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    found = []
    for key, rows in samples.groupby(["backend", "clock"]):
        backend, clock = (str(part) for part in _parts(key))
        found.append(((backend, clock), rows))
    return found


def _parts(key: object) -> tuple[object, ...]:
    return key if isinstance(key, tuple) else (key,)


def _checked(run: Run, backend: Backend, clock: Clock) -> bool:
    """Whether every visit behind the curves compared elements, and found none wrong."""
    visits = [
        visit
        for point, of_it, _ in run.usable(Kind.COLLECTIVE)
        if (point.backend, point.clock) == (str(backend), clock)
        for visit in of_it
    ]
    return all(visit.checked > 0 for visit in visits)


def _kernels(run: Run, machine: Machine, clock: Clock) -> KernelConstants | None:
    """Kernels at the clock of the collectives; else at the first clock that they were timed on."""
    samples = run.kernel_samples()
    if samples.empty:
        return None
    fits = (fit_kernels(samples, machine, each) for each in dict.fromkeys((clock, *CLOCK_ORDER)))
    return next((fit for fit in fits if fit is not None), None)


def _shipped(machine: Machine, backend: Backend) -> Calibration | None:
    """What is shipped for this machine and library: where its laws start."""
    if backend not in LAW_BACKENDS:
        return None
    ids = [name for name in list_calibrations(machine.name) if name.split("/")[1].startswith(f"{backend}-")]
    found = [shipped_calibration(name) for name in ids]
    return max(found, key=lambda item: item.preferred, default=None)
