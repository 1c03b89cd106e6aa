"""Plans in files: JSON that a later run, or another program, reads back; ours, and TorchRec's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationInfo

from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import COPY, Placement, Plan, Scheme
from perfmodel.engine.schemes import (
    DATA_PARALLEL,
    EXCHANGED,
    OF_TORCHREC,
    Exchange,
    by_domain,
    copied,
    exchange_named,
)
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import Exact, validated
from perfmodel.schema.files import shown, write_whole
from perfmodel.schema.gate import MOST_PLANNED_GPUS, MOST_TABLES, read_json
from perfmodel.schema.torchrec_plan import ShardingType, TorchRecPlan, torchrec_plan_from

SCHEMA_VERSION = 1
_WHAT = "plan file"
MadeFor = dict[str, str | list[str]]
"""The options of the question that a plan answers, as typed, by their names."""
OF_QUESTION = (
    *("model", "machine", "settings", "batch", "objective", "optimizer", "distribution", "payload"),
    *("id_dtype", "backend", "clock", "kernels", "calibration", "reserve", "max_hbm", "dense"),
)
"""Options that a plan's file repeats, in this order."""
Ranks = Annotated[list[Annotated[int, Field(ge=0, le=MOST_PLANNED_GPUS)]], FailFast()]


def _check_options(made_for: MadeFor) -> MadeFor:
    """``made_for`` of a file as it is. Limits: unknown option, or a value of the wrong type -> ValueError"""
    for name, value in made_for.items():
        if name not in OF_QUESTION:
            raise ValueError(f"has {shown(name)}, which is none of {', '.join(OF_QUESTION)}")
        if name != "model" and isinstance(value, list) != (name == "settings"):
            raise ValueError(f"has {shown(name)} that is not {'a list' if name == 'settings' else 'text'}")
    return made_for


def _read_exchange(name: object, info: ValidationInfo) -> Exchange:
    """The kind of exchange, by any name that this or earlier versions wrote; used when an entry is read."""
    kind = exchange_named(name) if isinstance(name, str) else None
    if kind is None:
        words = ", ".join((*(kind.facts.word for kind in EXCHANGED), DATA_PARALLEL))
        raise ValueError(f"of table {shown(info.data.get('table'))} is none of {words}")
    return kind


class _Entry(Exact):
    """One table of a plan file.

    sharding  a name for the other fields together; may be absent
    ranks     ranks that hold its parts
    """

    table: str
    sharding: str = ""
    exchange: Annotated[Exchange, BeforeValidator(_read_exchange)]
    row_parts: int = Field(ge=1)
    col_parts: int = Field(ge=1)
    hot_rows: int = Field(default=0, ge=0)
    ranks: Ranks


class _File(Exact):
    """The fields of a plan file; ``placements`` has an entry per table."""

    schema_version: Literal[1]
    model: str
    tables_fingerprint: str
    gpus: int = Field(ge=1, le=MOST_PLANNED_GPUS)
    domain_gpus: int = Field(ge=1, le=MOST_PLANNED_GPUS)
    made_for: Annotated[MadeFor, AfterValidator(_check_options)] = {}
    placements: Annotated[list[_Entry], FailFast()] = Field(max_length=MOST_TABLES)


class _OfQuestion(BaseModel):
    """What a plan file says of its question; other fields are not read."""

    model_config = ConfigDict(frozen=True, strict=True)
    made_for: Annotated[MadeFor, AfterValidator(_check_options)] = {}


class _Parameter(BaseModel):
    """TorchRec's ParameterSharding of a table: the fields that say what it costs; others are not read."""

    model_config = ConfigDict(frozen=True, strict=True)
    sharding_type: ShardingType
    compute_kernel: Literal["dense", "fused"]
    ranks: Ranks


def plan_record(plan: Plan, made_for: MadeFor | None = None) -> dict[str, object]:
    """A plan as plain data, as ``write_plan`` writes it. made_for  None: unknown"""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": plan.tables.model,
        "tables_fingerprint": plan.tables.fingerprint,
        "gpus": plan.gpus,
        "domain_gpus": plan.domain,
        **({"made_for": made_for} if made_for else {}),
        "placements": [
            {
                "table": name,
                "sharding": placement.sharding(plan.gpus, plan.domain),
                **record_scheme(placement.scheme),
                "ranks": placement.ranks.tolist(),
            }
            for name, placement in zip(plan.tables.names, plan.placements, strict=True)
        ],
    }


