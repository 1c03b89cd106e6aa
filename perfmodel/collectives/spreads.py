"""Where the time of a group of ranks comes from: a measured cell, two cells around it, or the law.

Everything is a logarithm on one grid of sizes, eight to an octave, with a standard deviation and evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.corrections import Correction, correction, nearest_cells
from perfmodel.collectives.grid import GRID_BYTES, GRID_LOG2
from perfmodel.collectives.stored import curve_time, step_constants
from perfmodel.errors import NoCalibrationError
from perfmodel.model.curves import anchored_time
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.evidence import LAW_BACKENDS, Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

ANOTHER_CLUSTER = "another cluster of this kind"


@dataclass(frozen=True)
class Stage:
    """How a time came about, one step of it: ln t on the grid after it, and the function that makes it so."""

    what: str
    function: Callable[..., Any]
    log_time: Floats


@dataclass(frozen=True)
class Doubt:
    """One part of the standard deviation of ln t, on the grid: all parts add in quadrature."""

    what: str
    log_sd: Floats


@dataclass(frozen=True)
class Spread:
    """ln t on the grid with its standard deviation, and what it rests on.

    stages      the last one is ``log_time``;  doubts  their quadrature is ``log_sd``
    correction  of a law by measured cells
    """

    log_time: Floats
    log_sd: Floats
    evidence: Codes
    basis: str
    stages: tuple[Stage, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    correction: Correction | None = None


def from_curve(curve: Curve, calibration: Calibration) -> Spread:
    """A measured cell: its anchors and curve, with the leave-one-out error near each size."""
    sizes = np.array(curve.anchor_bytes)
    inside = (sizes[0] * 0.999 <= GRID_BYTES) & (sizes[-1] * 1.001 >= GRID_BYTES)
    outside = np.where(sizes[-1] < GRID_BYTES, np.log2(GRID_BYTES / sizes[-1]), 0)
    noise = float(max(load_priors().uncertainty.least_log_sd, curve.anchor_log_sd))
    cluster = cluster_log_sd(calibration, across=curve.gpus > curve.domain_gpus)
    left_out = curve.left_out_log_sd or [load_priors().uncertainty.unknown_left_out_log_sd] * sizes.size
    between = np.interp(GRID_LOG2, np.log2(sizes), left_out)
    beyond = load_priors().uncertainty.outside_octave_log_sd * outside
    evidence = np.where(inside, Evidence.INTERPOLATED.rank, Evidence.EXTRAPOLATED.rank)
    log_time, basis = np.log(curve_time(curve, GRID_BYTES)), f"measured on {curve.gpus} GPUs"
    doubts = (
        Doubt("scatter of the samples", _everywhere(noise)),
        Doubt("sizes left out in turn", between),
        Doubt("beyond the measured sizes", beyond),
        Doubt(ANOTHER_CLUSTER, cluster),
    )
    return Spread(
        log_time,
        _together(doubts),
        np.maximum(evidence, stack_rank(curve, calibration)).astype(np.int8),
        f"{basis} ({', '.join(curve.sources)})",
        (Stage(basis, anchored_time, log_time),),
        doubts,
    )


def cluster_log_sd(calibration: Calibration, *, across: bool) -> Floats:
    """How far two clusters of one kind are apart at each size: standard deviation of ln t on the grid.

    Limits: a calibration of the cluster that is asked about -> 0
    """
    if calibration.this_cluster:
        return np.zeros(GRID_BYTES.size)
    known = load_priors().clusters
    apart = known.across_log_sd if across else known.inside_log_sd
    return np.interp(GRID_LOG2, np.log2(known.at_bytes), apart)


def growth_log_sd(machine: Machine, payload_bytes: Floats) -> Floats:
    """What each doubling of the GPUs beyond those measured adds: standard deviation of ln t at each size."""
    priors = load_priors()
    network = priors.network.get(str(machine.links.network))
    log_sd = (network and network.growth_log_sd) or priors.growth.log_sd
    return np.interp(np.log2(payload_bytes), np.log2(priors.growth.at_bytes), log_sd)


def _together(doubts: Sequence[Doubt]) -> Floats:
    """Standard deviation of all parts."""
    return np.asarray(np.sqrt(sum(doubt.log_sd**2 for doubt in doubts)))


def _everywhere(log_sd: float) -> Floats:
    """One number on the grid."""
    return np.full(GRID_BYTES.size, float(log_sd))


def _slope(curve: Curve, left: int) -> float:
    """d ln t / d ln S between two neighbouring anchors: 0 on the floor, 1 on the bandwidth."""
    sizes, times = curve.anchor_bytes, curve.anchor_times_s
    return float(np.log(times[left + 1] / times[left]) / np.log(sizes[left + 1] / sizes[left]))


def reaches_floor(curve: Curve, law: Spread) -> bool:
    """Whether the smallest measured sizes show the floor, so that the curve may be read below them.

    A time that hardly rises is no floor yet where the law says that smaller messages take a faster protocol:
    ten nodes measured from 32 MiB on are flat there, at the pace of another protocol.
    """
    slope = load_priors().shape.floor_slope
    first = int(np.searchsorted(GRID_BYTES, curve.anchor_bytes[0] * 0.999))
    flat = len(curve.anchor_bytes) > 1 and _slope(curve, 0) < slope
    return flat and bool(law.log_time[first] - law.log_time[0] < slope)


def reaches_bandwidth(curve: Curve) -> bool:
    """Whether the largest measured sizes show the bandwidth, so that the curve may be read above them."""
    return (
        len(curve.anchor_bytes) > 1
        and _slope(curve, len(curve.anchor_bytes) - 2) > 1 - load_priors().shape.floor_slope
    )


def _joined(spread: Spread, law: Spread, edge: int, outside: npt.NDArray[np.bool_]) -> Spread:
    """A cell that stops short of its floor or bandwidth: beyond its edge the law, joined to it there."""
    octaves = np.abs(GRID_LOG2 - GRID_LOG2[edge])
    fade = np.exp(-octaves / load_priors().shape.fading_octaves)
    log_time = law.log_time + (spread.log_time[edge] - law.log_time[edge]) * fade
    log_sd = np.hypot(law.log_sd * (1 - fade), spread.log_sd[edge] * fade)
    joined = np.where(outside, log_time, spread.log_time)
    kept = [Doubt(d.what, np.where(outside, d.log_sd[edge] * fade, d.log_sd)) for d in spread.doubts]
    more = [Doubt(d.what, np.where(outside, d.log_sd * (1 - fade), 0.0)) for d in law.doubts]
    return Spread(
        joined,
        np.where(outside, log_sd, spread.log_sd),
        np.where(outside, np.maximum(spread.evidence, law.evidence), spread.evidence).astype(np.int8),
        f"{spread.basis}; beyond its sizes the {law.basis}",
        (*spread.stages, Stage("beyond its sizes the law", completed, joined)),
        (*kept, *more),
    )


def completed(spread: Spread, curve: Curve, law: Spread) -> Spread:
    """A measured cell with the law at the ends that it does not reach."""
    first, last = curve.anchor_bytes[0], curve.anchor_bytes[-1]
    if not reaches_floor(curve, law):
        spread = _joined(
            spread, law, int(np.searchsorted(GRID_BYTES, first * 0.999)), first * 0.999 > GRID_BYTES
        )
    if not reaches_bandwidth(curve):
        edge = int(np.searchsorted(GRID_BYTES, last * 1.001)) - 1
        spread = _joined(spread, law, edge, last * 1.001 < GRID_BYTES)
    return spread


def stack_rank(curve: Curve, calibration: Calibration) -> int:
    """Weakest evidence of a curve: transferred if its version or clock is not the calibration's."""
    own = curve.library_version == calibration.library_version and curve.clock == calibration.clock
    return 0 if own or curve.library_version == "unknown" else Evidence.TRANSFERRED.rank


