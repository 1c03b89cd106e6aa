"""Link rates of a what-if machine: the law's bandwidths scale with them, its latencies do not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.grid import GRID_BYTES
from perfmodel.collectives.stored import step_constants
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Law
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]

_LINK_KEYS = (
    "nvlink_bytes_per_s",
    "pcie_bytes_per_s",
    "nic_bytes_per_s",
    "nics_per_node",
    "gpus_per_node",
    "nvlink_domain_gpus",
)
_STEP = 0.02
"""Share of a time below which an effect is not printed."""


def touches_links(machine: Machine) -> bool:
    """Whether an override of the machine changes a link that collectives use, or nobody makes its domain."""
    return machine.hypothetical or any(key in machine.overrides for key in _LINK_KEYS)


def inside_rate(machine: Machine) -> float:
    """Datasheet rate of the links inside a domain [bytes/s]: scale-up link, or PCIe if there is none."""
    return machine.value("nvlink_bytes_per_s" if machine.nvlink_domain_gpus > 1 else "pcie_bytes_per_s")


def card_rate(machine: Machine) -> float:
    """Network bandwidth per GPU that the cards of a node provide [bytes/s].

    Limits: only the number of cards changed -> each GPU's new share;  cards and GPUs halved -> unchanged; the
    user set the rate -> that rate
    """
    rate, changed = machine.value("nic_bytes_per_s"), machine.overrides
    if "nics_per_node" not in changed or "nic_bytes_per_s" in changed:
        return rate
    share = machine.value("nics_per_node") / machine.original("nics_per_node")
    if "gpus_per_node" in changed:
        share *= machine.original("gpus_per_node") / machine.value("gpus_per_node")
    return rate * share


def across_rate(machine: Machine) -> float:
    """Rate of one GPU to other domains [bytes/s]: its share of the node's network cards.

    An overridden PCIe rate caps it. The shipped PCIe rate does not: a faster card needs a bus to match.
    """
    card = card_rate(machine)
    return min(card, machine.value("pcie_bytes_per_s")) if "pcie_bytes_per_s" in machine.overrides else card


def scaled_unknowns(log_unknowns: Floats, law: Law, machine: Machine, measured_on: Machine) -> Floats:
    """The law's unknowns with each rate multiplied by this machine's link rate over the measured machine's.

    Latencies do not change. Limits: same rates -> unchanged
    """
    ratios = {
        "inside": inside_rate(machine) / inside_rate(measured_on),
        "across": across_rate(machine) / across_rate(measured_on),
    }
    shifts = [np.log(ratios.get(each.rate, 1.0)) for each in LINK_LAWS[law.law].unknowns]
    return np.asarray(log_unknowns + np.array(shifts, float))


def rate_shift(
    machine: Machine,
    own: Calibrated,
    law: Law,
    collective: str,
    group: Group,
    payload_bytes: Floats | None = None,
) -> Floats:
    """By how much ln t changes, according to the law, from the measured machine to this machine.

    own  the measured machine;  payload_bytes  sizes; None: the grid
    Limits: the same machine -> 0;  small messages -> only the steps change;  large -> only the rates change
    """
    after = scaled_unknowns(np.log(np.array(law.values)), law, machine, own.machine)
    steps = step_constants(machine, load_priors())
    sizes = GRID_BYTES if payload_bytes is None else payload_bytes
    new = LINK_LAWS[law.law].time_at(after, steps, collective, group, sizes)
    return np.asarray(np.log(new / own.law_time(law, collective, group, sizes)))


def rate_shares(
    machine: Machine, law: Law, collective: str, group: Group, payload_bytes: Floats
) -> dict[str, Floats]:
    """Elasticities - d ln t / d ln rate by rate: inside a domain, across domains, and of the slow protocol.

    1 where all the time is bytes over that rate, 0 where the rate has no effect; the rest is latency.
    """
    measured_on = machine.unchanged()
    steps = step_constants(machine, load_priors())
    centre = scaled_unknowns(np.log(np.array(law.values)), law, machine, measured_on)
    kinds, link_law = ("inside", "across", "protocol"), LINK_LAWS[law.law]
    moves = _STEP * np.array([[each.rate == kind for each in link_law.unknowns] for kind in kinds])
    moved = np.concatenate([centre - moves, centre + moves])
    slower, faster = np.split(link_law.time_at(moved, steps, collective, group, payload_bytes), 2)
    return dict(zip(kinds, np.log(slower / faster) / (2 * _STEP), strict=True))
