"""All sizes of one collective on one group of ranks: time, 95 % interval, floor, evidence.

A table holds the logarithm of the time on a grid of sizes, eight to an octave, so that a million sizes are
read in milliseconds. Between grid points ln t is linear in ln S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.errors import NoCalibrationError
from perfmodel.fit.build import domain_gpus_of
from perfmodel.fit.links import law_time, step_constants
from perfmodel.model.collectives import speed_of_light_time
from perfmodel.model.curves import anchored_time
from perfmodel.model.laws import Group
from perfmodel.prediction.overrides import scaled_unknowns, touches_links
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.priors import Uncertainty, load_priors

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

PER_OCTAVE = 8
OCTAVES = 48
GRID_LOG2 = np.arange(OCTAVES * PER_OCTAVE + 1) / PER_OCTAVE
GRID_BYTES = np.exp2(GRID_LOG2)
LIMITS = ("", "α in the domain", "link rate in the domain", "α across nodes", "NIC rate", "no link")
_Z95 = 1.96
_LEAST_LOG_SD = 0.03
_UNKNOWN_LEFT_OUT = 0.06
_OCTAVE_OUTSIDE_LOG_SD = 0.03
_SMOOTHING_OCTAVES = 0.5
_FADING_OCTAVES = 4.0
_FLOOR_SLOPE = 0.3


@dataclass(frozen=True)
class Spread:
    """ln t on the grid with its standard deviation, and what it rests on."""

    log_time: Floats
    log_sd: Floats
    evidence: Codes
    basis: str


@dataclass(frozen=True)
class Table:
    """Grid of one group of ranks; ``basis`` says in words where the times come from."""

    log_time: Floats
    log_low: Floats
    log_high: Floats
    floor_s: float
    evidence: Codes
    limit: Codes
    anchors: Floats
    anchor_evidence: int
    basis: str

    def read(self, payload_bytes: Floats) -> tuple[Floats, Floats, Floats, Floats, Codes, Codes]:
        """time_s, low_s, high_s, floor_s, evidence, limit of each size."""
        if self.floor_s == 0:
            zero, code = np.zeros(payload_bytes.shape), np.zeros(payload_bytes.shape, np.int8)
            return zero, zero, zero, zero, code, code
        position = np.clip(np.log2(np.maximum(payload_bytes, 1)) * PER_OCTAVE, 0, GRID_LOG2.size - 1)
        left = np.minimum(position.astype(np.int64), GRID_LOG2.size - 2)
        part = position - left
        time, low, high = (
            np.exp(column[left] + part * (column[left + 1] - column[left]))
            for column in (self.log_time, self.log_low, self.log_high)
        )
        evidence = np.maximum(self.evidence[left], self.evidence[left + (part > 0)])
        if self.anchors.size:
            near = np.minimum(np.searchsorted(self.anchors, payload_bytes * 0.999), self.anchors.size - 1)
            exact = np.abs(self.anchors[near] / payload_bytes - 1) < 2e-3
            evidence = np.where(exact, np.int8(self.anchor_evidence), evidence)
        floor = np.minimum(np.full(time.shape, self.floor_s), time)
        return time, low, high, floor, evidence.astype(np.int8), self.limit[left]


def build_table(
    machine: Machine,
    calibration: Calibration,
    borrowed: bool,
    collective: str,
    gpus: int,
    gpus_per_node: int,
) -> Table:
    """Predict one group of ranks at every size.

    A measured cell if there is one; between measured cells of one domain, their interpolation in G; else the
    law of the links, corrected by the residual of the nearest measured cell. Raises NoCalibrationError when
    there is neither cell nor law.
    """
    if gpus == 1:
        nothing = np.zeros(GRID_LOG2.size)
        codes = np.zeros(GRID_LOG2.size, np.int8)
        return Table(nothing, nothing, nothing, 0.0, codes, codes, np.empty(0), 0, "one rank sends nothing")
    group = Group.of(gpus, domain_gpus_of(machine, gpus_per_node))
    law = calibration.law(collective)
    measured_on = load_machine(calibration.machine) if borrowed else machine
    curve = calibration.curve(collective, gpus, group.domain_gpus)
    if curve is not None:
        spread = _from_curve(curve, calibration)
        if law is not None and not (_reaches_floor(curve) and _reaches_bandwidth(curve)):
            spread = _completed(spread, curve, _from_law(measured_on, calibration, law, collective, group))
    else:
        spread = _between_cells(calibration, collective, group) or _from_law(
            measured_on, calibration, law, collective, group
        )
    return _finish(machine, calibration, borrowed, law, collective, group, spread, curve)


def curve_time(curve: Curve, payload_bytes: Floats) -> Floats:
    """Time of a stored curve [s]; see ``anchored_time``."""
    return anchored_time(
        payload_bytes,
        curve.alpha_s.value,
        curve.beta_bytes_per_s.value,
        curve.p.value,
        np.array(curve.anchor_bytes),
        np.array(curve.anchor_times_s),
    )


def _from_curve(curve: Curve, calibration: Calibration) -> Spread:
    sizes = np.array(curve.anchor_bytes)
    inside = (sizes[0] * 0.999 <= GRID_BYTES) & (sizes[-1] * 1.001 >= GRID_BYTES)
    outside = np.where(sizes[-1] < GRID_BYTES, np.log2(GRID_BYTES / sizes[-1]), 0)
    across = load_priors().uncertainty.cluster_log_sd if curve.gpus > curve.domain_gpus else 0.0
    noise = float(np.hypot(max(_LEAST_LOG_SD, curve.anchor_log_sd), across))
    left_out = curve.left_out_log_sd or [_UNKNOWN_LEFT_OUT] * sizes.size
    between = np.interp(GRID_LOG2, np.log2(sizes), left_out)
    sd = np.hypot(np.hypot(noise, between), _OCTAVE_OUTSIDE_LOG_SD * outside)
    evidence = np.where(inside, Evidence.INTERPOLATED.rank, Evidence.EXTRAPOLATED.rank)
    return Spread(
        np.log(curve_time(curve, GRID_BYTES)),
        sd,
        np.maximum(evidence, _stack_rank(curve, calibration)).astype(np.int8),
        f"measured on {curve.gpus} GPUs ({', '.join(curve.sources)})",
    )


def _slope(curve: Curve, left: int) -> float:
    """d ln t / d ln S between two neighbouring anchors: 0 on the floor, 1 on the bandwidth."""
    sizes, times = curve.anchor_bytes, curve.anchor_times_s
    return float(np.log(times[left + 1] / times[left]) / np.log(sizes[left + 1] / sizes[left]))


def _reaches_floor(curve: Curve) -> bool:
    """Whether the smallest measured sizes show the floor, so that the curve may be read below them."""
    return len(curve.anchor_bytes) > 1 and _slope(curve, 0) < _FLOOR_SLOPE


def _reaches_bandwidth(curve: Curve) -> bool:
    """Whether the largest measured sizes show the bandwidth, so that the curve may be read above them."""
    return len(curve.anchor_bytes) > 1 and _slope(curve, len(curve.anchor_bytes) - 2) > 1 - _FLOOR_SLOPE


def _joined(spread: Spread, law: Spread, edge: int, outside: npt.NDArray[np.bool_]) -> Spread:
    """A cell that stops short of its floor or bandwidth: beyond its edge the law, joined to it there."""
    octaves = np.abs(GRID_LOG2 - GRID_LOG2[edge])
    fade = np.exp(-octaves / _FADING_OCTAVES)
    log_time = law.log_time + (spread.log_time[edge] - law.log_time[edge]) * fade
    log_sd = np.hypot(law.log_sd * (1 - fade), spread.log_sd[edge])
    return Spread(
        np.where(outside, log_time, spread.log_time),
        np.where(outside, log_sd, spread.log_sd),
        np.where(outside, np.maximum(spread.evidence, law.evidence), spread.evidence).astype(np.int8),
        f"{spread.basis}; beyond its sizes the {law.basis}",
    )


def _completed(spread: Spread, curve: Curve, law: Spread) -> Spread:
    """A measured cell with the law at the ends that it does not reach."""
    first, last = curve.anchor_bytes[0], curve.anchor_bytes[-1]
    if not _reaches_floor(curve):
        spread = _joined(
            spread, law, int(np.searchsorted(GRID_BYTES, first * 0.999)), first * 0.999 > GRID_BYTES
        )
    if not _reaches_bandwidth(curve):
        edge = int(np.searchsorted(GRID_BYTES, last * 1.001)) - 1
        spread = _joined(spread, law, edge, last * 1.001 < GRID_BYTES)
    return spread


def _stack_rank(curve: Curve, calibration: Calibration) -> int:
    """Weakest evidence of a curve: transferred if its version or clock is not the calibration's."""
    own = curve.library_version == calibration.library_version and curve.clock == calibration.clock
    return 0 if own or curve.library_version == "unknown" else Evidence.TRANSFERRED.rank


