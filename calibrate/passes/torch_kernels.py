"""Times the computations of a look-up one by one, with torch or FBGEMM, on a CPU or a GPU.

On a CPU the ids of each call are copied into one fixed buffer before it, as a receive would leave them, and
other rows are looked up in between: in a tight loop a call would hit the caches, whereas in a pass the step
before has replaced their contents. On a GPU, where calls run back to back, each call reads another set of ids
in place, and tables that fit the L2 cache have several copies, so that consecutive calls read different
memory. Results are compared with pattern rows (``pattern_rows``) or with another method (masks, no sort);
every element must be equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calibrate.machine.local_gpus import find_gpus
from calibrate.operations import Availability, Operation, Place, Provider
from calibrate.passes import lookup
from calibrate.passes.id_sets import COLD_BYTES, IdSet, draw_sets, table_copies
from calibrate.passes.pattern_rows import Borrowed, PatternTables, bag_sums, count_wrong, require_exact
from calibrate.planning.kernel_cells import ELEMENT_BYTES, POOLED_BYTES
from calibrate.providers.buffers import CacheClearer, l2_bytes
from calibrate.providers.torch_world import describe_torch, device_of
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import KERNELS, LookupWork, Point, PointKind

CLOCKS = (Clock.EAGER, Clock.STREAM, Clock.GRAPH)
_MOST_COPIES = 256
"""Most copies of the inputs of a short sum on a GPU."""

Inputs = tuple[Any, ...]
Outputs = tuple[Any, ...]
Call = Callable[[Inputs], Outputs]
Reference = Callable[[Inputs], Outputs]


class KernelOperation(Operation):
    """One kernel to time: ``call`` is applied to several sets of inputs in turn.

    sets       inputs of every set, tensors of equal shapes; a single set is not copied
    call       the kernel, a function of inputs that returns outputs
    reference  the expected outputs for inputs, computed without the kernel
    fixed      outputs that the kernel always writes into; empty if it makes new ones
    between    CPU: untimed work before each call; GPU: empties the cache before a graph is replayed
    table      rows that the kernel reads, or None
    """

    bytes_sent = 0

    def __init__(
        self,
        gpu: bool,
        sets: Sequence[Inputs],
        call: Call,
        reference: Reference,
        fixed: Outputs = (),
        between: Callable[[], None] | None = None,
        table: Borrowed | None = None,
    ) -> None:
        self._sets, self._call, self._reference, self._fixed = sets, call, reference, fixed
        self._between, self._table = between, table
        self._gpu = gpu
        self._in_place = gpu or len(sets) == 1
        self._inputs: Inputs = sets[0] if self._in_place else tuple(x.clone() for x in sets[0])
        self._at = 0
        self._outputs: Outputs = ()
        self._preparing = False
        self._captured: tuple[int, Outputs] | None = None

    def prepare(self, salt: int) -> None:
        """Choose the set to begin with, by ``salt``; discard or poison the outputs.

        If a CUDA graph is captured, it contains the calls from here to the first ``before``.
        """
        if self._table is not None:
            self._table.take()
        self._at = salt * 7919 % len(self._sets)
        self._forget()
        self._preparing = True
        _poison(self._fixed)

    def before(self) -> None:
        """Do the untimed work before a call.

        CPU: copy the next set into the fixed buffer, and look up other rows. GPU with a graph: poison the
        graph's outputs, and evict from the cache the rows that the last replay has read.
        """
        if self._gpu and self._preparing and self._outputs:
            self._captured = self._at, self._outputs
        self._preparing = False
        if self._captured is not None:
            _poison(self._captured[1])
        if not self._in_place:
            self._advance()
            for buffer, arrived in zip(self._inputs, self._sets[self._at], strict=True):
                buffer.copy_(arrived)
        if self._between is not None and (not self._gpu or self._captured is not None):
            self._between()

    def run(self) -> None:
        """Call the kernel. On a GPU it takes the next set, and reuses the memory of the last outputs."""
        if self._in_place:
            self._advance()
            self._inputs = self._sets[self._at]
        if self._gpu:
            self._outputs = ()
        self._outputs = self._call(self._inputs)

    def check(self) -> tuple[int, int]:
        """Compare the last outputs, also a graph's, and discard them: (wrong, compared) elements."""
        wrong = checked = 0
        for at, outputs in [(self._at, self._outputs), *([self._captured] if self._captured else [])]:
            expected = self._reference(self._sets[at])
            checked += sum(want.numel() for want in expected)
            if not outputs:
                wrong += checked  # nothing ran since the outputs were discarded
                continue
            wrong += sum(count_wrong(got, want) for got, want in zip(outputs, expected, strict=True))
        self._forget()
        if self._table is not None:
            self._table.give_back()
        return wrong, checked

    def _advance(self) -> None:
        self._at = (self._at + 1) % len(self._sets)

    def _forget(self) -> None:
        """Discard outputs: a graph and large calls hold gigabytes that the next visit needs."""
        self._outputs, self._captured = (), None


