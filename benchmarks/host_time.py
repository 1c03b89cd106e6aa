"""What the host does in TorchRec's forward pass: counted on the module, and its time on this CPU.

    python benchmarks/host_time.py            two ranks over gloo; about 20 s
    python benchmarks/host_time.py --counts   the counts of the row-wise pass, between its collectives
    python benchmarks/host_time.py --json NAME ...   what was counted, of these passes

Counted are, between one collective and the next, the operators that PyTorch's dispatcher sees (annotations of
the profiler too), those of them that run a kernel on a GPU (launches), and the calls of Python functions that
are not inside an operator or a collective. Timed is the processor time of the thread that calls, so that
waiting for other ranks, and for other programs, is not in it. Nothing is fitted to a pass: a Python call, an
operator, a launch and a collective are timed by themselves, in turn with each other as a pass has them
(``calibrate.passes.host_calls``, as ``perfmodel calibrate`` does), and every pass is predicted.
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
from types import FrameType
from typing import Any

RANKS, ROWS, DIM, BATCH, POOLING = 2, 1000, 16, 2, 2
CASES: dict[str, list[str]] = {
    "table-wise, 2 tables": ["table_wise"] * 2,
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


COLLECTIVES = ("all_to_all_single", "reduce_scatter_tensor", "all_gather_into_tensor", "all_reduce")
INSIDE_COLLECTIVES = "torch/distributed/c10d_logger.py"
"""Where PyTorch's collectives begin: a function around each of them."""


def counted(run: Callable[[], Any]) -> list[dict[str, Any]]:
    """Python calls, operators and launches before each collective, in order, and after the last."""
    parts = operators_of(run)
    calls = python_of(run)
    if len(calls) != len(parts):
        raise SystemExit(f"{len(parts)} parts between collectives, but {len(calls)} in Python")
    return [{**part, "calls": number} for part, number in zip(parts, calls, strict=True)]


def operators_of(run: Callable[[], Any]) -> list[dict[str, Any]]:
    """Operators and launches of each part, and the collective after it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    parts: list[dict[str, Any]] = [{"operators": 0, "launches": 0, "collective": ""}]

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.__name__.split(".")[0]
            if func.namespace == "c10d":
                parts[-1]["collective"] = name.strip("_").removesuffix("_base")
                parts.append({"operators": 0, "launches": 0, "collective": ""})
            else:
                parts[-1]["operators"] += 1
                kernel = not func.is_view and name not in NO_KERNEL and func.namespace != "profiler"
                parts[-1]["launches"] += kernel
            return func(*args, **(kwargs or {}))

    with Counting():
        run()
    return parts


def python_of(run: Callable[[], Any]) -> list[int]:
    """Calls of Python functions of each part, but for those inside an operator or a collective."""
    from calibrate.passes.host_calls import INSIDE_OPERATORS

    found, inside = [0], 0

    def saw(frame: FrameType, event: str, _: Any) -> None:
        nonlocal inside
        if event == "call":
            file = frame.f_code.co_filename
            begins = not inside and file.endswith(INSIDE_COLLECTIVES)
            begins = begins and getattr(frame.f_locals.get("func"), "__name__", "") in COLLECTIVES
            if inside or begins or file.endswith(INSIDE_OPERATORS):
                inside += 1
            else:
                found[-1] += 1
            if begins:
                found.append(0)
        elif event == "return" and inside:
            inside -= 1

    sys.setprofile(saw)
    run()
    sys.setprofile(None)
    return found


def seconds(run: Callable[[], Any], times: int = 300) -> float:
    """Processor time of this thread [s]."""
    found = []
    for _ in range(times):
        begin = time.thread_time()
        run()
        found.append(time.thread_time() - begin)
    return usual(found)


def usual(times: list[float]) -> float:
    """Lower quartile, the first fifth left out: other programs on the processor only ever add."""
    return statistics.quantiles(times[len(times) // 5 :], n=4)[0]


def units() -> dict[str, float]:
    """Time of one Python call, operator, launch and collective, each after work of the other kinds [s]."""
    import torch
    import torch.distributed as dist

    from calibrate.passes.host_calls import ROUNDS

    rounds = {name: ROUNDS[name](count, "cpu") for name, count in TIMED.items()}
    sent, received, part = torch.zeros(64), torch.zeros(64), torch.zeros(64 // RANKS)
    actions = {
        **{name: one.run for name, one in rounds.items()},
        "all_to_all": lambda: dist.all_to_all_single(received, sent, async_op=True).wait(),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, sent, async_op=True).wait(),
    }
    found: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(ROUNDS_TIMED):
        for name, run in actions.items():
            begin = time.thread_time()
            run()
            found[name].append(time.thread_time() - begin)
    time_s = {name: usual(times) for name, times in found.items()}
    each = {name: time_s[name] / one.calls for name, one in rounds.items()}
    exchanges = (3 * time_s["all_to_all"] + time_s["reduce_scatter"]) / 4  # as a pass has them
    return {
        "call_s": each["python_calls"],
        "operator_s": each["operator_calls"],
        "launch_s": max(each["kernel_calls"] - each["operator_calls"], 0.0),
        "collective_s": exchanges,
    }


TIMED = {"python_calls": 350, "operator_calls": 26, "kernel_calls": 12}
"""About half of what a row-wise pass has of each."""

ROUNDS_TIMED = 300


def rank_main(rank: int, port: int, only: list[str], timed: bool) -> dict[str, Any]:
    """All cases on one rank; ``timed``: their times too, and those of single calls."""
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
            found[name] = {"parts": counted(run), **({"time_s": seconds(run)} if timed else {})}
        if timed:
            found["units"] = units()
    dist.barrier()
    return found


def measured(only: list[str], timed: bool = True) -> dict[str, Any]:
    """What rank 0 found; the others run beside it."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    reading, writing = os.pipe()
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            text = json.dumps(rank_main(rank, port, only, timed))
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


