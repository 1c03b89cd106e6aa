"""Rank 0 of a TorchRec job in one process: every collective is logged instead of sent.

python fake_torchrec.py WORLD: reads cases (JSON) from stdin, prints the messages of each as JSON. All ranks
are taken to do what rank 0 does: what it receives from a peer is what it would send to itself.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from typing import Any

LOCAL = 8
LOG: list[tuple[str, int, int, str]] = []


class Done:
    """What an asynchronous collective returns: it is over."""

    def wait(self) -> bool:
        return True


def log_collectives() -> None:
    import torch
    import torch.distributed as dist

    def note(name: str, sent: Any, group: Any) -> int:
        size = dist.get_world_size(group)
        LOG.append((name, size, sent.numel() * sent.element_size(), str(sent.dtype).removeprefix("torch.")))
        return size

    def all_to_all(output: Any, input: Any, *sizes: Any, group: Any = None, **more: Any) -> Done:
        ranks = note("all_to_all", input, group)
        splits = more.get("input_split_sizes") or (sizes[1] if len(sizes) > 1 else None)
        mine = input[: splits[0] if splits else input.shape[0] // ranks]
        times = -(-output.shape[0] // max(1, mine.shape[0]))
        output.copy_(
            torch.cat([mine] * times)[: output.shape[0]] if mine.numel() else torch.zeros_like(output)
        )
        return Done()

    def reduce_scatter(output: Any, input: Any, *more: Any, group: Any = None, **others: Any) -> Done:
        output.copy_(input[: output.shape[0]] * note("reduce_scatter", input, group))
        return Done()

    def unexpected(name: str) -> Any:
        def call(*positional: Any, **named: Any) -> None:
            raise RuntimeError(f"an unexpected collective: {name}")

        return call

    for name in (
        "all_gather",
        "all_gather_into_tensor",
        "all_reduce",
        "all_to_all",
        "reduce_scatter",
        "broadcast",
    ):
        setattr(dist, name, unexpected(name))
    dist.all_to_all_single = all_to_all
    for name in ("reduce_scatter_tensor", "reduce_scatter_single"):
        setattr(dist, name, reduce_scatter)


def name_sharding(case: dict[str, Any], table: int, world: int) -> Any:
    from torchrec.distributed import sharding_plan as plans

    return {
        "row_wise": lambda: plans.row_wise(),
        "table_wise": lambda: plans.table_wise(rank=table % world),
        "column_wise": lambda: plans.column_wise(ranks=[(2 * table) % world, (2 * table + 1) % world]),
        "table_row_wise": lambda: plans.table_row_wise(host_index=table % (world // LOCAL)),
    }[case["sharding"]]()


def messages(case: dict[str, Any], world: int) -> list[tuple[str, int, int, str]]:
    """Collectives of one forward pass: (name, ranks of its group, bytes of rank 0's send buffer, type)."""
    import torch
    import torch.distributed as dist
    import torchrec
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan
    from torchrec.distributed.types import ShardingEnv

    tables = [
        torchrec.EmbeddingBagConfig(
            name=f"t{i}",
            embedding_dim=dim,
            num_embeddings=100 * world,
            feature_names=[f"f{i}"],
            data_type=torchrec.types.DataType[case["dtype"]],
        )
        for i, dim in enumerate(case["dims"])
    ]
    weighted = case["weighted"]
    module = torchrec.EmbeddingBagCollection(device=torch.device("meta"), is_weighted=weighted, tables=tables)
    sharder = EmbeddingBagCollectionSharder()
    plan = construct_module_sharding_plan(
        module,
        {f"t{i}": name_sharding(case, i, world) for i in range(len(tables))},
        sharder=sharder,
        local_size=LOCAL,
        world_size=world,
        device_type="cpu",
    )
    sharded = sharder.shard(
        module, plan, ShardingEnv.from_process_group(dist.group.WORLD), device=torch.device("cpu")
    )
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor(case["lengths"])
    count = int(lengths.sum())
    features = torchrec.KeyedJaggedTensor(
        keys=[f"f{i}" for i in range(len(tables))],
        values=torch.randint(0, 100 * world, (count,), generator=generator),
        lengths=lengths,
        weights=torch.ones(count) if weighted else None,
    )
    LOG.clear()
    with torch.no_grad():
        sharded(features).wait()
    return list(LOG)


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    world = int(sys.argv[1])
    os.environ.update(LOCAL_WORLD_SIZE=str(LOCAL), LOCAL_RANK="0", WORLD_SIZE=str(world), RANK="0")
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    log_collectives()
    print(json.dumps([messages(case, world) for case in json.loads(sys.argv[2])]))


if __name__ == "__main__":
    main()
