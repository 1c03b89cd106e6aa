"""Plans for TorchRec: which plans TorchRec can run, and the file that its loader reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import WHOLE, Plan, Scheme
from perfmodel.engine.schemes import (
    COLUMN_WISE,
    GRID,
    OF_TORCHREC,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    by_domain,
    copied,
)
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.scheme_options import Options
from perfmodel.schema.torchrec_plan import (
    ShardingType,
    TorchRecPlan,
    TorchRecTable,
    TorchRecTopology,
    write_torchrec_plan,
)

_COLUMNS = 4  # FBGEMM reads rows in vectors of four elements: the columns of a shard are a multiple of this
_LARGEST_ELEMENT = 4  # bytes of the largest element of TorchRec's DataType (1.8): it has no fp64
_WIDER = {
    cast("ShardingType", SHARDINGS[name].torchrec): cast("ShardingType", SHARDINGS[wider].torchrec)
    for name, wider in ((TABLE_WISE, COLUMN_WISE), (TABLE_COLUMN_WISE, COLUMN_WISE), (TABLE_ROW_WISE, GRID))
}
"""Sharding types that are special cases of another type: a whole table is one column part."""


def explain_limit(scheme: Scheme, dim: int, gpus: int, domain: int, buckets: int = 0) -> str:
    """Why TorchRec cannot run this scheme for a table of ``dim`` columns; "" if it can.

    buckets  of its rows; 0: none;  gpus, domain  GPUs of the job, and of a scale-up domain
    Source: TorchRec 1.8: row-wise uses all ranks; table-row-wise and grid use the ranks of one domain
    """
    kind = scheme.kind
    r, c = scheme.row_parts, scheme.col_parts
    if scheme.hot_rows:
        return "TorchRec has a row once, not hot rows on every GPU besides"
    if kind.facts.torchrec:
        return kind.facts.torchrec
    if kind == WHOLE.kind and r > 1:
        return f"TorchRec has no {r} row parts on any ranks"
    if scheme.by_domain and r > domain:
        return f"TorchRec reduces row parts inside one domain of {domain} GPUs, not over {r} row parts"
    if buckets and r > 1 and (buckets < r or r < gpus):
        return f"TorchRec keeps {buckets} buckets whole where all {gpus} GPUs have one"
    if not scheme.copied and dim % (_COLUMNS * c):
        parts = f"{dim} / {c}" if c > 1 else f"{dim}"
        limit = f"TorchRec's shards have a multiple of {_COLUMNS} columns"
        return f"{limit}, not {parts}; its copies may have any"
    return ""


def restrict_to_torchrec(options: Options, evaluator: Evaluator) -> Options:
    """The options that TorchRec can run. Limits: a table has no such option that fits -> BadInputError"""
    tables = evaluator.tables
    gpus = options.gpus
    domain = options.domain
    _, sample = np.unique(options.kind_of, return_index=True)
    odd = bool(domain % _count_node(evaluator)) or domain >= gpus  # not inside whole nodes; row-wise
    columns = (column[sample][options.group].astype(int).tolist() for column in (tables.dim, tables.buckets))
    mask = ~(odd & options.by_domain) & np.array(
        [
            not explain_limit(options.build_scheme(option), dim, gpus, domain, buckets)
            for option, (dim, buckets) in enumerate(zip(*columns, strict=True))
        ]
    )
    for kind in options.find_empty(mask):
        table = int(sample[kind])
        dim = int(tables.dim[table])
        why = f": {explain_limit(WHOLE, dim, gpus, domain)}" if dim % _COLUMNS else ""
        pad = f"pad it to {-(-dim // _COLUMNS) * _COLUMNS} columns, " if why else ""
        raise BadInputError(
            f"table {tables.names[table]!r} fits in no sharding that TorchRec has{why}.",
            f"{pad}use more GPUs, allow more memory of each, or plan without TorchRec.",
        )
    return options.keep(mask)


def merge_types(types: Sequence[ShardingType]) -> list[ShardingType]:
    """The sharding type of each table, with as few different types as possible.

    types  the type of each table, as its scheme alone says. A table with a single column part may have the
           type of tables with several
    Source: TorchRec runs one set of exchanges for each sharding type in use (``ExchangeSets``)
    Limits: no table has several column parts -> table_wise and table_row_wise stay;  else -> column_wise and
            grid_shard replace them
    """
    cut = {_WIDER.get(name, name) for name in types if OF_TORCHREC[name].columns}
    return [_WIDER[name] if _WIDER.get(name) in cut else name for name in types]


def build_torchrec_plan(evaluator: Evaluator, plan: Plan, hbm_bytes: float | None = None) -> TorchRecPlan:
    """A plan in TorchRec's form, with datasheet values of one GPU and one direction for its planner.

    hbm_bytes  that a rank may use; None: all that it has
    Row parts in one domain, or over all ranks, are equal: they go to the ranks in order, as in TorchRec.
    Limits: a sharding that TorchRec does not have, or GPUs of a domain that are no whole nodes where rows are
            split inside one -> BadInputError that names the table
    """
    value = evaluator.setting.machine.value
    node = _count_node(evaluator)
    types = merge_types([_find_type(plan, table, node) for table in range(len(plan.tables))])
    topology = TorchRecTopology(
        hbm_bytes=int(hbm_bytes or value("hbm_bytes")),
        hbm_bytes_per_s=value("hbm_bytes_per_s"),
        intra_bytes_per_s=value("nvlink_bytes_per_s") or value("pcie_bytes_per_s"),
        inter_bytes_per_s=value("nic_bytes_per_s"),
    )
    return TorchRecPlan(
        schema_version=1,
        kind="torchrec-plan",
        model=plan.tables.model,
        tables_fingerprint=plan.tables.fingerprint,
        gpus=plan.gpus,
        gpus_per_node=node,
        domain_gpus=plan.domain,
        batch=evaluator.batch,
        topology=topology,
        tables=[_build_table(plan, table, kind) for table, kind in enumerate(types)],
    )


def check_names_and_types(tables: PlanTables) -> None:
    """Check tables. Limits: a name that a torch module cannot have, elements of 8 bytes -> BadInputError

    Source: ``torch.nn.Module.add_module``: "module name can't contain a point"; each table becomes a module;
    TorchRec 1.8, ``DataType``
    """
    for table in np.flatnonzero(tables.element_bytes > _LARGEST_ELEMENT):
        raise BadInputError(
            f"table {tables.names[table]!r} has elements of {tables.element_bytes[table]:.0f} bytes, and "
            f"TorchRec none above {_LARGEST_ELEMENT}.",
            "store it as fp32, or plan without TorchRec.",
        )
    if bad := [name for name in tables.names if "." in name]:
        raise BadInputError(
            f"table {bad[0]!r} has a point in its name, which no module of torch may have.",
            f"name it as in TorchRec, for example {bad[0].replace('.', '_')!r}, or plan without TorchRec.",
        )


def write_for_torchrec(evaluator: Evaluator, plan: Plan, path: Path, hbm_bytes: float | None = None) -> None:
    """Write a plan to a JSON file in TorchRec's form. hbm_bytes, Limits  as of ``build_torchrec_plan``"""
    check_names_and_types(plan.tables)
    write_torchrec_plan(build_torchrec_plan(evaluator, plan, hbm_bytes), path)


