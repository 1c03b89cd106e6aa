"""Which operations the ranks keep ready between visits: as many as their memory allows.

The coordinator decides, so that all ranks of a group drop an operation before the same visit: making it again
may be something that they do together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

KEPT_SHARE = 0.5
"""Share of a rank's memory for buffers; beyond it, the operation that was visited longest ago is dropped."""


class ReadyOperations:
    """Operations by name, the most recently visited last.

    budget_bytes   what a rank may hold
    """

    def __init__(self, budget_bytes: float) -> None:
        self._budget_bytes = budget_bytes
        self._ranks: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._dropped: dict[int, list[str]] = {}

    def visit(self, name: str, ranks: Sequence[int]) -> dict[int, list[str]]:
        """Record a visit of ``name`` on ``ranks``; returns what each of them drops first."""
        self._ranks.pop(name, None)
        self._ranks[name] = tuple(ranks)
        return {rank: self._dropped.pop(rank, []) for rank in ranks}

    def weigh(self, held_bytes: float) -> None:
        """Record what a rank holds. Limits: within the budget, or a single operation -> all are kept"""
        if held_bytes > self._budget_bytes and len(self._ranks) > 1:
            name, ranks = self._ranks.popitem(last=False)
            for rank in ranks:
                self._dropped.setdefault(rank, []).append(name)
