"""Host memory and SSDs of nodes: the bytes that a plan keeps there, and which tables may be there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.units import counted, format_bytes

if TYPE_CHECKING:
    from perfmodel.passes.cost import Evaluator
    from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
_ROOM = 1 - 1e-12
HOST, SSDS = "host memory", "SSDs"
_SETTING = {HOST: "host_bytes", SSDS: "ssd_bytes"}


def node_size(evaluator: Evaluator) -> int:
    """GPUs that share the host memory and the SSDs of a node."""
    return int(evaluator.times.tiers.sharers(float(evaluator.gpus)))


def node_bytes(evaluator: Evaluator) -> float:
    """Host memory of a node that tables may use [bytes]."""
    below = evaluator.model.below
    whole = evaluator.setting.machine.value("host_bytes")
    return float(capacity.usable_host_bytes(whole, below.host_reserve if below else 0.0))


def node_ssd_bytes(evaluator: Evaluator) -> float:
    """SSD capacity of a node, all of which tables may use [bytes]."""
    return evaluator.setting.machine.value("ssd_bytes")


def of_nodes(ranks: Array, size: int) -> Array:
    """Sums over the ranks [G] of each node of ``size`` ranks."""
    return np.asarray(np.add.reduceat(ranks, np.arange(0, ranks.size, size)))


def below_fits(evaluator: Evaluator, below: Array) -> bool:
    """Whether every node has the host memory and the SSDs for what its ranks keep there.

    below  [2, G] bytes that each of G ranks keeps in host memory and on SSDs
    """
    return _too_full(evaluator, below) is None


def check_below(evaluator: Evaluator, below: Array) -> None:
    """Check that every node has enough host memory and SSDs for ``below``, as in ``below_fits``.

    Limits: a node needs more than it has -> BadInputError: which, and by how much
    """
    found = _too_full(evaluator, below)
    if found is not None:
        raise found


def _too_full(evaluator: Evaluator, below: Array) -> BadInputError | None:
    """The error for the first node without enough memory for ``below`` (``below_fits``); None: enough.

    Memory that no table uses is not checked.
    """
    for place, room, needs in zip((HOST, SSDS), (node_bytes, node_ssd_bytes), below, strict=True):
        if not needs.any():
            continue
        nodes, there = of_nodes(needs, node_size(evaluator)), room(evaluator)
        if nodes.max() > there:
            at = int(np.argmax(nodes))
            return too_small(f"node {at}", float(nodes[at]), there, place)
    return None


def too_small(what: str, needs: float, room: float, place: str) -> BadInputError:
    """The error that host memory, SSDs, or both, are too small, and by how much.

    what  the node or the tables that need it;  needs, room  bytes needed and available;  place  which memory
    """
    size, there, more = (format_bytes(x, binary=False) for x in (needs, room, needs - room))
    settings = " ".join(f"--set {key}=…" for each, key in _SETTING.items() if each in place)
    more_tiers = "" if SSDS in place else "allow SSDs too (--tier uvm-caching,ssd), "
    return BadInputError(
        f"{what} needs {size} of {place}, {more} more than the {there} of a node that tables may use.",
        f"use more nodes (--gpus), {more_tiers}leave more to the HBM (--max-hbm), or say how much there is "
        f"({settings}).",
    )


def within_nodes(options: Options, evaluator: Evaluator, limit_bytes: float) -> Options:
    """Restricts options if the tables do not all fit in the nodes' host memory.

    Tables may then be in host memory in the order of their bytes per look-up, largest first, until the nodes
    are full. The other tables, which would free least HBM per look-up, lose their options in host memory.
    If tables may be on SSDs, all options stay, and every plan is checked for the capacity of nodes instead.
    Limits: HBM and all memory below it together are too small -> BadInputError: by how much
    """
    below = evaluator.model.below
    if options.tier is None or below is None:
        return options
    gpus, size = options.gpus, node_size(evaluator)
    nodes = -(-gpus // size)
    tables = evaluator.tables
    sample = tables.kinds[0]
    whole = evaluator.memories.host(sample, 1, 1, np.ones(sample.size))
    total = float(whole @ options.count)
    rooms = {HOST: node_bytes(evaluator)} if below.host else {}
    rooms |= {SSDS: node_ssd_bytes(evaluator)} if below.ssd else {}
    if all(total <= room for room in rooms.values()):  # smaller than one node: the limit never matters
        return options
    in_hbm = np.minimum.reduceat(
        np.where(options.tier == 0, options.average_memory * gpus, np.inf), options.first[:-1]
    )
    held = float(np.where(np.isfinite(in_hbm), in_hbm, whole) @ options.count)
    least, room = held - limit_bytes * gpus, sum(rooms.values())
    if least > nodes * room:
        where = " and ".join(rooms)
        raise too_small(f"{tables.model} on {counted(nodes, 'node')}", least, nodes * room, where)
    if below.ssd:
        return replace(options, crowded=True)
    left = nodes * room * _ROOM
    order = np.argsort(-whole / np.maximum(tables.pooling[sample], 1e-9), kind="stable")
    order = np.concatenate([order[~np.isfinite(in_hbm[order])], order[np.isfinite(in_hbm[order])]])
    may = np.zeros(sample.size, dtype=bool)
    for q in order:
        many = float(whole[q] * options.count[q])
        if many <= left or not np.isfinite(in_hbm[q]):
            may[q], left = True, left - many
    return options.kept((options.tier == 0) | may[options.group])
