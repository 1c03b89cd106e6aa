"""Times this project's own kernels (``calibrate.cuda``) on a GPU, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from calibrate.cuda.device_tables import DeviceTables, make_tables
from calibrate.cuda.gather_pool import GatherPool, make_faults
from calibrate.passes.pattern_rows import Borrowed
from calibrate.passes.torch_kernels import Inputs, TorchKernels
from perfmodel.schema.runs import LookupWork

if TYPE_CHECKING:
    from torch import Tensor


class Lookup(Borrowed):
    """A look-up whose tables are made anew for each visit, as their memory may move between visits."""

    def __init__(
        self, rows: Callable[[], Tensor], work: LookupWork, tables: Callable[[Tensor], DeviceTables]
    ) -> None:
        """rows    function that provides the rows;  tables  function that makes tables from the rows"""
        super().__init__(rows)
        self._work = work
        self._tables = tables
        self._faults: Tensor | None = None
        self._pool: Any = None

    def take(self) -> None:
        """Make the tables and their descriptors for the kernel."""
        super().take()
        tables = self._tables(self.rows)
        self._faults = make_faults(tables.device)
        self._pool = GatherPool(tables, self._work.batch, self._work.pooling)

    def __call__(self, inputs: Inputs) -> Tensor:
        """The sums of the bags [samples, tables x columns], in new memory."""
        out = self._pool.make_out()
        self._pool(inputs[0], inputs[1], out, self._faults)
        return out

    def give_back(self) -> None:
        """Release tables and descriptors."""
        super().give_back()
        self._pool = None


class OwnKernels(TorchKernels):
    """Times this project's kernels. Rows are fp32 or fp16, bags fp32; one launch handles all tables."""

    name = "perfmodel"
    operations = ("gather_pool",)
    by_table = True

    def _lookup(self, work: LookupWork, dtype: str, copies: int) -> tuple[Lookup, Lookup]:
        """As in the base class: the look-up holds the rows, and is the function too.

        Ids of copy k are k tables further on, so each table is told to reach to the end of all copies.
        """
        count = copies * work.tables * work.rows

        def tables(rows: Tensor) -> DeviceTables:
            return make_tables([rows[table * work.rows :] for table in range(work.tables)])

        looked_up = Lookup(lambda: self.tables.rows(0, count, work.dim, dtype), work, tables)
        return looked_up, looked_up
