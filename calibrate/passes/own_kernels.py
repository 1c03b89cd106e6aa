"""Times this project's own kernels (``calibrate.cuda``) on a GPU, each by itself."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calibrate.cuda.cache import source_text
from calibrate.cuda.device_tables import DeviceTables, make_tables
from calibrate.cuda.gather_pool import GatherPool, new_gather_faults
from calibrate.cuda.gpu_build import INSTALL
from calibrate.operations import Availability
from calibrate.passes.pattern_rows import Borrowed
from calibrate.passes.torch_kernels import Inputs, TorchKernels
from calibrate.providers.collectives import describe_torch_gpu
from perfmodel.schema.runs import LookupWork

_OPERATIONS = ("gather_pool",)


def availability() -> Availability:
    """Whether a GPU, PyTorch, CuPy and the CUDA run-time compiler are here; none of them is started."""
    torch = describe_torch_gpu(_OPERATIONS)
    if not torch.usable:
        return torch
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        return Availability(False, "cuda-core is not installed", INSTALL)
    if importlib.util.find_spec("cupy") is None:
        return Availability(False, "CuPy is not installed", INSTALL)
    return replace(torch, version=f"perfmodel {version()}", devices=("cuda",))


def version() -> str:
    """A version that changes whenever the source of the kernels does."""
    return hashlib.sha256(source_text()).hexdigest()[:12]


class Lookup(Borrowed):
    """A look-up whose tables are made anew for each visit, as their memory may move between visits.

    rows    function that provides the rows;  tables  function that makes tables from the rows
    """

    def __init__(self, rows: Any, work: LookupWork, tables: Callable[[Any], DeviceTables]) -> None:
        super().__init__(rows)
        self._work, self._tables = work, tables
        self._faults: Any = None
        self._pool: Any = None

    def take(self) -> None:
        """Make the tables and their descriptors for the kernel."""
        super().take()
        work, tables = self._work, self._tables(self.rows)
        self._faults = new_gather_faults(tables.device)
        self._pool = GatherPool(tables, work.batch, work.pooling)

    def __call__(self, inputs: Inputs) -> Any:
        """The sums of the bags [samples, tables x columns], in new memory."""
        out = self._pool.new_out()
        self._pool(inputs[0], inputs[1], out, self._faults)
        return out

    def give_back(self) -> None:
        """Release tables and descriptors."""
        super().give_back()
        self._pool = None


class OwnKernels(TorchKernels):
    """Times this project's kernels. Rows are fp32 or fp16, bags fp32; one launch handles all tables."""

    name = "perfmodel"
    operations = _OPERATIONS
    by_table = True

    def _lookup(self, work: LookupWork, dtype: str, copies: int) -> tuple[Lookup, Lookup]:
        joined = work.tables * work.rows
        starts = [table * work.rows for table in range(work.tables)]
        count = (copies - 1) * joined + work.rows

        def tables(rows: Any) -> DeviceTables:
            """T tables one after the other; each has the rows of all tables and copies behind it."""
            return make_tables([rows[start : start + count] for start in starts])

        own = Lookup(lambda: self.tables.rows(0, copies * joined, work.dim, dtype), work, tables)
        return own, own
