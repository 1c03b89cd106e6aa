"""The 95 % band of a collective: two ends from one table of data, which whole operators left out fill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.link_laws import GRID_BYTES, GRID_LOG2
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve
from perfmodel.schema.evidence import RING_BACKENDS
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import Ends, load_priors

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_Z95 = 1.96


@dataclass(frozen=True)
class BandPart:
    """A part of a band and its reason (``what``): how far ln t may be below and above, on the grid of sizes.

    The parts of a band add up.
    """

    what: str
    below: Floats
    above: Floats


def links_of(machine: Machine, *, across: bool) -> str:
    """Name of the links in the table of bands: a network, or what joins the GPUs of a domain."""
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
    A measured time of this very cluster has the error of its curve (``curve_errors``). Of a cluster like it,
    and where a law takes over, the band is how far whole operators were that no fit had seen
    (``data/priors/bands.toml``). A law's grows with each doubling of domains, inside one of ranks, beyond the
    largest that was measured.
    """
    across, priors = group.domains > 1, load_priors()
    links, table = links_of(machine, across=across), priors.bands
    classes = np.searchsorted(table.edges_bytes, GRID_BYTES, side="right")

    def read(ends: Ends) -> Floats:
        return np.array([ends.below, ends.above])[:, classes]

    cells = [c for c in calibration.curves if (c.gpus > c.domain_gpus) == across]
    alike = [c for c in cells if c.collective == collective]
    of_cluster = calibration.this_cluster and bool(cells)
    row = table.find(links, this_cluster=of_cluster, law=True)
    reason = (
        "a law, on more GPUs of a measured cluster"
        if of_cluster
        else f"a law, on clusters of {len(row.operators)} operators"
    )
    ends = read(row)
    if measured.any():
        near = table.find(links, this_cluster=False, law=False)
        measured_ends, cause = read(near), f"measured, on clusters of {len(near.operators)} operators"
        if calibration.this_cluster:
            curve = calibration.curve(collective, group.gpus, group.domain_gpus)
            measured_ends = np.max([curve_errors(c) for c in ([curve] if curve else alike)], axis=0)
            cause = "a size left out of its measured curve"
        ends = np.where(measured, measured_ends, ends)
        reason = cause if measured.all() else f"{cause}; beyond its sizes {reason}"
    law = calibration.law(collective)
    learned = priors.learned_of(law.law, machine.network_priors) if law and across else None
    shared = learned.domains if learned and not calibration.this_cluster else [1.0]
    counts = [Group.of(c.gpus, c.domain_gpus).domains if across else c.gpus for c in alike]
    farthest = np.maximum(shared, max([*counts, 2])) * np.ones(len(table.classes))
    doublings = (
        np.log2(np.maximum((group.domains if across else group.gpus) / farthest, 1))[classes] * ~measured
    )
    parts = [BandPart(reason, *ends)]
    if doublings.any():
        reason = f"more {'domains' if across else 'GPUs'} than were measured, for each doubling"
        parts.append(BandPart(reason, *(doublings * read(table.growth))))
    return parts


def curve_errors(curve: Curve) -> Floats:
    """How far ln t of a cluster's own curve may be, on the grid: its scatter, and sizes left out in turn."""
    sizes, noise = np.array(curve.anchor_bytes), load_priors().uncertainty
    left_out = curve.left_out_log_sd or [noise.unknown_left_out_log_sd] * sizes.size
    near = np.interp(GRID_LOG2, np.log2(sizes), left_out)
    return _Z95 * np.hypot(max(noise.least_log_sd, curve.anchor_log_sd), near)


def widen_band(
    machine: Machine, calibration: Calibration, *, borrowed: bool, changed: bool
) -> list[BandPart]:
    """Parts that make a band wider because nobody measured these links.

    borrowed  whether the calibration is of another machine;  changed  whether rates were typed (``--set``)
    """
    noise, parts = load_priors().uncertainty, []
    if borrowed or changed:
        reason = "links that nobody measured" if changed else f"links of {calibration.machine} for these"
        parts.append((reason, noise.unseen_log_sd))
    if borrowed and calibration.backend in RING_BACKENDS and calibration.backend is not machine.ring_backend:
        parts.append(("another library's measurements", noise.other_library_log_sd))
    flat = np.ones(GRID_BYTES.size)
    return [BandPart(reason, _Z95 * log_sd * flat, _Z95 * log_sd * flat) for reason, log_sd in parts]
