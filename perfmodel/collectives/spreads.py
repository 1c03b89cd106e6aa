"""Where the time of a group of ranks comes from: a measured cell (``Curve``), two cells, or the law.

Times are logarithms on one grid of sizes, eight per octave, each with a standard deviation and evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.corrections import Correction, correction, nearest_cells
from perfmodel.collectives.grid import GRID_BYTES, GRID_LOG2, PER_OCTAVE
from perfmodel.collectives.stored import curve_time, step_constants
from perfmodel.errors import NoCalibrationError
from perfmodel.model.curves import time_between_counts
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.evidence import LAW_BACKENDS, Backend, Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

_SEED, _PAIRS = 35, 48
_NO_VARIANCE = 1e-9
"""Share of an unknown's variance below which none is left beside the unknowns before it."""
_COARSE_BYTES = GRID_BYTES[:: PER_OCTAVE // 2]
"""Sizes at which the uncertainty of the unknowns is computed: two per octave."""
ANOTHER_CLUSTER = "another cluster of this kind"


@dataclass(frozen=True)
class Stage:
    """One step in the derivation of a time.

    what  the step, in words;  log_time  ln t on the grid after the step
    """

    what: str
    log_time: Floats


@dataclass(frozen=True)
class Doubt:
    """One cause of error: its name (``what``), and its part of the standard deviation of ln t on the grid.

    All parts add in quadrature.
    """

    what: str
    log_sd: Floats


@dataclass(frozen=True)
class Spread:
    """ln t on the grid with its standard deviation, and how both were derived.

    stages      the derivation; the last stage is ``log_time``;  doubts  add in quadrature to ``log_sd``
    basis       source of the time, in words
    correction  of the law by measured cells, if there is one
    """

    log_time: Floats
    log_sd: Floats
    evidence: Codes
    basis: str
    stages: tuple[Stage, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    correction: Correction | None = None


def from_curve(own: Calibrated, curve: Curve) -> Spread:
    """The spread of a measured cell: its anchors and curve, with the leave-one-out error near each size."""
    sizes, calibration = np.array(curve.anchor_bytes), own.calibration
    inside = (sizes[0] * 0.999 <= GRID_BYTES) & (sizes[-1] * 1.001 >= GRID_BYTES)
    outside = np.where(sizes[-1] < GRID_BYTES, np.log2(GRID_BYTES / sizes[-1]), 0)
    noise = float(max(load_priors().uncertainty.least_log_sd, curve.anchor_log_sd))
    cluster = cluster_log_sd(calibration, across=curve.gpus > curve.domain_gpus)
    left_out = curve.left_out_log_sd or [load_priors().uncertainty.unknown_left_out_log_sd] * sizes.size
    between = np.interp(GRID_LOG2, np.log2(sizes), left_out)
    beyond = load_priors().uncertainty.outside_octave_log_sd * outside
    evidence = np.where(inside, Evidence.INTERPOLATED.rank, Evidence.EXTRAPOLATED.rank)
    log_time, basis = np.log(own.cell_time(curve)), f"measured on {curve.gpus} GPUs"
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
        (Stage(basis, log_time),),
        doubts,
    )


def cluster_log_sd(calibration: Calibration, *, across: bool) -> Floats:
    """How much two clusters of one kind differ at each size: standard deviation of ln t on the grid.

    Limits: a calibration of the cluster that is asked about -> 0
    """
    if calibration.this_cluster:
        return np.zeros(GRID_BYTES.size)
    known = load_priors().clusters
    return by_size(known.across_log_sd if across else known.inside_log_sd)


def carried_share(machine: Machine, calibration: Calibration, group: Group) -> Floats:
    """Share of the law's residual at measured cells that is carried over to another group, on the grid [-].

    On the measured cluster nearly all is carried over. Across domains, a part of the residual is peculiar to
    that cluster, the other part is the law's error on every cluster: only this part is carried to others.
    Source: best linear prediction, s_law^2 / (s_law^2 + s_cluster^2); docs/model.md#how-a-time-is-found
    """
    priors = load_priors()
    if group.domains == 1 or not rests_on_others(calibration):
        return _everywhere(priors.uncertainty.carry_fraction)
    network = priors.network.get(machine.network_priors)
    return by_size((network and network.carried) or priors.clusters.carried)


def rests_on_others(calibration: Calibration) -> bool:
    """Whether the law's network unknowns were fitted to several clusters, and so vary between them."""
    return calibration.backend is Backend.NCCL and not calibration.this_cluster


def by_size(at_three_sizes: Sequence[float], payload_bytes: Floats = GRID_BYTES) -> Floats:
    """A number that is known at three sizes (``Clusters.at_bytes``), interpolated to each payload size."""
    return np.interp(np.log2(payload_bytes), np.log2(load_priors().clusters.at_bytes), at_three_sizes)


def law_log_sd(machine: Machine, payload_bytes: Floats) -> Floats:
    """Standard deviation of ln t by which the law errs on any cluster, even with exact unknowns, by size."""
    priors = load_priors()
    network = priors.network.get(machine.network_priors)
    return by_size((network and network.law_log_sd) or priors.clusters.law_log_sd, payload_bytes)


def growth_log_sd(machine: Machine, payload_bytes: Floats) -> Floats:
    """Uncertainty per doubling of GPUs above the measured number: standard deviation of ln t at each size."""
    priors = load_priors()
    network = priors.network.get(machine.network_priors)
    log_sd = (network and network.growth_log_sd) or priors.growth.log_sd
    return np.interp(np.log2(payload_bytes), np.log2(priors.growth.at_bytes), log_sd)


def _together(doubts: Sequence[Doubt]) -> Floats:
    """Standard deviation of all parts together (quadrature)."""
    return np.asarray(np.sqrt(sum(doubt.log_sd**2 for doubt in doubts)))


def _everywhere(log_sd: float) -> Floats:
    """One number, repeated at every size of the grid."""
    return np.full(GRID_BYTES.size, float(log_sd))


def _slope(curve: Curve, left: int) -> float:
    """d ln t / d ln S from measured size ``left`` to the next: 0 on the floor, 1 on the bandwidth."""
    sizes, times = curve.anchor_bytes, curve.anchor_times_s
    return float(np.log(times[left + 1] / times[left]) / np.log(sizes[left + 1] / sizes[left]))


def reaches_floor(curve: Curve, law: Spread) -> bool:
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


def _joined(spread: Spread, law: Spread, edge: int, outside: npt.NDArray[np.bool_]) -> Spread:
    """A measured cell, continued by the law outside its sizes, and shifted to meet the cell at its last size.

    The shift fades with the distance. edge  grid index of that size;  outside  grid points beyond it
    """
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
        (*spread.stages, Stage("beyond its sizes the law", joined)),
        (*kept, *more),
    )


