"""Plans in files: JSON that a later run, or another program, reads back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationInfo

from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import DATA_PARALLEL, EXCHANGED, Exchange, exchange_named
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import Exact, validated
from perfmodel.schema.files import shown, write_whole_text
from perfmodel.schema.gate import MOST_PLANNED_GPUS, MOST_TABLES, read_json

SCHEMA_VERSION = 1
_WHAT = "plan file"


MadeFor = dict[str, str | list[str]]
"""The options of the question that a plan answers, as typed, by their names."""
OF_QUESTION = (
    *("model", "machine", "settings", "batch", "objective", "optimizer", "distribution", "payload"),
    *("id_dtype", "backend", "clock", "kernels", "calibration", "reserve", "max_hbm", "dense"),
)
"""Options that a plan's file repeats, in this order."""


def _check_options(made_for: MadeFor) -> MadeFor:
    """The options of a plan's question. Limits: one that is none, or not as it is typed -> ValueError"""
    for name, value in made_for.items():
        if name not in OF_QUESTION:
            raise ValueError(f"has {shown(name)}, which is none of {', '.join(OF_QUESTION)}")
        if name != "model" and isinstance(value, list) != (name == "settings"):
            raise ValueError(f"has {shown(name)} that is not {'a list' if name == 'settings' else 'text'}")
    return made_for


def _exchange(name: object, info: ValidationInfo) -> Exchange:
    """The kind of exchange, by any name that this or earlier versions wrote; used when an entry is read."""
    found = exchange_named(name) if isinstance(name, str) else None
    if found is None:
        words = ", ".join((*(kind.facts.word for kind in EXCHANGED), DATA_PARALLEL))
        raise ValueError(f"of table {shown(info.data.get('table'))} is none of {words}")
    return found


class _Entry(Exact):
    """One table of a plan file.

    sharding  a name for the other fields together; may be absent
    ranks     ranks that hold its parts
    """

    table: str
    sharding: str = ""
    exchange: Annotated[Exchange, BeforeValidator(_exchange)]
    row_parts: int = Field(ge=1)
    col_parts: int = Field(ge=1)
    hot_rows: int = Field(default=0, ge=0)
    ranks: Annotated[list[Annotated[int, Field(ge=0, le=MOST_PLANNED_GPUS)]], FailFast()]


class _File(Exact):
    """The fields of a plan file; ``placements`` has an entry per table."""

    schema_version: Literal[1]
    model: str
    tables_fingerprint: str
    gpus: int = Field(ge=1, le=MOST_PLANNED_GPUS)
    domain_gpus: int = Field(ge=1, le=MOST_PLANNED_GPUS)
    made_for: Annotated[MadeFor, AfterValidator(_check_options)] = {}
    placements: Annotated[list[_Entry], FailFast()] = Field(max_length=MOST_TABLES)


class _Said(BaseModel):
    """What a plan file says of its question; other fields are not read."""

    model_config = ConfigDict(frozen=True, strict=True)
    made_for: Annotated[MadeFor, AfterValidator(_check_options)] = {}


def plan_record(plan: Plan, made_for: MadeFor | None = None) -> dict[str, Any]:
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
                **scheme_record(placement.scheme),
                "ranks": placement.ranks.tolist(),
            }
            for name, placement in zip(plan.tables.names, plan.placements, strict=True)
        ],
    }


def scheme_record(scheme: Scheme) -> dict[str, Any]:
    """A scheme as plain data."""
    parts = {"row_parts": scheme.row_parts, "col_parts": scheme.col_parts, "hot_rows": scheme.hot_rows}
    return {"exchange": scheme.kind.key, **parts}


def write_plan(plan: Plan, path: Path, made_for: MadeFor | None = None) -> None:
    """Write a plan as JSON; if that fails, the old file stays.

    Limits: it cannot be written -> BadInputError
    """
    write_whole_text(path, json.dumps(plan_record(plan, made_for), indent=1) + "\n", _WHAT)


