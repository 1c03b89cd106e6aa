"""Where the time of a group of ranks comes from: a measured cell (``Curve``), two cells, or the law.

Times are logarithms on the grid of sizes (``link_laws``), each with evidence.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.link_laws import GRID_BYTES, GRID_LOG2, Floats, compute_law_time
from perfmodel.errors import NoCalibrationError
from perfmodel.model.curves import interpolate_anchors, time_between_counts
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.evidence import LAW_BACKENDS, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.priors import load_priors

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]

_MOST = 64  # calibrations that are kept: more than a page or a sweep asks of at once
_ROUNDING = 1.001  # logs round sizes: one that was measured does not count as beyond the measured ones
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
        # equal machines share these objects, and the cache keeps them alive: their ids name them
        objects = calibration, measured_on.links, measured_on.defaults, *measured_on.values.values()
        key = (measured_on.name, *map(id, objects))
        _cache[key] = base = _cache.pop(key, None) or Calibrated(measured_on, calibration)
        for oldest in [*_cache][:-_MOST]:
            _cache.pop(oldest, None)
        return base


@dataclass(frozen=True)
class Correction:
    """The law's error on a group of this very cluster that was measured, or on its own cell's last size.

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


class Derivation(NamedTuple):
    """ln t on the grid, and how it was derived.

    measured    sizes whose time is that of measured cells;  evidence  ranks
    stages      the derivation: each step in words, with ln t after it
    correction  of the law by a measured cell, if there is one
    """

    log_time: Floats
    measured: Bools
    evidence: Codes
    stages: tuple[tuple[str, Floats], ...] = ()
    correction: Correction | None = None


def derive_time(base: Calibrated, collective: str, group: Group) -> Derivation:
    """ln t of a group of ranks on the machine that was measured.

    A measured cell of these ranks if there is one; else, inside one domain, between measured cells with fewer
    and with more ranks; else the law of the links.
    Limits: neither measured cells nor a law -> NoCalibrationError
    """
    key = collective, group
    if key not in base.derived:
        curve = base.calibration.curve(collective, group.gpus, group.domain_gpus)
        if curve is not None:
            base.derived[key] = extend_by_law(base, curve, group)
        elif cells := find_cells_around(base.calibration, collective, group):
            base.derived[key] = interpolate_cells(base, cells, group)
        else:
            base.derived[key] = compute_by_law(base, collective, group)
    return base.derived[key]


def curve_time(curve: Curve, payload_bytes: Floats) -> Floats:
    """Time of a stored curve at each payload [s]: by its measured sizes, beyond them by its formula."""
    shape = curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value
    anchors = np.array(curve.anchor_bytes), np.array(curve.anchor_times_s)
    return interpolate_anchors(payload_bytes, *shape, *anchors)


def rank_stack(curve: Curve, calibration: Calibration) -> int:
    """Least rank of a curve's evidence: transferred if version or clock are not the calibration's; else 0."""
    alike = curve.library_version == calibration.library_version and curve.clock == calibration.clock
    return 0 if alike or curve.library_version == "unknown" else Evidence.TRANSFERRED.rank


def extend_by_law(base: Calibrated, curve: Curve, group: Group) -> Derivation:
    """A measured cell: its curve, and beyond its sizes the law, corrected by its first or last size.

    A flat time is not yet the floor where the law says that smaller messages use a faster protocol: ten
    nodes that were measured from 32 MiB on are flat there, at the latency of another protocol.
    Limits: the cell shows its floor, or its bandwidth, or there is no law -> the curve on that side
    """
    sizes = np.array(curve.anchor_bytes)
    smaller = sizes[0] > GRID_BYTES * _ROUNDING  # masks of the grid's sizes outside the measured ones
    larger = sizes[-1] * _ROUNDING < GRID_BYTES
    log_time = np.log(curve_time(curve, GRID_BYTES))
    rank = np.where(smaller | larger, Evidence.EXTRAPOLATED.rank, Evidence.INTERPOLATED.rank)
    rank = np.maximum(rank, rank_stack(curve, base.calibration)).astype(np.int8)
    stages: tuple[tuple[str, Floats], ...] = ((f"measured on {curve.gpus} GPUs", log_time),)
    beyond = np.zeros(GRID_BYTES.size, bool)
    if base.calibration.law(curve.collective) is not None:
        steepest = load_priors().shape.floor_slope
        times = np.log(curve.anchor_times_s)
        slopes = np.diff(times) / np.diff(np.log(sizes))  # 0 on the floor, 1 on the rate
        by_law = compute_by_law(base, curve.collective, group, curve)
        _, plain = by_law.stages[0]
        flat = bool(plain[np.argmin(smaller)] - plain[0] < steepest)  # the law, up to the first size
        beyond |= smaller & (not (slopes.size and slopes[0] < steepest and flat))  # floor not measured
        beyond |= larger & (not (slopes.size and slopes[-1] > 1 - steepest))  # nor the bandwidth
    if beyond.any():
        log_time = np.where(beyond, by_law.log_time, log_time)
        rank = np.where(beyond, np.maximum(rank, by_law.evidence), rank)
        stages = (*stages, ("beyond its sizes the law", log_time))
    return Derivation(log_time, ~beyond, rank, stages)


