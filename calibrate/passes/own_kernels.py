"""Kernel cells through this project's own kernels (``calibrate.cuda``), on a GPU."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calibrate.cuda.bucketize import Bucketizer
from calibrate.cuda.cache import source_text
from calibrate.cuda.device_tables import DeviceTables, make_tables
from calibrate.cuda.gather_pool import GatherOptions, GatherPool, new_gather_faults, offsets_of
from calibrate.cuda.gpu_build import INSTALL
from calibrate.cuda.host_memory import LARGEST_PART, PinnedRows
from calibrate.cuda.partial_bags import partial_sum
from calibrate.cuda.permute import Permuter
from calibrate.cuda.split import row_wise
from calibrate.operations import Availability, Place
from calibrate.passes.id_sets import IdSet, draw_sets, table_copies
from calibrate.passes.pattern_rows import bag_sums, require_exact
from calibrate.passes.pattern_tables import Borrowed
from calibrate.passes.reference import bucketized, permuted
from calibrate.passes.torch_kernels import (
    Inputs,
    KernelOperation,
    Outputs,
    TorchKernels,
)
from calibrate.planning.kernel_cells import ELEMENT_BYTES
from calibrate.providers.device_collectives import torch_with_cuda
from calibrate.ranks.process import host_memory_bytes
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import LookupWork

_OPERATIONS = ("gather_pool", "bucketize", "permute", "partial_sum", "gather_host")


def availability() -> Availability:
    """Whether there is a GPU, PyTorch and CuPy for it and the CUDA run-time compiler; none is started."""
    found = torch_with_cuda(_OPERATIONS)
    if not found.usable:
        return found
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return Availability(False, "cuda-bindings is not installed", INSTALL)
    if importlib.util.find_spec("cupy") is None:
        return Availability(False, "CuPy is not installed", INSTALL)
    return replace(found, version=f"perfmodel {version()}", devices=("cuda",))


def version() -> str:
    """What tells kernels of different sources apart."""
    return hashlib.sha256(source_text()).hexdigest()[:12]


class Lookup(Borrowed):
    """A look-up that is prepared anew for each visit: its tables lie where the visit's memory is."""

    def __init__(self, rows: Any, work: LookupWork, copies: int) -> None:
        super().__init__(rows)
        self._work, self._copies = work, copies
        self.faults: Any = None
        self.call: Any = None

    def take(self) -> None:
        """T tables that lie one after the other, each with the rows of all tables and copies behind it."""
        super().take()
        work, more = self._work, (self._copies - 1) * self._work.tables * self._work.rows
        starts = [table * work.rows for table in range(work.tables)]
        tables = make_tables([self.rows[start : start + more + work.rows] for start in starts])
        options = GatherOptions(id_bytes=work.id_bytes, layout="table")
        self.faults = new_gather_faults(tables.device)
        self.call = GatherPool(tables, work.batch, options, work.pooling)

    def give_back(self) -> None:
        """Tables and descriptors go."""
        super().give_back()
        self.call = None


class HostLookup(Borrowed):
    """A look-up of one table in pinned host memory, prepared anew for each visit."""

    def __init__(self, rows: Any, work: LookupWork, device: Any) -> None:
        super().__init__(rows)
        self._work, self._device = work, device
        self.faults: Any = None
        self.call: Any = None

    def take(self) -> None:
        """The table, and its descriptor on the GPU."""
        super().take()
        work = self._work
        reader = self._device if self._device.type == "cuda" else None
        tables = DeviceTables((self.rows,), (work.dim,), "fp32", reader)
        self.faults = new_gather_faults(self._device)
        self.call = GatherPool(
            tables, work.batch, GatherOptions(id_bytes=work.id_bytes, layout="table"), work.pooling
        )

    def give_back(self) -> None:
        """Table and descriptor go."""
        super().give_back()
        self.call = None


