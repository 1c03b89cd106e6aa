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

    def groups(self, table: Ints, hot: Array) -> list[tuple[NDArray[np.bool_], LookUps, float]]:
        """(where, look-ups, hot rows) of tables that are not asked for uniformly, or have hot rows; [...]."""
        odd = np.asarray(self.skewed[table] | (hot > 0))
        if not odd.any():
            return []
        kind = np.asarray(self.of[table])
        pairs = np.unique(np.stack([kind[odd].astype(np.float64), hot[odd]], axis=1), axis=0)
        for at in np.unique(kind[odd]):
            self.kinds[at].prepare(pairs[pairs[:, 0] == at, 1])
        return [
            (odd & (kind == int(at)) & (hot == h), self.kinds[int(at)], float(h)) for at, h in pairs.tolist()
        ]
