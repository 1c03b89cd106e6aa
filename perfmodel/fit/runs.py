"""From a run to its calibrations: one for each library and clock that was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perfmodel.errors import NoCalibrationError
from perfmodel.fit.build import Identity, fit_calibration, fit_curves
from perfmodel.fit.context import handovers, passes_to_fit
from perfmodel.fit.implementations import fit_each
from perfmodel.schema.calibration import Calibration, list_calibrations, shipped_calibration
from perfmodel.schema.evidence import COLLECTIVES, LAW_BACKENDS, Backend, Clock, Evidence
from perfmodel.schema.fields import Interval
from perfmodel.schema.kernel_fits import GPU_L2
from perfmodel.schema.machine import Machine
from perfmodel.schema.run_files import Run
from perfmodel.schema.run_folders import CLOCK_ORDER, preference
from perfmodel.schema.runs import Point, PointKind, functional_reason

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_VARIANT, AFTER_KERNEL = "default", "after_kernel"


def fit_run(run: Run, machine: Machine, planned: Iterable[Point] = ()) -> list[Calibration]:
    """Calibrations of a run, the preferred one first.

    A calibration is complete when every point of its library and clock that was begun or planned has ended,
    whatever else the run measured.

    machine   the machine of these cells: the shipped one that the run names, or that of ``host.machine_text``
    planned   points that were to be measured, begun or not
    Limits: kernels alone (one GPU) -> the shipped calibration of the machine with these kernels;
    nothing, or kernels of a machine that is not shipped -> NoCalibrationError
    """
    if run.header.functional_only:
        raise NoCalibrationError(
            f"run {run.run_id} is a functional check ({functional_reason(run.header)}): nothing is fitted.",
            "measure on a GPU, or without --oversubscribe.",
        )
    samples = run.collective_samples()
    known = samples[samples["backend"].isin(list(Backend)) & samples["collective"].isin(COLLECTIVES)]
    groups = {
        (Backend(backend), Clock(clock)): rows
        for (backend, clock), rows in _by_library(known[known["variant"] == DEFAULT_VARIANT])
    }
    missing = [p for p in (*run.points.values(), *planned) if not run.ended(p.key)]
    if not groups:
        return [_kernels_alone(run, machine, not any(p.kind is PointKind.KERNEL for p in missing))]
    partial = {(p.backend, p.clock) for p in missing if p.kind is PointKind.COLLECTIVE}
    order = sorted(groups, key=lambda key: (list(Backend).index(key[0]), CLOCK_ORDER.index(key[1])))
    found: list[Calibration] = []
    for backend, clock in order:
        rows = groups[backend, clock]
        identity = Identity(
            machine=machine.name,
            backend=backend,
            library_version=run.library_version(backend),
            clock=clock,
            preferred=False,
            complete=(str(backend), clock) not in partial,
            checked=_checked(run, backend, clock),
            note=f"measured by run {run.run_id}, started {run.header.started_at}",
            environment=dict(run.header.environment),
        )
        like = _shipped(machine, backend)
        calibration = fit_calibration(rows, machine, identity, like=like)
        after = known[(known["backend"] == backend) & (known["clock"] == clock)]
        calibration = _in_use(calibration, after[after["variant"] == AFTER_KERNEL], run, machine, identity)
        found.append(calibration.model_copy(update=_kernels(run, machine, backend, clock)))
    first, *others = sorted(found, key=preference)
    return [first.model_copy(update={"preferred": True}), *others]


def _kernels_alone(run: Run, machine: Machine, complete: bool) -> Calibration:
    """The shipped calibration of the machine's collectives, with the run's own kernels in place of its
    kernels."""
    shipped = _shipped(machine, machine.defaults.backend)
    kernels = _kernels(run, machine, shipped.backend, shipped.clock) if shipped else {}
    if shipped is None or not kernels:
        raise NoCalibrationError(
            f"run {run.run_id} holds no finished point of a collective.",
            "measure some:\n  perfmodel calibrate --quick",
        )
    return shipped.model_copy(
        update={
            "calibration_id": f"{shipped.calibration_id}+{run.run_id}",
            **kernels,
            "complete": complete,
            "preferred": True,
            "note": f"collectives of {shipped.calibration_id}, kernels of run {run.run_id}",
        }
    )


def _in_use(
    calibration: Calibration, after: pd.DataFrame, run: Run, machine: Machine, identity: Identity
) -> Calibration:
    """The calibration with the extra time that its collectives take in a whole pass (``context.handovers``).

    after  samples of collectives right after a kernel
    """
    more = fit_curves(after, machine, identity)
    calibration = calibration.model_copy(update={"after_kernel": more})
    passes = passes_to_fit(run.composed_samples(), str(identity.backend), str(identity.clock))
    return calibration.model_copy(update={"handover_s": handovers(calibration, passes, machine)})


def calibration_file_name(calibration: Calibration) -> str:
    """Name of the calibration's file in the folder of its run: ``gloo-2.13.0-eager.json``."""
    return calibration.calibration_id.rsplit("/", 1)[-1] + ".json"


def _by_library(samples: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    found = []
    for key, rows in samples.groupby(["backend", "clock"]):
        backend, clock = (str(part) for part in _parts(key))
        found.append(((backend, clock), rows))
    return found


def _parts(key: object) -> tuple[object, ...]:
    return key if isinstance(key, tuple) else (key,)


def _checked(run: Run, backend: Backend, clock: Clock) -> bool:
    """Whether every visit behind the curves checked its results, and none was wrong."""
    visits = [
        visit
        for point, of_it, _ in run.usable(PointKind.COLLECTIVE)
        if (point.backend, point.clock) == (str(backend), clock)
        for visit in of_it
    ]
    return all(visit.checked > 0 for visit in visits)


def _kernels(run: Run, machine: Machine, backend: Backend, clock: Clock) -> dict[str, Any]:
    """Kernel constants at the clock of the collectives, as in passes over the library; else at another clock.

    Returns fields of a calibration; none where nothing was fitted.
    """
    samples, composed = run.kernel_samples(), run.composed_samples()
    machine, reported = _with_reported(machine, run)
    for each in dict.fromkeys((clock, *CLOCK_ORDER)):
        passes = passes_to_fit(composed, str(backend), str(each))
        if found := fit_each(samples, machine, each, passes):
            first, *others = (one.model_copy(update={"values": {**one.values, **reported}}) for one in found)
            return {"kernels": first, "more_kernels": others}
    return {}


def _with_reported(machine: Machine, run: Run) -> tuple[Machine, dict[str, Interval]]:
    """The machine with the L2 size that its GPU reported, and that value; the machine file may differ."""
    size = float(run.header.stack.get(GPU_L2) or 0)
    if not size:
        return machine, {}
    known = {"value": size, "source": f"the GPU of run {run.run_id}", "evidence": Evidence.MEASURED}
    quantity = machine.quantity("l2_bytes").model_copy(update=known)
    changed = machine.model_copy(update={"values": {**machine.values, "l2_bytes": quantity}})
    return changed, {"l2_bytes": Interval(value=size, low=size, high=size)}


def _shipped(machine: Machine, backend: Backend) -> Calibration | None:
    """The shipped calibration of this machine and library, whose laws a fit starts from; None without one."""
    if backend not in LAW_BACKENDS:
        return None
    ids = [name for name in list_calibrations(machine.name) if name.split("/")[1].startswith(f"{backend}-")]
    found = [shipped_calibration(name) for name in ids]
    return max(found, key=lambda item: item.preferred, default=None)