class OwnKernels(TorchKernels):
    """Rows fp32 or fp16, bags fp32; all tables in one launch."""

    name = "perfmodel"
    operations = _OPERATIONS

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Take this rank's device; host memory for rows is taken when it is asked for."""
        super().open(place, address)
        self._pinned = PinnedRows(self._device, LARGEST_PART * host_memory_bytes(place.local_ranks))

    def close(self) -> None:
        """Give the tables back."""
        super().close()
        self._pinned.clear()

    def _gather_host(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        """The kernel of ``gather_pool``, whose table lies in memory of the host.

        Limits: more than one table -> BadInputError
        """
        if work.tables != 1:
            raise BadInputError(f"gather_host looks up 1 table, not {work.tables}.", "ask for one table.")
        lookup = HostLookup(lambda: self._pinned.rows(work.rows, work.dim), work, self._device)
        sets = [self._set(work, one, dtype, 0) for one in draw_sets(work, dtype, seed)]

        def call(inputs: Inputs) -> Outputs:
            out = lookup.call.new_out()
            lookup.call(inputs[0], inputs[1], out, None, lookup.faults)
            return (out.view(-1, work.dim),)

        def reference(inputs: Inputs) -> Outputs:
            return (bag_sums(inputs[0].long(), inputs[2], work.dim),)

        return KernelOperation(self._gpu, sets, call, reference, between=self._between(work), table=lookup)

    def _gather_pool(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        joined = work.tables * work.rows
        drawn = draw_sets(work, dtype, seed)
        copies = table_copies(joined * work.dim * ELEMENT_BYTES[dtype], len(drawn)) if self._gpu else 1
        lookup = Lookup(lambda: self.tables.rows(0, copies * joined, work.dim, dtype), work, copies)
        sets = [self._set(work, one, dtype, index % copies * joined) for index, one in enumerate(drawn)]

        def call(inputs: Inputs) -> Outputs:
            out = lookup.call.new_out()
            lookup.call(inputs[0], inputs[1], out, None, lookup.faults)
            return (out.view(-1, work.dim),)

        def reference(inputs: Inputs) -> Outputs:
            ids, _, lengths = inputs
            table = self._torch.arange(lengths.numel(), device=ids.device) // work.batch
            rows = ids + self._torch.repeat_interleave(table * work.rows, lengths, output_size=ids.numel())
            return (bag_sums(rows, lengths, work.dim),)

        return KernelOperation(self._gpu, sets, call, reference, between=self._between(work), table=lookup)

    def _set(self, work: LookupWork, one: IdSet, dtype: str, first_row: int) -> Inputs:
        """Rows of their own table in the copy that begins at ``first_row``, offsets, lengths."""
        require_exact(dtype, int(one.lengths.max()))
        ids, lengths = self._tensors(one)
        kind = self._torch.int32 if work.id_bytes == 4 else self._torch.int64
        return (ids + first_row).to(kind), offsets_of(lengths, kind), lengths

    def _bucketize(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        torch, block = self._torch, -(-work.rows // work.shards)
        sets = [self._tensors(one) for one in draw_sets(work, dtype, seed, most_sets=64)]
        ids, lengths = sets[0]
        offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=self._device)
        split = row_wise([work.rows] * work.tables, work.shards, block=block)
        made = Bucketizer(split, work.batch, ids.numel(), ids.dtype, self._device, positions=False)

        def call(inputs: Inputs) -> Outputs:
            made.buckets = _elsewhere(made.buckets)
            torch.cumsum(inputs[1], 0, out=offsets[1:])  # lengths are what a step gets
            out = made.run(inputs[0], offsets)
            return out.ids, out.lengths.view(work.shards, -1)

        def reference(inputs: Inputs) -> Outputs:
            return bucketized(inputs[0], inputs[1], work.tables, block, work.shards)

        return KernelOperation(self._gpu, sets, call, reference, between=self._between(work))

    def _permute(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        torch, sources = self._torch, work.shards
        received = work.model_copy(update={"batch": work.batch * sources})
        drawn = [self._tensors(one) for one in draw_sets(received, dtype, seed, most_sets=64)]
        sets = [(ids, lengths.to(torch.int32)) for ids, lengths in drawn]
        ids, _ = sets[0]
        made = Permuter(sources, work.tables, work.batch, ids.numel(), ids.dtype, self._device)

        def call(inputs: Inputs) -> Outputs:
            made.permuted = _elsewhere(made.permuted)
            out = made.run(*inputs)
            return out.ids, out.lengths.view(-1)

        def reference(inputs: Inputs) -> Outputs:
            return permuted(inputs[0], inputs[1].long(), sources, work.tables)

        return KernelOperation(self._gpu, sets, call, reference, between=self._between(work))

    def _add(self, parts: Any, out: Any) -> None:
        partial_sum(parts[..., None], out[..., None])


def _elsewhere(result: Any) -> Any:
    """The same result with ids and lengths in new memory: a graph's outputs and a later call's stay apart."""
    import torch

    return replace(result, ids=torch.empty_like(result.ids), lengths=torch.empty_like(result.lengths))
