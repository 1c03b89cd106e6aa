"""Number of GPUs that a tier below the HBM needs, and size of the cache that their HBM holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import capacity, sharding
from perfmodel.projections.costs import Forward
from perfmodel.projections.fitting import fewest, gpu_memory
from perfmodel.projections.inputs import Configs
from perfmodel.schema.limits import limits_of
from perfmodel.schema.machine import Machine
from perfmodel.schema.tiers import SSD, UVM, Tier
from perfmodel.units import counted, format_bytes, format_fraction

Array = NDArray[np.float64]


def tier_bytes(machine: Machine, tier: Tier) -> float:
    """Capacity of a node in a tier [bytes]. Limits: a machine that does not state it -> BadInputError"""
    return machine.value("ssd_bytes" if tier.kind == SSD else "host_bytes")


def tier_room(machine: Machine, tier: Tier, reserve: float) -> float:
    """Capacity of a node that tables may use: all of the SSDs, and host memory without the reserve [bytes].

    reserve  share of the host memory that tables may not use, the same as of the HBM
    Limits: a machine that does not state the capacity -> BadInputError
    """
    whole = tier_bytes(machine, tier)
    return whole if tier.kind == SSD else float(capacity.usable_host_bytes(whole, reserve))


def check_tier(tier: Tier, memory: object, given: Mapping[str, Any]) -> None:
    """Refuse options that contradict a tier: one local memory, or tables without a size.

    memory  the local memory, if given;  given  the values of the question
    """
    if memory is not None:
        raise BadInputError(f"--tier {tier} and {memory} would both hold all rows.", "leave one of them out.")
    if all(given.get(name) is None for name in ("table_bytes", "tables")):
        raise BadInputError(
            f"--tier {tier} needs the size of the tables.", "give --table-size or --model with it."
        )


def without_hbm(machine: Machine) -> Machine:
    """The machine with unlimited HBM, for tables in a tier below it."""
    most = limits_of("machine")["hbm_bytes"].most
    room = machine.quantity("hbm_bytes").model_copy(update={"value": most})
    return machine.model_copy(update={"values": {**machine.values, "hbm_bytes": room}})


def placed(forward: Forward, work: Configs, node: int) -> Configs:
    """The configurations with the number of GPUs that a tier needs, and the share of rows that their HBM
    caches.

    node  GPUs of a node
    A node's whole tier may be used even if few of its GPUs are used; more tables need more whole nodes.
    Limits: too few GPUs for the tier, a cache that does not fit the HBM -> BadInputError
    """
    tier = forward.tier
    if tier is None:
        return work
    room = tier_room(forward.setting.machine, tier, work.reserve)
    nodes = _nodes(work, room)
    if work.given_gpus:
        _check_nodes(work, nodes, node, room, tier)
    return _cached(forward, _spread(forward, work, nodes, node), tier)


def has_room(forward: Forward, work: Configs, node: int) -> NDArray[np.bool_]:
    """Which configurations have room for all rows in HBM and tier, so that ``placed`` accepts them."""
    tier = forward.tier
    if tier is None:
        return np.ones(len(work), dtype=bool)
    nodes = _nodes(work, tier_room(forward.setting.machine, tier, work.reserve))
    enough = np.ceil(work.gpus / node) >= nodes if work.given_gpus else np.ones(len(work), dtype=bool)
    if tier.kind == UVM:
        return np.asarray(enough)
    return np.asarray(enough & ~_cache(forward, _spread(forward, work, nodes, node), tier).refused)


def _nodes(work: Configs, room: float) -> Array:
    """Number of whole nodes that hold the tables. room  capacity of a node that tables may use [bytes]"""
    return np.maximum(np.ceil(work.table_bytes / room * (1 - 2 * np.finfo(np.float64).eps)), 1)


def _spread(forward: Forward, work: Configs, nodes: Array, node: int) -> Configs:
    """The configurations with the GPUs of these nodes, or of more nodes if cache and buffers need them."""
    needed = np.where(nodes > 1, nodes * node, 1.0)
    share = np.full(work.gpus.shape, (forward.tier and forward.tier.cached) or 0.0)
    if work.given_gpus:
        return replace(work, needed=np.minimum(needed, work.gpus), cached=share)
    start = replace(work, needed=needed, cached=share)
    needed = fewest(forward, start, node)
    return replace(
        start, needed=needed, gpus=np.maximum(sharding.whole_nodes(needed, np.float64(node)), needed)
    )


def _check_nodes(work: Configs, nodes: Array, node: int, room: float, tier: Tier) -> None:
    few = np.ceil(work.gpus / node) < nodes
    if few.any():
        at = int(np.argmax(few))
        size, each = (format_bytes(x, binary=False) for x in (work.table_bytes[at], room))
        raise BadInputError(
            f"{size} of tables need {counted(int(nodes[at]), 'node')} of {each} of {tier.place}; "
            f"{counted(int(work.gpus[at]), 'GPU')} are in {int(np.ceil(work.gpus[at] / node))}.",
            f"use at least {int((nodes[at] - 1) * node + 1)} GPUs, fewer per node (--gpus-per-node), or a "
            "smaller --table-size.",
        )


@dataclass(frozen=True)
class _Cache:
    """The cache in the HBM of a GPU, for each configuration.

    share  of the rows in the cache;  fits  the largest share that fits
    beside  memory of an empty cache;  rows  memory that the cache would add if it held every row
    left    HBM that the exchange buffers leave [bytes]
    """

    share: Array
    fits: Array
    beside: Array
    rows: Array
    left: Array

    @property
    def needed(self) -> Array:
        """Memory of the cache at its share [bytes]."""
        return self.beside + self.share * self.rows

    @property
    def refused(self) -> NDArray[np.bool_]:
        """Mask of configurations whose cache does not fit."""
        return (self.fits <= 0) | ~capacity.fits(self.needed, np.maximum(self.left, 0.0))


def _cache(forward: Forward, work: Configs, tier: Tier) -> _Cache:
    """The cache with the given share, else with the largest share that fits."""
    shape = work.gpus.shape
    none, every = (gpu_memory(forward, replace(work, cached=np.full(shape, share))) for share in (0.0, 1.0))
    beside, rows = none.kept_bytes, every.kept_bytes - none.kept_bytes
    left = work.usable_bytes - none.buffer_bytes
    fits = np.minimum((left - beside) / rows, 1.0)
    return _Cache(fits if tier.cached is None else np.full(shape, tier.cached), fits, beside, rows, left)


def _cached(forward: Forward, work: Configs, tier: Tier) -> Configs:
    """The configurations with the given cached share, else the largest; refused if it is too large."""
    if tier.kind == UVM:
        return work
    found = _cache(forward, work, tier)
    if found.refused.any():
        at = int(np.argmax(found.refused))
        share, fits = float(found.share[at]), float(found.fits[at])
        cache, usable, buffers = (
            format_bytes(x, binary=False)
            for x in (found.needed[at], work.usable_bytes, work.usable_bytes - found.left[at])
        )
        beside = format_bytes(found.beside[at], binary=False)
        less = "a smaller --batch"
        if found.left[at] > 0:
            less = f"{beside} of it are for all rows of the tables: use more GPUs"
        most = f"at most {format_fraction(float(np.floor(1000 * fits) / 1000))} fits here"
        raise BadInputError(
            f"a cache of {format_fraction(share)} of the rows is {cache} per GPU, above the "
            f"{usable} of its HBM less {buffers} of exchange buffers.",
            f"{most}; or more GPUs, a smaller --batch or --reserve." if fits > 0 else f"{less}.",
        )
    return replace(work, cached=found.share)
