"""TorchRec's own plan of a module as it prints it (``print(plan)``) or as the JSON of its ``_serialize()``.

    module: bags                                             {"plan": {"bags": {"users": {
    param | sharding type | compute kernel | ranks             "sharding_type": "row_wise",
    ----- | ------------- | -------------- | ------            "compute_kernel": "fused", "ranks": [0, 1],
    users | row_wise      | fused          | [0, 1]            "shards": [{"shard_offsets": [0, 0],
                                                                 "shard_sizes": [100000, 64],
    param | shard offsets | shard sizes  | placement             "placement": "rank:0/cuda:0"}, ...]}}}}
    ----- | ------------- | ------------ | -------------
    users | [0, 0]        | [100000, 64] | rank:0/cuda:0

Source: TorchRec 1.8, torchrec/distributed/types.py, ``EmbeddingModuleShardingPlan``. A pickled plan is not
read, because loading it would run any code in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import OF_TORCHREC, copied
from perfmodel.passes.tables import PlanTables
from perfmodel.schema.files import invalid_fields, shown
from perfmodel.schema.gate import decode_json, load_json, read_text
from perfmodel.schema.torchrec_plan import SHARDING_TYPES, TorchRecPlan, TorchRecTable, TorchRecTopology

WHAT = "plan of TorchRec"
_HEADS = (
    ("param", "sharding type", "compute kernel", "ranks"),
    ("param", "shard offsets", "shard sizes", "placement"),
)
_RANK = re.compile(r"rank:([0-9]{1,9})(?![0-9])")
_MOST = 2**53
_KERNELS = ("dense", "fused")
_ONE_RATE = 1.0
_HOW = "save it with: open('plan.txt', 'w').write(str(plan))"


@dataclass
class _Entry:
    """A table of a module, as TorchRec prints it.

    shards  for each shard (offsets of row and column, numbers of rows and columns, rank)
    """

    module: str
    table: str
    sharding_type: str
    compute_kernel: str
    ranks: list[int] = field(default_factory=list)
    shards: list[tuple[list[int], list[int], int]] = field(default_factory=list)


def read_printed_plan(
    path: Path, tables: PlanTables, gpus: int, node: int, domain: int, batch: int
) -> TorchRecPlan:
    """Reads TorchRec's plan of these tables from a file with its printed text or its JSON.

    gpus, node, domain  GPUs of the job, of a node and of a scale-up domain;  batch  samples per GPU
    Tables of several modules are known by their own names, or as MODULE.TABLE if two have the same name.
    Limits: no plan, a table that is missing or has other rows or dims, ranks that the job does not have, a
            kernel that keeps rows in host memory -> BadInputError that names the table
    """
    text = read_text(path, WHAT)
    entries = list(_of_json(text, path) if text.lstrip().startswith("{") else _of_print(text, path))
    if not entries:
        raise BadInputError(f"{WHAT} {path} has no table.", _HOW)
    named = _by_name(entries, tables, path)
    found = [_table(named[name], name, at, tables, gpus, path) for at, name in enumerate(tables.names)]
    topology = TorchRecTopology(
        hbm_bytes=1, hbm_bytes_per_s=_ONE_RATE, intra_bytes_per_s=_ONE_RATE, inter_bytes_per_s=_ONE_RATE
    )
    try:
        return TorchRecPlan(
            schema_version=1,
            kind="torchrec-plan",
            model=tables.model,
            tables_fingerprint=tables.fingerprint,
            gpus=gpus,
            gpus_per_node=node,
            domain_gpus=domain,
            batch=batch,
            topology=topology,
            tables=found,
        )
    except ValidationError as error:
        raise invalid_fields(error, WHAT, str(path)) from None


def _of_print(text: str, path: Path) -> Iterator[_Entry]:
    """Entries from both printed tables of each module."""
    module, head = "", None
    entries: dict[tuple[str, str], _Entry] = {}
    for line in text.splitlines():
        if line.startswith("module:"):
            module, head = line.removeprefix("module:").strip(), None
            continue
        cells = tuple(cell.strip() for cell in line.split(" | "))
        if cells in _HEADS:
            head = _HEADS.index(cells)
        elif head is None or len(cells) != 4 or set(cells[0]) <= {"-"}:
            continue
        elif head == 0:
            ranks = _numbers(cells[3], path, cells[0]) if cells[3] != "None" else []
            entries[module, cells[0]] = _Entry(module, *cells[:3], ranks)
        elif (module, cells[0]) in entries:
            offsets, sizes = (_pair(_numbers(cell, path, cells[0]), path, cells[0]) for cell in cells[1:3])
            entries[module, cells[0]].shards.append((offsets, sizes, _placed(cells[3], path, cells[0])))
    yield from entries.values()


def _of_json(text: str, path: Path) -> Iterator[_Entry]:
    document = load_json(text, f"{WHAT} {path}")
    plan = document.get("plan") if isinstance(document, dict) else None
    if not isinstance(plan, dict):
        raise BadInputError(
            f"{WHAT} {path} has no plan in it.", "write json.dumps(plan._serialize()), or " + _HOW
        )
    for module, tables in plan.items():
        for table, said in tables.items() if isinstance(tables, dict) else ():
            yield _entry(str(module), str(table), said, path)


def _entry(module: str, table: str, said: Any, path: Path) -> _Entry:
    try:
        shards = [
            (
                _pair(each["shard_offsets"], path, table),
                _pair(each["shard_sizes"], path, table),
                _placed(str(each["placement"]), path, table),
            )
            for each in said.get("shards", ())
        ]
        return _Entry(
            module,
            table,
            str(said["sharding_type"]),
            str(said["compute_kernel"]),
            _whole(said["ranks"] or [], path, table),
            shards,
        )
    except (KeyError, TypeError, AttributeError):
        raise BadInputError(
            f"{WHAT} {path}: what is said of table {shown(table)} is not read.", _HOW
        ) from None


def _numbers(text: str, path: Path, table: str) -> list[int]:
    try:
        found = decode_json(text)[0]
    except ValueError:
        found = text
    return _whole(found, path, table)


def _whole(found: object, path: Path, table: str) -> list[int]:
    """Checks that a value is a list of numbers of rows, columns or ranks, and returns it.

    found  the value;  table  whose it is, for errors. Limits: anything else -> BadInputError
    """
    if not isinstance(found, list) or not all(type(each) is int and 0 <= each <= _MOST for each in found):
        raise BadInputError(
            f"{WHAT} {path}: {shown(found)} of table {shown(table)} is not a list of numbers.", _HOW
        )
    return found


def _pair(found: object, path: Path, table: str) -> list[int]:
    """As ``_whole``, for a list of two numbers: rows and columns."""
    if len(numbers := _whole(found, path, table)) != 2:
        raise BadInputError(f"{WHAT} {path}: {shown(found)} of table {shown(table)} is not a pair.", _HOW)
    return numbers


def _placed(text: str, path: Path, table: str) -> int:
    found = _RANK.search(text)
    if found is None:
        raise BadInputError(f"{WHAT} {path}: {shown(text)} of table {shown(table)} names no rank.", _HOW)
    return int(found.group(1))


def _by_name(entries: list[_Entry], tables: PlanTables, path: Path) -> Mapping[str, _Entry]:
    named: dict[str, list[_Entry]] = {}
    for entry in entries:
        for name in {entry.table, f"{entry.module}.{entry.table}"}:
            named.setdefault(name, []).append(entry)
    for name in tables.names:
        if len(named.get(name, ())) != 1:
            listed = ", ".join(f"{each.module}.{each.table}" for each in entries[:8])
            many = "does not place" if name not in named else "has in several modules"
            raise BadInputError(
                f"{WHAT} {path} {many} table {shown(name)}.",
                f"its tables: {listed}; name the tables of the model so.",
            )
    return {name: named[name][0] for name in tables.names}


def _table(entry: _Entry, name: str, at: int, tables: PlanTables, gpus: int, path: Path) -> TorchRecTable:
    where = f"{WHAT} {path}: table {shown(name)}"
    if entry.sharding_type not in SHARDING_TYPES:
        raise BadInputError(
            f"{where} is {shown(entry.sharding_type)}.", f"known: {', '.join(SHARDING_TYPES)}."
        )
    if entry.compute_kernel not in _KERNELS:
        raise BadInputError(
            f"{where} has the kernel {shown(entry.compute_kernel)}, which is not modelled.",
            "tables in GPU memory are: dense, fused.",
        )
    copies = copied(OF_TORCHREC[entry.sharding_type].exchange)
    if not copies:
        held = sum(rows * columns for _, (rows, columns), _ in entry.shards)
        rows, dim = int(tables.rows[at]), int(tables.dim[at])
        if held != rows * dim:
            raise BadInputError(
                f"{where} has shards of {held} elements, and the model's {rows} rows of {dim}.",
                "give the tables that were sharded (--model).",
            )
    ranks = list(range(gpus)) if copies else [rank for _, _, rank in entry.shards]
    if max(ranks, default=0) >= gpus:
        raise BadInputError(
            f"{where} is on rank {max(ranks)}, in a job of {gpus}.", "give the plan of this job."
        )
    return TorchRecTable(
        table=name,
        rows=int(tables.rows[at]),
        dim=int(tables.dim[at]),
        element_bytes=int(tables.element_bytes[at]),
        pooling=float(tables.pooling[at]),
        sharding_type=entry.sharding_type,  # type: ignore[arg-type]
        compute_kernel=entry.compute_kernel,  # type: ignore[arg-type]
        ranks=ranks,
        shard_sizes=[] if copies else [size for _, size, _ in entry.shards],
        shard_offsets=[] if copies else [offset for offset, _, _ in entry.shards],
    )
