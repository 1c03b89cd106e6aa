"""From a run to its calibrations: one for each library and clock that was measured."""

from __future__ import annotations

from collections.abc import Iterable

from perfmodel.collectives.choose import list_matching
from perfmodel.errors import NoCalibrationError
from perfmodel.fit.build import Identity, fit_calibration
from perfmodel.fit.context import fit_handovers, select_passes
from perfmodel.fit.kernel_fits import fit_kernels
from perfmodel.schema.calibration import GPU_L2, Calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock, Evidence
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import Machine
from perfmodel.schema.run_files import CLOCK_ORDER, Run, preference
from perfmodel.schema.runs import Point, PointKind, functional_reason


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
    timed = samples[samples["backend"].isin(list(Backend)) & samples["collective"].isin(COLLECTIVES)]
    columns = zip(timed["backend"], timed["clock"], strict=True)
    pairs = dict.fromkeys((Backend(name), Clock(clock)) for name, clock in columns)
    missing = [p for p in (*run.points.values(), *planned) if not run.ended(p.key)]
    if not pairs:
        return [_fit_kernels_alone(run, machine, not any(p.kind is PointKind.KERNEL for p in missing))]
    partial = {(p.backend, p.clock) for p in missing if p.kind is PointKind.COLLECTIVE}
    calibrations: list[Calibration] = []
    timed_points = run.usable(PointKind.COLLECTIVE)
    unchecked = {(p.backend, p.clock) for p, visits, _ in timed_points if not all(v.checked for v in visits)}
    for backend, clock in pairs:
        identity = Identity(
            machine=machine.name,
            backend=backend,
            library_version=run.library_version(backend),
            clock=clock,
            complete=(str(backend), clock) not in partial,
            checked=(str(backend), clock) not in unchecked,
            note=f"measured by run {run.run_id}, started {run.header.started_at}",
            environment=dict(run.header.environment),
        )
        rows = timed[(timed["backend"] == backend) & (timed["clock"] == clock)]
        like = next(iter(list_matching(machine.name, backend)), None)
        calibration = fit_calibration(rows, machine, identity, like)
        passes = select_passes(run.work_samples(PointKind.COMPOSED), str(backend), str(clock))
        handovers = {"handover_s": fit_handovers(calibration, passes, machine)}
        kernels = _fit_kernels(run, machine, backend, clock)
        calibrations.append(calibration.model_copy(update=handovers | kernels))
    preferred, *alternatives = sorted(calibrations, key=preference)
    return [preferred.model_copy(update={"preferred": True}), *alternatives]


def _fit_kernels_alone(run: Run, machine: Machine, complete: bool) -> Calibration:
    """The shipped calibration of the machine, with the run's kernels in place of its kernels."""
    shipped = next(iter(list_matching(machine.name, machine.defaults.backend)), None)
    kernels = _fit_kernels(run, machine, shipped.backend, shipped.clock) if shipped else {}
    if shipped is None or not kernels:
        raise NoCalibrationError(
            f"run {run.run_id} holds no finished point of a collective.",
            "measure some:\n  perfmodel calibrate --quick",
        )
    name = shipped.calibration_id
    note = f"collectives of {name}, kernels of run {run.run_id}"
    named = {"calibration_id": f"{name}+{run.run_id}", "note": note, "preferred": True, "complete": complete}
    return shipped.model_copy(update=kernels | named)


def _fit_kernels(run: Run, machine: Machine, backend: Backend, clock: Clock) -> dict[str, object]:
    """Kernel constants at the clock of the collectives, as in passes over the library; else at another clock.

    The L2 size that the GPU reported counts: the machine file may differ.
    Returns fields of a calibration; none where nothing was fitted.
    """
    samples = run.work_samples(PointKind.KERNEL)
    composed = run.work_samples(PointKind.COMPOSED)
    reported = {}
    size = float(run.header.stack.get(GPU_L2) or 0)
    if size:
        source = f"the GPU of run {run.run_id}"
        reading = {"value": size, "source": source, "evidence": Evidence.MEASURED}
        quantity = machine.quantity("l2_bytes").model_copy(update=reading)
        machine = machine.model_copy(update={"values": {**machine.values, "l2_bytes": quantity}})
        reported = {"l2_bytes": Interval(value=size, low=size, high=size)}
    for tick in dict.fromkeys((clock, *CLOCK_ORDER)):
        fits = fit_kernels(samples, machine, tick, select_passes(composed, str(backend), str(tick)))
        if fits:
            first, *others = [fit.model_copy(update={"values": {**fit.values, **reported}}) for fit in fits]
            return {"kernels": first, "more_kernels": others}
    return {}
