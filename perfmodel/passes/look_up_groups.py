"""Which tables TorchRec looks up in one launch: all of one sharding type and one data type.

    launches of a look-up, of its sort and of its update = number of the groups in use     [-]

Without TorchRec, one launch looks up all tables of a rank, whatever their batch and type.
Source: TorchRec 1.8, ``group_tables`` makes one fused kernel (TBE) of the tables of a sharding type that have
        one data type;
        tests/integration/test_torchrec_counts.py and test_torchrec_groups.py count them
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.schemes import DATA_PARALLEL, SHARDINGS, TABLE_WISE
from perfmodel.passes.step_resources import BY_TYPE, Resource
from perfmodel.passes.tables import PlanTables

Array = NDArray[np.float64]

_WHOLE, _COPIED = (SHARDINGS[name].torchrec for name in (TABLE_WISE, DATA_PARALLEL))


@dataclass(frozen=True, eq=False)
class LookUpGroups:
    """TorchRec's groups of tables that are looked up together.

    Launches are counted for a rank with tables of all groups in use; other ranks launch fewer.
    """

    sets: ExchangeSets
    tables: PlanTables

    @cached_property
    def _of_type(self) -> dict[str, int]:
        """By sharding type, a resource that every rank has if the plan has tables of that type, and only
        then."""
        found = {_WHOLE: int(Resource.LENGTHS_SENT)}
        found |= {name: int(BY_TYPE[name][Resource.LENGTHS_SENT]) for name in self.sets.shardings}
        return found | {_COPIED: int(Resource.COPIED_LENGTHS)}

    @cached_property
    def _code(self) -> NDArray[np.int64]:
        """[T] code of each table's data type."""
        return np.asarray(np.unique(self.tables.dtype, return_inverse=True)[1])

    @property
    def _several(self) -> int:
        """Number of data types that a group may have; 0 if there is only one."""
        types = int(self._code.max()) + 1
        return types if types > 1 else 0

    @property
    def width(self) -> int:
        """K, number of resources: if there are several data types, each group adds one."""
        return len(Resource) + len(self._of_type) * self._several if self._several else self.sets.width

    @property
    def resources(self) -> tuple[int, ...]:
        """For each group, the index of a resource that is above 0 on every rank if a plan uses the group."""
        if not self._several:
            return tuple(self._of_type.values())
        return tuple(range(len(Resource), self.width))

    def spread(self, table: NDArray[np.int64], loads: Array, everywhere: bool) -> Array:
        """The loads [..., K] with the groups' resources appended.

        everywhere  True: ``loads`` are what every rank has, and are copied to the resource of their table's
                    group;
                    False: they are loads of shards, and the groups' resources stay 0
        """
        if not self._several:
            return loads
        found = np.moveaxis(np.zeros((self.width, *loads.shape[:-1])), 0, -1)
        found[..., : loads.shape[-1]] = loads
        codes = self._code[table]
        place = iter(self.resources)
        for resource, code in product(self._of_type.values(), range(self._several)):
            here = everywhere & (codes == code)
            found[..., next(place)] = np.where(here, loads[..., resource], 0)
        return found