def inside_bound(calibration: Calibration, collective: str, group: Group) -> tuple[Floats, Floats] | None:
    """Payload of the ranks of one domain for their own part [bytes], and ln of its time; None: not measured.

    A ring passes all of S through each domain, as it does with one domain only; an all-to-all leaves
    S (g - 1)/G inside, as much as g ranks with S g/G do. Source: docs/model.md#how-a-time-is-found
    """
    cell = calibration.curve(collective, group.domain_gpus, group.domain_gpus)
    if group.domains == 1 or cell is None:
        return None
    share = group.domain_gpus / group.gpus if collective == "all_to_all" else 1.0
    return GRID_BYTES * share, np.asarray(np.log(curve_time(cell, GRID_BYTES * share)))


def between_cells(calibration: Calibration, collective: str, group: Group) -> Spread | None:
    """Cells with fewer and with more ranks in one domain: ln t linear in G between them.

    Source: docs/model.md#how-a-time-is-found
    """
    if group.domains > 1:
        return None
    cells = sorted(
        (c for c in calibration.curves if c.collective == collective and c.domain_gpus >= c.gpus),
        key=lambda c: c.gpus,
    )
    below = [c for c in cells if c.gpus < group.gpus]
    above = [c for c in cells if c.gpus > group.gpus]
    if not below or not above:
        return None
    low, high = from_curve(below[-1], calibration), from_curve(above[0], calibration)
    share = (group.gpus - below[-1].gpus) / (above[0].gpus - below[-1].gpus)
    log_time = low.log_time + share * (high.log_time - low.log_time)
    log_sd = np.hypot(np.maximum(low.log_sd, high.log_sd), load_priors().uncertainty.least_log_sd)
    evidence = np.maximum(np.maximum(low.evidence, high.evidence), Evidence.INTERPOLATED.rank)
    basis = f"between {below[-1].gpus} and {above[0].gpus} measured GPUs"
    doubts = (
        Doubt("the less sure of the two cells", np.maximum(low.log_sd, high.log_sd)),
        Doubt("between the two", _everywhere(load_priors().uncertainty.least_log_sd)),
    )
    stages = (*low.stages, *high.stages, Stage(basis, between_cells, log_time))
    return Spread(log_time, log_sd, evidence.astype(np.int8), basis, stages, doubts)


