"""Rates of the links of rings and trees, after protocol overhead and after the switches above the pods."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.model import collectives as parts
from perfmodel.model import fabric as above
from perfmodel.model.recording import Number, ceil_ratio, named, smaller
from perfmodel.model.unknowns import Group, StepConstants, Unknowns


def ring_rate(u: Unknowns, nccl: StepConstants, group: Group) -> Number:
    """Bus bandwidth of a ring; the domain that is filled last has the fewest network cards, and limits it."""
    shape = (group.smallest_domain_gpus, group.domains, nccl.rate_sharpness)
    rate = parts.ring_bus_bandwidth(u["link_bytes_per_s"], u["nic_bytes_per_s"], *shape)
    return named("B_ring", rate_above(rate, u, nccl, group), "rate of the ring's links")


def rate_above(
    rate: Number,
    u: Unknowns,
    nccl: StepConstants,
    group: Group,
    copies: Callable[[Number], Number] | None = None,
) -> Number:
    """The bus bandwidth, reduced where the uplinks of pods cannot carry it (``fabric.uplink_rate``).

    rate    bus bandwidth below the pods;  u  unknowns of the law;  nccl  constants of the library
    copies  bytes that a pod sends up, relative to a ring's, as a function of the pod's domains; None: a ring
    Limits: one pod, or no ratio above 1 -> the rate
    """
    for level in nccl.fabric.crossed(group.domains):
        if level.ratio > 1:
            up = above.uplink_rate(u["nic_bytes_per_s"], group.domain_gpus, level.domains, level.ratio)
            up = named(f"B_{level.name}", up, f"rate of the links above a {level.name}")
            rate = smaller(rate, up if copies is None else up / copies(level.domains))
    return rate


def tree_rate_above(rate: Number, u: Unknowns, nccl: StepConstants, group: Group) -> Number:
    """``rate_above`` for trees, where a pod sends up ``fabric.tree_crossings`` copies of the payload."""
    wire = parts.bus_factor("all_reduce", group.gpus)
    return rate_above(rate, u, nccl, group, lambda pod: above.tree_crossings(group.domains, pod) / wire)


def switch_time(nccl: StepConstants, group: Group, crossings: Callable[[Number], Number]) -> Number:
    """Latency of the switches above the pods on dependent steps: two more switches per crossing of a level.

    crossings  number of steps that cross, as a function of the number of pods
    Limits: one pod, or no time for a switch -> 0
    """
    added: Number = 0.0
    for level in nccl.fabric.crossed(group.domains) if nccl.fabric.hop_s > 0 else ():
        pods = named(f"N_{level.name}", ceil_ratio(group.domains, level.domains), f"{level.name}s")
        added = 2 * nccl.fabric.hop_s * crossings(pods) + added
    return added


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
    return named(
        "part_k", parts.join_rates(u["ll_fraction"], alone, nccl.rate_sharpness), "part of that rate"
    )