def _between_cells(calibration: Calibration, collective: str, group: Group) -> Spread | None:
    """Cells with fewer and with more ranks in one domain: ln t linear in G between them."""
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
    low, high = _from_curve(below[-1], calibration), _from_curve(above[0], calibration)
    share = (group.gpus - below[-1].gpus) / (above[0].gpus - below[-1].gpus)
    log_time = low.log_time + share * (high.log_time - low.log_time)
    log_sd = np.hypot(np.maximum(low.log_sd, high.log_sd), _LEAST_LOG_SD)
    evidence = np.maximum(np.maximum(low.evidence, high.evidence), Evidence.INTERPOLATED.rank)
    basis = f"between {below[-1].gpus} and {above[0].gpus} measured GPUs"
    return Spread(log_time, log_sd, evidence.astype(np.int8), basis)


def _from_law(
    machine: Machine, calibration: Calibration, law: Law | None, collective: str, group: Group
) -> Spread:
    """The law on the machine that it was fitted on, corrected by the nearest measured cell."""
    if law is None:
        anchored = sorted({c.gpus for c in calibration.curves if c.collective == collective})
        raise NoCalibrationError(
            f"nothing of any evidence class for {collective}/{calibration.backend} on {group.gpus} GPUs "
            f"({calibration.calibration_id}; anchored: G = {', '.join(map(str, anchored)) or 'none'}).",
            "use --backend nccl, or another --calibration.",
        )
    priors = load_priors()
    steps = step_constants(machine, priors)
    unknowns = np.log(np.array(law.values))
    noise = priors.uncertainty

    def log_time(q: Floats, which: Group) -> Floats:
        return np.asarray(np.log(law_time(law.law, q, steps, collective, which, GRID_BYTES)))

    centre = log_time(unknowns, group)
    gradient = np.empty((unknowns.size, GRID_BYTES.size))
    for i in range(unknowns.size):
        step = np.zeros(unknowns.size)
        step[i] = 0.05
        gradient[i] = (log_time(unknowns + step, group) - log_time(unknowns - step, group)) / 0.1
    variance = np.einsum("ij,ik,kj->j", gradient, np.array(law.log_covariance), gradient)
    reference = _reference_cell(calibration, collective, group)
    basis = f"law of the links ({calibration.calibration_id})"
    if reference is not None:
        own = Group.of(reference.gpus, reference.domain_gpus)
        residual = np.log(curve_time(reference, GRID_BYTES)) - log_time(unknowns, own)
        centre = centre + noise.carry_fraction * _smoothed(residual, reference)
        basis += f", corrected by {reference.gpus} measured GPUs"
    sd = np.sqrt(variance + _model_variance(law, noise, group, reference))
    known = reference is not None and (group.domains == 1) == (reference.domain_gpus >= reference.gpus)
    rank = Evidence.EXTRAPOLATED.rank if known else Evidence.TRANSFERRED.rank
    return Spread(centre, sd, np.full(GRID_BYTES.size, rank, np.int8), basis)