def find_cells_around(calibration: Calibration, collective: str, group: Group) -> tuple[Curve, Curve] | None:
    """The cells in one domain with the next fewer and the next more ranks. Limits: several domains -> None"""
    cells = [c for c in calibration.curves if c.collective == collective and c.domain_gpus >= c.gpus]
    cells.sort(key=lambda c: c.gpus)
    place = bisect([c.gpus for c in cells], group.gpus)
    is_between = cells[:place] and cells[place:]
    return (cells[place - 1], cells[place]) if group.domains == 1 and is_between else None


def interpolate_cells(base: Calibrated, cells: tuple[Curve, Curve], group: Group) -> Derivation:
    """Interpolation between cells with fewer and with more ranks in one domain: ln t linear in G.

    Source: docs/model.md#how-a-time-is-found
    """
    fewer, more = cells
    low = derive_time(base, fewer.collective, Group.of(fewer.gpus, fewer.domain_gpus))
    high = derive_time(base, more.collective, Group.of(more.gpus, more.domain_gpus))
    times = np.exp(low.log_time), np.exp(high.log_time)
    log_time = np.log(time_between_counts(*times, group.gpus, fewer.gpus, more.gpus))
    evidence = np.maximum(np.maximum(low.evidence, high.evidence), Evidence.INTERPOLATED.rank)
    stages = (*low.stages, *high.stages, (f"between {fewer.gpus} and {more.gpus} measured GPUs", log_time))
    return Derivation(log_time, low.measured & high.measured, evidence.astype(np.int8), stages)


def compute_by_law(base: Calibrated, collective: str, group: Group, cell: Curve | None = None) -> Derivation:
    """The law on the machine that was measured, corrected by a cell.

    cell  of this very group, beyond whose sizes a time is asked for;  None: the nearest of this very cluster.
    What another cluster is off the law by says nothing of this one (docs/accuracy.md).
    Limits: no law -> NoCalibrationError
    """
    machine, calibration = base.machine, base.calibration
    law = calibration.law(collective)
    if law is None:
        measured = sorted({c.gpus for c in calibration.curves if c.collective == collective})
        raise NoCalibrationError(
            f"no measured time and no law of {collective} by {calibration.backend} on {group.gpus} GPUs "
            f"({calibration.calibration_id}; measured on {', '.join(map(str, measured)) or 'no'} GPUs).",
            "ask for one of these, measure on more ranks, or use a shipped machine."
            if calibration.backend not in LAW_BACKENDS
            else f"use --backend {machine.ring_backend}, or another --calibration.",
        )
    log_time = np.log(compute_law_time(law, machine, machine, collective, group))
    stages = [("law of the links", log_time)]
    correction = None
    nearest = _find_nearest_cell(calibration, collective, group)
    if cell := cell or (nearest if calibration.this_cluster else None):
        correction = _correct(base, law, cell, group)
        log_time = log_time + correction.fade * (correction.log_measured - correction.log_law)
        stages.append(("corrected by measured cells", log_time))
    rank = Evidence.EXTRAPOLATED.rank if nearest else Evidence.TRANSFERRED.rank
    none = np.zeros(GRID_BYTES.size, bool)
    return Derivation(log_time, none, np.full(none.size, rank, np.int8), tuple(stages), correction)


def _find_nearest_cell(calibration: Calibration, collective: str, group: Group) -> Curve | None:
    """The measured cell with the most similar ranks: in several domains if the group is, domains first."""
    # Inside and across domains other links and other algorithms decide: one never corrects the other.
    several = group.domains > 1
    alike = [c for c in calibration.curves if c.collective == collective]

    def compare(c: Curve) -> tuple[float, float]:
        """How unlike the group's the ranks of a cell are, in octaves: of a domain, then all."""
        in_domain = abs(np.log2(c.domain_gpus / group.domain_gpus)) if several else 0.0
        return in_domain, abs(np.log2(c.gpus / group.gpus))

    return min((c for c in alike if (c.gpus > c.domain_gpus) == several), key=compare, default=None)


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
