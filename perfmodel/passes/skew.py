"""Look-ups of the tables of a plan: which of them are skewed or have hot rows on every rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.look_ups import LookUps
from perfmodel.schema.distributions import Distribution

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class AllLookUps:
    """``LookUps`` of T tables; tables of equal ids, rows and pooling share one."""

    def __init__(
        self, ids: Sequence[Distribution], rows: Array, pooling: Array, batch: float, gpus: float
    ) -> None:
        laws = {id(each): each for each in ids}  # few objects, often one for all tables
        equal = {each: at for at, each in enumerate(dict.fromkeys(laws.values()))}
        place = {key: equal[each] for key, each in laws.items()}
        law = np.array([place[id(each)] for each in ids], dtype=np.float64)
        _, first, of = np.unique(
            np.stack([law, rows, pooling], axis=1), axis=0, return_index=True, return_inverse=True
        )
        self.of: Ints = of.reshape(-1)
        self.kinds = [LookUps(ids[at], float(rows[at]), float(pooling[at]), batch, gpus) for at in first]
        self.skewed = np.array([not each.uniform for each in equal])[law.astype(np.int64)]

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
