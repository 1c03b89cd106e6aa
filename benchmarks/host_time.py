"""What the host does in TorchRec's forward pass: operators counted, and their time on this CPU.

    python benchmarks/host_time.py            two ranks over gloo; about 20 s
    python benchmarks/host_time.py --counts   the operators of the row-wise pass, between its collectives
    python benchmarks/host_time.py --json NAME ...   what was counted and timed, of these passes

Counted are the operators that PyTorch's dispatcher sees between one collective and the next: those that run
a kernel on a GPU (launches), and all. Timed is the processor time of the thread that calls, so that waiting
for other ranks, and for other programs, is not in it. One pass (two tables, table-wise) tells the time of an
operator; the others are predicted with it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

RANKS, ROWS, DIM, BATCH, POOLING = 2, 1000, 16, 2, 2
FITTED = "table-wise, 2 tables"
CASES: dict[str, list[str]] = {
    FITTED: ["table_wise"] * 2,
    "row-wise, 1 table": ["row_wise"],
    "row-wise, 8 tables": ["row_wise"] * 8,
    "column-wise, 2 tables": ["column_wise"] * 2,
    "row-wise and table-wise, 4 tables": ["row_wise", "table_wise"] * 2,
    "data-parallel, 4 tables": ["data_parallel"] * 4,
}
NO_KERNEL = ("empty", "new_empty", "lift_fresh", "detach", "alias", "empty_like")
"""Operators that are no view and run nothing on a GPU."""


def module_of(kinds: list[str]) -> Any:
    """TorchRec's tables, each sharded in its way."""
    import torch
    import torch.distributed as dist
    import torchrec
    from torchrec.distributed import sharding_plan as sharding
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingEnv

    configs = [
        torchrec.EmbeddingBagConfig(
            name=f"t{at}", embedding_dim=DIM, num_embeddings=ROWS, feature_names=[f"f{at}"]
        )
        for at in range(len(kinds))
    ]
    ways = {
        "table_wise": lambda at: sharding.table_wise(rank=at % RANKS),
        "row_wise": lambda at: sharding.row_wise(),
        "column_wise": lambda at: sharding.column_wise(ranks=list(range(RANKS))),
        "data_parallel": lambda at: sharding.data_parallel(),
    }
    module = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=configs)
    sharder = EmbeddingBagCollectionSharder()
    plan = sharding.construct_module_sharding_plan(
        module,
        {f"t{at}": ways[kind](at) for at, kind in enumerate(kinds)},
        sharder,
        local_size=RANKS,
        world_size=RANKS,
        device_type="cpu",
    )
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    return sharder.shard(module, plan, env, device=torch.device("cpu"))


def features_of(tables: int) -> Any:
    """A small batch, so that kernels take next to no time."""
    import torch
    import torchrec

    ids = torch.arange(tables * BATCH * POOLING) * 7 % ROWS
    lengths = torch.full((tables * BATCH,), POOLING)
    return torchrec.KeyedJaggedTensor(keys=[f"f{at}" for at in range(tables)], values=ids, lengths=lengths)


def counted(run: Callable[[], Any]) -> list[dict[str, Any]]:
    """Operators and launches before each collective, in order, and after the last."""
    from torch.utils._python_dispatch import TorchDispatchMode

    parts: list[dict[str, Any]] = [{"operators": 0, "launches": 0, "collective": ""}]

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.__name__.split(".")[0]
            if func.namespace == "c10d":
                parts[-1]["collective"] = name.strip("_").removesuffix("_base")
                parts.append({"operators": 0, "launches": 0, "collective": ""})
            elif func.namespace != "profiler":
                parts[-1]["operators"] += 1
                parts[-1]["launches"] += not func.is_view and name not in NO_KERNEL
            return func(*args, **(kwargs or {}))

    with Counting():
        run()
    return parts