def record_scheme(scheme: Scheme) -> dict[str, object]:
    """A scheme as plain data."""
    parts = {"row_parts": scheme.row_parts, "col_parts": scheme.col_parts, "hot_rows": scheme.hot_rows}
    return {"exchange": scheme.kind.key, **parts}


def write_plan(plan: Plan, path: Path, made_for: MadeFor | None = None) -> None:
    """Write a plan as JSON; if that fails, the old file stays. Limits: no such folder -> BadInputError"""
    write_whole(path, json.dumps(plan_record(plan, made_for), indent=1) + "\n", _WHAT)


def read_made_for(path: Path) -> MadeFor:
    """The options that the plan in a file was made with, the tables among them as ``model``.

    Limits: a plan that does not say its tables -> BadInputError;  a plan of TorchRec -> its tables alone
    """
    document = read_json(path, _WHAT)
    _check_kind(document, str(path))
    if not isinstance(document, dict) or not isinstance(document.get("model"), str):
        raise BadInputError(f"{_WHAT} {path} does not say of which tables it is.", "give --model.")
    return {"model": document["model"], **validated(_OfQuestion, document, _WHAT, str(path)).made_for}


def read_plan(path: Path, tables: PlanTables) -> Plan:
    """A plan of these tables from a JSON file of this program. Limits: as ``plan_from``"""
    return plan_from(read_json(path, _WHAT), tables, str(path))


def read_any_plan(
    path: Path, tables: PlanTables, gpus: int | None, domain_of: Callable[[int], int]
) -> tuple[Plan, ExchangeSets | None]:
    """Reads a plan of these tables from a file of any kind: ours, for TorchRec, or TorchRec's ShardingPlan.

    Returns (plan, the sets of exchanges that TorchRec runs for it); None for a file of this program.
    gpus  of the job, which a ShardingPlan does not say;  domain_of  GPUs of a scale-up domain, by ``gpus``
    Limits: as ``plan_from``
    """
    document = read_json(path, _WHAT)
    if isinstance(document, dict) and document.get("kind") == "torchrec-plan":
        file = torchrec_plan_from(document, str(path))
        types = {entry.table: entry.sharding_type for entry in file.tables}
        sets = ExchangeSets(tuple(types[name] for name in tables.names))
        return convert_torchrec_plan(file, tables, str(path)), sets
    modules = list(document.values()) if isinstance(document, dict) else []
    entries = [entry for module in modules if isinstance(module, dict) for entry in module.values()]
    if not entries or not all(isinstance(entry, dict) and "sharding_type" in entry for entry in entries):
        return plan_from(document, tables, str(path)), None
    if gpus is None:
        raise BadInputError(f"{_WHAT} {path} does not say on how many GPUs it is.", "give --gpus.")
    return _plan_modules(modules, tables, gpus, domain_of(gpus), str(path))


def plan_from(document: object, tables: PlanTables, where: str = "given") -> Plan:
    """Reads a plan from data as ``plan_record`` returns. where  the name of the data in errors

    Limits: not JSON, unknown fields or names, another version, a plan of other tables -> BadInputError
    """
    if isinstance(document, dict) and document.get("kind") == "torchrec-plan":
        raise BadInputError(
            f"{_WHAT} {where} is for TorchRec: it says nothing about exchanges.",
            "give the plan that --out writes without --format torchrec.",
        )
    _check_kind(document, where)
    file = validated(_File, document, _WHAT, where)
    _check_tables(file.tables_fingerprint, file.model, tables, where)
    entries = _sort_entries(file.placements, tables, where)
    placements = tuple(
        Placement.of(Scheme(entry.exchange, entry.row_parts, entry.col_parts, entry.hot_rows), entry.ranks)
        for entry in entries
    )
    plan = Plan(tables, placements, file.gpus, file.domain_gpus)
    for entry, placement in zip(entries, placements, strict=True):
        name = placement.sharding(plan.gpus, plan.domain)
        if entry.sharding not in ("", name):
            raise BadInputError(
                f"{_WHAT} {where}: table {entry.table!r} is called {entry.sharding}, "
                f"but its exchange, parts and ranks are {name}.",
                f'write "sharding": "{name}", or leave it out.',
            )
    return plan