def completed(spread: Spread, curve: Curve, law: Spread) -> Spread:
    """A measured cell's spread, continued by the law's at sizes below and above its measurements.

    spread  of the cell;  curve  the cell itself;  law  spread of the law for the same ranks
    Limits: the cell shows its floor, or its bandwidth -> not continued on that side
    """
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


def between_cells(own: Calibrated, collective: str, group: Group) -> Spread | None:
    """Interpolation between cells with fewer and with more ranks in one domain: ln t linear in G.

    Source: docs/model.md#how-a-time-is-found
    """
    cells = find_cells_around(own.calibration, collective, group)
    if cells is None:
        return None
    low, high = (from_curve(own, cell) for cell in cells)
    times = np.exp(low.log_time), np.exp(high.log_time)
    log_time = np.log(time_between_counts(*times, group.gpus, *(cell.gpus for cell in cells)))
    log_sd = np.hypot(np.maximum(low.log_sd, high.log_sd), load_priors().uncertainty.least_log_sd)
    evidence = np.maximum(np.maximum(low.evidence, high.evidence), Evidence.INTERPOLATED.rank)
    basis = f"between {cells[0].gpus} and {cells[1].gpus} measured GPUs"
    doubts = (
        Doubt("the less sure of the two cells", np.maximum(low.log_sd, high.log_sd)),
        Doubt("between the two", _everywhere(load_priors().uncertainty.least_log_sd)),
    )
    stages = (*low.stages, *high.stages, Stage(basis, log_time))
    return Spread(log_time, log_sd, evidence.astype(np.int8), basis, stages, doubts)


@lru_cache(maxsize=8)
def deviates(count: int) -> Floats:
    """Standard normal numbers, ``count`` per draw, each draw also with its negative; the same in every run.

    Their means are exactly 0 and their covariance is exactly the identity: (H^T H / n)^(-1/2) by Cholesky.
    Where NCCL could choose either of two protocols, some draws use one and some the other, so the standard
    deviation of their times covers both; a derivative at the corner would cover one, or far too much.
    """
    half = np.random.default_rng(_SEED).standard_normal((_PAIRS, count))
    half = np.linalg.solve(np.linalg.cholesky(half.T @ half / _PAIRS), half.T).T
    return np.concatenate([half, -half])


