"""Traces of TorchRec over gloo, a file a rank: passes or training steps of a plan under PyTorch's profiler.

Run:    perfmodel plan --model tables.csv --gpus 2 --format torchrec --out plan.json
        python benchmarks/torchrec_traces.py plan.json --out traces                 forward passes
        python benchmarks/torchrec_traces.py plan.json --out traces --training
        python benchmarks/torchrec_traces.py plan.json --out traces --batch 64,256,1024     sizes in turn
        python benchmarks/torchrec_traces.py plan.json --out traces --pipelined        its pipeline
        python benchmarks/torchrec_traces.py plan.json --out traces --late 1:20ms   rank 1 comes late
        python benchmarks/torchrec_traces.py plan.json --out traces --busy 1:2      rank 1 looks all up twice

Processes of this machine stand for GPUs, one thread each. Ids are uniform over the rows, and every bag sums
the pooling of its table. Some steps before the traced ones warm up. TorchRec's plan, as it prints it, is in
plan.txt beside the traces.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from calibrate import torchrec_plan
from perfmodel.schema.torchrec_plan import TorchRecPlan
from perfmodel.units import parse_time

_WARM_UP = 3


def module_of(plan: TorchRecPlan, device: str) -> Any:
    """The unsharded EmbeddingBagCollection of a plan's tables; feature f_NAME looks up table NAME."""
    import torch
    import torchrec

    return torchrec.EmbeddingBagCollection(
        device=torch.device(device),
        tables=[
            torchrec.EmbeddingBagConfig(
                name=entry.table,
                embedding_dim=entry.dim,
                num_embeddings=entry.rows,
                feature_names=[f"f_{entry.table}"],
            )
            for entry in plan.tables
        ],
    )


def sharded_module(plan: TorchRecPlan, *, training: bool) -> Any:
    """TorchRec's sharded module over the ranks that run; SGD inside the look-up where it is trained."""
    import torch
    import torch.distributed as dist
    from torch.distributed.optim import _apply_optimizer_in_backward
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingEnv

    module = module_of(plan, "meta")
    if training:
        _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.01})
    return EmbeddingBagCollectionSharder().shard(
        module,
        torchrec_plan.sharding_plan(plan, module, device="cpu").plan[""],
        ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
    )


def batch_of(plan: TorchRecPlan, batch: int, rank: int) -> Any:
    """Ids of a rank's samples, uniform; every bag sums as many rows as its table's pooling."""
    import torch
    import torchrec

    random = torch.Generator().manual_seed(7 + rank)
    counts = [max(round(entry.pooling), 1) for entry in plan.tables]
    ids = [
        torch.randint(0, entry.rows, (batch * count,), generator=random)
        for entry, count in zip(plan.tables, counts, strict=True)
    ]
    lengths = torch.tensor([count for count in counts for _ in range(batch)])
    keys = [f"f_{entry.table}" for entry in plan.tables]
    return torchrec.KeyedJaggedTensor(keys=keys, values=torch.cat(ids), lengths=lengths)


def step_of(module: Any, batches: Iterator[Any], *, training: bool) -> Callable[[], None]:
    """One pass of the next batch: forward, and in training the gradients of the sum of all bags back."""
    import torch

    def forward() -> None:
        with torch.no_grad():
            module(next(batches)).wait().values()

    def train() -> None:
        module(next(batches)).wait().values().sum().backward()

    return train if training else forward


def pipelined_step_of(module: Any, batches: Iterator[Any]) -> Callable[[], None]:
    """One step of TorchRec's pipeline: it sends the ids of the next batch while this one is trained."""
    import torch
    from torchrec.distributed.train_pipeline.train_pipelines import TrainPipelineSparseDist

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bags = module

        def forward(self, batch: Any) -> Any:
            found = self.bags(batch).values().sum()
            return found, found.detach()

    dense = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    pipeline = TrainPipelineSparseDist(Model(), dense, torch.device("cpu"))
    return lambda: pipeline.progress(batches)


def run(asked: argparse.Namespace, rank: int) -> None:
    """A rank: warm up, then the traced steps; its trace as ``trace_rankN.json.gz``."""
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    plan = torchrec_plan.load(asked.plan)
    if rank == 0:  # as TorchRec prints it
        printed = torchrec_plan.sharding_plan(plan, module_of(plan, "meta"), device="cpu")
        (asked.out / "plan.txt").write_text(str(printed))
    batches = [batch_of(plan, size, rank) for size in asked.batch or [plan.batch]]
    training = asked.training or asked.pipelined
    module, turns = sharded_module(plan, training=training), itertools.cycle(batches)
    step = step_of(module, turns, training=training)
    if asked.pipelined:
        step = pipelined_step_of(module, turns)
    late_s = asked.late[1] if asked.late and asked.late[0] == rank else 0.0
    if asked.busy and asked.busy[0] == rank:
        _look_up_again(module, asked.busy[1])
    for _ in range(_WARM_UP * len(batches)):
        step()
    file = asked.out / f"trace_rank{rank}.json.gz"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=asked.steps),
        on_trace_ready=lambda made: made.export_chrome_trace(str(file)),
        record_shapes=True,
    ) as profiler:
        for _ in range(asked.steps + 1):
            dist.barrier()
            time.sleep(late_s)
            step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


def _look_up_again(module: Any, times: int) -> None:
    """Every look-up of this rank runs so many times in all."""
    for lookup in module._lookups:
        once = lookup.forward

        def again(*words: Any, once: Any = once, **named: Any) -> Any:
            for _ in range(times - 1):
                once(*words, **named)
            return once(*words, **named)

        lookup.forward = again


def started(asked: argparse.Namespace) -> int:
    """The ranks, as processes that this one becomes after it has imported torch; the number that failed."""
    import socket

    import torch
    import torch.distributed as dist
    import torchrec  # noqa: F401

    ranks = torchrec_plan.load(asked.plan).gpus
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    asked.out.mkdir(parents=True, exist_ok=True)
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update(where, WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    processes = []
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            os.environ["RANK"] = str(rank)
            torch.set_num_threads(1)
            dist.init_process_group("gloo", rank=rank, world_size=ranks)
            run(asked, rank)
            os._exit(0)
        processes.append(process)
    return sum(os.waitpid(process, 0)[1] != 0 for process in processes)


def _late(text: str) -> tuple[int, float]:
    rank, _, by = text.partition(":")
    return int(rank), parse_time(by, "--late")


def _batches(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _busy(text: str) -> tuple[int, int]:
    rank, _, times = text.partition(":")
    return int(rank), int(times)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path, help="as perfmodel plan --format torchrec wrote it")
    parser.add_argument("--out", type=Path, default=Path("traces"), help="folder of the traces")
    sizes = "samples of a rank, of several in turn (default: the plan's)"
    parser.add_argument("--batch", type=_batches, help=sizes)
    parser.add_argument("--steps", type=int, default=10, help="that are traced")
    parser.add_argument("--training", action="store_true", help="forward and backward")
    parser.add_argument("--pipelined", action="store_true", help="training steps of TorchRec's pipeline")
    parser.add_argument("--late", type=_late, help="RANK:TIME that it sleeps before each step")
    parser.add_argument("--busy", type=_busy, help="RANK:TIMES that it looks everything up")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    failed = started(asked)
    print(f"wrote traces of {torchrec_plan.load(asked.plan).gpus - failed} ranks to {asked.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
