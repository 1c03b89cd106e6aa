"""All sizes of one collective on one group of ranks: time, 95 % interval, floor, evidence.

A table holds the logarithm of the time on a grid of sizes, eight per octave, so that a million sizes are
read in milliseconds. Between grid points ln t is linear in ln S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.bands import BandPart, build_band, widen
from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.corrections import Correction
from perfmodel.collectives.derivation import Derivation, Stage, derive_time, inside_bound, stack_rank
from perfmodel.collectives.grid import GRID_BYTES, GRID_LOG2, PER_OCTAVE
from perfmodel.collectives.rates import (
    across_rate,
    inside_rate,
    rate_shares,
    rate_shift,
    touches_links,
)
from perfmodel.model.collectives import speed_of_light_time
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Law
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

LIMITS = (
    "",
    "link latency",
    "link rate",
    "network latency",
    "NIC rate",
    "protocol rate",
)
_SHORTEST_S = 1e-12


@dataclass(frozen=True)
class TimeTable:
    """Times of one group of ranks on the grid of sizes, as logarithms.

    floor_share  share of the time that is latency;  limit  what the time depends on most
    anchors      measured sizes, and ``anchor_evidence`` of their times
    basis        what the times come from, in words
    stages, correction  how the times were derived (``Derivation``);  band  parts of the interval
    log_time, log_low, log_high  ln of the time and of the ends of its 95 % interval, on the grid
    floor_s      time of the smallest message [s];  evidence  its rank at each size
    """

    log_time: Floats
    log_low: Floats
    log_high: Floats
    floor_s: float
    floor_share: Floats
    evidence: Codes
    limit: Codes
    anchors: Floats
    anchor_evidence: int
    basis: str
    stages: tuple[Stage, ...] = ()
    band: tuple[BandPart, ...] = ()
    correction: Correction | None = None

    def at(self, column: Floats, payload_bytes: float) -> float:
        """Value of a column of the grid at one size, interpolated as in ``read``."""
        left, part = _place(np.array([payload_bytes]))
        return float(_between(column, left, part)[0])

    def read(self, payload_bytes: Floats) -> tuple[Floats, Floats, Floats, Floats, Codes, Codes]:
        """(time_s, low_s, high_s, floor_s, evidence, limit) of each size."""
        if self.floor_s == 0:
            zero, code = np.zeros(payload_bytes.shape), np.zeros(payload_bytes.shape, np.int8)
            return zero, zero, zero, zero, code, code
        left, part = _place(payload_bytes)
        time, low, high = (
            np.exp(_between(column, left, part)) for column in (self.log_time, self.log_low, self.log_high)
        )
        evidence = np.maximum(self.evidence[left], self.evidence[left + (part > 0)])
        if self.anchors.size:
            near = np.minimum(np.searchsorted(self.anchors, payload_bytes * 0.999), self.anchors.size - 1)
            exact = np.abs(self.anchors[near] / payload_bytes - 1) < 2e-3
            evidence = np.where(exact, np.int8(self.anchor_evidence), evidence)
        share = _between(self.floor_share, left, part)
        floor = time * share
        return time, low, high, floor, evidence.astype(np.int8), self.limit[left]


def _place(payload_bytes: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Index of the grid point at or below each size, and the fraction of the way to the next point."""
    position = np.clip(np.log2(np.maximum(payload_bytes, 1)) * PER_OCTAVE, 0, GRID_LOG2.size - 1)
    left = np.minimum(position.astype(np.int64), GRID_LOG2.size - 2)
    return left, position - left


def _between(column: Floats, left: npt.NDArray[np.int64], part: Floats) -> Floats:
    return np.asarray(column[left] + part * (column[left + 1] - column[left]))


def build_table(
    machine: Machine, calibration: Calibration, collective: str, gpus: int, gpus_per_node: int
) -> TimeTable:
    """The time table of one collective on one group of ranks, for every size.

    machine   where the collective runs;  calibration  measurements of one library, and laws fitted to them
    The times are those of ``derivation.derive_time``, scaled to the links of ``machine``.
    Limits: neither measured curves nor a law -> NoCalibrationError
    """
    if gpus == 1:
        nothing = np.zeros(GRID_LOG2.size)
        codes = np.zeros(GRID_LOG2.size, np.int8)
        return TimeTable(
            nothing, nothing, nothing, 0.0, nothing, codes, codes, np.empty(0), 0, "one rank sends nothing"
        )
    group = Group.of(gpus, machine.domain_gpus_of(gpus_per_node))
    own = Calibrated.of(machine, calibration)
    return _finish(machine, own, collective, group, derive_time(own, collective, group))


