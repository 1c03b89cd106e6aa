"""What the laws of collectives add up: candidates of a choice, and the summands of each with their numbers.

The times themselves are those of ``laws``; what is here says what they are made of, for an explanation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.model import collectives
from perfmodel.model.curves import join_power
from perfmodel.model.laws import (
    PAIRWISE,
    RING_TREE,
    Group,
    StepConstants,
    ring_tree_candidates,
)

Floats = npt.NDArray[np.float64]

_KEYS = ("ll", "ll128", "simple")


@dataclass(frozen=True)
class Summand:
    """``count`` times ``each_s``.

    made_of  (unknown, constant [s]): ``each_s`` is their product, of several the rounded maximum; of an
             unknown that is a time itself the constant is 1 s
    """

    symbol: str
    count: float
    each_s: float
    made_of: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Candidate:
    """One (algorithm, protocol) that a library could choose.

    parts      the first is ``base_s``, the others add up to ``hops_s``
    sharpness, choice  as in ``laws.Candidates``;  choices  unknowns in ``choice``
    rates      unknowns in ``bus_bytes_per_s``;  bandwidth  the function of the bus bandwidth
    """

    name: str
    base_s: float
    hops_s: float
    bus_bytes_per_s: float
    sharpness: float
    choice: float
    parts: tuple[Summand, ...]
    rates: tuple[str, ...]
    choices: tuple[str, ...]
    bandwidth: Callable[..., Any]

    @property
    def latency_s(self) -> float:
        """Time of an empty message [s]."""
        return self.base_s + self.hops_s

    def time_s(self, wire_bytes: float) -> float:
        """``collectives.pipelined_time`` of so many bytes on the wire (S f) [s]."""
        moved = wire_bytes / self.bus_bytes_per_s
        return float(collectives.pipelined_time(self.base_s, self.hops_s, moved, self.sharpness))


def choices_of(
    log_unknowns: Floats, steps: StepConstants, collective: str, group: Group
) -> tuple[Candidate, ...]:
    """All that ``laws.ring_tree_time`` chooses from, in the order of ``collectives.algorithms_of``.

    Limits: each one's parts -> its base and hops by ``laws.ring_tree_candidates``
    """
    arrays = ring_tree_candidates(log_unknowns, steps, collective, group)
    unknown = dict(zip(RING_TREE, np.exp(log_unknowns).tolist(), strict=True))
    made = [_ring(unknown, steps, collective, group, k) for k in range(3)]
    functions: list[Callable[..., Any]] = [collectives.ring_bus_bandwidth] * 3
    if collective == "all_reduce":
        made += [_tree(unknown, steps, group, k) for k in range(3)] + [_nvls(unknown, steps, group)]
        functions += [*[collectives.tree_bus_bandwidth] * 3, collectives.nvls_bus_bandwidth]
    names = collectives.algorithms_of(collective, group.gpus, group.domains)
    if "PAT" in names:
        made.append(_pat(unknown, steps, group))
        functions.append(collectives.ring_bus_bandwidth)
    columns = (arrays.base_s, arrays.hops_s, arrays.bus_bytes_per_s, arrays.sharpness, arrays.choice)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    found = zip(names, rows, made, functions, strict=False)
    return tuple(
        Candidate(name, base, hops, wide, q, c, parts, _rates(name, group), _choices(name), function)
        for name, (base, hops, wide, q, c), parts, function in found
    )


def _product(symbol: str, count: float, unknown: dict[str, float], name: str, constant_s: float) -> Summand:
    return Summand(symbol, count, unknown[name] * constant_s, ((name, constant_s),))


def _ring(
    unknown: dict[str, float], steps: StepConstants, collective: str, group: Group, k: int
) -> tuple[Summand, ...]:
    key = _KEYS[k]
    m, n = collectives.ring_steps(collective, group.gpus, group.domains)
    made = [(f"{key}_inside_ratio", float(steps.ring_inside_s[k]))]
    if group.domains > 1:
        made.append((f"{key}_overhead_ratio", float(steps.network_overhead_s[k])))
    products = [unknown[name] * constant for name, constant in made]
    inside = products[0]
    if len(products) > 1:
        inside = float(join_power(products[0], products[1], steps.choice_sharpness))
    crossing = steps.ring_network_s if group.domain_gpus > 1 else steps.tree_network_s
    return (
        _product("base_k", 1, unknown, f"{key}_base_ratio", float(steps.ring_base_s[k])),
        Summand("inside_k", m, inside, tuple(made)),
        _product("network_k", n, unknown, f"{key}_network_ratio", float(crossing[k])),
    )


def _pat(unknown: dict[str, float], steps: StepConstants, group: Group) -> tuple[Summand, ...]:
    depth, network = collectives.tree_depth(group.domains), float(steps.ring_network_s[-1])
    return (
        _product("base_k", 1, unknown, "simple_base_ratio", steps.pat_base_s),
        _product("rank_k", group.domains, unknown, "simple_network_ratio", steps.pat_rank_s),
        _product("network_k", depth, unknown, "simple_network_ratio", network / steps.pat_overlap),
    )


def _tree(unknown: dict[str, float], steps: StepConstants, group: Group, k: int) -> tuple[Summand, ...]:
    key, depth = _KEYS[k], collectives.tree_depth(group.domains)
    levels = 2 * (group.domain_gpus - 1)
    return (
        _product("base_k", 1, unknown, f"{key}_base_ratio", float(steps.tree_base_s[k])),
        _product("inside_k", levels, unknown, f"{key}_inside_ratio", float(steps.tree_inside_s[k])),
        _product("network_k", 2 * depth, unknown, f"{key}_network_ratio", float(steps.tree_network_s[k])),
    )


def _nvls(unknown: dict[str, float], steps: StepConstants, group: Group) -> tuple[Summand, ...]:
    depth = collectives.tree_depth(group.domains)
    return (
        _product("base_k", 1, unknown, "nvls_ratio", steps.nvls_s),
        _product("inside_k", group.domain_gpus, unknown, "nvls_head_s", 1.0),
        _product("network_k", 2 * depth, unknown, "nvls_tree_ratio", steps.nvls_tree_step_s),
    )


def _rates(name: str, group: Group) -> tuple[str, ...]:
    """Unknowns of the bus bandwidth of an algorithm."""
    algorithm, _, protocol = name.partition(" ")
    several = group.domains > 1
    found = ["nvls_bytes_per_s", "nvls_bus_bytes_per_s"] if algorithm == "NVLS" else ["link_bytes_per_s"]
    found += ["nic_bytes_per_s"] if several else []
    found += ["tree_fraction"] if algorithm == "tree" else []
    found += ["nvls_tree_fraction"] if algorithm == "NVLS" and group.domains > 2 else []
    if protocol == "LL":
        found += ["ll_fraction"] if not several else ["ll_fraction", "ll_network_bytes_per_s"]
    return (*found, "ll128_fraction") if protocol == "LL128" else tuple(found)


def _choices(name: str) -> tuple[str, ...]:
    """Unknowns of what NCCL expects of an algorithm over what it gets."""
    algorithm, _, protocol = name.partition(" ")
    if algorithm in ("NVLS", "PAT"):
        return ("nvls_choice_ratio" if algorithm == "NVLS" else "simple_choice_ratio",)
    own = (f"{protocol.lower()}_choice_ratio",) if protocol != "LL" else ()
    return (*own, "tree_choice_ratio") if algorithm == "tree" else own


@dataclass(frozen=True)
class PairwiseParts:
    """What ``laws.pairwise_time`` adds up at one size.

    parts  add up to the latency;  rendezvous  the unknown r;  rho  ``collectives.rendezvous_share`` [-]
    rates  unknowns of the time of the bytes
    """

    parts: tuple[Summand, ...]
    rendezvous: str
    rho: float
    rates: tuple[str, ...]


def pairwise_parts(
    log_unknowns: Floats, steps: StepConstants, group: Group, payload_bytes: float
) -> PairwiseParts:
    """The summands of a pairwise exchange.

    Limits: parts -> ``collectives.pairwise_latency``;  one domain -> no remote peers
    """
    unknown = dict(zip(PAIRWISE, np.exp(log_unknowns).tolist(), strict=True))
    several, g = group.domains > 1, group.domain_gpus
    rows = [("a0", 1, "launch_s"), ("a1", g - 1, "peer_s")]
    if several:
        r = -(-(group.domains - 1) // steps.p2p_channels)
        rows += [("c", r, "network_s"), ("b", r * g, "node_peer_s"), ("a2", group.gpus - g, "remote_peer_s")]
    rho = float(collectives.rendezvous_share(payload_bytes, group.gpus, steps.rendezvous_half_bytes))
    return PairwiseParts(
        tuple(_product(symbol, count, unknown, name, 1.0) for symbol, count, name in rows),
        "rendezvous_s" if several else "link_rendezvous_s",
        rho,
        ("link_bytes_per_s", *(("nic_bytes_per_s", "remote_peer_bytes_per_s") if several else ())),
    )
