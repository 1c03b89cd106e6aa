"""Times the look-up of one rank by itself, and copies, with torch, on a CPU or a GPU.

On a CPU the ids of each call are copied into one fixed buffer before it, as a receive would leave them. On a
GPU, where calls run back to back, each call reads another set of ids in place, and tables that fit the L2
cache have several copies, so that consecutive calls read different memory. Bags are compared with sums of
pattern rows (``pattern_rows``); every element must be equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from calibrate.operations import Operation, Place, Provider
from calibrate.passes import lookup
from calibrate.passes.id_sets import count_copies, draw_sets
from calibrate.passes.pattern_rows import Borrowed, PatternTables, count_wrong, sum_bags
from calibrate.planning.kernel_cells import ELEMENT_BYTES
from calibrate.providers.torch_world import find_device
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import KERNELS, LookupWork, Point, PointKind

if TYPE_CHECKING:
    import torch

Inputs = tuple["torch.Tensor", ...]
"""Of a look-up ids [n], offsets [bags + 1] and lengths [bags]; of a copy the bytes to copy."""

Function = Callable[[Inputs], "torch.Tensor"]


class KernelOperation(Operation):
    """One kernel to time: ``call`` is applied to several sets of inputs in turn."""

    bytes_sent = 0

    def __init__(
        self,
        gpu: bool,
        sets: Sequence[Inputs],
        call: Function,
        reference: Function,
        table: Borrowed | None = None,
    ) -> None:
        """gpu        whether inputs are read in place, not copied into one buffer
        sets       inputs of every set, tensors of equal shapes; a single set is not copied
        call       the kernel: its output for inputs
        reference  the expected output for inputs, computed without the kernel
        table      rows that the kernel reads, or None
        """
        self._sets = sets
        self._call = call
        self._reference = reference
        self._table = table
        self._gpu = gpu
        self._in_place = gpu or len(sets) == 1
        inputs = next(iter(sets))
        self._inputs = inputs if self._in_place else tuple(tensor.clone() for tensor in inputs)
        self._output: torch.Tensor | None = None

    def prepare(self, salt: int) -> None:
        """Choose the first set, by ``salt`` (the visit's number); take the table, discard the output."""
        if self._table is not None:
            self._table.take()
        self._index = salt * 7919 % len(self._sets)  # a prime: successive visits begin far apart
        self._output = None

    def before(self) -> None:
        """On a CPU, copy the next set of ids into the buffer that the kernel reads; untimed."""
        if not self._in_place:
            self._advance()
            for buffer, arrived in zip(self._inputs, self._sets[self._index], strict=True):
                buffer.copy_(arrived)

    def run(self) -> None:
        """Call the kernel. On a GPU it takes the next set, and reuses the memory of the last output."""
        if self._in_place:
            self._advance()
            self._inputs = self._sets[self._index]
        if self._gpu:
            self._output = None
        self._output = self._call(self._inputs)

    def check(self) -> tuple[int, int]:
        """Compare the last output, and discard it: (wrong, compared) elements."""
        expected = self._reference(self._sets[self._index])
        wrong = expected.numel() if self._output is None else count_wrong(self._output, expected)
        self._output = None  # large calls hold gigabytes that the next visit needs
        if self._table is not None:
            self._table.give_back()
        return wrong, expected.numel()

    def _advance(self) -> None:
        self._index = (self._index + 1) % len(self._sets)


class TorchKernels(Provider):
    """Times torch's kernels; subclasses time the look-ups of other libraries.

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

        self._torch = torch
        self._gpu = place.device == "cuda"
        self._device = find_device(place)
        self.tables = PatternTables(self._device)

    def operation(self, point: Point, ranks: Sequence[int]) -> KernelOperation:
        """The operation that times the kernel of ``point``.

        Limits: not a kernel, or one that this library lacks -> BadInputError
        """
        if point.kind is not PointKind.KERNEL or point.operation not in self.operations or point.work is None:
            raise BadInputError(
                f"{self.name} has no kernel {point.operation!r}.", f"it has: {', '.join(self.operations)}."
            )
        if point.operation == "copy":
            return self._make_copy(point.work.dim)
        return self._make_gather(point.work, point.dtype, zlib.crc32(point.key.encode()))

    def close(self) -> None:
        """Free the tables."""
        self.tables.clear()

    def _join_ids(self, work: LookupWork, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Rows of one table of all tables, for ids that count rows of their own. lengths  ids of each bag"""
        torch = self._torch
        table = torch.arange(lengths.numel(), device=ids.device) // work.batch
        return ids + torch.repeat_interleave(table * work.rows, lengths, output_size=ids.numel())

    def _make_gather(self, work: LookupWork, dtype: str, seed: int) -> KernelOperation:
        """A look-up, whose bags must equal sums of pattern rows. seed  of the random ids

        On a GPU set number i reads copy i mod ``copies`` of the tables, which lie one behind the other.
        """
        joined = work.tables * work.rows
        drawn = draw_sets(work, dtype, seed)
        table_bytes = joined * work.dim * ELEMENT_BYTES[dtype]
        copies = count_copies(table_bytes, len(drawn)) if self._gpu and self.copied else 1
        table, call = self._lookup(work, dtype, copies)
        sets = []
        for index, id_set in enumerate(drawn):
            ids = self._torch.from_numpy(id_set.ids).to(self._device)
            lengths = self._torch.from_numpy(id_set.lengths).to(self._device)
            rows = ids if self.by_table else self._join_ids(work, ids, lengths)
            sets.append((rows + index % copies * joined, lookup.sum_lengths(lengths), lengths))

        def sum_rows(inputs: Inputs) -> torch.Tensor:
            """The bags that the look-up must return, in its order."""
            ids, _, lengths = inputs
            rows = self._join_ids(work, ids, lengths) if self.by_table else ids
            sums = sum_bags(rows, lengths, work.dim)
            if self.by_table:
                sums = sums.view(work.tables, work.batch, work.dim).transpose(0, 1)
                sums = sums.reshape(work.batch, -1)
            return sums

        return KernelOperation(self._gpu, sets, call, sum_rows, table)

    def _lookup(self, work: LookupWork, dtype: str, copies: int) -> tuple[Borrowed | None, Function]:
        """(tables with ``copies`` copies of their rows, function of ids, offsets and lengths)."""
        joined = copies * work.tables * work.rows
        table = Borrowed(lambda: self.tables.rows(0, joined, work.dim, dtype))
        return table, lambda inputs: lookup.gather_pool(table.rows, inputs[0], inputs[1][:-1])

    def _make_copy(self, size_bytes: int) -> KernelOperation:
        """A copy of ``size_bytes`` bytes."""
        torch = self._torch
        tile = torch.arange(251, dtype=torch.uint8, device=self._device)  # a prime: shifted data differ
        source = tile.repeat(-(-size_bytes // 251))[:size_bytes].clone()
        target = torch.empty_like(source)
        return KernelOperation(
            self._gpu, [(source,)], lambda inputs: target.copy_(inputs[0]), lambda inputs: inputs[0]
        )