def _model_variance(law: Law, noise: Uncertainty, group: Group, reference: Curve | None) -> float:
    """Variance of ln t beside the parameters': scatter, distance from the measured group, no such group."""
    farther = np.log2(max(group.gpus / max(law.fitted_gpus, 2), 1.0))
    unseen = noise.unseen_log_sd if reference is None else 0.0
    scatter = max(law.residual_log_sd, noise.sample_log_sd)
    return float(scatter**2 + (noise.growth_log_sd * farther) ** 2 + unseen**2)


def _reference_cell(calibration: Calibration, collective: str, group: Group) -> Curve | None:
    """The measured cell nearest to a group: of as many GPUs per domain, several domains for several."""
    cells = [
        c
        for c in calibration.curves
        if c.collective == collective and (c.gpus > c.domain_gpus) == (group.domains > 1)
    ]
    if not cells:
        return None
    return min(
        cells,
        key=lambda c: (
            abs(np.log2(min(c.domain_gpus, c.gpus) / group.domain_gpus)) if group.domains > 1 else 0,
            abs(np.log2(c.gpus / group.gpus)),
        ),
    )


def _smoothed(residual: Floats, reference: Curve) -> Floats:
    """A residual held at its ends outside the measured sizes and averaged over about an octave inside."""
    sizes = np.log2(np.array(reference.anchor_bytes))
    inside = np.clip(GRID_LOG2, sizes[0], sizes[-1])
    held = np.interp(inside, GRID_LOG2, residual)
    width = _SMOOTHING_OCTAVES * PER_OCTAVE
    reach = int(3 * width)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    padded = np.pad(held, reach, mode="edge")
    return np.convolve(padded, kernel / kernel.sum(), mode="valid")


