"""Plans for TorchRec: which plans TorchRec can run, and the file that its loader reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import WHOLE, Placement, Plan, Scheme
from perfmodel.engine.schemes import (
    COLUMN_WISE,
    GRID,
    OF_TORCHREC,
    ROW_WISE,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    by_domain,
    copied,
    over_all,
)
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.options import Options
from perfmodel.schema.machine import Machine
from perfmodel.schema.torchrec_plan import (
    ShardingType,
    TorchRecPlan,
    TorchRecTable,
    TorchRecTopology,
    write_torchrec_plan,
)

_COLUMNS = 4
"""FBGEMM reads rows in vectors of four elements: the columns of a shard are a multiple of this."""
_LARGEST_ELEMENT = 4
"""Bytes of the largest element of TorchRec's DataType (1.8): it has no fp64."""


def why_not(scheme: Scheme, dim: int, gpus: int, domain: int, buckets: int = 0) -> str:
    """Why TorchRec cannot run this scheme for a table of ``dim`` columns; "" if it can.

    buckets  of its rows; 0: none;  gpus, domain  GPUs of the job, and of a scale-up domain
    Source: TorchRec 1.8: row-wise uses all ranks; table-row-wise and grid use the ranks of one domain
    """
    kind, r, c = scheme.kind, scheme.row_parts, scheme.col_parts
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
        return (
            f"TorchRec's shards have a multiple of {_COLUMNS} columns, not {parts}; its copies may have any"
        )
    return ""


def runnable(options: Options, evaluator: Evaluator) -> NDArray[np.bool_]:
    """Mask of the options that TorchRec can run, to restrict a search by ``Options.kept``.

    Limits: a table has no such option that fits -> BadInputError
    """
    tables = evaluator.tables
    _, sample = np.unique(options.kind_of, return_index=True)
    dims, buckets = (column[sample][options.group].astype(int) for column in (tables.dim, tables.buckets))
    odd = options.domain % _node(evaluator) > 0 or options.domain >= options.gpus  # else it is row-wise
    inside = options.by_domain
    mask = np.array(
        [
            not (odd and inside[at])
            and not why_not(options.scheme(at), dim, options.gpus, options.domain, buckets[at])
            for at, dim in enumerate(dims)
        ]
    )
    left = np.bincount(options.group[mask], minlength=options.count.size)
    for kind in np.flatnonzero(left == 0):
        table = int(sample[kind])
        dim = int(tables.dim[table])
        why = f": {why_not(WHOLE, dim, options.gpus, options.domain)}" if dim % _COLUMNS else ""
        pad = f"pad it to {-(-dim // _COLUMNS) * _COLUMNS} columns, " if why else ""
        raise BadInputError(
            f"table {tables.names[table]!r} fits in no sharding that TorchRec has{why}.",
            f"{pad}use more GPUs, allow more memory of each, or plan without TorchRec.",
        )
    return mask


def sharding_type(placement: Placement, gpus: int, domain: int) -> ShardingType:
    """TorchRec's name for the sharding of a table. Limits: TorchRec must be able to run it

    gpus, domain  GPUs of the job, and of a scale-up domain
    """
    scheme = placement.scheme
    name = placement.sharding(gpus, domain)
    if not (scheme.copied or scheme.row_parts == 1 or name == ROW_WISE):
        name = TABLE_ROW_WISE if scheme.col_parts == 1 else GRID
    return cast("ShardingType", SHARDINGS[name].torchrec)  # row-wise, if there is one domain


_WIDER = {
    cast("ShardingType", SHARDINGS[name].torchrec): cast("ShardingType", SHARDINGS[wider].torchrec)
    for name, wider in ((TABLE_WISE, COLUMN_WISE), (TABLE_COLUMN_WISE, COLUMN_WISE), (TABLE_ROW_WISE, GRID))
}
"""Sharding types that are special cases of another type: a whole table is one column part."""


def merged_types(types: Sequence[ShardingType]) -> list[ShardingType]:
    """The sharding type of each table, with as few different types as possible.

    types  the type of each table, as its scheme alone says. A table with a single column part may have the
           type of tables with several
    Source: TorchRec runs one set of exchanges for each sharding type in use (``ExchangeSets``)
    Limits: no table has several column parts -> table_wise and table_row_wise stay;  else -> column_wise and
            grid_shard replace them
    """
    cut = {_WIDER.get(name, name) for name in types if OF_TORCHREC[name].columns}
    return [_WIDER[name] if _WIDER.get(name) in cut else name for name in types]


