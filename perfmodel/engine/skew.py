"""Look-ups of the tables of a plan: which tables have skewed ids or replicated hot rows."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.look_ups import Gather, LookUps
from perfmodel.schema.distributions import Distribution

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

UNIFORM = -1.0
"""Stands for the share of cache misses of uniform ids, which a formula gives."""
_KEPT = 8192  # tables and configurations whose misses are kept


class AllLookUps:
    """``LookUps`` of each of T tables; tables with equal ids, rows and pooling share one object.

    laws  (the different distributions of ids, each table's index among them)
    batch, gpus  numbers for all tables, or [T]
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
        """Index in ``kinds`` of each table's look-ups [T]."""
        return self._kinds[0]

    @property
    def kinds(self) -> list[LookUps]:
        """The different ``LookUps`` among the tables."""
        return self._kinds[1]

    def groups(self, table: Ints, hot: Array) -> list[tuple[tuple[Ints, ...], LookUps, float]]:
        """Tables with skewed ids or hot rows, grouped by equal look-ups and hot rows: (positions, look-ups,
        hot rows).

        table  indices of tables [...];  hot  number of hot rows of each [...]
        """
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

    def misses(self, table: Ints, hot: Array, gather: Ints, X: Array) -> Array:
        """Share of the look-ups of each gather that miss a cache (``LookUps.miss``); [...].

        gather  code of the kind of gather;  X  rows that the caches hold together [rows]
        Passes with different exchanges have the same gathers, so results without hot rows are kept for reuse.
        Limits: uniform ids, no hot rows -> ``UNIFORM``
        """
        heads = "_kinds" in vars(self) and any(asked.heads for asked in self.kinds)
        if hot.any() or heads or table.size > _KEPT:
            return self._misses(table, hot, gather, X)
        columns = np.array(self._columns, np.float64)
        return _kept(self._laws, table.shape, *(each.tobytes() for each in (columns, table, gather, X)))

    def _misses(self, table: Ints, hot: Array, gather: Ints, X: Array) -> Array:
        found = np.full(table.shape, UNIFORM)
        for where, asked, h in self.groups(table, hot):
            for each in np.unique(gather[where]):
                at = tuple(place[gather[where] == each] for place in where)
                found[at] = asked.miss(Gather(each), h, X[at])
        return found


@lru_cache(maxsize=32)
def _kept(
    laws: tuple[Distribution, ...],
    shape: tuple[int, ...],
    columns: bytes,
    table: bytes,
    gather: bytes,
    X: bytes,
) -> Array:
    """``AllLookUps.misses`` of arrays as bytes, without hot rows."""
    law, rows, pooling, batch, gpus = np.frombuffer(columns).reshape(5, -1)
    at, kind = (np.frombuffer(each, np.int64).reshape(shape) for each in (table, gather))
    asked = AllLookUps((laws, law.astype(np.int64)), rows, pooling, batch, gpus)
    return asked._misses(at, np.zeros(shape), kind, np.frombuffer(X).reshape(shape))
