"""The file that carries a plan to TorchRec: the sharding of each table, and the hardware, in SI units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import FailFast, Field, model_validator

from perfmodel.schema.gate import read_json
from perfmodel.schema.ranges import MOST_PLANNED_GPUS, MOST_TABLES
from perfmodel.schema.strict import Exact, validated
from perfmodel.schema.whole_files import write_whole_text

WHAT = "TorchRec plan file"
ShardingType = Literal[
    "data_parallel",
    "table_wise",
    "column_wise",
    "row_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
]
SHARDING_TYPES: tuple[str, ...] = get_args(ShardingType)
"""TorchRec's names of shardings."""

KEY_VALUE = "key_value"
"""Compute kernel of a table on SSDs."""
_CACHED, _IN_HBM = ("fused_uvm_caching", KEY_VALUE), ("dense", "fused")
Pair = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TorchRecCache(Exact):
    """Cache of a ``fused_uvm_caching`` or ``key_value`` table: fields of TorchRec's ``CacheParams``.

    load_factor  share of the rows that sizes the cache;  prefetch_pipeline  whether the next batch's rows are
    fetched while this batch runs
    """

    load_factor: float = Field(gt=0, le=1, allow_inf_nan=False)
    algorithm: Literal["LRU", "LFU"]
    prefetch_pipeline: bool


class TorchRecKeyValue(Exact):
    """Parameters of a ``key_value`` table: fields of TorchRec's ``KeyValueParams``.

    max_l1_cache_size  cache in HBM shared by the tables of its group [2^20 bytes];  l2_cache_size  cache in
    host memory [2^30 bytes]
    """

    max_l1_cache_size: int = Field(ge=1)
    l2_cache_size: int = Field(default=0, ge=0)


class TorchRecTable(Exact):
    """One table of the plan.

    ranks, shard_sizes, shard_offsets  for each shard, in TorchRec's order: its rank, its [rows, columns], and
    its first [row, column]; a data_parallel table has all ranks and no shards
    pooling  rows per bag;  cache_params, key_value_params  None for other kernels
    """

    table: str
    rows: int = Field(ge=1)
    dim: int = Field(ge=1)
    element_bytes: int = Field(ge=1)
    pooling: float = Field(ge=0, allow_inf_nan=False)
    sharding_type: ShardingType
    compute_kernel: Literal["dense", "fused", "fused_uvm", "fused_uvm_caching", "key_value"]
    ranks: Annotated[list[Annotated[int, Field(ge=0, le=MOST_PLANNED_GPUS)]], FailFast()]
    shard_sizes: Annotated[list[Pair], FailFast()]
    shard_offsets: Annotated[list[Pair], FailFast()]
    cache_params: TorchRecCache | None = None
    key_value_params: TorchRecKeyValue | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        shards = 0 if self.sharding_type == "data_parallel" else len(self.ranks)
        if (len(self.shard_sizes), len(self.shard_offsets)) != (shards, shards):
            raise ValueError(
                f"{len(self.shard_sizes)} shard_sizes and {len(self.shard_offsets)} shard_offsets "
                f"for {shards} shards"
            )
        held = sum(rows * columns for rows, columns in self.shard_sizes)
        if shards and held != self.rows * self.dim:
            raise ValueError(f"shards of {held} elements do not make up a table of {self.rows} x {self.dim}")
        if (self.cache_params is not None) != (self.compute_kernel in _CACHED):
            raise ValueError(f"compute_kernel {self.compute_kernel} with cache_params {self.cache_params}")
        if self.compute_kernel not in _IN_HBM and self.sharding_type == "data_parallel":
            raise ValueError(f"compute_kernel {self.compute_kernel} of a {self.sharding_type} table")
        if (self.key_value_params is not None) != (self.compute_kernel == KEY_VALUE):
            raise ValueError(f"compute_kernel {self.compute_kernel} with {self.key_value_params}")
        if self.compute_kernel == KEY_VALUE and self.cache_params and self.cache_params.algorithm != "LRU":
            raise ValueError(f"compute_kernel {self.compute_kernel} with a cache that is not LRU")
        return self


class TorchRecTopology(Exact):
    """The hardware, in bytes and bytes per *second*; the loader gives TorchRec bytes per millisecond.

    hbm_bytes          memory of one GPU that a rank may use;  hbm_bytes_per_s  its bandwidth
    host_bytes         a rank's share of its node's host memory; None if no tables are there
    ssd_bytes, ssd_bytes_per_s  a rank's share of its node's SSDs, and of their read rate
    intra_bytes_per_s  rate of one GPU to others in its domain, one direction
    inter_bytes_per_s  to other domains
    """

    hbm_bytes: int = Field(ge=1)
    hbm_bytes_per_s: Rate
    intra_bytes_per_s: Rate
    inter_bytes_per_s: Rate
    host_bytes: int | None = Field(default=None, ge=1)
    ssd_bytes: int | None = Field(default=None, ge=1)
    ssd_bytes_per_s: Rate | None = None


class TorchRecPlan(Exact):
    """The whole file.

    gpus  ranks;  gpus_per_node  GPUs of one node;  domain_gpus  GPUs of a scale-up domain
    batch  samples of one rank
    model, tables_fingerprint  name and digest of the set of tables
    """

    schema_version: Literal[1]
    kind: Literal["torchrec-plan"]
    model: str
    tables_fingerprint: str
    gpus: int = Field(ge=1, le=MOST_PLANNED_GPUS)
    gpus_per_node: int = Field(ge=1, le=MOST_PLANNED_GPUS)
    domain_gpus: int = Field(ge=1, le=MOST_PLANNED_GPUS)
    batch: int = Field(ge=1)
    topology: TorchRecTopology
    tables: Annotated[list[TorchRecTable], FailFast()] = Field(min_length=1, max_length=MOST_TABLES)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [entry.table for entry in self.tables]
        if len(set(names)) < len(names):
            raise ValueError("two tables have one name")
        wrong = [entry.table for entry in self.tables if max(entry.ranks, default=0) >= self.gpus]
        if wrong:
            raise ValueError(f"table {wrong[0]!r} has a rank above {self.gpus - 1}")
        return self


def write_torchrec_plan(plan: TorchRecPlan, path: Path) -> None:
    """Write the file as JSON, one table per line. Limits: a path that cannot be written -> BadInputError"""
    write_whole_text(path, torchrec_plan_text(plan), WHAT)


def torchrec_plan_text(plan: TorchRecPlan) -> str:
    """The text that ``write_torchrec_plan`` writes."""
    record = plan.model_dump(exclude={"tables"}, exclude_none=True)
    tables = ",\n".join("  " + json.dumps(entry.model_dump(exclude_none=True)) for entry in plan.tables)
    head = json.dumps(record, indent=1)[:-2]
    return f'{head},\n "tables": [\n{tables}\n ]\n}}\n'


def read_torchrec_plan(path: Path) -> TorchRecPlan:
    """Read such a file. Limits: not JSON, unknown fields, shards that miss the table -> BadInputError"""
    return torchrec_plan_from(read_json(path, WHAT), str(path))


def torchrec_plan_from(document: object, where: str) -> TorchRecPlan:
    """A plan from the parsed JSON of a file. Limits: as ``read_torchrec_plan``"""
    return validated(TorchRecPlan, document, WHAT, where)
