"""One PE of test_gpu_exchange.py: one-sided look-ups on a GPU, on random tables.

python exchange_ranks.py TASK RANK RANKS PORT: over NVSHMEM; prints one JSON line of what this rank saw.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from sizes import sized

from calibrate.cuda.exchange_memory import METHODS, Sizes, divide_rows
from calibrate.cuda.row_wise_exchange import RowWiseExchange
from calibrate.cuda.symmetric_worlds import SymmetricWorld
from perfmodel.errors import RankLostError

ROWS, BATCH, MOST = (1001, 3, 5000), sized(130, 17), sized(20, 6)
SHAPES = ((64, torch.float32), (12, torch.float16), (33, torch.float32), (128, torch.float32))
SINGLE = 2.0**-24


def held(tables: list[Any], rank: int, ranks: int) -> list[Any]:
    """The rows of a rank of each table; one row of nothing where it has none."""
    blocks = divide_rows([len(table) for table in tables], ranks)
    mine = [table[rank * block :][:block] for table, block in zip(tables, blocks, strict=True)]
    return [
        part.clone() if len(part) else torch.zeros_like(table[:1])
        for part, table in zip(mine, tables, strict=True)
    ]


def truth(tables: list[Any], ids: Any, lengths: Any) -> Any:
    """Bags in double precision, [B, T, D]."""
    sizes = lengths.view(len(tables), -1)
    parts = zip(tables, ids.split(sizes.sum(1).tolist()), sizes, strict=True)
    bags = [
        torch.nn.functional.embedding_bag(rows, table.double(), size.cumsum(0) - size, mode="sum")
        for table, rows, size in parts
    ]
    return torch.stack(bags, 1)


def shares(world: SymmetricWorld, blocks: int | None, patience_s: float) -> dict[str, float]:
    """Largest error of each method over what rounding of fp32 sums allows: below 1, bags are equal."""
    seen = {}
    for shape, (dim, dtype) in enumerate(SHAPES):
        generator = torch.Generator().manual_seed(shape)
        tables = [torch.randn(rows, dim, generator=generator).to(world.device, dtype) for rows in ROWS]
        for method in METHODS:
            for stage_all in (False, True):
                sizes = Sizes(ROWS, dim, BATCH, len(ROWS) * BATCH * MOST, method=method)
                exchange = RowWiseExchange(
                    world,
                    held(tables, world.rank, world.ranks),
                    sizes,
                    blocks=blocks,
                    stage_all=stage_all,
                    patience_s=patience_s,
                )
                errors = [error(exchange, tables, world, call) for call in range(4)]
                seen[f"{dim} {dtype} {method} {stage_all}"] = max(errors)
                exchange.close()
    return seen


def error(exchange: RowWiseExchange, tables: list[Any], world: SymmetricWorld, call: int) -> float:
    generator = torch.Generator().manual_seed(100 * world.rank + call)
    samples = (BATCH, 1, BATCH // 2, BATCH)[call]
    lengths = torch.randint(0, MOST + 1, (len(ROWS) * samples,), generator=generator)
    counts = lengths.view(len(ROWS), samples).sum(1).tolist()
    parts = [torch.randint(0, rows, (n,), generator=generator) for rows, n in zip(ROWS, counts, strict=True)]
    ids, lengths = torch.cat(parts).to(world.device), lengths.to(world.device)
    out = torch.full((samples, len(ROWS), tables[0].shape[1]), torch.nan, device=world.device)
    exchange.run(ids, lengths, out)
    allowed = (MOST + world.ranks) * SINGLE * truth([table.abs() for table in tables], ids, lengths) + 1e-30
    return float(((out - truth(tables, ids, lengths)).abs() / allowed).nan_to_num(torch.inf).max())


def main() -> None:
    import torch.distributed as dist

    from calibrate.cuda.nvshmem_world import NvshmemWorld

    task, (rank, ranks, port) = sys.argv[1], (int(word) for word in sys.argv[2:])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    store = dist.TCPStore("127.0.0.1", port, ranks, is_master=rank == 0)
    world = NvshmemWorld(store, rank, ranks, device)
    if task == "bags":
        print(json.dumps(shares(world, 8, patience_s=60)), flush=True)
    else:
        tables = [torch.ones(rows, 4, device=device) for rows in ROWS]
        sizes = Sizes(ROWS, 4, BATCH, 100)
        exchange = RowWiseExchange(world, held(tables, rank, ranks), sizes, blocks=8, patience_s=3)
        if rank == ranks - 1:
            os._exit(7)
        ids = torch.zeros(len(ROWS), dtype=torch.int64, device=device)
        try:
            exchange.run(ids, torch.ones_like(ids))
        except RankLostError as lost:
            print(json.dumps({"said": str(lost)}), flush=True)
    world.close()


if __name__ == "__main__":
    main()