def convert_torchrec_plan(file: TorchRecPlan, tables: PlanTables, where: str = "given") -> Plan:
    """A plan for TorchRec as one of our plans.

    Limits: other tables, or shards that no plan has (two on one rank) -> BadInputError that names the table
    """
    _check_tables(file.tables_fingerprint, file.model, tables, where)
    placements = tuple(
        place_shards(entry.table, entry.sharding_type, entry.ranks, file.gpus, file.domain_gpus)
        for entry in _sort_entries(file.tables, tables, where)
    )
    return Plan(tables, placements, file.gpus, file.domain_gpus)


def _plan_modules(
    modules: Sequence[dict[str, object]], tables: PlanTables, gpus: int, domain: int, where: str
) -> tuple[Plan, ExchangeSets]:
    """TorchRec's ShardingPlan as our plan, and its sets of exchanges; tables of all modules together.

    Limits: other tables, rows outside GPU memory, shards that no plan has -> BadInputError
    """
    entries = {name: entry for module in modules for name, entry in module.items()}
    if wrong := sorted(entries.keys() ^ set(tables.names)):
        raise BadInputError(
            f"table {shown(wrong[0])} is not both in {_WHAT} {where} and in {tables.model}.",
            "give the tables of the plan (--model).",
        )
    parameters = [
        validated(_Parameter, entries[name], "ShardingPlan", f"{where}: {name}") for name in tables.names
    ]
    placements = tuple(
        place_shards(name, entry.sharding_type, entry.ranks, gpus, domain)
        for name, entry in zip(tables.names, parameters, strict=True)
    )
    return Plan(tables, placements, gpus, domain), ExchangeSets(tuple(e.sharding_type for e in parameters))


def place_shards(name: str, kind: ShardingType, ranks: Sequence[int], gpus: int, domain: int) -> Placement:
    """The placement of a table of TorchRec. Limits: row parts that do not fill domains -> BadInputError"""
    cut = OF_TORCHREC[kind]
    if copied(cut.exchange):
        return Placement.of(COPY)
    if not by_domain(cut.exchange):
        return Placement.of(Scheme.from_name(cut.name, gpus, domain, col_parts=len(ranks)), ranks)
    columns, left = divmod(len(ranks), domain)
    if left or not columns:
        raise BadInputError(
            f"table {shown(name)} is {kind} on {len(ranks)} ranks, in domains of {domain}.",
            "its row parts must fill whole domains: write the plan anew.",
        )
    by_row = np.array(ranks).reshape(columns, domain).T.ravel()
    return Placement.of(Scheme(cut.exchange, domain, columns), by_row)


def _sort_entries(entries: Sequence[Any], tables: PlanTables, where: str) -> list[Any]:
    """The entries of a file in the order of the tables. Limits: not one for each table -> BadInputError"""
    counts = Counter(entry.table for entry in entries)
    wrong = [name for name in (*tables.names, *counts) if counts[name] != (name in tables.names)]
    if wrong:
        times = f"{counts[wrong[0]]} times" if counts[wrong[0]] else "nowhere"
        raise BadInputError(
            f"{_WHAT} {where} places table {shown(wrong[0])} {times}.",
            f"it must place every table of {tables.model} once, and no other: write the plan anew.",
        )
    by_name = {entry.table: entry for entry in entries}
    return [by_name[name] for name in tables.names]


def _check_tables(fingerprint: str, model: str, tables: PlanTables, where: str) -> None:
    """Refuses a plan of other tables. fingerprint, model  of the tables that the plan was made for"""
    if fingerprint != tables.fingerprint:
        raise BadInputError(
            f"{_WHAT} {where} is for other tables: for {shown(model)} as it was, not for {tables.model}.",
            f"use it with {shown(model)} as it was, or plan {tables.model} anew.",
        )


def _check_kind(document: object, where: str) -> None:
    """Check that a document is a plan. Limits: a calibration, or anything else -> BadInputError"""
    if isinstance(document, dict) and "calibration_id" in document:
        raise BadInputError(
            f"{where} is a calibration, not a plan.",
            "give it with --calibration; `perfmodel plan --out FILE` writes a plan.",
        )
    if isinstance(document, dict) and not {"placements", "tables_fingerprint", "domain_gpus"} & set(document):
        raise BadInputError(
            f"{where} is not a plan.",
            "`perfmodel plan --out FILE` writes one; for a ShardingPlan of TorchRec give --model and --gpus.",
        )
