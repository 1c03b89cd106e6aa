"""The laws of collectives on a machine's links: bandwidths scale with the links' rates, latencies do not.

Times are tabulated on a grid of sizes, eight per octave, from 1 byte.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import numpy.typing as npt

from perfmodel.model.collectives import PROTOCOLS, compute_light_time
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group, StepConstants
from perfmodel.schema.calibration import Law
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import Priors, load_priors

Floats = npt.NDArray[np.float64]

PER_OCTAVE = 8
GRID_LOG2 = np.arange(48 * PER_OCTAVE + 1) / PER_OCTAVE
GRID_BYTES = np.exp2(GRID_LOG2)
LARGEST_BYTES = float(GRID_BYTES[-1])

_LINK_RATES = ("nvlink_bytes_per_s", "pcie_bytes_per_s", "nic_bytes_per_s")
_LINK_COUNTS = ("nics_per_node", "gpus_per_node", "nvlink_domain_gpus")
_STEP = 0.02
"""Step of ln rate, up and down, in the difference quotient of a time."""


def touches_links(machine: Machine) -> bool:
    """Whether an override of the machine changes a link that collectives use, or nobody makes its domain."""
    return machine.hypothetical or any(key in machine.overrides for key in _LINK_RATES + _LINK_COUNTS)


def inside_rate(machine: Machine) -> float:
    """Datasheet rate of the links inside a domain [bytes/s]: scale-up link, or PCIe if there is none."""
    return machine.value("nvlink_bytes_per_s" if machine.nvlink_domain_gpus > 1 else "pcie_bytes_per_s")


def card_rate(machine: Machine) -> float:
    """Network bandwidth per GPU that the cards of a node provide [bytes/s].

    Limits: only the number of cards changed -> each GPU's new share;  cards and GPUs halved -> unchanged; the
    user set the rate -> that rate
    """
    rate = machine.value("nic_bytes_per_s")
    if "nics_per_node" not in machine.overrides or "nic_bytes_per_s" in machine.overrides:
        return rate
    share = machine.value("nics_per_node") / machine.original("nics_per_node")
    if "gpus_per_node" in machine.overrides:
        share *= machine.original("gpus_per_node") / machine.value("gpus_per_node")
    return rate * share


def across_rate(machine: Machine) -> float:
    """Rate of one GPU to other domains [bytes/s]: its share of the node's network cards.

    An overridden PCIe rate caps it. The shipped PCIe rate does not: a faster card needs a bus to match.
    """
    card = card_rate(machine)
    return min(card, machine.value("pcie_bytes_per_s")) if "pcie_bytes_per_s" in machine.overrides else card


def compute_least_times(machine: Machine, collective: str, group: Group) -> Floats:
    """Least times on the grid at the datasheet rates of the links (``compute_light_time``) [s]."""
    links = inside_rate(machine), across_rate(machine)
    nvls = machine.links.nvls
    times = [
        compute_light_time(collective, GRID_BYTES, group.gpus, ranks, group.domains, *links, in_switch=nvls)
        for ranks in (group.domain_gpus, group.smallest_domain_gpus)
    ]
    return np.maximum(*times)


def step_constants(machine: Machine, priors: Priors) -> StepConstants:
    """NCCL's constants for this machine's links: scale-up link or PCIe inside, its kind of network across."""
    links = "nvlink" if machine.nvlink_domain_gpus > 1 else "pcie"
    network = priors.network.get(machine.network_priors)
    values = priors.nccl.model_dump() | priors.shape.model_dump()
    values |= {f"{kind}_inside_s": values[f"{links}_{kind}_step_s"] for kind in ("ring", "tree")}
    values |= network.model_dump(exclude_none=True) if network else {}
    triples = {name: value for name, value in values.items() if isinstance(value, list)}  # by protocol
    values |= {name: dict(zip(PROTOCOLS, triple, strict=True)) for name, triple in triples.items()}
    values["has_nvls"] = machine.links.nvls and links == "nvlink"
    return StepConstants(**{field.name: values[field.name] for field in fields(StepConstants)})


def scale_unknowns(law: Law, machine: Machine, measured_on: Machine) -> Floats:
    """ln of a law's unknowns, each rate times this machine's link rate over the measured machine's.

    Latencies do not change. Limits: same rates -> as fitted
    """
    ratios = {
        "inside": inside_rate(machine) / inside_rate(measured_on),
        "across": across_rate(machine) / across_rate(measured_on),
    }
    shifts = [np.log(ratios.get(unknown.rate, 1.0)) for unknown in LINK_LAWS[law.law].unknowns]
    return np.asarray(np.log(np.array(law.values)) + np.array(shifts, float))


def compute_law_time(
    law: Law,
    machine: Machine,
    measured_on: Machine,
    collective: str,
    group: Group,
    payload_bytes: Floats = GRID_BYTES,
    algorithm: str = "",
) -> Floats:
    """Time of a collective by a fitted law on a machine's links [s], at each size.

    measured_on  the machine that the law was fitted on;  algorithm  as of ``LinkLaw.time_at``
    Limits: small messages -> other links change the steps alone;  large -> the rates alone
    """
    unknowns = scale_unknowns(law, machine, measured_on)
    steps = step_constants(machine, load_priors())
    return LINK_LAWS[law.law].time_at(unknowns, steps, collective, group, payload_bytes, algorithm)


def find_rate_shares(law: Law, machine: Machine, collective: str, group: Group) -> dict[str, Floats]:
    """Elasticities - d ln t / d ln rate on the grid: inside a domain, across domains.

    1 where all the time is bytes over that rate, 0 where the rate has no effect; the rest is latency.
    """
    centre = scale_unknowns(law, machine, machine.unchanged())
    link_law = LINK_LAWS[law.law]
    kinds = "inside", "across"
    moves = _STEP * np.array([[unknown.rate == kind for unknown in link_law.unknowns] for kind in kinds])
    moved = np.concatenate([centre - moves, centre + moves])
    steps = step_constants(machine, load_priors())
    slower, faster = np.split(link_law.time_at(moved, steps, collective, group, GRID_BYTES), 2)
    return dict(zip(kinds, np.log(slower / faster) / (2 * _STEP), strict=True))
