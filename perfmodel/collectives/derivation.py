"""Where the time of a group of ranks comes from: a measured cell (``Curve``), two cells, or the law.

Times are logarithms on the grid of sizes (``link_laws``), each with evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.link_laws import GRID_BYTES, GRID_LOG2, compute_law_time
from perfmodel.errors import NoCalibrationError
from perfmodel.model.curves import interpolate_anchors, time_between_counts
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.evidence import LAW_BACKENDS, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]

_MOST = 64  # calibrations that are kept: more than a page or a sweep asks of at once
_cache: dict[tuple[object, ...], Calibrated] = {}


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibration with the machine that it was measured on, without the user's what-ifs.

    What-ifs of a machine ("what if its network cards were faster?") need it again and again.
    tables   time tables of groups on that machine, by (collective, GPUs, GPUs per node): ``CollectiveModel``
    derived  results of ``derive_time``
    """

    machine: Machine
    calibration: Calibration
    tables: dict[tuple[str, int, int], Any] = field(default_factory=dict, repr=False)
    derived: dict[tuple[str, Group], Derivation] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(machine: Machine, calibration: Calibration) -> Calibrated:
        """The calibration for ``machine``: the measured machine, with or without what-ifs, or another.

        Limits: the same calibration, and the same values before what-ifs -> the same object
        """
        borrowed = calibration.machine != machine.name
        measured_on = load_machine(calibration.machine) if borrowed else machine.unchanged()
        objects = calibration, measured_on.links, measured_on.defaults, *measured_on.values.values()
        key = (measured_on.name, *map(id, objects))
        _cache[key] = base = _cache.pop(key, None) or Calibrated(measured_on, calibration)
        for oldest in [*_cache][:-_MOST]:
            _cache.pop(oldest, None)
        return base


@dataclass(frozen=True)
class Stage:
    """One step in the derivation of a time.

    what  the step, in words;  log_time  ln t on the grid after the step
    """

    what: str
    log_time: Floats


@dataclass(frozen=True)
class Correction:
    """The law's error on the nearest group of this very cluster that was measured, on the grid of sizes.

        corr = (t_near / law_near)^fade                                         [-]

    corr      factor on the law's time [-]
    t_near    measured time of that group at this size, or at the nearest size that it has [s]
    law_near  the law's time of that group at that size [s]
    fade      e^(-octaves to the measured sizes / fading_octaves) [-]
    cell, near_log2  the measured curve of that group, and log2 of the size
    Sizes of a ring are those with equal bytes per step (S/G), where NCCL changes its protocol; trees,
    broadcasts and all-to-alls showed no such shift.
    Source: docs/model.md#how-a-time-is-found
    """

    cell: Curve
    near_log2: Floats
    log_measured: Floats
    log_law: Floats
    fade: Floats


@dataclass(frozen=True)
class Derivation:
    """ln t on the grid, and how it was derived.

    measured    sizes whose time is that of measured cells
    stages      the derivation; the last stage is ``log_time``;  basis  source of the time, in words
    correction  of the law by a measured cell, if there is one
    """

    log_time: Floats
    measured: Bools
    evidence: Codes
    basis: str
    stages: tuple[Stage, ...] = ()
    correction: Correction | None = None


def derive_time(base: Calibrated, collective: str, group: Group) -> Derivation:
    """ln t of a group of ranks on the machine that was measured.

    A measured cell of these ranks if there is one; else, inside one domain, between measured cells with fewer
    and with more ranks; else the law of the links.
    Limits: neither measured cells nor a law -> NoCalibrationError
    """
    key = collective, group
    if key not in base.derived:
        law = base.calibration.law(collective)
        curve = base.calibration.curve(collective, group.gpus, group.domain_gpus)
        # What was measured comes before what lies between two measurements, and the law comes last.
        if curve is None:
            derived = interpolate_cells(base, collective, group) or from_law(base, law, collective, group)
        elif law is None:
            derived = from_curve(base.calibration, curve)
        else:
            cell = from_curve(base.calibration, curve)
            derived = extend_by_law(cell, curve, from_law(base, law, collective, group))
        base.derived[key] = derived
    return base.derived[key]


