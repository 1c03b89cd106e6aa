"""The fastest sharding option for each total size of the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perfmodel.plan.as_projection import Compared, compared, undecided, winner
from perfmodel.projections.projection import Projection

SIZES = (80e9, 160e9, 320e9, 640e9, 1.28e12, 2.5e12, 5e12, 10e12, 20e12, 50e12, 100e12)
"""Table sizes from one GPU of 80 GB to 100 TB [bytes]."""


@dataclass(frozen=True, eq=False)
class Size:
    """The comparison of sharding options for one total size of the tables.

    base  the row-wise projection;  found  every option, with its time
    """

    table_bytes: float
    base: Projection
    found: tuple[Compared, ...]

    @property
    def best(self) -> Compared:
        """The fastest sharding option, with its plan and time."""
        return winner(self.found)

    @property
    def undecided(self) -> tuple[Compared, ...]:
        """Options whose time exceeds the best by less than the difference's 95 % uncertainty."""
        return undecided(self.found)


def by_size(ask: Callable[[float], Projection], sizes: tuple[float, ...] = SIZES) -> Iterator[Size]:
    """Compares sharding options at every total size of the tables.

    ask  returns the row-wise projection for a total size;  sizes  the total sizes [bytes]
    """
    for table_bytes in sizes:
        base = ask(table_bytes)
        yield Size(table_bytes, base, tuple(compared(base)))