def seconds(run: Callable[[], Any], times: int = 200) -> float:
    """Median of the processor time of this thread [s]."""
    found = []
    for _ in range(times):
        begin = time.thread_time()
        run()
        found.append(time.thread_time() - begin)
    return statistics.median(found[times // 5 :])


def rank_main(rank: int, port: int, only: list[str]) -> dict[str, Any]:
    """All cases on one rank."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    where = {"LOCAL_WORLD_SIZE": RANKS, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "RANK": rank}
    where |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in where.items()})
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    found: dict[str, Any] = {}
    with torch.no_grad():
        for name in only:
            module, features = module_of(CASES[name]), features_of(len(CASES[name]))
            run = lambda m=module, f=features: m(f).wait().values()  # noqa: E731
            for _ in range(3):
                run()
            found[name] = {"parts": counted(run), "time_s": seconds(run)}
        small, sent, received = torch.zeros(8), torch.zeros(RANKS), torch.zeros(RANKS)
        many = range(100)
        found["launch_s"] = seconds(lambda: [torch.add(small, small) for _ in many]) / len(many)
        found["collective_s"] = seconds(lambda: dist.all_to_all_single(received, sent, async_op=True).wait())
    dist.barrier()
    return found


def measured(only: list[str]) -> dict[str, Any]:
    """What rank 0 found; the others run beside it."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    reading, writing = os.pipe()
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            text = json.dumps(rank_main(rank, port, only))
            if rank == 0:
                with os.fdopen(writing, "w") as out:
                    out.write(text)
            os._exit(0)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    for child in children:
        os.waitpid(child, 0)
    return found


def totals(parts: list[dict[str, Any]]) -> tuple[int, int, int]:
    """(operators, launches, collectives) of a pass."""
    numbers = [sum(part[name] for part in parts) for name in ("operators", "launches")]
    return numbers[0], numbers[1], sum(bool(part["collective"]) for part in parts)


def operator_time(case: dict[str, Any], launch_s: float, collective_s: float) -> float:
    """What an operator takes beside its launch: all else of one pass, spread over its operators [s]."""
    operators, launches, collectives = totals(case["parts"])
    return float((case["time_s"] - launches * launch_s - collectives * collective_s) / operators)


def main() -> None:
    """The tables of the docstring."""
    if "--json" in sys.argv:
        print(json.dumps(measured(sys.argv[sys.argv.index("--json") + 1 :])))
        return
    only = ["row-wise, 8 tables"] if "--counts" in sys.argv else list(CASES)
    found = measured(only)
    for part in found["row-wise, 8 tables"]["parts"]:
        before = f"before {part['collective']}" if part["collective"] else "after the last"
        print(f"{before:24} {part['operators']:3d} operators, {part['launches']:2d} of them launch a kernel")
    if "--counts" in sys.argv:
        return
    launch_s, collective_s = found["launch_s"], found["collective_s"]
    each_s = operator_time(found[FITTED], launch_s, collective_s)
    times = {"launch": launch_s, "collective": collective_s, "operator": each_s}
    print("\n" + ", ".join(f"{name} {time_s * 1e6:.2f} us" for name, time_s in times.items()))
    heads = ("operators", "launches", "collectives", "measured", "predicted")
    print(f"\n{'pass':34} {heads[0]:>9} {heads[1]:>8} {heads[2]:>11} {heads[3]:>9} {heads[4]:>9}")
    for name in CASES:
        numbers, time_s = totals(found[name]["parts"]), found[name]["time_s"]
        predicted_s = sum(n * t for n, t in zip(numbers, (each_s, launch_s, collective_s), strict=True))
        words = f"{time_s * 1e6:6.0f} us {predicted_s * 1e6:6.0f} us {predicted_s / time_s - 1:+7.0%}"
        print(f"{name:34} {numbers[0]:9d} {numbers[1]:8d} {numbers[2]:11d} {words}")


if __name__ == "__main__":
    main()