def curve_time(curve: Curve, payload_bytes: Floats) -> Floats:
    """Time of a stored curve [s]; see ``interpolate_anchors``."""
    return interpolate_anchors(
        payload_bytes,
        curve.alpha_s.value,
        curve.beta_bytes_per_s.value,
        curve.p.value,
        np.array(curve.anchor_bytes),
        np.array(curve.anchor_times_s),
    )


def stack_rank(curve: Curve, calibration: Calibration) -> int:
    """Least rank of a curve's evidence: transferred if version or clock are not the calibration's; else 0."""
    alike = curve.library_version == calibration.library_version and curve.clock == calibration.clock
    return 0 if alike or curve.library_version == "unknown" else Evidence.TRANSFERRED.rank


def from_curve(calibration: Calibration, curve: Curve) -> Derivation:
    """The times of a measured cell: its anchors, and its curve beyond them."""
    lowest, highest = curve.anchor_bytes[0], curve.anchor_bytes[-1]
    # Logs round sizes: a per mille keeps a size that was measured from counting as beyond the measured ones.
    inside = (lowest * 0.999 <= GRID_BYTES) & (highest * 1.001 >= GRID_BYTES)
    evidence = np.where(inside, Evidence.INTERPOLATED.rank, Evidence.EXTRAPOLATED.rank)
    log_time, basis = np.log(curve_time(curve, GRID_BYTES)), f"measured on {curve.gpus} GPUs"
    return Derivation(
        log_time,
        np.ones(GRID_BYTES.size, bool),
        np.maximum(evidence, stack_rank(curve, calibration)).astype(np.int8),
        f"{basis} ({', '.join(curve.sources)})",
        (Stage(basis, log_time),),
    )


def extend_by_law(cell: Derivation, curve: Curve, law: Derivation) -> Derivation:
    """A measured cell, and below and above its sizes the law, shifted to meet it at its last size.

    cell  times of the cell;  curve  the cell itself;  law  times by the law for the same ranks
    A flat time is not yet the floor where the law says that smaller messages use a faster protocol: ten
    nodes that were measured from 32 MiB on are flat there, at the latency of another protocol.
    Limits: the cell shows its floor, or its bandwidth -> the curve itself on that side
    """
    steepest, sizes, times = load_priors().shape.floor_slope, curve.anchor_bytes, curve.anchor_times_s
    slopes = np.diff(np.log(times)) / np.diff(np.log(sizes))  # 0 on the floor, 1 on the bandwidth
    lowest = int(np.searchsorted(GRID_BYTES, sizes[0] * 0.999))
    highest = int(np.searchsorted(GRID_BYTES, sizes[-1] * 1.001)) - 1
    flat_law = law.log_time[lowest] - law.log_time[0] < steepest
    shows_floor = slopes.size > 0 and slopes[0] < steepest and bool(flat_law)
    shows_bandwidth = slopes.size > 0 and slopes[-1] > 1 - steepest
    for edge, outside, shown in (
        (lowest, sizes[0] * 0.999 > GRID_BYTES, shows_floor),
        (highest, sizes[-1] * 1.001 < GRID_BYTES, shows_bandwidth),
    ):
        if not shown:
            shifted = law.log_time + (cell.log_time[edge] - law.log_time[edge])
            joined = np.where(outside, shifted, cell.log_time)
            rank = np.where(outside, np.maximum(cell.evidence, law.evidence), cell.evidence)
            cell = Derivation(
                joined,
                cell.measured & ~outside,
                rank.astype(np.int8),
                f"{cell.basis}; beyond its sizes the {law.basis}",
                (*cell.stages, Stage("beyond its sizes the law", joined)),
            )
    return cell


def find_cells_around(calibration: Calibration, collective: str, group: Group) -> tuple[Curve, Curve] | None:
    """The cells in one domain with the next fewer and the next more ranks. Limits: several domains -> None"""
    cells = sorted(
        (c for c in calibration.curves if c.collective == collective and c.domain_gpus >= c.gpus),
        key=lambda c: c.gpus,
    )
    below = [c for c in cells if c.gpus < group.gpus]
    above = [c for c in cells if c.gpus > group.gpus]
    return (below[-1], above[0]) if group.domains == 1 and below and above else None


