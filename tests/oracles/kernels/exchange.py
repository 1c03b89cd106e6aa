"""Row-wise look-ups over several ranks: random ones, and what the kernels of exchange.cu must give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from calibrate.cuda.exchange_memory import METHODS, Sizes, divide_rows
from calibrate.cuda.row_wise_exchange import RowWiseExchange

TYPES = {"fp32": torch.float32, "fp16": torch.float16}
SINGLE, GUARD, GUARDED = 2.0**-24, 32, -7.0


def embed(tables: Sequence[Any], ids: Any, lengths: Any) -> Any:
    """Bags through torch on whole tables in double precision, [B, T, D]."""
    sizes = lengths.view(len(tables), -1)
    bags = [
        torch.nn.functional.embedding_bag(rows, table.double(), size.cumsum(0) - size, mode="sum")
        for table, rows, size in zip(tables, ids.split(sizes.sum(1).tolist()), sizes, strict=True)
    ]
    return torch.stack(bags, 1)


@dataclass(frozen=True)
class Lookup:
    """Tables of random rows, and what ranks look up in them.

    rows  E of each table;  dim  columns;  batch  samples, at most;  most  ids of a bag
    """

    rows: tuple[int, ...]
    dim: int
    batch: int
    most: int
    dtype: str = "fp32"
    seed: int = 1

    def make_tables(self, device: Any = "cpu") -> list[Any]:
        generator = torch.Generator().manual_seed(self.seed)
        tables = [torch.randn(rows, self.dim, generator=generator) for rows in self.rows]
        return [table.to(device, TYPES[self.dtype]) for table in tables]

    def take_part(self, tables: Sequence[Any], rank: int, ranks: int) -> list[Any]:
        """The rows of a rank, in memory of their own; one row of nothing where it has none."""
        blocks = divide_rows(self.rows, ranks)
        parts = [table[rank * block :][:block] for table, block in zip(tables, blocks, strict=True)]
        nothing = torch.full_like(tables[0][:1], torch.nan)
        return [part.clone() if len(part) else nothing for part in parts]

    def draw(self, rank: int, call: int) -> tuple[Any, Any]:
        """Ids and lengths of a call: batches of several sizes, empty bags, once no ids on some ranks."""
        generator = torch.Generator().manual_seed(10_000 * self.seed + 100 * rank + call)
        samples = (self.batch, 1, max(self.batch // 2, 1), self.batch)[call % 4]
        lengths = torch.randint(0, self.most + 1, (len(self.rows) * samples,), generator=generator)
        lengths[call % 3 :: 3] = 0
        lengths *= 1 if call % 4 != 3 else rank % 2
        counts = lengths.view(len(self.rows), samples).sum(1).tolist()
        pairs = zip(self.rows, counts, strict=True)
        return torch.cat([torch.randint(0, rows, (n,), generator=generator) for rows, n in pairs]), lengths

    def make_exchange(
        self, world: Any, method: str = "fused", part_bags: int | None = None, **more: Any
    ) -> RowWiseExchange:
        """The exchange of a rank, with its part of the tables."""
        ids = len(self.rows) * self.batch * max(self.most, 1)
        sizes = Sizes(self.rows, self.dim, self.batch, ids, method=method, part_bags=part_bags)
        tables = self.make_tables(world.device)
        return RowWiseExchange(world, self.take_part(tables, world.rank, world.ranks), sizes, **more)

    def measure_error(self, exchange: Any, world: Any, call: int) -> float:
        """Largest error of a call's bags over what rounding of fp32 sums allows: below 1 they are equal.

        Limits: something is written beside them -> inf
        """
        ids, lengths = (tensor.to(world.device) for tensor in self.draw(world.rank, call))
        memory = torch.full((lengths.numel() * self.dim + 2 * GUARD,), GUARDED, device=world.device)
        out = memory[GUARD:-GUARD].view(-1, len(self.rows), self.dim).fill_(torch.nan)
        exchange.run(ids, lengths, out)
        tables = self.make_tables(world.device)
        allowed = (self.most + world.ranks) * SINGLE * embed([table.abs() for table in tables], ids, lengths)
        shares = ((out - embed(tables, ids, lengths)).abs() / (allowed + 1e-30)).nan_to_num(torch.inf)
        untouched = bool((memory[:GUARD] == GUARDED).all() and (memory[-GUARD:] == GUARDED).all())
        return float(shares.max()) if untouched else float("inf")


def measure_errors(
    world: Any, lookups: Iterable[Lookup], prepare: Callable[[Any], None] | None = None, **more: Any
) -> dict[str, float]:
    """Largest error of every method for each look-up, mapped and staged.

    prepare  what is done to an exchange before its first call;  more  words of the exchange
    """
    errors = {}
    for lookup in lookups:
        for method in METHODS:
            for stage_all in (False, True):
                exchange = lookup.make_exchange(world, method, stage_all=stage_all, **more)
                if prepare:
                    prepare(exchange)
                    world.agree("prepared")
                calls = [lookup.measure_error(exchange, world, call) for call in range(4)]
                errors[f"{lookup.dim} {lookup.dtype} {method} {stage_all}"] = max(calls)
                exchange.close()
    return errors
