"""Converts a plan file for TorchRec to TorchRec's objects: shardings for a module, inputs for its planner."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrate.machine.libraries import format_torchrec_command
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.torchrec_plan import TorchRecPlan, TorchRecTable, read_torchrec_plan

_MS = 1e-3
"""TorchRec's unit of bandwidth is bytes per millisecond."""

_INSIDE = ("table_row_wise", "grid_shard")
"""Shardings whose row parts are in one domain."""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Context for imports of TorchRec, without its output and warnings. Limits: missing -> NoHardwareError"""
    before = logging.root.manager.disable
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            yield
    except ImportError as error:
        raise NoHardwareError(f"TorchRec cannot be used: {error}.", format_torchrec_command()) from None
    finally:
        logging.disable(before)


def load(path: Path | str) -> TorchRecPlan:
    """Read the file that ``perfmodel plan --format torchrec`` wrote."""
    return read_torchrec_plan(Path(path))


def sharding_plan(plan: TorchRecPlan, module: Any = None, *, path: str = "", device: str = "cuda") -> Any:
    """TorchRec's ``ShardingPlan`` of a model, for ``DistributedModelParallel(model, plan=...)``.

    module  the EmbeddingBagCollection to shard, whose tables are compared with the plan's; None: no check
    path    name of that module inside the model, such as ``sparse.ebc``; "" if it is the model itself
    device  where the shards are: cuda or cpu
    ``module_plan`` returns the part of it that ``torchrec.distributed.shard.shard`` takes.
    Limits: tables that the plan lacks, or with other rows or dims; a running job with other ranks or nodes
            than the plan's -> BadInputError
    """
    with quietly():
        from torchrec.distributed.types import ShardingPlan
    return ShardingPlan(plan={path: module_plan(plan, module, device=device)})


def module_plan(plan: TorchRecPlan, module: Any = None, *, device: str = "cuda") -> Any:
    """``EmbeddingModuleShardingPlan`` of one EmbeddingBagCollection; parameters as in ``sharding_plan``."""
    if module is not None:
        check(plan, module)
    check_job(plan)
    with quietly():
        from torchrec.distributed.types import EmbeddingModuleShardingPlan
    return EmbeddingModuleShardingPlan(
        {entry.table: _parameter(entry, plan.gpus_per_node, device) for entry in plan.tables}
    )


def _parameter(entry: TorchRecTable, gpus_per_node: int, device: str) -> Any:
    """TorchRec's ``ParameterSharding`` of one table: its kernel, and the shape and rank of each shard."""
    with quietly():
        from torchrec.distributed.sharding_plan import placement
        from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardMetadata
    shards = [
        ShardMetadata(
            shard_sizes=size, shard_offsets=offset, placement=placement(device, rank, gpus_per_node)
        )
        for size, offset, rank in zip(entry.shard_sizes, entry.shard_offsets, entry.ranks, strict=False)
    ]
    return ParameterSharding(
        sharding_type=entry.sharding_type,
        compute_kernel=entry.compute_kernel,
        ranks=list(entry.ranks),
        sharding_spec=EnumerableShardingSpec(shards) if shards else None,
    )


def check(plan: TorchRecPlan, module: Any) -> None:
    """Raise BadInputError if module and plan differ in a table; the error names the table."""
    configs = module.embedding_bag_configs()
    has = {config.name: (config.num_embeddings, config.embedding_dim) for config in configs}
    planned = {entry.table: (entry.rows, entry.dim) for entry in plan.tables}
    for name in sorted({*has, *planned}):
        held, wanted = has.get(name), planned.get(name)
        if held != wanted:
            shapes = [f"{shape[0]} x {shape[1]}" if shape else "no such table" for shape in (held, wanted)]
            raise BadInputError(
                f"the plan is for the tables of {plan.model}: table {name!r} is {shapes[1]} in the plan and "
                f"{shapes[0]} in the module.",
                "plan the tables of this module, or use the plan with the model that it was made for.",
            )


def check_job(plan: TorchRecPlan) -> None:
    """Check that a running job, if torch.distributed is up, has the ranks, nodes and domains of the plan.

    Source: TorchRec 1.8 takes ranks of a node from LOCAL_WORLD_SIZE, and nodes of a domain from
            TORCHREC_RESOLVED_POD_SIZE; without them it guesses
    """
    with quietly():
        import torch.distributed as dist
        from torchrec.distributed.comm import get_local_size, get_topology_group_world_size

        if not dist.is_initialized():
            return
        ranks = dist.get_world_size()
        job = {"GPUs": ranks, "GPUs per node": get_local_size(ranks)}
        if any(entry.sharding_type in _INSIDE for entry in plan.tables):
            job["GPUs per domain"] = get_topology_group_world_size(ranks)
    planned = {"GPUs": plan.gpus, "GPUs per node": plan.gpus_per_node, "GPUs per domain": plan.domain_gpus}
    for noun, count in job.items():
        if count != planned[noun]:
            raise BadInputError(
                f"the plan is for {planned[noun]} {noun}, and this job has {count}.",
                "plan for this job; or tell TorchRec how its ranks lie: LOCAL_WORLD_SIZE, the GPUs of a "
                "node, and TORCHREC_RESOLVED_POD_SIZE, the nodes of a domain where those are several.",
            )


def topology(plan: TorchRecPlan, *, device: str = "cuda") -> Any:
    """TorchRec's ``Topology``, with bandwidths converted to bytes per millisecond.

    Limits: rates are from datasheets; host memory and SSDs keep TorchRec's values
    """
    with quietly():
        from torchrec.distributed.planner.types import Topology

        rates = plan.topology
        pods = plan.domain_gpus // plan.gpus_per_node
        return Topology(
            world_size=plan.gpus,
            compute_device=device,
            local_world_size=plan.gpus_per_node,
            pod_size=pods if pods > 1 else None,
            hbm_cap=rates.hbm_bytes,
            hbm_mem_bw=rates.hbm_bytes_per_s * _MS,
            intra_host_bw=rates.intra_bytes_per_s * _MS,
            inter_host_bw=rates.inter_bytes_per_s * _MS,
        )
