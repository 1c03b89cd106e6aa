"""Operations that the ranks keep in memory between visits, so that they need not be made again.

The coordinator decides which are dropped, so that all ranks of a group drop an operation before the same
visit: making it again may need all of them at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

KEPT_SHARE = 0.5
"""Share of a rank's memory for buffers; beyond it, the operation that was visited longest ago is dropped."""


class ReadyOperations:
    """The operations that the ranks keep, by name; the operation visited last is at the end.

    budget_bytes   memory that a rank may hold
    """

    def __init__(self, budget_bytes: float) -> None:
        self._budget_bytes = budget_bytes
        self._ranks: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._dropped: dict[int, list[str]] = {}

    def visit(self, name: str, ranks: Sequence[int]) -> dict[int, list[str]]:
        """Record a visit of operation ``name``; returns, by rank, the operations to drop before it."""
        self._ranks.pop(name, None)
        self._ranks[name] = tuple(ranks)
        return {rank: self._dropped.pop(rank, []) for rank in ranks}

    def weigh(self, held_bytes: float) -> None:
        """Record the memory that a rank holds.

        Above the budget, the operation visited longest ago is dropped.
        Limits: a single operation -> kept
        """
        if held_bytes > self._budget_bytes and len(self._ranks) > 1:
            name, ranks = self._ranks.popitem(last=False)
            for rank in ranks:
                self._dropped.setdefault(rank, []).append(name)
