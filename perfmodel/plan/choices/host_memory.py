"""The host memory of nodes: what a plan keeps there, and which tables may be there if not all have room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.units import counted, format_bytes

if TYPE_CHECKING:
    from perfmodel.plan.choices.options import Options
    from perfmodel.plan.pricing.cost import Evaluator

Array = NDArray[np.float64]
_ROOM = 1 - 1e-12


def node_size(evaluator: Evaluator) -> int:
    """GPUs that share the host memory of a node."""
    return int(evaluator.times.tiers.sharers(float(evaluator.gpus)))


def node_bytes(evaluator: Evaluator) -> float:
    """Host memory of a node that tables may use [bytes]."""
    below = evaluator.model.below
    whole = evaluator.setting.machine.value("host_bytes")
    return float(capacity.usable_host_bytes(whole, below.host_reserve if below else 0.0))


def of_nodes(ranks: Array, size: int) -> Array:
    """Sums over the ranks [G] of each node of ``size`` ranks."""
    return np.asarray(np.add.reduceat(ranks, np.arange(0, ranks.size, size)))


def host_of(options: Options, option: NDArray[np.int64], ranks: Sequence[NDArray[np.int64] | None]) -> Array:
    """Bytes of host memory of every rank [G] for tables that are cut as ``option`` [T] and held by ranks."""
    found = np.zeros(options.gpus)
    if options.host is not None:
        for t in np.flatnonzero(options.host[option] > 0):
            held = ranks[int(t)]
            if held is not None:
                found[held] += options.host[option[t]]
    return found


def host_fits(evaluator: Evaluator, host: Array) -> bool:
    """Whether every node has the host memory that its ranks [G] need."""
    if not host.any():
        return True
    return bool(of_nodes(host, node_size(evaluator)).max() <= node_bytes(evaluator))


def check_host(evaluator: Evaluator, host: Array) -> None:
    """Limits: a node that needs more than it has -> BadInputError: which, and by how much"""
    if host_fits(evaluator, host):
        return
    nodes = of_nodes(host, node_size(evaluator))
    at = int(np.argmax(nodes))
    raise too_small(f"node {at}", float(nodes[at]), node_bytes(evaluator))


def too_small(what: str, needs: float, room: float) -> BadInputError:
    """Host memory that is not enough: by how much."""
    size, there, more = (format_bytes(x, binary=False) for x in (needs, room, needs - room))
    return BadInputError(
        f"{what} needs {size} of host memory, {more} more than the {there} of a node that tables may use.",
        "use more nodes (--gpus), leave more to the HBM (--max-hbm), or say how much there is "
        "(--set host_bytes=…).",
    )


def within_host(options: Options, evaluator: Evaluator, limit_bytes: float) -> Options:
    """The options, without host memory for the tables that save least HBM per look-up, if not all have room.

    Tables leave the HBM in the order of their bytes per look-up, the most first, until the nodes are full.
    Limits: HBM and host memory together are too small -> BadInputError: by how much
    """
    if options.host is None:
        return options
    gpus, size, room = options.gpus, node_size(evaluator), node_bytes(evaluator)
    nodes = -(-gpus // size)
    tables = evaluator.tables
    sample = tables.kinds[0]
    whole = evaluator.memories.host(sample, 1, 1, np.ones(sample.size))
    if float(whole @ options.count) <= room:  # of one node alone: it never matters
        return options
    in_hbm = np.minimum.reduceat(
        np.where(options.tier == 0, options.average_memory * gpus, np.inf), options.first[:-1]
    )
    held = float(np.where(np.isfinite(in_hbm), in_hbm, whole) @ options.count)
    least = held - limit_bytes * gpus
    if least > nodes * room:
        raise too_small(f"{tables.model} on {counted(nodes, 'node')}", least, nodes * room)
    left = nodes * room * _ROOM
    order = np.argsort(-whole / np.maximum(tables.pooling[sample], 1e-9), kind="stable")
    order = np.concatenate([order[~np.isfinite(in_hbm[order])], order[np.isfinite(in_hbm[order])]])
    may = np.zeros(sample.size, dtype=bool)
    for q in order:
        many = float(whole[q] * options.count[q])
        if many <= left or not np.isfinite(in_hbm[q]):
            may[q], left = True, left - many
    return options.kept((options.tier == 0) | may[options.group])
