"""The ranks of test_torchrec_plan.py: a plan file shards a module; its bags are those of the whole module.

python torchrec_plan_ranks.py RANKS PORT PLAN: each rank prints one JSON line, how each table is held and how
far its bags are from the unsharded ones, as a share of what rounding allows.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from forked_ranks import forked

from calibrate import torchrec_plan

BATCH = 5
SINGLE = 2.0**-24
"""Largest relative error of rounding one number to fp32."""


def fill(sharded: Any, whole: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Copy each weight's parts to their holder (on CPUs TorchRec does not); what this rank holds of each."""
    held: dict[str, list[list[int]]] = {}
    for name, weight in sharded.state_dict().items():
        table = name.split(".")[1]
        shards = weight.local_shards() if hasattr(weight, "local_shards") else None
        if shards is None:
            weight.copy_(whole[table])
            held[table] = [[0, 0, *weight.shape]]
            continue
        for shard in shards:
            (row, column), (rows, columns) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            shard.tensor.detach().copy_(whole[table][row : row + rows, column : column + columns])
            held.setdefault(table, []).append([row, column, rows, columns])
    return held


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    import torchrec
    from planner_torchrec import module_of
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingEnv

    ranks, plan = int(sys.argv[1]), torchrec_plan.load(Path(sys.argv[3]))
    rank = forked(ranks)
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2], "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update(where, RANK=str(rank), WORLD_SIZE=str(ranks))
    os.environ["LOCAL_WORLD_SIZE"] = str(plan.gpus_per_node)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(1)
    module = module_of(plan, device="cpu")
    whole = {name.split(".")[1]: weight.clone() for name, weight in module.state_dict().items()}
    sharded = EmbeddingBagCollectionSharder().shard(
        module_of(plan),
        torchrec_plan.sharding_plan(plan, module, device="cpu").plan[""],
        ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
    )
    held = fill(sharded, whole)
    generator = torch.Generator().manual_seed(100 + rank)
    lengths = torch.randint(0, 9, (len(plan.tables) * BATCH,), generator=generator)
    counts = lengths.view(-1, BATCH).sum(1).tolist()
    ids = [
        torch.randint(0, entry.rows, (count,), generator=generator)
        for entry, count in zip(plan.tables, counts, strict=True)
    ]
    keys = [f"f_{entry.table}" for entry in plan.tables]
    features = torchrec.KeyedJaggedTensor(keys=keys, values=torch.cat(ids), lengths=lengths)
    with torch.no_grad():
        theirs, want = sharded(features).wait().to_dict(), module(features).to_dict()
        for weight in module.parameters():
            weight.abs_()
        sizes = module(features).to_dict()  # sums of magnitudes bound every partial sum
    errors = {}
    for entry, key in zip(plan.tables, keys, strict=True):
        allowed = 2 * (int(lengths.max()) + ranks) * SINGLE * sizes[key] + 1e-30
        errors[entry.table] = float(((theirs[key] - want[key]).abs() / allowed).max())
    largest = min(float(want[key].abs().max()) for key in keys)
    print(json.dumps({"held": held, "errors": errors, "largest": largest}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