def root_of(covariance: Floats) -> Floats:
    """The lower triangular A with A A^T = covariance, by Cholesky: unlike eigenvectors, it has no free signs.

    Rounding in a file may have made a covariance slightly indefinite. An unknown to which those before it
    leave no variance then follows them alone, and each row is scaled to the standard deviation in the file.
    Limits: positive definite -> Cholesky's root;  any covariance -> A A^T has its diagonal
    """
    size = len(covariance)
    variances = np.maximum(np.diag(covariance), 0.0)
    root = np.zeros((size, size))
    for j in range(size):
        left = covariance[j:, j] - (root[j:, :j] * root[j, :j]).sum(axis=1)
        if left[0] > _NO_VARIANCE * variances[j]:
            root[j:, j] = left / np.sqrt(left[0])
    norms = np.sqrt((root**2).sum(axis=1))
    scale = np.divide(np.sqrt(variances), norms, out=np.zeros(size), where=norms > 0)
    return np.asarray(root * scale[:, np.newaxis])


@lru_cache(maxsize=64)
def _drawn(covariance: tuple[tuple[float, ...], ...]) -> Floats:
    """Random draws of the unknowns' deviations from their means, one row per draw."""
    return np.asarray(deviates(len(covariance)) @ root_of(np.array(covariance)).T)


@lru_cache(maxsize=512)
def spread_of(own: Calibrated, collective: str, group: Group) -> Spread:
    """The spread of a group of ranks on the machine that was measured.

    A measured cell of these ranks if there is one; else, inside one domain, between measured cells with fewer
    and with more ranks; else the law of the links.
    Limits: neither measured cells nor a law -> NoCalibrationError
    """
    law = own.calibration.law(collective)
    curve = own.calibration.curve(collective, group.gpus, group.domain_gpus)
    if curve is None:
        return between_cells(own, collective, group) or from_law(own, law, collective, group)
    spread = from_curve(own, curve)
    return spread if law is None else completed(spread, curve, from_law(own, law, collective, group))


def from_law(own: Calibrated, law: Law | None, collective: str, group: Group) -> Spread:
    """The spread of the law on the machine that was measured, corrected by the nearest measured cells."""
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
    priors = load_priors()
    steps = step_constants(machine, priors)
    link_law, noise = LINK_LAWS[law.law], priors.uncertainty

    def log_time(which: Group) -> Floats:
        return np.asarray(np.log(own.law_time(law, collective, which)))

    centre = log_time(group)
    draws = np.log(np.array(law.values)) + _drawn(tuple(map(tuple, law.log_covariance)))
    drawn = np.log(link_law.time_at(draws, steps, collective, group, _COARSE_BYTES)).std(axis=0)
    basis = f"law of the links ({calibration.calibration_id})"
    stages = [Stage("law of the links", centre)]
    nearest = nearest_cells(calibration, collective, group)
    measured_gpus, near = np.full(GRID_BYTES.size, float(law.fitted_gpus)), np.zeros(GRID_BYTES.size)
    share = carried_share(machine, calibration, group)
    carried = correction(own, nearest, group, log_time, share) if nearest else None
    if carried is not None:
        measured_gpus, near = carried.gpus, carried.weight
        centre = centre + share * carried.log_residual
        basis += ", corrected by measured cells"
        stages.append(Stage("corrected by measured cells", centre))
    across, about = group.domains > 1, _everywhere(max(law.residual_log_sd, noise.sample_log_sd))
    other = cluster_log_sd(calibration, across=across)
    if across and rests_on_others(calibration):
        learned = priors.learned_of(law.law, machine.network_priors)
        measured_gpus = np.maximum(measured_gpus, by_size(learned.gpus if learned else [1.0]))
        about, other = law_log_sd(machine, GRID_BYTES), np.zeros(GRID_BYTES.size)
    farther = np.log2(np.maximum(group.gpus / np.maximum(measured_gpus, 2), 1.0))
    alone = noise.no_group_inside_log_sd if group.domains == 1 else noise.no_group_across_log_sd
    doubts = (
        Doubt("unknowns of the law", np.interp(GRID_LOG2, np.log2(_COARSE_BYTES), drawn)),
        Doubt("the law itself", about),
        Doubt("more GPUs than were measured", growth_log_sd(machine, GRID_BYTES) * np.sqrt(farther)),
        Doubt("no such group was measured", _everywhere(alone) * (1 - near)),
        Doubt(ANOTHER_CLUSTER, other),
    )
    known = any((group.domains == 1) == (cell.domain_gpus >= cell.gpus) for cell in nearest)
    rank = Evidence.EXTRAPOLATED.rank if known else Evidence.TRANSFERRED.rank
    evidence = np.full(GRID_BYTES.size, rank, np.int8)
    return Spread(centre, _together(doubts), evidence, basis, tuple(stages), doubts, carried)
