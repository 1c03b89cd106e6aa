"""Ranks of TorchRec's training step over gloo under torch.profiler: `benchmarks/traces.py make` starts them.

Reads a case as JSON on its command line: ranks, port, folder, sharding, rows, tables, batch, pooling, dim,
steps, slow (the rank that sleeps before each step, -1 for none), slow_s, host_ranks. This process becomes all
ranks after it has imported torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

WARM_UP_STEPS = 2


def sharded(case: dict[str, Any]) -> Any:
    """TorchRec's EmbeddingBagCollection, each table sharded as the case says."""
    import torch
    import torch.distributed as dist
    import torchrec
    from torchrec.distributed import sharding_plan as plans
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingEnv

    configs = [
        torchrec.EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=case["dim"], num_embeddings=case["rows"], feature_names=[f"f{i}"]
        )
        for i in range(case["tables"])
    ]
    module = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=configs)
    hosts = max(1, case["ranks"] // case["host_ranks"])
    kinds = {
        "row_wise": lambda table: plans.row_wise(),
        "table_row_wise": lambda table: plans.table_row_wise(host_index=table % hosts),
        "table_wise": lambda table: plans.table_wise(rank=table % case["ranks"]),
    }
    sharder = EmbeddingBagCollectionSharder()
    plan = plans.construct_module_sharding_plan(
        module,
        {one.name: kinds[case["sharding"]](i) for i, one in enumerate(configs)},
        sharder=sharder,
        local_size=case["host_ranks"],
        world_size=case["ranks"],
        device_type="cpu",
    )
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    return sharder.shard(module, plan, env, device=torch.device("cpu"))


def batch_of(case: dict[str, Any], seed: int) -> Any:
    """Ids of one step, order table, sample; uniform, of a fixed number a bag."""
    import torch
    import torchrec

    draw = torch.Generator().manual_seed(seed)
    bags = case["tables"] * case["batch"]
    ids = torch.randint(0, case["rows"], (bags * case["pooling"],), generator=draw)
    lengths = torch.full((bags,), case["pooling"], dtype=torch.int64)
    keys = [f"f{i}" for i in range(case["tables"])]
    return torchrec.KeyedJaggedTensor(keys=keys, values=ids, lengths=lengths)


def run(case: dict[str, Any]) -> None:
    """The steps, the last ``steps`` of them traced into ``trace_rank{rank}.json.gz``."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(case["rank"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=case["rank"], world_size=case["ranks"])
    embeddings = sharded(case)
    wide = case["tables"] * case["dim"]
    layers = torch.nn.Sequential(torch.nn.Linear(wide, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    dense = DistributedDataParallel(layers)

    def step(number: int) -> None:
        if case["rank"] == case["slow"]:
            time.sleep(case["slow_s"])
        pooled = embeddings(batch_of(case, number * case["ranks"] + case["rank"])).wait().values()
        dense(pooled).square().mean().backward()

    for number in range(WARM_UP_STEPS):
        step(number)
    dist.barrier()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        for number in range(case["steps"]):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step(WARM_UP_STEPS + number)
    profiler.export_chrome_trace(str(Path(case["folder"]) / f"trace_rank{case['rank']}.json.gz"))
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """All ranks; how many of them failed."""
    case = json.loads(sys.argv[1])
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case["port"]), GLOO_SOCKET_IFNAME="lo",
        LOCAL_WORLD_SIZE=str(case["host_ranks"]), WORLD_SIZE=str(case["ranks"]),
    )  # fmt: skip
    warnings.simplefilter("ignore")
    with contextlib.redirect_stderr(io.StringIO()):
        import torchrec  # noqa: F401
    processes = []
    for rank in range(case["ranks"]):
        process = os.fork()
        if process == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank % case["host_ranks"]))
            run({**case, "rank": rank})
            os._exit(0)
        processes.append(process)
    return sum(os.waitpid(process, 0)[1] != 0 for process in processes)


if __name__ == "__main__":
    sys.exit(main())