def totals(parts: list[dict[str, Any]]) -> tuple[int, int, int, int]:
    """(Python calls, operators, launches, collectives) of a pass."""
    calls, operators, launches = (
        sum(part[name] for part in parts) for name in ("calls", "operators", "launches")
    )
    return calls, operators, launches, sum(bool(part["collective"]) for part in parts)


def each_of(units_s: dict[str, float]) -> tuple[float, float, float, float]:
    """Times in the order of ``totals`` [s]."""
    return units_s["call_s"], units_s["operator_s"], units_s["launch_s"], units_s["collective_s"]


def main() -> None:
    """The tables of the docstring."""
    from perfmodel.model.issuing import host_time

    if "--json" in sys.argv:
        print(json.dumps(measured(sys.argv[sys.argv.index("--json") + 1 :], timed=False)))
        return
    only = ["row-wise, 8 tables"] if "--counts" in sys.argv else list(CASES)
    found = measured(only, timed="--counts" not in sys.argv)
    for part in found["row-wise, 8 tables"]["parts"]:
        before = f"before {part['collective']}" if part["collective"] else "after the last"
        words = f"{part['calls']:3d} Python calls, {part['operators']:3d} operators"
        print(f"{before:24} {words}, {part['launches']:2d} of them launch a kernel")
    if "--counts" in sys.argv:
        return
    each = each_of(found["units"])
    names = ("Python call", "operator", "launch", "collective")
    print("\n" + ", ".join(f"{name} {t * 1e6:.2f} us" for name, t in zip(names, each, strict=True)))
    heads = ("calls", "operators", "launches", "collectives", "measured", "predicted")
    print(f"\n{'pass':34}" + "".join(f"{head:>{len(head) + 2}}" for head in heads))
    for name in CASES:
        counts, time_s = totals(found[name]["parts"]), found[name]["time_s"]
        predicted_s = float(host_time(*counts, each))
        numbers = "".join(f"{n:{len(head) + 2}d}" for n, head in zip(counts, heads, strict=False))
        words = f"{time_s * 1e6:7.0f} us {predicted_s * 1e6:7.0f} us {predicted_s / time_s - 1:+7.0%}"
        print(f"{name:34}{numbers}{words}")


if __name__ == "__main__":
    main()
