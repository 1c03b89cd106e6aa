"""Rates of the links of rings, after protocol overhead."""

from __future__ import annotations

from perfmodel.model import collectives as parts
from perfmodel.model.recording import Number
from perfmodel.model.unknowns import Group, StepConstants, Unknowns


def ring_rate(u: Unknowns, nccl: StepConstants, group: Group) -> Number:
    """Bus bandwidth of a ring; the domain that is filled last has the fewest network cards, and limits it."""
    shape = (group.smallest_domain_gpus, group.domains, nccl.rate_sharpness)
    return parts.ring_bus_bandwidth(u["link_bytes_per_s"], u["nic_bytes_per_s"], *shape)


def protocol_part(u: Unknowns, nccl: StepConstants, group: Group, protocol: str, ring_rate: Number) -> Number:
    """Fraction of the link rate that a protocol reaches: LL and LL128 send flags, Simple does not.

    Across domains LL has its own rate, whatever the cards: it waits for each line of 8 bytes.
    Source: NVIDIA/nccl src/graph/tuning.cc (busBw per protocol)
    Limits: Simple -> 1;  LL, one domain -> ``ll_fraction``
    """
    if protocol == "Simple":
        return 1.0
    if protocol == "LL128":
        return u["ll128_fraction"]
    if group.domains == 1:
        return u["ll_fraction"]
    alone = u["ll_network_bytes_per_s"] / ring_rate
    return parts.join_rates(u["ll_fraction"], alone, nccl.rate_sharpness)
