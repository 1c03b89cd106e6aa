"""The 95 % band of a collective: two ends from one table of data, which whole operators left out fill."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.link_laws import GRID_BYTES, GRID_LOG2
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve
from perfmodel.schema.evidence import RING_BACKENDS
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_Z95 = 1.96


class BandPart(NamedTuple):
    """A part of a band and its reason (``what``): how far ln t may be below and above, on the grid of sizes.

    The parts of a band add up.
    """

    what: str
    below: Floats
    above: Floats


def name_links(machine: Machine, *, across: bool) -> str:
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
    A measured time of this very cluster has the error of its curve (``find_curve_errors``). Of a cluster like
    it, and where a law takes over, the band is how far whole operators were that no fit had seen
    (``data/priors/bands.toml``). A law's grows with each doubling of domains, inside one of ranks, beyond the
    largest that was measured.
    """
    across, priors, is_own = group.domains > 1, load_priors(), calibration.this_cluster
    table, links = priors.bands, name_links(machine, across=across)
    classes = np.searchsorted(table.edges_bytes, GRID_BYTES, side="right")
    cells = [c for c in calibration.curves if (c.gpus > c.domain_gpus) == across]
    alike = [c for c in cells if c.collective == collective]
    row = table.find(links, this_cluster=is_own and bool(cells), law=True)
    reason = f"a law, on clusters of {len(row.operators)} operators"
    reason = "a law, on more GPUs of a measured cluster" if row.this_cluster else reason
    ends = np.array([row.below, row.above])[:, classes]
    if measured.any():
        near = table.find(links, this_cluster=False, law=False)
        measured_ends = np.array([near.below, near.above])[:, classes]
        cause = f"measured, on clusters of {len(near.operators)} operators"
        if is_own:
            curve = calibration.curve(collective, group.gpus, group.domain_gpus)
            measured_ends = np.max([find_curve_errors(c) for c in ([curve] if curve else alike)], axis=0)
            cause = "a size left out of its measured curve"
        ends = np.where(measured, measured_ends, ends)
        reason = cause if measured.all() else f"{cause}; beyond its sizes {reason}"
    law = calibration.law(collective)
    learned = priors.learned_of(law.law, machine.network_priors) if law and across and not is_own else None
    counts = [Group.of(c.gpus, c.domain_gpus).domains if across else c.gpus for c in alike]
    farthest = np.maximum(learned.domains if learned else 1.0, max([*counts, 2])) * np.ones(
        len(table.classes)
    )
    beyond = (group.domains if across else group.gpus) / farthest
    doublings = np.log2(np.maximum(beyond, 1))[classes] * ~measured
    parts = [BandPart(reason, *ends)]
    if doublings.any():
        reason = f"more {'domains' if across else 'GPUs'} than were measured, for each doubling"
        growth = np.array([table.growth.below, table.growth.above])[:, classes]
        parts.append(BandPart(reason, *(doublings * growth)))
    return parts


def find_curve_errors(curve: Curve) -> Floats:
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
    wide = _Z95 * np.ones(GRID_BYTES.size)
    return [BandPart(reason, log_sd * wide, log_sd * wide) for reason, log_sd in parts]
