"""How many GPUs a tier below the HBM needs, and how large a cache their HBM holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import capacity, sharding
from perfmodel.project.costs import Forward
from perfmodel.project.fitting import fewest, gpu_memory
from perfmodel.project.inputs import Configs
from perfmodel.schema.limits import limits_of
from perfmodel.schema.machine import Machine
from perfmodel.schema.tiers import SSD, UVM, Tier
from perfmodel.units import counted, format_bytes, format_fraction

Array = NDArray[np.float64]


def tier_bytes(machine: Machine, tier: Tier) -> float:
    """Of a node. Limits: a machine that does not say it -> BadInputError"""
    return machine.value("ssd_bytes" if tier.kind == SSD else "host_bytes")


def check_tier(tier: Tier, memory: object, given: Mapping[str, Any]) -> None:
    """Refuse what a tier excludes: one local memory, tables whose size nobody says."""
    if memory is not None:
        raise BadInputError(
            f"--tier {tier} and --local-memory would both hold all rows.", "leave one of them out."
        )
    if all(given.get(name) is None for name in ("table_bytes", "tables", "workload")):
        raise BadInputError(
            f"--tier {tier} needs the size of the tables.", "give --table-size or --model with it."
        )


def without_hbm(machine: Machine) -> Machine:
    """The machine as tables in a tier below see it: its HBM refuses none of them."""
    most = limits_of("machine")["hbm_bytes"].most
    room = machine.quantity("hbm_bytes").model_copy(update={"value": most})
    return machine.model_copy(update={"values": {**machine.values, "hbm_bytes": room}})


def placed(forward: Forward, work: Configs, node: int) -> Configs:
    """The configurations with the GPUs that they need and the share of the rows that their HBM caches.

    node  GPUs of a node
    One node has its whole tier for however few of its GPUs; more tables need more nodes, whole ones.
    Limits: too few GPUs for the tier, a cache that the HBM has no room for -> BadInputError
    """
    tier, machine = forward.tier, forward.setting.machine
    if tier is None:
        return work
    room = tier_bytes(machine, tier)
    nodes = np.maximum(np.ceil(work.table_bytes / room * (1 - 2 * np.finfo(np.float64).eps)), 1)
    needed = np.where(nodes > 1, nodes * node, 1.0)
    share = np.full(work.gpus.shape, tier.cached or 0.0)
    if work.given_gpus:
        _check_nodes(work, nodes, node, room, tier)
        found = replace(work, needed=np.minimum(needed, work.gpus), cached=share)
    else:
        start = replace(work, needed=needed, cached=share)
        needed = fewest(forward, start, node)
        gpus = np.maximum(sharding.whole_nodes(needed, np.float64(node)), needed)
        found = replace(start, needed=needed, gpus=gpus)
    return _cached(forward, found, tier)


def _check_nodes(work: Configs, nodes: Array, node: int, room: float, tier: Tier) -> None:
    few = np.ceil(work.gpus / node) < nodes
    if few.any():
        at = int(np.argmax(few))
        size, each = (format_bytes(x, binary=False) for x in (work.table_bytes[at], room))
        raise BadInputError(
            f"{size} of tables need {counted(int(nodes[at]), 'node')} of {each} of {tier.place}; "
            f"{counted(int(work.gpus[at]), 'GPU')} are in {int(np.ceil(work.gpus[at] / node))}.",
            f"use at least {int((nodes[at] - 1) * node + 1)} GPUs, fewer a node (--gpus-per-node), or a "
            "smaller --table-size.",
        )


def _cached(forward: Forward, work: Configs, tier: Tier) -> Configs:
    """With the share that fits where nobody gave one; else that share, refused where it does not fit."""
    rows = gpu_memory(forward, replace(work, cached=np.ones(work.gpus.shape))).rows_bytes
    left = work.usable_bytes - gpu_memory(forward, work).buffer_bytes
    fits = np.minimum(left / rows, 1.0)
    if tier.kind == UVM:
        return work
    share = fits if tier.cached is None else np.full(rows.shape, tier.cached)
    none = (fits <= 0) | ~capacity.fits(share * rows, np.maximum(left, 0.0))
    if none.any():
        at = int(np.argmax(none))
        cache, usable, buffers = (
            format_bytes(x, binary=False)
            for x in (share[at] * rows[at], work.usable_bytes, work.usable_bytes - left[at])
        )
        most = f"at most {format_fraction(float(np.floor(1000 * fits[at]) / 1000))} fits here"
        raise BadInputError(
            f"a cache of {format_fraction(float(share[at]))} of the rows is {cache} a GPU, above the "
            f"{usable} of its HBM less {buffers} of exchange buffers.",
            f"{most}; or more GPUs, a smaller --batch or --reserve."
            if fits[at] > 0
            else "a smaller --batch.",
        )
    return replace(work, cached=share)
