"""The file that carries a plan to TorchRec: the sharding of each table, and the hardware, in SI units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import FailFast, Field, model_validator

from perfmodel.schema.fields import Exact, validated
from perfmodel.schema.files import write_whole
from perfmodel.schema.gate import MOST_PLANNED_GPUS, MOST_TABLES, read_json

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
SHARDING_TYPES: tuple[str, ...] = get_args(ShardingType)  # TorchRec's names of shardings
Pair = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TorchRecTable(Exact):
    """One table of the plan.

    ranks, shard_sizes, shard_offsets  for each shard, in TorchRec's order: its rank, its [rows, columns], and
    its first [row, column]; a data_parallel table has all ranks and no shards
    pooling  rows per bag, of each of its features
    """

    table: str
    rows: int = Field(ge=1)
    dim: int = Field(ge=1)
    element_bytes: int = Field(ge=1)
    pooling: float = Field(ge=0, allow_inf_nan=False)
    features: int = Field(default=1, ge=1)
    sharding_type: ShardingType
    compute_kernel: Literal["dense", "fused"]
    ranks: Annotated[list[Annotated[int, Field(ge=0, le=MOST_PLANNED_GPUS)]], FailFast()]
    shard_sizes: Annotated[list[Pair], FailFast()]
    shard_offsets: Annotated[list[Pair], FailFast()]

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError for shards that do not make up the table, or not one for each rank."""
        shards = 0 if self.sharding_type == "data_parallel" else len(self.ranks)
        if (len(self.shard_sizes), len(self.shard_offsets)) != (shards, shards):
            raise ValueError(f"shard_sizes and shard_offsets must have {shards} entries")
        held = sum(rows * columns for rows, columns in self.shard_sizes)
        if shards and held != self.rows * self.dim:
            raise ValueError(f"shards of {held} elements do not make up a table of {self.rows} x {self.dim}")
        return self


class TorchRecTopology(Exact):
    """The hardware, in bytes and bytes per *second*; the loader gives TorchRec bytes per millisecond."""

    hbm_bytes: int = Field(ge=1)  # memory of one GPU that a rank may use
    hbm_bytes_per_s: Rate
    intra_bytes_per_s: Rate  # one GPU to others in its domain, one direction
    inter_bytes_per_s: Rate  # to other domains


class TorchRecPlan(Exact):
    """The whole file; gpus  ranks;  domain_gpus  GPUs of a scale-up domain;  batch  samples of one rank."""

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
        """Raise ValueError for two tables of one name, and for a rank that is not among the GPUs."""
        if len({entry.table for entry in self.tables}) < len(self.tables):
            raise ValueError("two tables have one name")
        for entry in self.tables:
            if any(rank >= self.gpus for rank in entry.ranks):
                raise ValueError(f"table {entry.table!r} has a rank above {self.gpus - 1}")
        return self


def write_torchrec_plan(plan: TorchRecPlan, path: Path) -> None:
    """Write a plan for TorchRec as JSON, one table per line. Limits: it cannot be written -> BadInputError"""
    record = plan.model_dump(exclude={"tables"})
    tables = ",\n".join("  " + json.dumps(entry.model_dump(exclude_defaults=True)) for entry in plan.tables)
    head = json.dumps(record, indent=1)[:-2]
    write_whole(path, f'{head},\n "tables": [\n{tables}\n ]\n}}\n', WHAT)


def read_torchrec_plan(path: Path) -> TorchRecPlan:
    """Read a plan for TorchRec. Limits: not JSON, unknown fields, unfitting shards -> BadInputError"""
    return torchrec_plan_from(read_json(path, WHAT), str(path))


def torchrec_plan_from(document: object, where: str) -> TorchRecPlan:
    """A plan from the parsed JSON of a file. Limits: as ``read_torchrec_plan``"""
    return validated(TorchRecPlan, document, WHAT, where)
