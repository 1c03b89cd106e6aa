"""Which operations the ranks keep ready between visits: as many as their memory allows.

The coordinator decides, so that all ranks of a group drop an operation before the same visit: making it again
may be something that they do together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

KEPT_SHARE = 0.5
"""Of the memory that a rank may use for its buffers: beyond it, the operation visited longest ago goes."""


class ReadyOperations:
    """Operations by a name, the one visited last at the end.

    budget_bytes   what a rank may hold
    """

    def __init__(self, budget_bytes: float) -> None:
        self._budget_bytes = budget_bytes
        self._ranks: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._dropped: dict[int, list[str]] = {}

    def visit(self, name: str, ranks: Sequence[int]) -> dict[int, list[str]]:
        """``name`` is visited on ``ranks``; what each of them drops first."""
        self._ranks.pop(name, None)
        self._ranks[name] = tuple(ranks)
        return {rank: self._dropped.pop(rank, []) for rank in ranks}

    def weigh(self, held_bytes: float) -> None:
        """A rank holds ``held_bytes``. Limits: within the budget, or one operation only -> all are kept"""
        if held_bytes > self._budget_bytes and len(self._ranks) > 1:
            name, ranks = self._ranks.popitem(last=False)
            for rank in ranks:
                self._dropped.setdefault(rank, []).append(name)
