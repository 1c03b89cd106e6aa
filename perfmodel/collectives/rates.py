"""What-if rates of links: the law's rates scale with them, its latencies do not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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


def touches_links(machine: Machine) -> bool:
    """Whether an override changes what collectives run over."""
    return any(key in machine.overrides for key in _LINK_KEYS)


def inside_rate(machine: Machine) -> float:
    """Datasheet rate of the links inside a domain [bytes/s]: the scale-up link, else PCIe."""
    return machine.value("nvlink_bytes_per_s" if machine.nvlink_domain_gpus > 1 else "pcie_bytes_per_s")


def card_rate(machine: Machine) -> float:
    """What the cards of a node give each of its GPUs [bytes/s].

    Limits: other cards alone -> each GPU's share of them;  as many fewer GPUs too -> unchanged;  a rate that
    was set -> that
    """
    rate, changed = machine.value("nic_bytes_per_s"), machine.overrides
    if "nics_per_node" not in changed or "nic_bytes_per_s" in changed:
        return rate
    share = machine.value("nics_per_node") / machine.original("nics_per_node")
    if "gpus_per_node" in changed:
        share *= machine.original("gpus_per_node") / machine.value("gpus_per_node")
    return rate * share


def across_rate(machine: Machine) -> float:
    """Rate of one GPU towards other domains [bytes/s]: its share of the cards.

    An overridden PCIe bounds it. The shipped PCIe does not: a faster card comes with a bus that feeds it.
    """
    card = card_rate(machine)
    return min(card, machine.value("pcie_bytes_per_s")) if "pcie_bytes_per_s" in machine.overrides else card


def scaled_unknowns(log_unknowns: Floats, law: Law, machine: Machine, measured_on: Machine) -> Floats:
    """Unknowns with rates multiplied by this machine's link rates over those of the measured machine.

    Floor and bandwidth scale apart: no latency changes. Limits: same rates -> unchanged
    """
    ratios = {
        "inside": inside_rate(machine) / inside_rate(measured_on),
        "across": across_rate(machine) / across_rate(measured_on),
    }
    shifts = [np.log(ratios.get(each.rate, 1.0)) for each in LINK_LAWS[law.law].unknowns]
    return np.asarray(log_unknowns + np.array(shifts, float))


def rate_shift(
    machine: Machine, measured_on: Machine, law: Law, collective: str, group: Group, payload_bytes: Floats
) -> Floats:
    """Change of ln t that the law sees from the machine that was measured to this one.

    Limits: the same machine -> 0;  small messages -> change of the steps alone;  large -> of the rates alone
    """
    priors = load_priors()
    before = np.log(np.array(law.values))
    after = scaled_unknowns(before, law, machine, measured_on)
    own, theirs = step_constants(machine, priors), step_constants(measured_on, priors)
    time_at = LINK_LAWS[law.law].time_at
    new = time_at(after, own, collective, group, payload_bytes)
    old = time_at(before, theirs, collective, group, payload_bytes)
    return np.asarray(np.log(new / old))


def rate_shares(
    machine: Machine, law: Law, collective: str, group: Group, payload_bytes: Floats
) -> dict[str, Floats]:
    """- d ln t / d ln rate for the rates inside a domain, across domains, and of the slow protocol.

    1 where the time is all bytes over that rate, 0 where the rate does not matter; the rest is latency.
    """
    measured_on = machine.unchanged()
    steps = step_constants(machine, load_priors())
    centre = scaled_unknowns(np.log(np.array(law.values)), law, machine, measured_on)
    shares, link_law = {}, LINK_LAWS[law.law]
    for kind in ("inside", "across", "protocol"):
        step = np.array([_STEP if each.rate == kind else 0.0 for each in link_law.unknowns])
        up, down = (
            link_law.time_at(centre + sign * step, steps, collective, group, payload_bytes)
            for sign in (1, -1)
        )
        shares[kind] = np.asarray(np.log(down / up) / (2 * _STEP))
    return shares