def _finish(
    machine: Machine, own: Calibrated, collective: str, group: Group, derived: Derivation
) -> TimeTable:
    """The table of derived times: rates scaled to this machine, no time below the links' bound, intervals."""
    calibration, borrowed = own.calibration, own.machine.name != machine.name
    law = calibration.law(collective)
    curve = calibration.curve(collective, group.gpus, group.domain_gpus)  # of this very group
    log_time, weakest, stages = derived.log_time, 0, list(derived.stages)
    changed = touches_links(machine)
    if borrowed or changed:
        weakest = Evidence.ASSUMED.rank if changed else Evidence.TRANSFERRED.rank
    band = build_band(own.machine, calibration, collective, group, derived.measured)
    shift = rate_shift(machine, own, law, collective, group) if weakest and law is not None else None
    moved = changed and (shift is None or bool(np.any(shift)))
    band += widen(machine, calibration, borrowed=borrowed, changed=moved)
    found = inside_bound(calibration, collective, group) if curve is None else None
    if shift is not None and law is not None:
        log_time = log_time + shift
        stages.append(Stage("links of this machine for those that were measured", log_time))
        if found is not None:
            size, bound = found
            inside = Group.of(group.domain_gpus, group.domain_gpus)
            found = size, bound + rate_shift(machine, own, law, collective, inside, size)
    if found is not None:
        log_time = np.maximum(log_time, found[1])
        stages.append(Stage("at least what the ranks of one domain need", log_time))
    evidence = np.maximum(derived.evidence, weakest)
    anchors = np.array(curve.anchor_bytes) if curve else np.empty(0)
    log_least = np.log(np.maximum(speed_of_light(machine, collective, group), _SHORTEST_S))
    log_time = np.maximum.accumulate(np.maximum(log_time, log_least))
    stages.append(Stage("at least the speed of light, or a smaller message", log_time))
    below, above = (np.sum([getattr(part, end) for part in band], axis=0) for end in ("below", "above"))
    low = np.maximum.accumulate(np.maximum(log_time - below, log_least))
    share, limit = _latency_share(machine, law, collective, group, log_time)
    return TimeTable(
        log_time,
        np.minimum(low, log_time),
        np.maximum.accumulate(log_time + above),
        float(np.exp(log_time[0])),
        share,
        evidence.astype(np.int8),
        limit,
        anchors,
        max(stack_rank(curve, calibration), weakest) if curve else 0,
        derived.basis,
        tuple(stages),
        tuple(band),
        derived.correction,
    )


def speed_of_light(machine: Machine, collective: str, group: Group) -> Floats:
    """Least times on the grid at the datasheet rates of the links (``speed_of_light_time``) [s]."""
    rates, nvls = (inside_rate(machine), across_rate(machine)), machine.links.nvls
    times = [
        speed_of_light_time(collective, GRID_BYTES, group.gpus, ranks, group.domains, *rates, in_switch=nvls)
        for ranks in (group.domain_gpus, group.smallest_domain_gpus)
    ]
    return np.maximum(*times) if group.domains > 1 else times[0]


def _latency_share(
    machine: Machine,
    law: Law | None,
    collective: str,
    group: Group,
    log_time: Floats,
) -> tuple[Floats, Codes]:
    """Share of the time at each size that no link rate would shorten, and what the time depends on most.

    By the law: 1 - sum of |d ln t / d ln rate|, the latency over the time for the protocol in use. Without a
    law: the time of the smallest message over the time.
    """
    across = group.domains > 1
    if law is None:
        share = np.exp(log_time[0] - log_time)
        codes = np.where(share < 0.5, 2, 1) + (2 if across else 0)
        return share, np.asarray(codes, np.int8)
    shares = rate_shares(machine, law, collective, group, GRID_BYTES)
    latency = np.clip(1 - sum(shares.values()), 0, 1)
    columns = np.stack([latency, shares["inside"], shares["across"], shares["protocol"]])
    names = np.array([3 if across else 1, 2, 4, 5], np.int8)
    return np.asarray(latency), np.asarray(names[columns.argmax(axis=0)], np.int8)
