"""The ranks of test_one_sided_exchange.py, real processes: one-sided look-ups over shared memory.

python one_sided_ranks.py RANKS TASK RUN: each rank prints one JSON line of what it saw.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from forked_ranks import forked
from oracles.kernels.exchange import row_wise
from torch.distributed import FileStore
from waiting import a_moment, until

from calibrate.cuda.exchange_memory import Sizes, divide_rows
from calibrate.cuda.row_wise_exchange import RowWiseExchange
from calibrate.cuda.symmetric_worlds import SharedWorld
from perfmodel.errors import PerfmodelError, RankLostError

ROWS, DIM, BATCH, MOST = (101, 3, 57), 12, 7, 9
PATIENCE_S = 2.5
SINGLE = 2.0**-24
METHODS = {"three": {"method": "three"}, "fused": {"method": "fused", "part_bags": 4}}
TYPES = {"fp32": torch.float32, "fp16": torch.float16}
FLAGS = mmap.mmap(-1, 256)
"""What all ranks see, copies of one process: that the last one began its late call, that others are done."""


def tables(dtype: str) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(rows, DIM, generator=generator).to(TYPES[dtype]) for rows in ROWS]


def held(whole: list[Any], rank: int, ranks: int) -> list[Any]:
    """The rows of a rank of each table; one row of nothing where it has none."""
    blocks = divide_rows([len(table) for table in whole], ranks)
    mine = [table[rank * block :][:block] for table, block in zip(whole, blocks, strict=True)]
    return [part.clone() if len(part) else torch.zeros(1, part.shape[1], dtype=part.dtype) for part in mine]


def batch(rank: int, call: int) -> tuple[Any, Any]:
    """Ids and lengths of a call: batches of several sizes, empty bags, in one call no ids on some ranks."""
    generator = torch.Generator().manual_seed(1000 * rank + call)
    samples = (BATCH, 2, 5, BATCH, 1, 6)[call % 6]
    lengths = torch.randint(0, MOST + 1, (len(ROWS) * samples,), generator=generator)
    lengths[::3] = 0
    if call % 6 == 3:
        lengths *= rank % 2
    counts = lengths.view(len(ROWS), samples).sum(1).tolist()
    ids = [torch.randint(0, rows, (n,), generator=generator) for rows, n in zip(ROWS, counts, strict=True)]
    return torch.cat(ids), lengths


def embedding_bag(whole: list[Any], ids: Any, lengths: Any) -> Any:
    """Bags through torch on the whole tables, [B, T, D]."""
    sizes = lengths.view(len(whole), -1)
    bags = [
        torch.nn.functional.embedding_bag(rows, table.float(), size.cumsum(0) - size, mode="sum")
        for table, rows, size in zip(whole, ids.split(sizes.sum(1).tolist()), sizes, strict=True)
    ]
    return torch.stack(bags, 1)


def bags(world: SharedWorld, dtype: str, method: str) -> dict[str, float]:
    """Largest errors of several calls, as shares of what rounding of fp32 additions allows."""
    whole, ranks = tables(dtype), world.ranks
    sizes = Sizes(ROWS, DIM, BATCH, len(ROWS) * BATCH * MOST, **METHODS[method])
    exchange = RowWiseExchange(world, held(whole, world.rank, ranks), sizes)
    parts = [[part.float().numpy() for part in held(whole, rank, ranks)] for rank in range(ranks)]
    magnitudes = [[abs(part) for part in of_rank] for of_rank in parts]
    seen = {"reference": 0.0, "torch": 0.0, "largest": 0.0, "calls": 0, "waited": 0}
    late = list(METHODS).index(method) + len(METHODS) * list(TYPES).index(dtype)
    for call in range(12):
        ids, lengths = batch(world.rank, call)
        if call == 9 and world.rank == ranks - 1:
            a_moment()
            FLAGS[late] = 1
        out = exchange.run(ids, lengths).double()
        seen["waited"] += FLAGS[late] if call == 9 else 0
        asked = [(ids.numpy(), lengths.numpy())]
        (want,), (size,) = (row_wise(of_rank, asked, ROWS) for of_rank in (parts, magnitudes))
        allowed = (MOST + ranks) * SINGLE * torch.from_numpy(size) + 1e-30
        theirs = embedding_bag(whole, ids, lengths)
        seen["reference"] = max(
            seen["reference"], float(((out - torch.from_numpy(want)).abs() / allowed).max())
        )
        seen["torch"] = max(seen["torch"], float(((out - theirs).abs() / (2 * allowed)).max()))
        seen["largest"] = max(seen["largest"], float(out.abs().max()))
        seen["calls"] += 1
    exchange.close()
    return seen


def lost(world: SharedWorld, task: str, method: str) -> dict[str, Any]:
    """In the second call the last rank hangs, or ends before it, or ends between its ids and its bags."""
    whole, last = tables("fp32"), world.ranks - 1
    sizes = Sizes(ROWS, DIM, BATCH, len(ROWS) * BATCH * MOST, **METHODS[method])
    exchange = RowWiseExchange(world, held(whole, world.rank, world.ranks), sizes, patience_s=PATIENCE_S)
    exchange.run(*batch(world.rank, 0))
    ids, lengths = batch(world.rank, 1)
    if world.rank == last:
        if task == "within":
            torch.cumsum(lengths, 0, out=exchange._memory.offsets[1 : lengths.numel() + 1])
            exchange._push(ids, 2)
        if task == "hangs":
            until(lambda: FLAGS[-1], "a word about this rank")
        os._exit(7)
    answer: dict[str, Any] = {}
    for said in ("said", "again"):
        try:
            exchange.run(ids, lengths)
        except RankLostError as error:
            answer[said] = str(error)
    FLAGS[-1] = 1
    return answer


def agreement(world: SharedWorld) -> dict[str, Any]:
    """Ranks agree, agree again, mean different things, and then the last one is gone."""
    answer: dict[str, Any] = {}
    for _ in range(50):
        world.agree("the same")
    for what in (f"rank {world.rank}", "with a rank that died"):
        try:
            world.agree(what)
        except PerfmodelError as error:
            answer[type(error).__name__] = str(error)
        if world.rank == world.ranks - 1:
            os._exit(7)
    return answer


def main() -> None:
    ranks, task, run = int(sys.argv[1]), *sys.argv[2:4]
    rank = forked(ranks)
    torch.set_num_threads(1)
    world = SharedWorld(FileStore(str(Path(gettempdir(), run)), ranks), rank, ranks)
    if task == "bags":
        answer: dict[str, Any] = {
            f"{dtype}-{method}": bags(world, dtype, method) for dtype in TYPES for method in METHODS
        }
    elif task == "agreement":
        answer = agreement(world)
    else:
        kind, method = task.rsplit("-", 1)
        answer = lost(world, kind, method)
    print(json.dumps(answer), flush=True)
    world.close()


if __name__ == "__main__":
    main()