def _count_node(evaluator: Evaluator) -> int:
    """GPUs of a node that are used: fewer than its GPUs if the plan has fewer."""
    return min(evaluator.basis.gpus_per_node or evaluator.setting.machine.gpus_per_node, evaluator.gpus)


def _find_type(plan: Plan, table: int, node: int) -> ShardingType:
    """TorchRec's sharding type of the table with this index; none -> BadInputError. node  GPUs of a node"""
    placement = plan.placements[table]
    scheme = placement.scheme
    tables = plan.tables
    domain = plan.domain
    dim = int(tables.dim[table])
    problem = explain_limit(scheme, dim, plan.gpus, domain, int(tables.buckets[table]))
    if not problem:
        name = placement.sharding(plan.gpus, domain)
        kind = cast("ShardingType", SHARDINGS[name].torchrec)  # row-wise, if there is one domain
        if not by_domain(OF_TORCHREC[kind].exchange) or not domain % node:
            return kind
        problem = f"TorchRec splits rows inside whole nodes of {node} GPUs, not in domains of {domain}"
    parts = f"{scheme.row_parts} x {scheme.col_parts} parts"
    raise BadInputError(
        f"table {tables.names[table]!r} is {scheme.kind.name.lower()} with {parts}: {problem}.",
        "plan with the shardings that TorchRec has (--format torchrec), or use the plan without TorchRec.",
    )


def _build_table(plan: Plan, table: int, kind: ShardingType) -> TorchRecTable:
    """The entry of the table with this index in TorchRec's form of a plan. kind  its sharding type"""
    tables = plan.tables
    copies = copied(OF_TORCHREC[kind].exchange)
    shards = [] if copies else _list_shards(plan, table)
    return TorchRecTable(
        table=tables.names[table],
        rows=int(tables.rows[table]),
        dim=int(tables.dim[table]),
        element_bytes=int(tables.element_bytes[table]),
        pooling=float(tables.pooling[table]),
        features=int(tables.features[table]),
        sharding_type=kind,
        compute_kernel="dense" if copies else "fused",
        ranks=list(range(plan.gpus)) if copies else [rank for rank, _, _ in shards],
        shard_sizes=[size for _, size, _ in shards],
        shard_offsets=[offset for _, _, offset in shards],
    )


def _list_shards(plan: Plan, table: int) -> list[tuple[int, list[int], list[int]]]:
    """Each shard of a table as (rank, [rows, columns], [first row, first column]), by column part.

    Row parts have TorchRec's sizes: ceil(rows / parts) each, then the remainder, then nothing.
    Buckets of rows stay whole; the first parts have one more, as in TorchRec.
    """
    placement = plan.placements[table]
    r = placement.scheme.row_parts
    width = int(plan.tables.dim[table]) // placement.scheme.col_parts
    rows = int(plan.tables.rows[table])
    block = -(-rows // r)
    starts = [min(i * block, rows) for i in range(r)]
    if buckets := int(plan.tables.buckets[table]):
        count, more = divmod(buckets, r)
        starts = [(i * count + min(i, more)) * (rows // buckets) for i in range(r)]
    starts.append(rows)
    shards = []
    for j, column in enumerate(placement.ranks.reshape(r, placement.scheme.col_parts).T):
        for i, rank in enumerate(np.sort(column)):
            shards.append((int(rank), [starts[i + 1] - starts[i], width], [starts[i], j * width]))
    return shards
