"""The cache of one core, in the simulator: it forgets what was unused for longest."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from perfmodel.schema.chip import Chip


@dataclass(eq=False, slots=True)
class CachedRow:
    """A row: bytes, when it is there, None until it was asked for; chunks of requests that wait for it."""

    size: float
    there: float | None = None
    waiting: list[int] = field(default_factory=list)


class CoreCache:
    """Rows of one core, and its way out to what all cores share, which takes one row after the other."""

    def __init__(self, chip: Chip) -> None:
        self.room, self.latency = chip.value("core_cache_bytes"), chip.value("core_cache_latency_s")
        self.per_byte = 1 / chip.value("core_cache_bytes_per_s")
        self.out_per_byte = 1 / chip.value("core_bytes_per_s")
        self.free, self.hits = 0.0, 0
        self.held: OrderedDict[int, CachedRow] = OrderedDict()

    def find(self, key: int) -> CachedRow | None:
        """A row that is here, or on its way."""
        line = self.held.get(key)
        if line is not None:
            self.hits += 1
            self.held.move_to_end(key)
        return line

    def bring(self, key: int, size: float) -> CachedRow:
        """Room for a row that is to come."""
        line = self.held[key] = CachedRow(size)
        self.room -= size
        while self.room < 0:
            self.room += self.held.popitem(last=False)[1].size
        return line

    def leave(self, now: float, size: float) -> float:
        """When a request leaves the core."""
        begin = max(now, self.free)
        self.free = begin + size * self.out_per_byte
        return begin

    def back(self, now: float, size: float, there: float) -> float:
        """When a row that is here, or there at some time, has been read."""
        return max(now + self.latency + size * self.per_byte, there)
