"""The number of GPUs of an answer: why so many, and what memory each needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.grid import count_memory
from perfmodel.engine.row_wise import Configs
from perfmodel.model import capacity
from perfmodel.units import counted, format_bytes, format_count

GIVEN = "given"
"""The rule of a number of GPUs that the user gave."""
_MANY = 1000
"""Numbers from here on are printed with grouped digits: 1 250, not 1.25e+03."""


@dataclass(frozen=True)
class GpuCount:
    """How the number of GPUs was determined, and whether what one GPU then holds ``fits``; sizes in bytes.

    gpus, needed     GPUs of the job, and the fewest that can hold row-wise parts and exchange buffers
    rule             why ``gpus`` is used for ``needed``, in words: given, fits one GPU, whole nodes of 8
    table_bytes, state_bytes    rows, and optimizer state, of all tables;  shard_bytes  table_bytes / gpus
    hbm_bytes, usable_bytes     HBM of one GPU; the part for tables, if a share ``reserve`` stays free
    rows_bytes, optimizer_bytes, buffer_bytes   on one GPU: rows (parts and replicas), their optimizer state,
        buffers of the largest exchange
    """

    gpus: int
    needed: int  # fewer GPUs may do for another sharding
    rule: str
    table_bytes: float
    hbm_bytes: float
    usable_bytes: float
    reserve: float
    gpus_per_node: int
    shard_bytes: float
    rows_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    state_bytes: float = 0.0
    buffer_bytes: float = 0.0
    fits: bool = True  # whether all that one GPU holds is within the usable memory

    @property
    def memory_bytes(self) -> float:
        """Memory that a GPU needs [bytes]."""
        return self.rows_bytes + self.optimizer_bytes + self.buffer_bytes

    @property
    def for_rows(self) -> int:
        """GPUs that the rows and the optimizer state alone need: no sharding fits fewer."""
        return int(capacity.gpus_needed(self.table_bytes + self.state_bytes, self.usable_bytes, 0.0))

    def describe_memory(self, form: str = "{}: {}") -> str:
        """``66.3 GB of 68 GB per GPU: rows 65.8 GB, exchange buffers 541 MB``. form  joins sum and parts"""
        total, usable = (format_bytes(x, binary=False) for x in (self.memory_bytes, self.usable_bytes))
        named = [("rows", self.rows_bytes), ("optimizer state", self.optimizer_bytes)]
        named += [("exchange buffers", self.buffer_bytes)]
        texts = [f"{name} {format_bytes(size, binary=False)}" for name, size in named if size]
        parts = ", ".join(texts) or "no rows, no buffers"
        return form.format(f"{total} of {usable} per GPU", parts)

    def __str__(self) -> str:
        room, sizes = self.usable_bytes, (self.table_bytes, self.state_bytes, self.usable_bytes)
        size, state, usable = (format_bytes(x, binary=False) for x in sizes)
        size = f"({size} + {state} of optimizer state)" if self.state_bytes else size
        alone = capacity.whole_nodes(self.for_rows, self.gpus_per_node)
        if self.fits and alone < self.gpus:
            room = max(room - self.buffer_bytes, 1.0)
            usable = f"({usable} − {format_bytes(self.buffer_bytes, binary=False)} of buffers)"
        ratio = (self.table_bytes + self.state_bytes) / room
        if self.rule == GIVEN:
            where, fewest = counted(self.gpus, "GPU"), format_count(self.for_rows)
            return f"{size} over {where} as given (the rows alone need {fewest})"
        if self.gpus == 1:
            return f"{size} ÷ {usable} = {ratio:.3g}  →  1 ({self.rule})"
        times = format_count(ratio) if ratio >= _MANY else f"{ratio:.4g}"
        return f"{size} ÷ {usable} = {times}  →  {format_count(self.gpus)} ({self.rule})"


def count_gpus(basis: PassBasis, work: Configs, reserve: float) -> GpuCount:
    """How the number of GPUs of one configuration was determined, and what each holds, sharded row-wise."""
    machine = basis.setting.machine
    gpus, needed = int(work.gpus[0]), int(work.needed[0])
    node = basis.gpus_per_node or machine.gpus_per_node
    hbm = basis.room_bytes
    usable = hbm * (1 - reserve)
    alone = "fits one GPU" if gpus == 1 else "inside one node, not rounded"
    # A number that was given is kept even where it does not fit: the answer then says so.
    rule = GIVEN if work.given_gpus else alone if gpus <= node else f"whole nodes of {node}"
    size = float(work.table_bytes[0])
    held = count_memory(basis, work)
    parts = held.rows_bytes, held.optimizer_bytes, held.buffer_bytes / basis.buffer_weight
    rows, state, buffers = (float(sizes[0]) for sizes in parts)
    good = bool(capacity.fits(float(held.total_bytes[0]), work.usable_bytes))
    counts = (gpus, needed, rule, size, hbm, usable, reserve, node, size / gpus)
    every = float(count_memory(basis, replace(work, gpus=np.ones_like(work.gpus))).optimizer_bytes[0])
    return GpuCount(*counts, rows, state, every, buffers, good)


def explain_too_much(count: GpuCount, basis: PassBasis, work: Configs) -> Iterator[str]:
    """Lines that say what does not fit, and what would."""
    if count.fits:
        return
    room = count.usable_bytes - (count.memory_bytes - count.buffer_bytes)
    buffers = count.buffer_bytes * basis.buffer_weight
    batch = int(work.batch[0] * room / buffers) if room > 0 and buffers else 0
    larger = replace(work, gpus=work.needed)
    enough = count.needed > count.gpus and capacity.fits(
        count_memory(basis, larger).total_bytes[0], work.usable_bytes
    )
    ways = [f"{counted(count.needed, 'GPU')} or more"] if enough else []
    ways += [f"a batch of at most {format_count(batch)}"] if 0 < batch < work.batch[0] else []
    ways += ["--set reserve=0"] if count.memory_bytes <= count.hbm_bytes and count.reserve else []
    instead = f"; it would with {' or '.join(ways)}" if ways else ""
    yield f"this does not fit: {count.describe_memory()}{instead}"
