"""The ranks of test_in_torchrec.py: a model with two EmbeddingBagCollections, planned by us, run by TorchRec.

python in_torchrec_ranks.py RANKS PORT RULE ...: each rank prints one JSON line: the sharding types,
what it holds, and how far its outputs are from those of the unsharded model.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from forked_ranks import forked

BATCH = 6
SHAPES = {"users": {"t0": (200, 16), "t1": (90, 8)}, "items": {"t0": (3000, 32), "t2": (40, 16)}}
"""Rows and columns of each table of each collection: two have a table of one name."""


class Model(torch.nn.Module):
    """Two collections of tables under a dense layer."""

    def __init__(self, device: str) -> None:
        import torchrec

        super().__init__()
        for name, tables in SHAPES.items():
            configs = [
                torchrec.EmbeddingBagConfig(
                    name=table, embedding_dim=dim, num_embeddings=rows, feature_names=[f"{name}_{table}"]
                )
                for table, (rows, dim) in tables.items()
            ]
            bags = torchrec.EmbeddingBagCollection(device=torch.device(device), tables=configs)
            setattr(self, name, bags)
        self.over = torch.nn.Linear(72, 1, device=device)

    def forward(self, features: Any) -> Any:
        """One number a sample."""
        bags = [getattr(self, name)(features).values() for name in SHAPES]
        return self.over(torch.cat(bags, dim=1))


def fill(model: Any, whole: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Copy each weight's parts to their holder; what this rank holds of each table."""
    held: dict[str, list[list[int]]] = {}
    for name, weight in model.state_dict().items():
        shards = weight.local_shards() if hasattr(weight, "local_shards") else None
        if shards is None:
            weight.copy_(whole[name])
            continue
        for shard in shards:
            (row, column), (rows, columns) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            shard.tensor.detach().copy_(whole[name][row : row + rows, column : column + columns])
            held.setdefault(name, []).append([row, column, rows, columns])
    return held


def batch_of(rank: int) -> Any:
    """Random ids of a rank's samples."""
    import torchrec

    random = torch.Generator().manual_seed(7 + rank)
    shapes = {f"{name}_{table}": rows for name, each in SHAPES.items() for table, (rows, _) in each.items()}
    lengths = torch.randint(0, 5, (len(shapes) * BATCH,), generator=random)
    counts = lengths.view(-1, BATCH).sum(1).tolist()
    ids = [
        torch.randint(0, rows, (n,), generator=random)
        for rows, n in zip(shapes.values(), counts, strict=True)
    ]
    return torchrec.KeyedJaggedTensor(keys=list(shapes), values=torch.cat(ids), lengths=lengths)


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    from torchrec.distributed import DistributedModelParallel

    from perfmodel.in_torchrec import plan_module

    ranks = int(sys.argv[1])
    rank = forked(ranks)
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2], "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update(where, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(1)
    model = Model("cpu")
    plan = plan_module(
        Model("meta"), "h100-sxm-ib", batch=BATCH, device="cpu", effort="quick", only=sys.argv[3:]
    )
    whole = {name: weight.clone() for name, weight in model.state_dict().items()}
    sharded = DistributedModelParallel(copy.deepcopy(model), plan=plan, device=torch.device("cpu"))
    held = fill(sharded, whole)
    features = batch_of(rank)
    theirs, ours = sharded(features), model(features)
    parts = plan.plan.items()
    types = {path: {name: each.sharding_type for name, each in part.items()} for path, part in parts}
    error = float((theirs - ours).abs().max() / ours.abs().max())
    print(json.dumps({"types": types, "held": held, "error": error}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
