"""Plans the EmbeddingBagCollections of a module and returns TorchRec's ShardingPlan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist
from torch import nn
from torchrec.distributed.comm import get_local_size
from torchrec.distributed.types import ShardingPlan
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from calibrate import torchrec_plan
from perfmodel.errors import BadInputError
from perfmodel.plan.frames import build_question
from perfmodel.plan.torchrec import build_torchrec_plan
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.machine import Machine
from perfmodel.schema.table_files import read_config
from perfmodel.schema.torchrec_plan import TorchRecPlan, torchrec_plan_from
from perfmodel.schema.workload import Table, TableSet


def plan_module(
    module: nn.Module,
    machine: str | Machine = DEFAULT_MACHINE,
    *,
    batch: int,
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    pooling: float | Mapping[str, float] = 1.0,
    objective: str = "throughput",
    device: str = "cuda",
    **options: Any,
) -> ShardingPlan:
    """TorchRec's plan of all ``EmbeddingBagCollection``s in a module, for ``DistributedModelParallel``.

    module   its tables may be on the meta device;  machine  name of a shipped machine, a file, or a
             ``Machine``
    batch    samples per GPU;  gpus, gpus_per_node  of the running job, if not given
    pooling  rows that a bag sums, for all tables or by table name (default 1): a module does not state it
    objective  throughput: training;  latency: the forward pass;  device  cuda or cpu, where the shards are
    options  further options of ``perfmodel.plan_tables``: reserve, max_hbm_bytes, only, effort ...
    Several collections are planned together, as if they shared their exchanges.
    In a running job with as many ranks, all ranks call it: rank 0 plans, the others receive its plan.
    Limits: no collection, one whose rows are not pooled, tables that do not fit -> BadInputError
    """
    collections = find_collections(module)
    if gpus is None:
        if not dist.is_initialized():
            raise BadInputError("how many GPUs is not known.", "give gpus=, or initialise torch.distributed.")
        gpus = dist.get_world_size()
        gpus_per_node = gpus_per_node or get_local_size(gpus)
    tables = TableSet("module", tuple(list_tables(collections, pooling)))
    options |= {"batch": batch, "gpus_per_node": gpus_per_node}
    question = build_question(tables, gpus, machine, objective, for_torchrec=True, **options)

    def plan() -> TorchRecPlan:
        """The search, whose result TorchRec can be given; only rank 0 of a job runs it."""
        planned = question.plan()
        return build_torchrec_plan(planned.evaluator, planned.plan, question.limit_bytes)

    file = _share_plan(plan) if dist.is_initialized() and dist.get_world_size() == gpus else plan()
    prefixes = {path: f"{path}." if len(collections) > 1 else "" for path in collections}
    plans = {path: _select_tables(file, prefixes[path], bags) for path, bags in collections.items()}
    return ShardingPlan(
        plan={path: torchrec_plan.module_plan(planned, device=device) for path, planned in plans.items()}
    )


def find_collections(module: nn.Module) -> dict[str, EmbeddingBagCollection]:
    """The EmbeddingBagCollections in a module, by their path in it.

    Limits: none, or an EmbeddingCollection, whose rows are not pooled -> BadInputError
    """
    modules = dict(module.named_modules())
    for path, rows in modules.items():
        if isinstance(rows, EmbeddingCollection):
            raise BadInputError(
                f"{path or type(module).__name__} is an EmbeddingCollection: its rows are not pooled.",
                "give the module that has bags alone, and leave memory for the others: max_hbm_bytes=.",
            )
    collections = {path: bags for path, bags in modules.items() if isinstance(bags, EmbeddingBagCollection)}
    if not collections:
        raise BadInputError(
            f"{type(module).__name__} has no EmbeddingBagCollection.",
            "give the module that has one, before it is sharded.",
        )
    return collections


def _share_plan(make: Callable[[], TorchRecPlan]) -> TorchRecPlan:
    """Calls ``make`` on rank 0 and returns its result on all ranks; an error is raised on all, too."""
    sent: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            sent = [make().model_dump()]
        except BadInputError as error:
            sent = [(error.message, error.next_step)]
    dist.broadcast_object_list(sent, src=0)
    if isinstance(sent[0], tuple):
        raise BadInputError(*sent[0])
    return torchrec_plan_from(sent[0], "of rank 0")


def list_tables(
    collections: Mapping[str, EmbeddingBagCollection], pooling: float | Mapping[str, float]
) -> list[Table]:
    """The tables of these collections, by path; of several, with the path in their names. pooling  of bags"""
    tables = []
    names = set()
    for path, bags in collections.items():
        for config in bags.embedding_bag_configs():
            name = f"{path}.{config.name}" if len(collections) > 1 else config.name
            factor = pooling
            if isinstance(pooling, Mapping):
                names |= {config.name, name}
                factor = pooling.get(name, pooling.get(config.name, 1.0))
            fields = {**vars(config), "name": name, "data_type": config.data_type.value}
            entry = read_config({**fields, "pooling_factor": factor}, f"the module's {path or 'tables'}")
            tables.append(Table(**{**entry, "weighted": bags.is_weighted()}))
    unknown = sorted(set(pooling) - names) if isinstance(pooling, Mapping) else []
    if unknown:
        raise BadInputError(
            f"pooling is given for {unknown[0]!r}, which is not a table of the module.",
            f"its tables: {', '.join(table.name for table in tables[:8])}.",
        )
    return tables


def _select_tables(file: TorchRecPlan, prefix: str, bags: EmbeddingBagCollection) -> TorchRecPlan:
    """The part of a plan of one collection, with the tables' names as in it: without ``prefix``."""
    entries = {entry.table: entry for entry in file.tables}
    tables = [
        entries[prefix + config.name].model_copy(update={"table": config.name})
        for config in bags.embedding_bag_configs()
    ]
    return file.model_copy(update={"tables": tables})
