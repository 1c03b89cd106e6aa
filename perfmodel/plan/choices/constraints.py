"""Which shardings tables may have: ``--only``, as typed or in JSON as TorchRec's ``ParameterConstraints``."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import (
    COLUMN_WISE,
    DATA_PARALLEL,
    EXCHANGED,
    OF_TORCHREC,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    Exchange,
    exchange_named,
)
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.scheme_options import Options, check_room
from perfmodel.question.plans import RULES
from perfmodel.schema.fields import Exact, validated
from perfmodel.schema.files import shown, unknown_name
from perfmodel.schema.gate import MOST_TABLES, read_json
from perfmodel.schema.torchrec_plan import ShardingType

_MOST_RULES = 3  # that a message names
_IN_HBM = {"dense", "fused"}
_WHAT = "file of ParameterConstraints"


@dataclass(frozen=True)
class TableRule:
    """The shardings and exchanges that are allowed for the tables that a pattern matches.

    where    the rule as typed, for messages;  pattern  for table names, with ``*`` and ``?`` as in a shell
    names    of shardings and exchanges;  narrowest  columns of the narrowest column part [-]
    """

    where: str
    pattern: str
    names: tuple[str, ...] = ()
    narrowest: int = 0


class _ParameterConstraints(Exact):
    """The constraints of TorchRec's planner on one table (TorchRec 1.8), as ``dataclasses.asdict`` has them.

    sharding_types, min_partition are used; kernels may be those that keep rows in GPU memory; a field that is
    not listed here is refused
    """

    sharding_types: list[ShardingType] = []
    compute_kernels: list[str] | None = None
    min_partition: Annotated[int, Field(ge=1)] = 0

    @model_validator(mode="before")
    @classmethod
    def _drop_defaults(cls, fields: object) -> object:
        """Leave out fields that say nothing. Limits: not an object -> as it is, which is refused"""
        if not isinstance(fields, dict):
            return fields
        unset = {"is_weighted": False, "use_virtual_table": False, "pooling_factors": [1.0]}
        return {k: v for k, v in fields.items() if v is not None and unset.get(k, ...) != v}


def parse_rules(only: Iterable[str]) -> tuple[TableRule, ...]:
    """The rules of ``--only``: ``NAMES`` for all tables, ``PATTERN=NAMES`` for some, or a JSON file.

    NAMES are separated by commas; the file has ``ParameterConstraints`` by table name.
    Limits: no name, a file that cannot be read -> BadInputError
    """
    rules: list[TableRule] = []
    for text in only:
        if text.endswith(".json"):
            rules += _read_rules(Path(text))
            continue
        pattern, equals, listed = text.rpartition("=")
        names = tuple(name.strip() for name in listed.split(",") if name.strip())
        if not names or (equals and not pattern.strip()):
            raise BadInputError(
                f"--only {text} names nothing.", "for example --only 'user_*=row-wise,table-wise'"
            )
        rules.append(TableRule(f"--only {text}", pattern.strip() or "*", names))
    return tuple(rules)


def _read_rules(path: Path) -> list[TableRule]:
    """A rule for each table in a file. Limits: unknown fields, rows outside GPU memory -> BadInputError"""
    rules = []
    tables = read_json(path, _WHAT)
    if not isinstance(tables, dict) or len(tables) > MOST_TABLES:
        raise BadInputError(
            f"{_WHAT} {path} is no object with constraints by table name.", "see docs/torchrec.md"
        )
    for table, fields in tables.items():
        where = f"--only {path}: {table}"
        limits = validated(_ParameterConstraints, fields, _WHAT, where)
        kernels = limits.compute_kernels
        if kernels is not None and not _IN_HBM & set(kernels):
            raise BadInputError(
                f"{where}: compute_kernels {shown(kernels)} keep rows outside GPU memory.",
                f"a plan has rows in GPU memory alone: {', '.join(sorted(_IN_HBM))}.",
            )
        names = {OF_TORCHREC[name].name for name in limits.sharding_types}
        if COLUMN_WISE in names:
            names -= {TABLE_COLUMN_WISE}  # it is a case of it
        rules.append(TableRule(where, glob.escape(table), tuple(sorted(names)), limits.min_partition))
    return rules


@dataclass(frozen=True)
class Allowed:
    """What is allowed for one table; ``None`` for a set: everything.

    shardings, exchanges  allowed names of shardings, and kinds of exchange
    copies  whether the table may be replicated;  narrowest  columns of the narrowest column part [-]
    rules   the texts of the rules that set these limits, for messages
    """

    shardings: frozenset[str] | None = None
    exchanges: frozenset[Exchange] | None = None
    copies: bool = True
    narrowest: int = 0
    rules: tuple[str, ...] = ()

    def explain_refusal(self, scheme: Scheme, dim: int, gpus: int, domain: int) -> str:
        """Why a table of ``dim`` columns may not have this scheme; "" if it may.

        gpus, domain  GPUs of the job, and of a scale-up domain
        """
        name = scheme.sharding(gpus, domain)
        if scheme.copied:
            return "" if self.copies else f"may not be {DATA_PARALLEL}"
        if self.shardings is not None and name not in self.shardings:
            return f"may not be {name}"
        if self.exchanges is not None and scheme.kind not in self.exchanges:
            return f"may not be exchanged by {scheme.kind.key}"
        if scheme.col_parts > 1 and dim / scheme.col_parts < self.narrowest:
            return f"may not have column parts of less than {self.narrowest} columns"
        return ""

    def add_rule(self, rule: TableRule) -> Allowed:
        """The limits after one more rule. Limits: a name that is unknown -> BadInputError"""
        names = {_read_name(name, rule) for name in rule.names}
        kinds = frozenset(kind for kind in EXCHANGED if kind.key in names)
        cuts = frozenset(names & set(SHARDINGS))
        shardings, exchanges = self.shardings, self.exchanges
        if cuts and (cuts != {DATA_PARALLEL} or not kinds):  # "unique,data-parallel" limits no cut
            shardings = cuts if shardings is None else cuts & shardings
        if kinds:
            exchanges = kinds if exchanges is None else kinds & exchanges
        copies = self.copies and (not names or DATA_PARALLEL in names)
        narrowest = max(self.narrowest, rule.narrowest)
        return Allowed(shardings, exchanges, copies, narrowest, (*self.rules, rule.where))


@dataclass(frozen=True, eq=False)
class Constraints:
    """The allowed schemes of every table of a plan.

    tables   the tables; equal tables with different rules count as different kinds (``PlanTables.apart``)
    allowed  the limits of each table;  gpus, domain  GPUs of the job, and of a scale-up domain
    """

    tables: PlanTables
    allowed: tuple[Allowed, ...]
    gpus: int
    domain: int

    @staticmethod
    def build(rules: Sequence[TableRule], tables: PlanTables, gpus: int, domain: int) -> Constraints:
        """Applies rules to tables on ``gpus`` GPUs in scale-up domains of ``domain`` GPUs.

        If several rules name a table, all of them apply to it.
        Limits: unknown names, a pattern that matches no table -> BadInputError that names the rule
        """
        allowed = [Allowed()] * len(tables)
        for rule in rules:
            named = [t for t, name in enumerate(tables.names) if fnmatch.fnmatchcase(name, rule.pattern)]
            if not named:
                error = unknown_name("table", rule.pattern, tables.names)
                raise BadInputError(f"{rule.where}: {error.message}", error.next_step)
            for t in named:
                allowed[t] = allowed[t].add_rule(rule)
        classes = {limits: number for number, limits in enumerate(dict.fromkeys(allowed))}
        apart = np.array([classes[limits] for limits in allowed], dtype=np.float64)
        return Constraints(replace(tables, apart=apart), tuple(allowed), gpus, domain)

    def restrict(self, options: Options, limit_bytes: float) -> Options:
        """The allowed options. limit_bytes  memory of each rank that tables may use

        Limits: a table has no option left, or all do not fit -> BadInputError that names rules
        """
        sample, _, _ = self.tables.kinds
        kinds = enumerate(options.group.tolist())
        refused = [self._explain_refusal(int(sample[q]), options.build_scheme(o)) for o, q in kinds]
        mask = np.array([not why for why in refused], dtype=bool)
        for kind in options.find_empty(mask):
            table = int(sample[kind])
            schemes = map(options.build_scheme, np.flatnonzero(options.group == kind).tolist())
            could = {scheme.sharding(self.gpus, self.domain) for scheme in schemes}
            raise BadInputError(
                f"table {self.tables.names[table]!r}: of what fits ({', '.join(sorted(could))}) "
                "none is allowed.",
                f"{'; '.join(self.allowed[table].rules)} leaves nothing: allow more, or give it other GPUs "
                "(--gpus).",
            )
        allowed = options.keep(mask)
        rules = list(dict.fromkeys(rule for limits in self.allowed for rule in limits.rules))
        more = "; …" if len(rules) > _MOST_RULES else ""
        words = f"allow more than {'; '.join(rules[:_MOST_RULES])}{more}, "
        check_room(allowed, limit_bytes, words)
        return allowed

    def _explain_refusal(self, table: int, scheme: Scheme) -> str:
        """``Allowed.explain_refusal`` of the table with this index."""
        dim = int(self.tables.dim[table])
        return self.allowed[table].explain_refusal(scheme, dim, self.gpus, self.domain)

    def check(self, plan: Plan) -> None:
        """Check a plan. Limits: a table of the plan breaks a rule -> BadInputError that names both"""
        for table, (name, placement) in enumerate(zip(plan.tables.names, plan.placements, strict=True)):
            why = self._explain_refusal(table, placement.scheme)
            if why:
                raise BadInputError(
                    f"the plan breaks a constraint: table {name!r} {why}.",
                    f"{'; '.join(self.allowed[table].rules)} says so: change the plan, or the constraint.",
                )


def _read_name(name: str, rule: TableRule) -> str:
    """The name of a sharding, or key of an exchange, that a user wrote; of replication "data-parallel".

    rule  where it was written, for errors
    Limits: unknown, or table-column-wise -> BadInputError
    """
    plain = name.strip().lower()
    if plain == TABLE_COLUMN_WISE:
        raise BadInputError(
            f"{rule.where}: {TABLE_COLUMN_WISE} is a case of {COLUMN_WISE}, and cannot be asked for alone.",
            f"allow {COLUMN_WISE}.",
        )
    if plain in SHARDINGS:
        return plain
    kind = exchange_named(plain)
    if kind is not None:
        return kind.key if kind in EXCHANGED else DATA_PARALLEL
    error = unknown_name("sharding or exchange", name, RULES)
    raise BadInputError(f"{rule.where}: {error.message}", error.next_step)
