"""Reorders received ids and lengths from the order (source, table, sample) to (table, source, sample)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from calibrate.cuda.faults import on_device
from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import launch
from calibrate.cuda.scan import THREADS, reciprocal, state_words, tiles
from perfmodel.errors import BadInputError

SOURCE = "bucketize.cu"
_ELEMENTS = {2: "pm::u16", 4: "pm::u32", 8: "pm::u64"}
_LENGTHS = Kernel(SOURCE, "pm::permute_lengths")
_SEGMENTS = Kernel(SOURCE, "pm::permute_segments")


@dataclass(frozen=True)
class Permuted:
    """Ids in the order table, source, sample (T tables, B samples of each source).

    ids      [n], of which the first sum(lengths) are written;  weights  [n], or None
    lengths  number of ids of each bag [T, sources, B], int32
    offsets  where the ids of each bag begin [T sources B + 1], int64
    """

    ids: Any
    lengths: Any
    offsets: Any
    weights: Any = None


class Permuter:
    """Reorders up to ``ids`` ids repeatedly: all memory is allocated here, run() only queues.

    sources, tables, batch  S, T, B: numbers of sources, tables, and samples of a source
    id_type, weights        torch types of 2, 4 or 8 bytes; weights may be None

    run() does not wait and can be captured in a graph. Its results are overwritten by the next run().
    Limits: sources, tables or batch below 1, S T of 2^31 or more -> BadInputError
    """

    def __init__(
        self,
        sources: int,
        tables: int,
        batch: int,
        ids: int,
        id_type: Any,
        device: Any,
        *,
        weights: Any = None,
    ) -> None:
        import torch

        if min(sources, tables, batch) < 1 or sources * tables >= 2**31:
            raise BadInputError(
                f"{sources} sources, {tables} tables and {batch} samples cannot be permuted.",
                "at least one of each, fewer than 2^31 sources x tables are expected.",
            )
        self.sources, self.tables, self.batch = sources, tables, batch
        self.device = on_device(device)
        bags, segments = sources * tables * batch, sources * tables
        words = state_words(bags)
        self._both = torch.zeros(words + state_words(segments), dtype=torch.int64, device=device)
        self._of_bags, self._of_segments = self._both[:words], self._both[words:]
        self._came_from = torch.empty(segments, dtype=torch.int64, device=device)
        self.permuted = Permuted(
            ids=torch.empty(ids, dtype=id_type, device=device),
            lengths=torch.empty(tables, sources, batch, dtype=torch.int32, device=device),
            offsets=torch.empty(bags + 1, dtype=torch.int64, device=device),
            weights=None if weights is None else torch.empty(ids, dtype=weights, device=device),
        )

    def run(self, ids: Any, lengths: Any, weights: Any = None) -> Permuted:
        """Queue a permutation of ids [n], lengths [S T B] (int32, any shape of that size) and weights [n]."""
        self._check(ids, lengths, weights)
        out, device, i32, i64 = self.permuted, self.device, ctypes.c_int32, ctypes.c_int64
        bags, segments = lengths.numel(), self.sources * self.tables
        counts = [i32(self.sources), i32(self.tables)]
        inverse = ctypes.c_uint64(reciprocal(self.batch))
        arguments = [lengths, *counts, i64(self.batch), inverse, self._of_bags]
        launch(_LENGTHS, device, tiles(bags), THREADS, [*arguments, out.lengths, out.offsets])
        arguments = [out.offsets, *counts, i64(self.batch), self._of_segments, self._came_from]
        launch(_SEGMENTS, device, tiles(segments), THREADS, arguments)
        for values, moved in ((ids, out.ids), (weights, out.weights)):
            if values is None:
                continue
            kernel = Kernel(SOURCE, f"pm::permute_copy<{_ELEMENTS[values.element_size()]}>")
            arguments = [values, out.offsets, self._came_from, i64(segments), i64(self.batch)]
            arguments += [self._both, i64(self._both.numel()), moved]
            launch(kernel, device, max(1, tiles(moved.numel())), THREADS, arguments)
        return out

    def _check(self, ids: Any, lengths: Any, weights: Any) -> None:
        import torch

        bags, out = self.sources * self.tables * self.batch, self.permuted
        wanted = [("ids", ids, out.ids), ("weights", weights, out.weights)]
        for name, given, like in wanted:
            shape = None if given is None else (given.numel(), given.dtype)
            if shape != (None if like is None else (like.numel(), like.dtype)):
                raise BadInputError(f"{name} to permute are {shape}.", "make a Permuter for such.")
        if (lengths.numel(), lengths.dtype) != (bags, torch.int32):
            raise BadInputError(
                f"{lengths.numel()} lengths of {lengths.dtype} are not those of "
                f"{self.sources} sources x {self.tables} tables x {self.batch} samples.",
                "one int32 each is expected.",
            )
        if not all(given is None or given.is_contiguous() for given in (ids, lengths, weights)):
            raise BadInputError("ids, lengths or weights to permute lie apart.", "use contiguous().")


def permute(ids: Any, lengths: Any, sources: int, tables: int, weights: Any = None) -> Permuted:
    """Reorder received ids and lengths from source, table, sample to table, source, sample.

    ids  [n];  weights  weight of each id [n], or None
    lengths  number of ids of each bag [S T B], int32, not negative, their sum at most n
    Source: numpy specification in tests/oracles/kernels/bucketize.py; equals calibrate.passes.lookup.permute
    Limits: as Permuter, which serves repeated calls without allocation
    """
    weight_type = None if weights is None else weights.dtype
    batch = lengths.numel() // max(1, sources * tables)
    made = Permuter(sources, tables, batch, ids.numel(), ids.dtype, ids.device, weights=weight_type)
    return made.run(ids, lengths, weights)