def from_law(
    machine: Machine, calibration: Calibration, law: Law | None, collective: str, group: Group
) -> Spread:
    """The law on the machine that it was fitted on, corrected by the nearest measured cell."""
    if law is None:
        anchored = sorted({c.gpus for c in calibration.curves if c.collective == collective})
        raise NoCalibrationError(
            f"nothing of any evidence class for {collective}/{calibration.backend} on {group.gpus} GPUs "
            f"({calibration.calibration_id}; anchored: G = {', '.join(map(str, anchored)) or 'none'}).",
            "ask for one of these, measure on more ranks, or use a shipped machine."
            if calibration.backend not in LAW_BACKENDS
            else "use --backend nccl, or another --calibration.",
        )
    priors = load_priors()
    steps = step_constants(machine, priors)
    unknowns, link_law = np.log(np.array(law.values)), LINK_LAWS[law.law]
    noise = priors.uncertainty

    def log_time(q: Floats, which: Group) -> Floats:
        return np.asarray(np.log(link_law.time_at(q, steps, collective, which, GRID_BYTES)))

    centre = log_time(unknowns, group)
    gradient = np.empty((unknowns.size, GRID_BYTES.size))
    for i in range(unknowns.size):
        step = np.zeros(unknowns.size)
        step[i] = 0.05
        gradient[i] = (log_time(unknowns + step, group) - log_time(unknowns - step, group)) / 0.1
    variance = np.einsum("ij,ik,kj->j", gradient, np.array(law.log_covariance), gradient)
    basis = f"law of the links ({calibration.calibration_id})"
    stages = [Stage("law of the links", link_law.time, centre)]
    nearest = nearest_cells(calibration, collective, group)
    measured_gpus, near = np.full(GRID_BYTES.size, float(law.fitted_gpus)), np.zeros(GRID_BYTES.size)
    carried = correction(nearest, group, lambda which: log_time(unknowns, which)) if nearest else None
    if carried is not None:
        measured_gpus, near = carried.gpus, carried.weight
        centre = centre + noise.carry_fraction * carried.log_residual
        basis += ", corrected by measured cells"
        stages.append(Stage("corrected by measured cells", correction, centre))
    farther = np.log2(np.maximum(group.gpus / np.maximum(measured_gpus, 2), 1.0))
    alone = noise.no_group_inside_log_sd if group.domains == 1 else noise.no_group_across_log_sd
    doubts = (
        Doubt("unknowns of the law", np.sqrt(np.maximum(variance, 0))),
        Doubt("samples about the law", _everywhere(max(law.residual_log_sd, noise.sample_log_sd))),
        Doubt("more GPUs than were measured", growth_log_sd(machine, GRID_BYTES) * np.sqrt(farther)),
        Doubt("no such group was measured", alone * (1 - near)),
        Doubt(ANOTHER_CLUSTER, cluster_log_sd(calibration, across=group.domains > 1)),
    )
    known = any((group.domains == 1) == (cell.domain_gpus >= cell.gpus) for cell in nearest)
    rank = Evidence.EXTRAPOLATED.rank if known else Evidence.TRANSFERRED.rank
    evidence = np.full(GRID_BYTES.size, rank, np.int8)
    return Spread(centre, _together(doubts), evidence, basis, tuple(stages), doubts, carried)