def interpolate_cells(base: Calibrated, collective: str, group: Group) -> Derivation | None:
    """Interpolation between cells with fewer and with more ranks in one domain: ln t linear in G.

    Source: docs/model.md#how-a-time-is-found
    """
    cells = find_cells_around(base.calibration, collective, group)
    if cells is None:
        return None
    low, high = (derive_time(base, collective, Group.of(cell.gpus, cell.domain_gpus)) for cell in cells)
    times = np.exp(low.log_time), np.exp(high.log_time)
    log_time = np.log(time_between_counts(*times, group.gpus, *(cell.gpus for cell in cells)))
    evidence = np.maximum(np.maximum(low.evidence, high.evidence), Evidence.INTERPOLATED.rank)
    basis = f"between {cells[0].gpus} and {cells[1].gpus} measured GPUs"
    stages, measured = (*low.stages, *high.stages, Stage(basis, log_time)), low.measured & high.measured
    return Derivation(log_time, measured, evidence.astype(np.int8), basis, stages)


def from_law(base: Calibrated, law: Law | None, collective: str, group: Group) -> Derivation:
    """The law on the machine that was measured, corrected by the nearest cell of this very cluster.

    What another cluster is off the law by says nothing of this one (docs/accuracy.md).
    """
    machine, calibration = base.machine, base.calibration
    if law is None:
        anchored = sorted({c.gpus for c in calibration.curves if c.collective == collective})
        raise NoCalibrationError(
            f"nothing of any evidence class for {collective}/{calibration.backend} on {group.gpus} GPUs "
            f"({calibration.calibration_id}; anchored: G = {', '.join(map(str, anchored)) or 'none'}).",
            "ask for one of these, measure on more ranks, or use a shipped machine."
            if calibration.backend not in LAW_BACKENDS
            else f"use --backend {machine.ring_backend}, or another --calibration.",
        )
    log_time = np.log(compute_law_time(law, machine, machine, collective, group))
    basis, correction = f"law of the links ({calibration.calibration_id})", None
    stages = [Stage("law of the links", log_time)]
    nearest = _find_nearest_cell(calibration, collective, group)
    if nearest and calibration.this_cluster:  # another cluster's error says nothing of this one
        correction = _correct(base, law, nearest, group)
        log_time = log_time + correction.fade * (correction.log_measured - correction.log_law)
        basis = f"{basis}, corrected by measured cells"
        stages.append(Stage("corrected by measured cells", log_time))
    rank = Evidence.EXTRAPOLATED.rank if nearest else Evidence.TRANSFERRED.rank
    none, ranks = np.zeros(GRID_BYTES.size, bool), np.full(GRID_BYTES.size, rank, np.int8)
    return Derivation(log_time, none, ranks, basis, tuple(stages), correction)


def _find_nearest_cell(calibration: Calibration, collective: str, group: Group) -> Curve | None:
    """The measured cell with the most similar ranks: in several domains if the group is, domains first."""
    # Inside and across domains other links and other algorithms decide: one never corrects the other.
    several = group.domains > 1
    cells = [
        c for c in calibration.curves if c.collective == collective and (c.gpus > c.domain_gpus) == several
    ]

    def compare(c: Curve) -> tuple[float, float]:
        in_domain = abs(np.log2(min(c.domain_gpus, c.gpus) / group.domain_gpus)) if several else 0.0
        return in_domain, abs(np.log2(c.gpus / group.gpus))

    return min(cells, key=compare, default=None)


def _correct(base: Calibrated, law: Law, cell: Curve, group: Group) -> Correction:
    """The correction of the law's times of a group by a measured cell of the same cluster."""
    ring = cell.collective in ("all_gather", "reduce_scatter")
    wanted = GRID_LOG2 - (np.log2(group.gpus / cell.gpus) if ring else 0.0)
    near = np.clip(wanted, *np.log2([cell.anchor_bytes[0], cell.anchor_bytes[-1]]))
    where = base.machine, base.machine, cell.collective, Group.of(cell.gpus, cell.domain_gpus)
    return Correction(
        cell,
        near,
        np.log(curve_time(cell, np.exp2(near))),
        np.log(compute_law_time(law, *where, np.exp2(near))),
        np.exp(-np.abs(wanted - near) / load_priors().shape.fading_octaves),
    )