def torchrec_plan(evaluator: Evaluator, plan: Plan, hbm_bytes: float | None = None) -> TorchRecPlan:
    """A plan in TorchRec's form.

    hbm_bytes  that a rank may use; None: all that it has
    Row parts in one domain, or over all ranks, are equal: they go to the ranks in order, as in TorchRec.
    Limits: a sharding that TorchRec does not have, or GPUs of a domain that are no whole nodes where rows are
            split inside one -> BadInputError that names the table
    """
    machine, gpus, node = evaluator.setting.machine, plan.gpus, _node(evaluator)
    types = merged_types([_kind(plan, at, node) for at in range(len(plan.tables))])
    return TorchRecPlan(
        schema_version=1,
        kind="torchrec-plan",
        model=plan.tables.model,
        tables_fingerprint=plan.tables.fingerprint,
        gpus=gpus,
        gpus_per_node=node,
        domain_gpus=plan.domain,
        batch=evaluator.batch,
        topology=topology(machine, hbm_bytes),
        tables=[_table(plan, at, kind) for at, kind in enumerate(types)],
    )


def check_tables(tables: PlanTables) -> None:
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


def write(evaluator: Evaluator, plan: Plan, path: Path, hbm_bytes: float | None = None) -> None:
    """Write a plan in TorchRec's form to a JSON file.

    hbm_bytes  memory that a rank may use; None: all that it has. Limits: as ``torchrec_plan``,
               ``check_tables``
    """
    check_tables(plan.tables)
    write_torchrec_plan(torchrec_plan(evaluator, plan, hbm_bytes), path)


def topology(machine: Machine, hbm_bytes: float | None = None) -> TorchRecTopology:
    """The machine values that TorchRec's planner needs: datasheet values of one GPU and one direction.

    hbm_bytes  memory that a rank may use; None: all that it has
    """
    inside = machine.value("nvlink_bytes_per_s") or machine.value("pcie_bytes_per_s")
    return TorchRecTopology(
        hbm_bytes=int(hbm_bytes or machine.value("hbm_bytes")),
        hbm_bytes_per_s=machine.value("hbm_bytes_per_s"),
        intra_bytes_per_s=inside,
        inter_bytes_per_s=machine.value("nic_bytes_per_s"),
    )


def _node(evaluator: Evaluator) -> int:
    """GPUs per node."""
    own = evaluator.basis.gpus_per_node or evaluator.setting.machine.gpus_per_node
    return min(own, evaluator.gpus)


def _kind(plan: Plan, at: int, node: int) -> ShardingType:
    """TorchRec's sharding type of the table with index ``at``. Limits: it has none -> BadInputError

    node  GPUs per node
    """
    placement, name = plan.placements[at], plan.tables.names[at]
    how = placement.scheme
    shape = int(plan.tables.dim[at]), plan.gpus, plan.domain, int(plan.tables.buckets[at])
    problem = why_not(how, *shape)
    if not problem:
        kind = sharding_type(placement, plan.gpus, plan.domain)
        if not by_domain(OF_TORCHREC[kind].exchange) or plan.domain % node == 0:
            return kind
        problem = f"TorchRec splits rows inside whole nodes of {node} GPUs, not in domains of {plan.domain}"
    raise BadInputError(
        f"table {name!r} is {how.kind.name.lower()} with {how.row_parts} x {how.col_parts} parts: {problem}.",
        "plan with the shardings that TorchRec has (--format torchrec), or use the plan without TorchRec.",
    )


def _table(plan: Plan, at: int, kind: ShardingType) -> TorchRecTable:
    tables, placement = plan.tables, plan.placements[at]
    rows, dim, buckets = (int(column[at]) for column in (tables.rows, tables.dim, tables.buckets))
    copies, whole = copied(OF_TORCHREC[kind].exchange), over_all(OF_TORCHREC[kind].exchange)
    shards = [] if copies else _shards(placement, rows, dim, buckets, whole=whole)
    return TorchRecTable(
        table=tables.names[at],
        rows=rows,
        dim=dim,
        element_bytes=int(tables.element_bytes[at]),
        pooling=float(tables.pooling[at]),
        features=int(tables.features[at]),
        sharding_type=kind,
        compute_kernel="dense" if copies else "fused",
        ranks=list(range(plan.gpus)) if copies else [rank for rank, _, _ in shards],
        shard_sizes=[size for _, size, _ in shards],
        shard_offsets=[offset for _, _, offset in shards],
    )


def _shards(
    placement: Placement, rows: int, dim: int, buckets: int, whole: bool
) -> list[tuple[int, list[int], list[int]]]:
    """Each shard of a table as (rank, [rows, columns], [first row, first column]), by column part.

    rows, dim  size of the table;  buckets  of its rows: the first parts have one more, as in TorchRec
    whole      whether row parts have TorchRec's sizes: ceil(rows / parts) each, then the remainder, then
               nothing
    """
    r, c = placement.scheme.row_parts, placement.scheme.col_parts
    block, width = -(-rows // r), dim // c
    starts = [min(i * block, rows) for i in range(r + 1)]
    if buckets:
        each, more = divmod(buckets, r)
        starts = [(i * each + min(i, more)) * (rows // buckets) for i in range(r + 1)]
    found = []
    for j, column in enumerate(placement.ranks.reshape(r, c).T):
        for i, rank in enumerate(np.sort(column) if r > 1 or whole else column):
            size = [starts[i + 1] - starts[i], width]
            found.append((int(rank), size, [starts[i], j * width]))
    return found