def read_made_for(path: Path) -> MadeFor:
    """The options that the plan in a file was made with, the tables among them as ``model``.

    Limits: a plan that does not say its tables -> BadInputError;  a plan of TorchRec -> its tables alone
    """
    document = read_json(path, _WHAT)
    _check_kind(document, str(path))
    if not isinstance(document, dict) or not isinstance(document.get("model"), str):
        raise BadInputError(f"{_WHAT} {path} does not say of which tables it is.", "give --model.")
    return {"model": document["model"], **validated(_Said, document, _WHAT, str(path)).made_for}


def read_plan(path: Path, tables: PlanTables) -> Plan:
    """A plan of these tables from a JSON file.

    Limits: not JSON, unknown fields or names, another version, a plan of other tables -> BadInputError
    """
    return plan_from(read_json(path, _WHAT), tables, str(path))


def plan_from(document: object, tables: PlanTables, where: str = "given") -> Plan:
    """Reads a plan from data as ``plan_record`` returns. Limits: as ``read_plan``

    where  the name of the data in errors
    """
    if isinstance(document, dict) and document.get("kind") == "torchrec-plan":
        raise BadInputError(
            f"{_WHAT} {where} is for TorchRec: it says nothing about exchanges.",
            "give the plan that --out writes without --format torchrec.",
        )
    _check_kind(document, where)
    file = validated(_File, document, _WHAT, where)
    check_tables(file.tables_fingerprint, file.model, tables, f"{_WHAT} {where}")
    by_name = {entry.table: entry for entry in file.placements}
    missing = [name for name in tables.names if name not in by_name]
    if missing:
        raise BadInputError(
            f"{_WHAT} {where} does not place table {missing[0]!r}.", "the file may have been cut short."
        )
    if len(file.placements) != len(tables):
        name, times = Counter(entry.table for entry in file.placements).most_common(1)[0]
        other = next((entry.table for entry in file.placements if entry.table not in tables.names), "")
        what = f"table {shown(name)} twice" if times > 1 else f"a table {shown(other)} that is not there"
        raise BadInputError(f"{_WHAT} {where} places {what}.", "leave out what is too much.")
    placements = tuple(_placement(by_name[name]) for name in tables.names)
    plan = Plan(tables, placements, file.gpus, file.domain_gpus)
    for name, placement in zip(tables.names, placements, strict=True):
        said, found = by_name[name].sharding, placement.sharding(plan.gpus, plan.domain)
        if said not in ("", found):
            raise BadInputError(
                f"{_WHAT} {where}: table {name!r} is called {said}, "
                f"but its exchange, parts and ranks are {found}.",
                f'write "sharding": "{found}", or leave it out.',
            )
    return plan


def check_tables(fingerprint: str, model: str, tables: PlanTables, plan_name: str) -> None:
    """Refuses a plan of other tables. fingerprint, model  of the tables that the plan was made for"""
    if fingerprint != tables.fingerprint:
        raise BadInputError(
            f"{plan_name} is for other tables: for {shown(model)} as it was, not for {tables.model}.",
            f"use it with {shown(model)} as it was, or plan {tables.model} anew.",
        )


def _check_kind(document: object, where: str) -> None:
    """Check that a document is a plan.

    Limits: a calibration, or anything else -> BadInputError that says so
    """
    if not isinstance(document, dict):
        return
    if "calibration_id" in document:
        raise BadInputError(
            f"{where} is a calibration, not a plan.",
            "give it with --calibration; `perfmodel plan --out FILE` writes a plan.",
        )
    if not {"placements", "tables_fingerprint", "domain_gpus"} & set(document):
        raise BadInputError(
            f"{where} is not a plan.",
            "`perfmodel plan --out FILE` writes one; for a ShardingPlan of TorchRec give --model and --gpus.",
        )


def _placement(entry: _Entry) -> Placement:
    scheme = Scheme(entry.exchange, entry.row_parts, entry.col_parts, entry.hot_rows)
    return Placement.of(scheme, entry.ranks)
