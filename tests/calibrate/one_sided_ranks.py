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
from oracles.kernels.exchange import Lookup, measure_errors
from torch.distributed import FileStore
from waiting import a_moment, until

from calibrate.cuda import nvshmem_world
from calibrate.cuda.exchange_memory import METHODS
from calibrate.cuda.symmetric_worlds import SharedWorld
from perfmodel.errors import PerfmodelError, RankLostError

LOOKUPS = [Lookup((101, 3, 57), 12, 7, 9, dtype) for dtype in ("fp32", "fp16")]
PATIENCE_S = 2.5
FLAGS = mmap.mmap(-1, 256)
"""What all ranks see, copies of one process: that the last one began its late call, that others are done."""


def measure(world: SharedWorld) -> dict[str, Any]:
    """Errors of every method; and whether a call waited for the last rank, which begins it late."""
    answer: dict[str, Any] = {"errors": measure_errors(world, LOOKUPS, part_bags=4), "waited": []}
    for number, method in enumerate(METHODS):
        exchange = LOOKUPS[0].make_exchange(world, method)
        if world.rank == world.ranks - 1:
            a_moment()
            FLAGS[number] = 1
        exchange.run(*LOOKUPS[0].draw(world.rank, 0))
        answer["waited"].append(FLAGS[number])
        exchange.close()
    return answer


def lose(world: SharedWorld, task: str, method: str) -> dict[str, Any]:
    """In the second call the last rank hangs, or ends before it, or ends between its ids and its bags."""
    exchange = LOOKUPS[0].make_exchange(world, method, patience_s=PATIENCE_S)
    exchange.run(*LOOKUPS[0].draw(world.rank, 0))
    ids, lengths = LOOKUPS[0].draw(world.rank, 2)
    if world.rank == world.ranks - 1:
        if task == "within":
            torch.cumsum(lengths, 0, out=exchange._memory.offsets[1 : lengths.numel() + 1])
            exchange._push(ids, 3)
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


def agree(world: SharedWorld) -> dict[str, Any]:
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


def start_nvshmem(store: FileStore, rank: int, ranks: int) -> None:
    """Without a GPU it gets as far as knowing all ranks, and its own end wants a GPU."""
    print(nvshmem_world.start(store, rank, ranks), flush=True)
    store.set(f"started/{rank}", "")
    store.wait([f"started/{peer}" for peer in range(ranks)])
    os._exit(0)


def main() -> None:
    ranks, task, run = int(sys.argv[1]), *sys.argv[2:4]
    rank = forked(ranks)
    torch.set_num_threads(1)
    store = FileStore(str(Path(gettempdir(), run)), ranks)
    if task == "nvshmem":
        start_nvshmem(store, rank, ranks)
    world = SharedWorld(store, rank, ranks)
    kind, _, method = task.partition("-")
    act = {"bags": measure, "agree": agree}.get(kind, lambda world: lose(world, kind, method))
    print(json.dumps(act(world)), flush=True)
    world.close()


if __name__ == "__main__":
    main()
