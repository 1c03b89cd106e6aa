"""All sizes of one collective on one group of ranks: time, 95 % band, floor, evidence.

A table of times holds logarithms on a grid of sizes, eight per octave, so that a million sizes are read in
milliseconds. Between grid points ln t is linear in ln S. The two ends of the band come from a table of data,
which whole operators left out fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.derivation import Calibrated, Correction, curve_time, derive_time, rank_stack
from perfmodel.collectives.link_laws import (
    GRID_BYTES,
    GRID_LOG2,
    compute_law_time,
    compute_least_times,
    find_rate_shares,
    touches_links,
)
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Law
from perfmodel.schema.evidence import RING_BACKENDS, Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]

LIMITS = ("", "link latency", "link rate", "network latency", "NIC rate")
_ROUNDING = 2e-3  # logs round sizes
_Z95 = 1.96
_SHORTEST_S = 1e-12  # ranks without links between them have a light time of 0, whose logarithm does not exist


class BandPart(NamedTuple):
    """A part of a band and its reason (``what``): how far ln t may be below and above, on the grid of sizes.

    The parts of a band add up.
    """

    what: str
    below: Floats
    above: Floats


@dataclass(frozen=True)
class TimeTable:
    """Times of one group of ranks on the grid of sizes, as logarithms.

    log_time, log_low, log_high  ln of the time and of the ends of its 95 % interval
    floor_share  share of the time that is latency;  evidence  its rank at each size
    limit        what the time depends on most, as an index into ``LIMITS``
    anchors      measured sizes, and ``anchor_evidence`` of their times
    stages, correction  how the times were derived (``Derivation``);  band  parts of the interval
    """

    log_time: Floats
    log_low: Floats
    log_high: Floats
    floor_share: Floats
    evidence: Codes
    limit: Codes
    anchors: Floats
    anchor_evidence: int
    stages: tuple[tuple[str, Floats], ...]
    band: tuple[BandPart, ...]
    correction: Correction | None

    def at(self, column: Floats, payload_bytes: float) -> float:
        """Value of a column of the grid at one size, interpolated as in ``read``."""
        return float(np.interp(np.log2(max(payload_bytes, 1.0)), GRID_LOG2, column))

    def read(self, payload_bytes: Floats) -> tuple[Floats, Floats, Floats, Floats, Codes, Codes]:
        """(time_s, low_s, high_s, floor_s, evidence, limit) of each size; limit  an index into LIMITS."""
        place = np.interp(np.log2(payload_bytes), GRID_LOG2, np.arange(GRID_LOG2.size))
        left = place.astype(np.int64)
        weight = place - left
        right = left + weight.astype(bool)

        def interpolate(column: Floats) -> Floats:
            """A column of the grid at each size, linear between two points."""
            return np.asarray(column[left] + weight * (column[right] - column[left]))

        evidence = np.maximum(self.evidence[left], self.evidence[right])
        if self.anchors.size:
            nearest = np.searchsorted(np.sqrt(self.anchors[1:] * self.anchors[:-1]), payload_bytes)
            exact = np.isclose(payload_bytes, self.anchors[nearest], rtol=_ROUNDING)
            evidence = np.where(exact, np.int8(self.anchor_evidence), evidence).astype(np.int8)
        time = np.exp(interpolate(self.log_time))
        low = np.exp(interpolate(self.log_low))
        high = np.exp(interpolate(self.log_high))
        return time, low, high, time * interpolate(self.floor_share), evidence, self.limit[left]


def build_table(base: Calibrated, machine: Machine, collective: str, group: Group) -> TimeTable:
    """The time table of one collective on several ranks, for every size.

    base  the calibration, and where it was measured;  machine  where the collective runs
    The times are those of ``derive_time``, moved to the links of ``machine``.
    Limits: neither measured curves nor a law -> NoCalibrationError
    """
    calibration = base.calibration
    curve = calibration.curve(collective, group.gpus, group.domain_gpus)
    derived = derive_time(base, collective, group)
    borrowed = base.machine.name != machine.name
    changed = touches_links(machine)
    weakest = Evidence.ASSUMED.rank if changed else Evidence.TRANSFERRED.rank if borrowed else 0
    stages, moved = _move_to_links(base, machine, collective, group, bool(weakest))
    log_light = np.log(np.maximum(compute_least_times(machine, collective, group), _SHORTEST_S))
    # First the bound, then the running maximum: a bound that binds at small sizes lifts larger ones as well.
    log_time = np.maximum.accumulate(np.maximum(stages[-1][1], log_light))
    band = build_band(base.machine, calibration, collective, group, derived.measured)
    band += widen_band(machine, calibration, borrowed=borrowed, changed=changed and moved)
    below = np.sum([piece.below for piece in band], axis=0)
    above = np.sum([piece.above for piece in band], axis=0)
    low = np.maximum.accumulate(np.maximum(log_time - below, log_light))
    share, limit = find_latency_share(machine, calibration.law(collective), collective, group, log_time)
    return TimeTable(
        log_time=log_time,
        log_low=np.minimum(low, log_time),
        log_high=np.maximum.accumulate(log_time + above),
        floor_share=share,
        evidence=np.maximum(derived.evidence, weakest).astype(np.int8),
        limit=limit,
        anchors=np.array(curve.anchor_bytes if curve else []),
        anchor_evidence=max(rank_stack(curve, calibration), weakest) if curve else weakest,
        stages=(*stages, ("at least the speed of light, or a smaller message", log_time)),
        band=tuple(band),
        correction=derived.correction,
    )


def _move_to_links(
    base: Calibrated, machine: Machine, collective: str, group: Group, other_links: bool
) -> tuple[list[tuple[str, Floats]], bool]:
    """(stages of ln t on this machine's links, whether it moved), not below what one domain needs.

    Other links change a time as they change the law: small messages with the steps, large with the rates.
    A ring passes all of S through each domain, as if there were one domain; an all-to-all keeps S (g - 1)/G
    inside, the bytes of g ranks with a payload of S g/G. Source: docs/model.md#how-a-time-is-found
    """
    law = base.calibration.law(collective) if other_links else None

    def shift(ranks: Group, sizes: Floats) -> Floats:
        """ln(law's time of ``ranks`` on this machine / on the measured one) at ``sizes``; 0 without a law."""
        if law is None:
            return np.zeros(sizes.size)
        question = base.machine, collective, ranks, sizes
        times = [compute_law_time(law, where, *question) for where in (machine, base.machine)]
        return np.asarray(np.log(times[0] / times[1]))

    change = shift(group, GRID_BYTES)
    stages = [*derive_time(base, collective, group).stages]
    if law is not None:
        stages.append(("links of this machine for those that were measured", stages[-1][1] + change))
    inside = base.calibration.curve(collective, group.domain_gpus, group.domain_gpus)
    if inside and not base.calibration.curve(collective, group.gpus, group.domain_gpus):
        sizes = GRID_BYTES * (group.domain_gpus / group.gpus if collective == "all_to_all" else 1.0)
        shortest = np.log(curve_time(inside, sizes)) + shift(Group.of(inside.gpus, inside.gpus), sizes)
        stages.append(("at least what the ranks of one domain need", np.maximum(stages[-1][1], shortest)))
    return stages, law is None or bool(change.any())


def find_latency_share(
    machine: Machine, law: Law | None, collective: str, group: Group, log_time: Floats
) -> tuple[Floats, Codes]:
    """(share of the time at each size that no link rate shortens, index into LIMITS of what counts most).

    By the law: 1 - sum of |d ln t / d ln rate|, the latency over the time for the protocol in use. Without a
    law: the time of the smallest message over the time.
    """
    across = group.domains > 1
    if law is None:
        share = np.exp(log_time[0] - log_time)
        codes = 1 + np.argmax([share, 1 - share], axis=0) + (2 if across else 0)
        return share, np.asarray(codes, np.int8)
    shares = find_rate_shares(law, machine, collective, group)
    latency = np.clip(1 - sum(shares.values()), 0, 1)
    columns = np.stack([latency, shares["inside"], shares["across"]])
    names = np.array([3 if across else 1, 2, 4], np.int8)
    return np.asarray(latency), np.asarray(names[columns.argmax(axis=0)], np.int8)


def name_links(machine: Machine, *, across: bool) -> str:
    """Name of the links in the table of bands (``data/priors/bands.toml``): inside a domain, or across."""
    if across:
        return "slingshot" if machine.links.network == "slingshot" else "network"
    if machine.nvlink_domain_gpus <= 1:
        return "pcie"
    return "nvl72" if machine.nvlink_domain_gpus > machine.gpus_per_node else "nvlink"


def build_band(
    machine: Machine, calibration: Calibration, collective: str, group: Group, measured: Bools
) -> list[BandPart]:
    """The band of a group of ranks on the machine that was measured, on the grid of sizes.

    measured  sizes whose time comes from a measured cell of these ranks, or from two around them
    A measured time of this very cluster has the error of its curve (``find_curve_errors``). Of a cluster like
    it, and where a law takes over, the band is how far whole operators were that no fit had seen
    (``data/priors/bands.toml``). A law's grows with each doubling of domains, inside one of ranks, beyond the
    largest that was measured.
    """
    across = group.domains > 1
    priors = load_priors()
    table = priors.bands
    links = name_links(machine, across=across)
    is_own = calibration.this_cluster
    classes = np.searchsorted(table.edges_bytes, GRID_BYTES, side="right")  # of each size of the grid
    cells = [c for c in calibration.curves if (c.gpus > c.domain_gpus) == across]
    alike = [c for c in cells if c.collective == collective]
    row = table.find(links, this_cluster=is_own and bool(cells), law=True)
    reason = f"a law, on clusters of {len(row.operators)} operators"
    reason = "a law, on more GPUs of a measured cluster" if row.this_cluster else reason
    ends = np.array([row.below, row.above])[:, classes]  # of ln t, [2, sizes]
    if measured.any():
        near = table.find(links, this_cluster=False, law=False)
        measured_ends = np.array([near.below, near.above])[:, classes]
        cause = f"measured, on clusters of {len(near.operators)} operators"
        if is_own:
            curve = calibration.curve(collective, group.gpus, group.domain_gpus)
            errors = [
                find_curve_errors(np.array(c.anchor_bytes), c.left_out_log_sd, c.anchor_log_sd, GRID_BYTES)
                for c in ([curve] if curve else alike)
            ]
            measured_ends = np.max(errors, axis=0)
            cause = "a size left out of its measured curve"
        ends = np.where(measured, measured_ends, ends)
        reason = cause if measured.all() else f"{cause}; beyond its sizes {reason}"
    law = calibration.law(collective)
    learned = priors.learned_of(law.law, machine.network_priors) if law and across and not is_own else None
    counts = [Group.of(c.gpus, c.domain_gpus).domains if across else c.gpus for c in alike]
    farthest = np.maximum(learned.domains if learned else np.ones(len(table.classes)), max([*counts, 2]))
    beyond = (group.domains if across else group.gpus) / farthest  # by class of sizes
    doublings = np.log2(np.maximum(beyond, 1))[classes] * ~measured
    parts = [BandPart(reason, *ends)]
    if doublings.any():
        reason = f"more {'domains' if across else 'GPUs'} than were measured, for each doubling"
        growth = np.array([table.growth.below, table.growth.above])[:, classes]
        parts.append(BandPart(reason, *(doublings * growth)))
    return parts


def find_curve_errors(
    anchor_bytes: Floats, left_out_log_sd: npt.ArrayLike, anchor_log_sd: float, payload_bytes: npt.ArrayLike
) -> Floats:
    """How far ln t of a cluster's own curve may be: its scatter, and sizes left out in turn.

    left_out_log_sd  error of each measured size, left out; empty: too few sizes to leave one out
    """
    noise = load_priors().uncertainty
    errors = np.asarray(left_out_log_sd, float)
    errors = errors if errors.size else np.full(anchor_bytes.size, noise.unknown_left_out_log_sd)
    near = np.interp(np.log2(payload_bytes), np.log2(anchor_bytes), errors)
    return np.asarray(_Z95 * np.hypot(max(noise.least_log_sd, anchor_log_sd), near))


def widen_band(
    machine: Machine, calibration: Calibration, *, borrowed: bool, changed: bool
) -> list[BandPart]:
    """Parts that make a band wider because nobody measured these links.

    borrowed  whether the calibration is of another machine;  changed  whether rates were typed (``--set``)
    """
    noise = load_priors().uncertainty
    parts = []
    if borrowed or changed:
        reason = "links that nobody measured" if changed else f"links of {calibration.machine} for these"
        parts.append((reason, noise.unseen_log_sd))
    if borrowed and calibration.backend in RING_BACKENDS and calibration.backend is not machine.ring_backend:
        parts.append(("another library's measurements", noise.other_library_log_sd))
    wide = _Z95 * np.ones(GRID_BYTES.size)
    return [BandPart(reason, log_sd * wide, log_sd * wide) for reason, log_sd in parts]