def _finish(
    machine: Machine,
    calibration: Calibration,
    borrowed: bool,
    law: Law | None,
    collective: str,
    group: Group,
    spread: Spread,
    curve: Curve | None,
) -> Table:
    log_time, evidence = spread.log_time, spread.evidence
    weakest = Evidence.TRANSFERRED.rank if borrowed else 0
    log_sd = spread.log_sd
    if touches_links(machine):
        weakest = Evidence.ASSUMED.rank
    if law is not None and (borrowed or touches_links(machine)):
        log_time = log_time + _rate_shift(machine, calibration, borrowed, law, collective, group)
    if borrowed:
        log_sd = np.hypot(log_sd, load_priors().uncertainty.unseen_log_sd)
    link = machine.value("nvlink_bytes_per_s") or machine.value("pcie_bytes_per_s")
    least = speed_of_light_time(
        collective,
        GRID_BYTES,
        group.gpus,
        group.domain_gpus,
        group.domains,
        link,
        machine.value("nic_bytes_per_s"),
    )
    log_least = np.log(np.maximum(least, 1e-12))
    log_time = np.maximum.accumulate(np.maximum(log_time, log_least))
    low = np.maximum.accumulate(np.maximum(log_time - _Z95 * log_sd, log_least))
    high = np.maximum.accumulate(log_time + _Z95 * log_sd)
    floor = float(np.exp(log_time[0]))
    bytes_rule = np.exp(log_time) > 2 * floor
    limit = np.where(bytes_rule, 2, 1) + (2 if group.domains > 1 else 0)
    return Table(
        log_time,
        np.minimum(low, log_time),
        high,
        floor,
        np.maximum(evidence, weakest).astype(np.int8),
        limit.astype(np.int8),
        np.array(curve.anchor_bytes) if curve else np.empty(0),
        max(_stack_rank(curve, calibration), weakest) if curve else 0,
        spread.basis,
    )


def _rate_shift(
    machine: Machine, calibration: Calibration, borrowed: bool, law: Law, collective: str, group: Group
) -> Floats:
    """Change of ln t that the law sees when link rates are overridden, or are not those of the lender."""
    priors = load_priors()
    lender = load_machine(calibration.machine) if borrowed else None
    before = np.log(np.array(law.values))
    after = scaled_unknowns(before, law, machine, lender)
    own, theirs = step_constants(machine, priors), step_constants(lender or machine, priors)
    new = law_time(law.law, after, own, collective, group, GRID_BYTES)
    old = law_time(law.law, before, theirs, collective, group, GRID_BYTES)
    return np.asarray(np.log(new / old))
