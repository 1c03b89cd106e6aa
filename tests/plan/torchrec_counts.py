"""Every collective of TorchRec's passes over a plan, of ranks that run alone in a fake process group.

python torchrec_counts.py PLAN.json [--launched] [--weighted] RANK ...: one JSON line a rank of the second of
two training steps: the collectives in order, each [phase, name, ranks, bytes sent, bytes received]. With
--launched the kernels that look up tables, and that update them, each [phase, name]. With --weighted ids
bring weights.

All ranks are given the same batch, whose ids are spread evenly over the rows of their tables. So what another
rank would send to this one is what this one sends to itself: that is how received buffers are filled.
The fake group itself refuses the empty send buffer of a rank that holds no table of a sharding type, so it is
shown a buffer of its own; nor has its all-reduce a result, so gradients of copies are counted by a hook.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from calibrate import torchrec_plan
from perfmodel.schema.torchrec_plan import TorchRecPlan

NAMES = {
    "alltoall_base_": "all_to_all",
    "_reduce_scatter_base_": "reduce_scatter",
    "_allgather_base_": "all_gather",
    "allreduce_": "all_reduce",
}
WEIGHTED, LAUNCHED = "--weighted", "--launched"
LOOK_UPS = ("split_embedding_codegen_forward", "dense_embedding_codegen_lookup", "split_embedding_backward")
"""Operations of FBGEMM, by the start of their names, each of which is one kernel over all of its tables."""


def tensors(x: Any) -> list[torch.Tensor]:
    """All tensors in nested arguments, in order."""
    if isinstance(x, torch.Tensor):
        return [x]
    return [tensor for each in x for tensor in tensors(each)] if isinstance(x, (list, tuple)) else []


class Counts(TorchDispatchMode):
    """Collectives that run inside, and what they would have received."""

    def __init__(self) -> None:
        super().__init__()
        self.phase, self.seen = "forward", []  # type: ignore[var-annotated]
        self.launched: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; note it if it is a collective."""
        name = func.__name__.split(".")[0]
        if name.startswith(LOOK_UPS):
            self.launched.append((self.phase, name))
        if func.namespace != "c10d" or name == "barrier":
            return func(*args, **(kwargs or {}))
        group = dist.ProcessGroup.unbox(next(x for x in args if isinstance(x, torch.ScriptObject)))
        buffers = tensors(args)
        received, sent = buffers if len(buffers) == 2 else (buffers[0], buffers[0])
        self.note(NAMES.get(name, name), group.size(), sent, received)
        if name != "alltoall_base_":
            received.zero_()
            return func(*args, **(kwargs or {}))
        self._loop_back(sent, received, list(args[4]), group)
        dummy = torch.zeros(group.size())
        return func(dummy, dummy, args[2], [], [], *args[5:], **(kwargs or {}))

    def note(self, name: str, ranks: int, sent: torch.Tensor, received: torch.Tensor) -> None:
        """One collective."""
        sizes = [each.numel() * each.element_size() for each in (sent, received)]
        self.seen.append([self.phase, name, ranks, *sizes])

    @staticmethod
    def _loop_back(sent: torch.Tensor, received: torch.Tensor, splits: list[int], group: Any) -> None:
        """Every rank sends what this one sends to itself; bags count by their size alone."""
        ranks, me = group.size(), group.rank()
        splits = splits or [sent.shape[0] // ranks] * ranks
        first = sum(splits[:me])
        own = sent[first : first + splits[me]]
        if own.numel() * ranks == received.numel():
            received.copy_(own.repeat(ranks, *[1] * (own.dim() - 1)))
        else:
            received.zero_()


def sharded(plan: TorchRecPlan) -> Any:
    """The tables of a plan as TorchRec shards them, without any real weights of other ranks."""
    from planner_torchrec import module_of
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingEnv

    module = module_of(plan, weighted=WEIGHTED in sys.argv)
    return EmbeddingBagCollectionSharder().shard(
        module,
        torchrec_plan.sharding_plan(plan, module, device="cpu").plan[""],
        ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
    )


def batch_of(plan: TorchRecPlan) -> Any:
    """Ids spread evenly over the rows of their tables, as many in each bag."""
    import torchrec
    from planner_torchrec import list_features

    ids, lengths, keys = [], [], []
    for entry in plan.tables:
        count = int(entry.pooling) * plan.batch
        for key in list_features(entry):
            keys.append(key)
            ids.append(torch.arange(count) * entry.rows // count)
            lengths.append(torch.full((plan.batch,), int(entry.pooling)))
    weights = torch.ones(sum(map(len, ids))) if WEIGHTED in sys.argv else None
    return torchrec.KeyedJaggedTensor(keys, torch.cat(ids), weights, torch.cat(lengths))


def hooked(module: Any, counts: list[Counts], ranks: int) -> None:
    """Gradients of copies are counted in place of being added up."""

    def hook(_state: object, bucket: Any) -> Any:
        buffer, done = bucket.buffer(), torch.futures.Future()
        counts[-1].note("all_reduce", ranks, buffer, buffer)
        done.set_result(buffer)
        return done

    hook.__annotations__.clear()  # as text they are not what DDP looks for
    for lookup in module._lookups:
        if hasattr(lookup, "register_comm_hook"):
            lookup.register_comm_hook(None, hook)


def stepped(plan: TorchRecPlan, what: str = "") -> list[Any]:
    """Collectives of the second of two training steps; or its look-ups."""
    module, batch = sharded(plan), batch_of(plan)
    counted: list[Counts] = []
    hooked(module, counted, plan.gpus)
    for _ in range(2):
        with Counts() as found:
            counted.append(found)
            bags = module(batch).wait().values()
            found.phase = "backward"
            bags.sum().backward()
    return list(counted[-1].launched) if what == LAUNCHED else counted[-1].seen


def counted(words: list[str]) -> None:
    """Each rank of a plan becomes a process of its own, which prints what it runs."""
    plan = torchrec_plan.load(words[0])
    what = next((word for word in words if word == LAUNCHED), "")
    for rank in (int(word) for word in words[1:] if word.isdigit()):
        child = os.fork()
        if child == 0:
            where = {"LOCAL_WORLD_SIZE": plan.gpus_per_node, "LOCAL_RANK": rank % plan.gpus_per_node}
            where |= {"WORLD_SIZE": plan.gpus, "RANK": rank}
            if plan.domain_gpus > plan.gpus_per_node:
                where["TORCHREC_RESOLVED_POD_SIZE"] = plan.domain_gpus // plan.gpus_per_node
            os.environ.update({name: str(value) for name, value in where.items()})
            torch.set_num_threads(1)
            dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=plan.gpus)
            print(json.dumps(stepped(plan, what)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"rank {rank} failed")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    import torchrec  # noqa: F401  # before the ranks part

    counted(sys.argv[1:])
