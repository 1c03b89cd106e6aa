"""Memory that a GPU needs in a row-wise pass, and the fewest GPUs whose memory is enough."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.configurations import CHUNK, Configs, all_tables
from perfmodel.engine.memory import buffer_bytes
from perfmodel.engine.row_wise import Forward
from perfmodel.engine.tables import row_bytes
from perfmodel.model import capacity, sharding
from perfmodel.schema.ranges import MOST_GPUS

Array = NDArray[np.float64]
_ROUNDS = 64
"""Most rounds of the search for the fewest GPUs: a limit in case it converges slowly."""


@dataclass(frozen=True)
class GpuMemory:
    """HBM of a GPU in each configuration [bytes].

    rows_bytes, optimizer_bytes  rows and optimizer state;  buffer_bytes  buffers of the largest exchange
    """

    rows_bytes: Array
    optimizer_bytes: Array
    buffer_bytes: Array

    @property
    def kept_bytes(self) -> Array:
        """Memory in use between exchanges."""
        return self.rows_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> Array:
        """All memory together."""
        return self.kept_bytes + self.buffer_bytes


def gpu_memory(forward: Forward, work: Configs) -> GpuMemory:
    """Memory that a GPU needs. If a library has two possible exchanges of bags, the larger buffers count.

    Limits: one GPU, or every table on every GPU -> no buffers;  one memory for all -> all rows, no buffers
    """
    per_element, per_row = forward.state
    held = [(t, t.count * t.rows / np.where(t.rows >= work.gpus, work.gpus, 1.0)) for t in work.stacked]
    rows = all_tables(count * row_bytes(t.dtype, t.dim, training=forward.training) for t, count in held)
    state = all_tables(count * (t.dim * per_element + per_row) for t, count in held)
    largest = np.zeros(work.gpus.shape)
    for at in range(0, len(work), CHUNK):
        span = slice(at, at + CHUNK)
        part = work.part(span) if len(work) > CHUNK else work
        sent = (forward.exchanged(part, forward.even(part, kind)).T for kind in forward.exchanges)
        largest[span] = np.max([buffer_bytes(values, forward.times(part)) for values in sent], axis=0)
    return GpuMemory(rows, state, largest)


def sized(forward: Forward, work: Configs, node: int) -> Configs:
    """The configurations with the number of GPUs whose memory is enough for rows and exchange buffers.

    node  GPUs of a node
    ``needed`` becomes the fewest GPUs that fit, if any number fits; if the user gave no number, ``gpus``
    becomes ``needed`` in whole nodes. Tables that fill the memory leave enough for the buffers.
    Limits: no number fits -> the GPUs that the rows and the optimizer state alone need
    """
    if work.filled:
        return _filled(forward, work)
    if any(forward.state):
        alone = gpu_memory(forward, replace(work, gpus=np.ones_like(work.gpus))).kept_bytes
        work = replace(work, needed=sharding.gpus_needed(alone, np.float64(work.usable_bytes), 0.0))
    needed = fewest(forward, work, node)
    if work.given_gpus:
        return replace(work, needed=needed)
    return replace(work, needed=needed, gpus=sharding.whole_nodes(needed, np.float64(node)))


def _filled(forward: Forward, work: Configs) -> Configs:
    """Configurations of equal tables that fill the memory which optimizer state and buffers leave.

    Limits: buffers fill all of it -> as without buffers
    """
    (group,), held = work.groups, gpu_memory(forward, work)
    left = (1 - held.buffer_bytes / work.usable_bytes) / (1 + held.optimizer_bytes / held.rows_bytes)
    room = np.where(left > 0, left, 1.0)
    rows = np.maximum(group.rows * room, work.gpus)
    return replace(work, table_bytes=work.table_bytes * room, groups=(replace(group, rows=rows),))


def fewest(forward: Forward, work: Configs, node: int) -> Array:
    """The fewest GPUs that hold rows and buffers, by a fixed-point iteration from below.

        n <- ceil(S(n) / (U - b(n')) ), n' = n in whole nodes

    S  bytes of sharded tables;  b  buffers, which grow with n: the iteration ends at the least n that fits,
    or there is none if the buffers alone fill U.
    """
    needed = np.array(work.needed, dtype=np.float64)
    open_ = np.ones(needed.shape, dtype=bool)
    for _ in range(_ROUNDS):
        at = np.flatnonzero(open_)
        if not at.size:
            return needed
        some = work if at.size == open_.size else work.part(at)
        taken = needed[at] if work.given_gpus else sharding.whole_nodes(needed[at], np.float64(node))
        held = gpu_memory(forward, replace(some, gpus=taken))
        good = capacity.fits(held.total_bytes, work.usable_bytes)
        room = work.usable_bytes - held.buffer_bytes
        with np.errstate(all="ignore"):
            more = np.ceil(taken * held.kept_bytes / room * (1 - 2 * np.finfo(np.float64).eps))
        step = np.maximum(more, taken + 1)
        lost = ~good & ((room <= 0) | (step > MOST_GPUS))
        open_[at[good | lost]] = False
        needed[at[lost]] = work.needed[at[lost]]
        going = ~good & ~lost
        needed[at[going]] = step[going]
    needed[open_] = work.needed[open_]
    return needed
