"""Where the time of a group of ranks comes from: a measured cell (``Curve``), two cells, or the law.

Times are logarithms on one grid of sizes, eight per octave, each with evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.corrections import Correction, correction, nearest_cells
from perfmodel.collectives.grid import GRID_BYTES, GRID_LOG2
from perfmodel.collectives.stored import curve_time
from perfmodel.errors import NoCalibrationError
from perfmodel.model.curves import time_between_counts
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.evidence import LAW_BACKENDS, Evidence
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Stage:
    """One step in the derivation of a time.

    what  the step, in words;  log_time  ln t on the grid after the step
    """

    what: str
    log_time: Floats


@dataclass(frozen=True)
class Derivation:
    """ln t on the grid, and how it was derived.

    measured    sizes whose time is that of measured cells
    stages      the derivation; the last stage is ``log_time``;  basis  source of the time, in words
    correction  of the law by measured cells, if there is one
    """

    log_time: Floats
    measured: Bools
    evidence: Codes
    basis: str
    stages: tuple[Stage, ...] = ()
    correction: Correction | None = None


@lru_cache(maxsize=512)
def derive_time(own: Calibrated, collective: str, group: Group) -> Derivation:
    """ln t of a group of ranks on the machine that was measured.

    A measured cell of these ranks if there is one; else, inside one domain, between measured cells with fewer
    and with more ranks; else the law of the links.
    Limits: neither measured cells nor a law -> NoCalibrationError
    """
    law = own.calibration.law(collective)
    curve = own.calibration.curve(collective, group.gpus, group.domain_gpus)
    if curve is None:
        return between_cells(own, collective, group) or from_law(own, law, collective, group)
    measured = from_curve(own, curve)
    return measured if law is None else completed(measured, curve, from_law(own, law, collective, group))


def from_curve(own: Calibrated, curve: Curve) -> Derivation:
    """The times of a measured cell: its anchors, and its curve beyond them."""
    first, last = curve.anchor_bytes[0], curve.anchor_bytes[-1]
    inside = (first * 0.999 <= GRID_BYTES) & (last * 1.001 >= GRID_BYTES)
    evidence = np.where(inside, Evidence.INTERPOLATED.rank, Evidence.EXTRAPOLATED.rank)
    log_time, basis = np.log(own.cell_time(curve)), f"measured on {curve.gpus} GPUs"
    return Derivation(
        log_time,
        np.ones(GRID_BYTES.size, bool),
        np.maximum(evidence, stack_rank(curve, own.calibration)).astype(np.int8),
        f"{basis} ({', '.join(curve.sources)})",
        (Stage(basis, log_time),),
    )


def _slope(curve: Curve, left: int) -> float:
    """d ln t / d ln S from measured size ``left`` to the next: 0 on the floor, 1 on the bandwidth."""
    sizes, times = curve.anchor_bytes, curve.anchor_times_s
    return float(np.log(times[left + 1] / times[left]) / np.log(sizes[left + 1] / sizes[left]))


def reaches_floor(curve: Curve, law: Derivation) -> bool:
    """Whether the smallest measured sizes show the latency floor, so that the curve may be used below them.

    A flat time is not yet the floor where the law says that smaller messages use a faster protocol: ten
    nodes that were measured from 32 MiB on are flat there, at the latency of another protocol.
    """
    slope = load_priors().shape.floor_slope
    first = int(np.searchsorted(GRID_BYTES, curve.anchor_bytes[0] * 0.999))
    flat = len(curve.anchor_bytes) > 1 and _slope(curve, 0) < slope
    return flat and bool(law.log_time[first] - law.log_time[0] < slope)


def reaches_bandwidth(curve: Curve) -> bool:
    """Whether the largest measured sizes show the bandwidth, so that the curve may be used above them."""
    return (
        len(curve.anchor_bytes) > 1
        and _slope(curve, len(curve.anchor_bytes) - 2) > 1 - load_priors().shape.floor_slope
    )


def _joined(cell: Derivation, law: Derivation, edge: int, outside: Bools) -> Derivation:
    """A measured cell, continued by the law outside its sizes, and shifted to meet the cell at its last size.

    The shift fades with the distance. edge  grid index of that size;  outside  grid points beyond it
    """
    fade = np.exp(-np.abs(GRID_LOG2 - GRID_LOG2[edge]) / load_priors().shape.fading_octaves)
    shifted = law.log_time + (cell.log_time[edge] - law.log_time[edge]) * fade
    joined = np.where(outside, shifted, cell.log_time)
    return Derivation(
        joined,
        cell.measured & ~outside,
        np.where(outside, np.maximum(cell.evidence, law.evidence), cell.evidence).astype(np.int8),
        f"{cell.basis}; beyond its sizes the {law.basis}",
        (*cell.stages, Stage("beyond its sizes the law", joined)),
    )


def completed(cell: Derivation, curve: Curve, law: Derivation) -> Derivation:
    """A measured cell, continued by the law at sizes below and above its measurements.

    cell  times of the cell;  curve  the cell itself;  law  times by the law for the same ranks
    Limits: the cell shows its floor, or its bandwidth -> not continued on that side
    """
    first, last = curve.anchor_bytes[0], curve.anchor_bytes[-1]
    if not reaches_floor(curve, law):
        edge = int(np.searchsorted(GRID_BYTES, first * 0.999))
        cell = _joined(cell, law, edge, first * 0.999 > GRID_BYTES)
    if not reaches_bandwidth(curve):
        edge = int(np.searchsorted(GRID_BYTES, last * 1.001)) - 1
        cell = _joined(cell, law, edge, last * 1.001 < GRID_BYTES)
    return cell


def stack_rank(curve: Curve, calibration: Calibration) -> int:
    """Least rank of a curve's evidence: transferred if version or clock are not the calibration's; else 0."""
    own = curve.library_version == calibration.library_version and curve.clock == calibration.clock
    return 0 if own or curve.library_version == "unknown" else Evidence.TRANSFERRED.rank


def inside_bound(calibration: Calibration, collective: str, group: Group) -> tuple[Floats, Floats] | None:
    """(payload that stays in one domain [bytes], ln of its measured time), a bound; None if unmeasured.

    A ring passes all of S through each domain, as if there were one domain; an all-to-all keeps S (g - 1)/G
    inside, the bytes of g ranks with a payload of S g/G. Source: docs/model.md#how-a-time-is-found
    """
    cell = calibration.curve(collective, group.domain_gpus, group.domain_gpus)
    if group.domains == 1 or cell is None:
        return None
    share = group.domain_gpus / group.gpus if collective == "all_to_all" else 1.0
    return GRID_BYTES * share, np.asarray(np.log(curve_time(cell, GRID_BYTES * share)))


def find_cells_around(calibration: Calibration, collective: str, group: Group) -> tuple[Curve, Curve] | None:
    """The cells in one domain with the next fewer and the next more ranks. Limits: several domains -> None"""
    cells = sorted(
        (c for c in calibration.curves if c.collective == collective and c.domain_gpus >= c.gpus),
        key=lambda c: c.gpus,
    )
    below = [c for c in cells if c.gpus < group.gpus]
    above = [c for c in cells if c.gpus > group.gpus]
    return (below[-1], above[0]) if group.domains == 1 and below and above else None


def between_cells(own: Calibrated, collective: str, group: Group) -> Derivation | None:
    """Interpolation between cells with fewer and with more ranks in one domain: ln t linear in G.

    Source: docs/model.md#how-a-time-is-found
    """
    cells = find_cells_around(own.calibration, collective, group)
    if cells is None:
        return None
    low, high = (derive_time(own, collective, Group.of(cell.gpus, cell.domain_gpus)) for cell in cells)
    times = np.exp(low.log_time), np.exp(high.log_time)
    log_time = np.log(time_between_counts(*times, group.gpus, *(cell.gpus for cell in cells)))
    evidence = np.maximum(np.maximum(low.evidence, high.evidence), Evidence.INTERPOLATED.rank)
    basis = f"between {cells[0].gpus} and {cells[1].gpus} measured GPUs"
    stages, measured = (*low.stages, *high.stages, Stage(basis, log_time)), low.measured & high.measured
    return Derivation(log_time, measured, evidence.astype(np.int8), basis, stages)


def from_law(own: Calibrated, law: Law | None, collective: str, group: Group) -> Derivation:
    """The law on the machine that was measured, corrected by the nearest cells of this very cluster.

    What another cluster is off the law by says nothing of this one (docs/accuracy.md).
    """
    machine, calibration = own.machine, own.calibration
    if law is None:
        anchored = sorted({c.gpus for c in calibration.curves if c.collective == collective})
        raise NoCalibrationError(
            f"nothing of any evidence class for {collective}/{calibration.backend} on {group.gpus} GPUs "
            f"({calibration.calibration_id}; anchored: G = {', '.join(map(str, anchored)) or 'none'}).",
            "ask for one of these, measure on more ranks, or use a shipped machine."
            if calibration.backend not in LAW_BACKENDS
            else f"use --backend {machine.ring_backend}, or another --calibration.",
        )

    def log_time(which: Group) -> Floats:
        return np.asarray(np.log(own.law_time(law, collective, which)))

    centre, basis = log_time(group), f"law of the links ({calibration.calibration_id})"
    stages, fix = [Stage("law of the links", centre)], None
    nearest = nearest_cells(calibration, collective, group)
    if nearest and calibration.this_cluster:
        fix = correction(own, nearest, group, log_time)
        centre, basis = centre + fix.log_residual, f"{basis}, corrected by measured cells"
        stages.append(Stage("corrected by measured cells", centre))
    known = any((group.domains == 1) == (cell.domain_gpus >= cell.gpus) for cell in nearest)
    rank = Evidence.EXTRAPOLATED.rank if known else Evidence.TRANSFERRED.rank
    none, ranks = np.zeros(GRID_BYTES.size, bool), np.full(GRID_BYTES.size, rank, np.int8)
    return Derivation(centre, none, ranks, basis, tuple(stages), fix)
