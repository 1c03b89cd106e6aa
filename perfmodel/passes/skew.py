"""Look-ups of the tables of a plan: which tables have skewed ids or replicated hot rows."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.look_ups import LookUps
from perfmodel.schema.distributions import Distribution

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class AllLookUps:
    """``LookUps`` of T tables; tables with equal ids, rows and pooling share one object.

    laws  distributions of ids, and each table's index among them;  batch, gpus  for all tables, or [T]
    """

    def __init__(
        self,
        laws: tuple[tuple[Distribution, ...], Ints],
        rows: Array,
        pooling: Array,
        batch: ArrayLike,
        gpus: ArrayLike,
    ) -> None:
        self._laws, self._law = laws
        self._columns = np.broadcast_arrays(self._law.astype(np.float64), rows, pooling, batch, gpus)
        self.skewed = np.array([not each.uniform for each in self._laws])[self._law]

    @cached_property
    def _kinds(self) -> tuple[Ints, list[LookUps]]:
        _, first, of = np.unique(
            np.stack(self._columns, axis=1), axis=0, return_index=True, return_inverse=True
        )
        asked = zip(
            self._law[first].tolist(), *(each[first].tolist() for each in self._columns[1:]), strict=True
        )
        return of.reshape(-1), [LookUps(self._laws[law], *numbers) for law, *numbers in asked]

    @property
    def of(self) -> Ints:
        """Index in ``kinds`` of every table [T]."""
        return self._kinds[0]

    @property
    def kinds(self) -> list[LookUps]:
        """The look-ups that differ."""
        return self._kinds[1]

    def groups(self, table: Ints, hot: Array) -> list[tuple[tuple[Ints, ...], LookUps, float]]:
        """(indices, look-ups, hot rows) of tables with skewed ids or hot rows; [...]."""
        odd = np.flatnonzero(self.skewed[table] | (hot > 0))
        if not odd.size:
            return []
        kind, rows = self.of[np.ravel(table)[odd]], np.ravel(hot)[odd]
        order = np.lexsort((rows, kind))
        kind, rows, odd = kind[order], rows[order], odd[order]
        first = np.flatnonzero(np.append(True, (np.diff(kind) != 0) | (np.diff(rows) != 0)))
        found = []
        for begin, end in zip(first.tolist(), [*first.tolist()[1:], odd.size], strict=True):
            asked, h = self.kinds[int(kind[begin])], float(rows[begin])
            asked.prepare([h])
            where = np.unravel_index(odd[begin:end], np.shape(table)) if np.ndim(table) else ()
            found.append((where, asked, h))
        return found