def _poison(outputs: Outputs) -> None:
    """Overwrite outputs, so that old results fail the check."""
    for output in outputs:
        output.fill_(97)


class TorchKernels(Provider):
    """Times torch's kernels; subclasses time kernels of other libraries.

    by_table  whether ids are rows of their own table, and bags [samples, tables x columns]; else ids are rows
              of joined tables, and bags [tables x samples, columns]
    copied    whether small tables have several copies on a GPU
    """

    name = "torch"
    operations: tuple[str, ...] = KERNELS
    by_table = False
    copied = True

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Take this rank's device: the CPU, or torch's current GPU."""
        import torch

        self._torch, self._gpu = torch, place.device == "cuda"
        self._device = device_of(place)
        self.tables = PatternTables(self._device, alone=self._gpu)
        self._clearer = None if self._gpu else CacheClearer(l2_bytes())
        self._swept: Any = None

    def operation(self, point: Point, ranks: Sequence[int]) -> KernelOperation:
        """The operation that times the kernel of ``point``.

        Limits: not a kernel, or one that this library lacks -> BadInputError
        """
        if point.kind is not PointKind.KERNEL or point.operation not in self.operations or point.work is None:
            raise BadInputError(
                f"{self.name} has no kernel {point.operation!r}.", f"it has: {', '.join(self.operations)}."
            )
        seed = zlib.crc32(point.key.encode())
        make = getattr(self, f"_{point.operation}")
        operation: KernelOperation = make(point.work, point.dtype, seed)
        return operation

    def close(self) -> None:
        """Free the tables."""
        self.tables.clear()
        self._swept = None

    def _between(self, work: LookupWork) -> Callable[[], None]:
        """Work that clears caches. CPU: reads as many rows as ``work`` would; GPU: ``_sweep``."""
        if self._clearer is None:
            return self._sweep
        return self._clearer.gather(2 * POOLED_BYTES * work.batch * work.tables * work.dim)

    def _sweep(self) -> None:
        """Read more memory than the L2 cache of any GPU holds, to evict everything else from it."""
        if self._swept is None:
            zeros = self._torch.zeros
            self._swept = zeros(COLD_BYTES // 4, device=self._device), zeros((), device=self._device)
        self._torch.sum(self._swept[0], dim=0, out=self._swept[1])

    def _tensors(self, drawn: IdSet) -> tuple[Any, Any]:
        from_numpy = self._torch.from_numpy
        return from_numpy(drawn.ids).to(self._device), from_numpy(drawn.lengths).to(self._device)

    def _join_ids(self, work: LookupWork, ids: Any, lengths: Any) -> Any:
        """Ids, which count rows of their own table, as rows of one table that holds all tables in order."""
        torch = self._torch
        table = torch.arange(lengths.numel(), device=ids.device) // work.batch
        return ids + torch.repeat_interleave(table * work.rows, lengths, output_size=ids.numel())

    def _gather_pool(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        """A look-up, whose bags must equal sums of pattern rows."""
        joined, drawn = work.tables * work.rows, draw_sets(work, dtype, seed)
        table_bytes = joined * work.dim * ELEMENT_BYTES[dtype]
        copies = table_copies(table_bytes, len(drawn)) if self._gpu and self.copied else 1
        table, call = self._lookup(work, dtype, copies)
        sets = []
        for index, one in enumerate(drawn):
            require_exact(dtype, int(one.lengths.max()))
            ids, lengths = self._tensors(one)
            rows = ids if self.by_table else self._join_ids(work, ids, lengths)
            sets.append((rows + index % copies * joined, lookup.sum_lengths(lengths), lengths))

        def reference(inputs: Inputs) -> Outputs:
            ids, _, lengths = inputs
            rows = self._join_ids(work, ids, lengths) if self.by_table else ids
            sums = bag_sums(rows, lengths, work.dim)
            if self.by_table:
                sums = sums.view(work.tables, work.batch, work.dim).transpose(0, 1)
                sums = sums.reshape(work.batch, -1)
            return (sums,)

        return KernelOperation(self._gpu, sets, call, reference, between=self._between(work), table=table)

    def _lookup(self, work: LookupWork, dtype: str, copies: int) -> tuple[Borrowed | None, Call]:
        """(tables with ``copies`` copies of their rows, function of ids, offsets and lengths)."""
        joined = copies * work.tables * work.rows
        table = Borrowed(lambda: self.tables.rows(0, joined, work.dim, dtype))
        return table, lambda inputs: (lookup.gather_pool(table.rows, inputs[0], inputs[1][:-1]),)

    def _bucketize(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        sets = [self._tensors(one) for one in draw_sets(work, dtype, seed, most_sets=64)]
        block = -(-work.rows // work.shards)

        def reference(inputs: Inputs) -> Outputs:
            rows, sent = bucketized(inputs[0], inputs[1], work.tables, block, work.shards)
            return rows % block if self.by_table else rows, sent

        call = self._bucketizer(work, block)
        return KernelOperation(self._gpu, sets, call, reference, between=self._between(work))

    def _bucketizer(self, work: LookupWork, block: int) -> Call:
        """A function that sorts ids by owner of ``block`` rows."""

        def call(inputs: Inputs) -> Outputs:
            sent = lookup.bucketize(inputs[0], inputs[1], work.tables, block, work.shards)
            return sent.ids, sent.lengths

        return call

    def _partial_sum(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        torch, elements = self._torch, work.batch * work.tables * work.dim

        def values() -> Any:
            whole = torch.arange(work.shards * elements, device=self._device)
            return ((whole + seed % 1000) % 251).view(work.shards, elements)

        part_bytes = POOLED_BYTES * work.shards * elements
        copies = min(-(-COLD_BYTES // part_bytes), _MOST_COPIES) if self._gpu else 1
        parts = values().to(torch.float32).repeat(copies, 1, 1)
        out = torch.empty(elements, device=self._device)

        def call(inputs: Inputs) -> Outputs:
            torch.sum(inputs[0], dim=0, out=out)
            return (out,)

        def reference(inputs: Inputs) -> Outputs:
            return (values().sum(0).to(torch.float32),)

        return KernelOperation(self._gpu, [(one,) for one in parts], call, reference, (out,))

    def _copy(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        torch = self._torch
        tile = torch.arange(251, dtype=torch.uint8, device=self._device)
        source = tile.repeat(-(-work.dim // 251))[: work.dim].clone()
        out = torch.empty_like(source)

        def call(inputs: Inputs) -> Outputs:
            return (out.copy_(inputs[0]),)

        return KernelOperation(self._gpu, [(source,)], call, lambda inputs: inputs, (out,))

    def _launch_floor(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        torch = self._torch
        one = torch.full((1,), seed % 1000, dtype=torch.float32, device=self._device)
        out = torch.empty_like(one)

        def call(inputs: Inputs) -> Outputs:
            return (torch.add(inputs[0], 1, out=out),)

        return KernelOperation(self._gpu, [(one,)], call, lambda inputs: (inputs[0] + 1,), (out,))


def bucketized(ids: Any, lengths: Any, tables: int, block: int, owners: int) -> tuple[Any, Any]:
    """Ids [n] sorted by the rank that owns their row, and the length of each bag at each rank [owners, T B].

    ids, lengths  of T tables, table by table;  block  rows of a table that each of ``owners`` ranks has
    The same result as ``lookup.bucketize``, from one mask for each rank.
    """
    import torch

    bags = lengths.numel()
    bag = torch.arange(bags, device=ids.device).repeat_interleave(lengths)
    owner, row = ids // block, bag // (bags // tables) * block + ids % block
    masks = [owner == number for number in range(owners)]
    counts = [torch.bincount(bag[mask], minlength=bags) for mask in masks]
    return torch.cat([row[mask] for mask in masks]), torch.stack(counts)


def torch_availability() -> Availability:
    """Whether torch is installed; it is not imported."""
    return describe_torch(clocks_here(), TorchKernels.operations)


def clocks_here() -> tuple[Clock, ...]:
    """Ways in which kernels can be timed on this machine; CUDA graphs need a GPU."""
    return CLOCKS if find_gpus() else tuple(clock for clock in CLOCKS if clock is not Clock.GRAPH)
