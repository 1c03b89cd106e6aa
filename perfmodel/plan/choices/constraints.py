"""Which plans are allowed: shardings, exchanges, parts and ranks that some tables must or must not have."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import (
    COLUMN_WISE,
    DATA_PARALLEL,
    EXCHANGED,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    Exchange,
    exchange_named,
)
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.options import Options
from perfmodel.plan.choices.table_rules import TableRule
from perfmodel.plan.choices.too_small import too_small, with_copies
from perfmodel.question.plans import HOT_ROWS, RULES
from perfmodel.schema.files import unknown_name
from perfmodel.units import counted, format_bytes

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]

_MOST_RULES = 3  # that a message names


@dataclass(frozen=True)
class Allowed:
    """What is allowed for one table; ``None`` for a set: everything.

    shardings, exchanges  allowed names of shardings, and kinds of exchange
    copies                whether the table may be replicated;  hot  whether its hot rows may be replicated
    barred                ranks that may hold none of its shards
    rules                 the texts of the rules that set these limits, for messages
    """

    shardings: frozenset[str] | None = None
    exchanges: frozenset[Exchange] | None = None
    copies: bool = True
    hot: bool = True
    barred: frozenset[int] = frozenset()
    rules: tuple[str, ...] = ()

    @property
    def inside(self) -> bool:
        """Whether column parts must all be in one scale-up domain."""
        return (
            self.shardings is not None
            and TABLE_COLUMN_WISE in self.shardings
            and COLUMN_WISE not in self.shardings
        )

    def why_not(self, scheme: Scheme, gpus: int, domain: int) -> str:
        """Why a table may not have this scheme; "" if it may. ``barred`` is not checked.

        gpus, domain  GPUs of the job, and of a scale-up domain
        """
        name = scheme.sharding(gpus, domain)
        if scheme.copied:
            return "" if self.copies else f"may not be {DATA_PARALLEL}"
        if name == COLUMN_WISE and self.inside:
            if scheme.col_parts > domain:
                return f"may not have {scheme.col_parts} column parts: a domain has {domain} GPUs"
        elif self.shardings is not None and name not in self.shardings:
            return f"may not be {name}"
        if self.exchanges is not None and scheme.kind not in self.exchanges:
            return f"may not be exchanged by {scheme.kind.key}"
        if scheme.hot_rows and not self.hot:
            return "may not have hot rows on every GPU"
        return ""


@dataclass(frozen=True, eq=False)
class Constraints:
    """The allowed schemes and ranks of every table of a plan.

    tables   the tables; equal tables with different rules count as different kinds (``PlanTables.apart``)
    allowed  the limits of each table;  gpus, domain  GPUs of the job, and of a scale-up domain
    """

    tables: PlanTables
    allowed: tuple[Allowed, ...]
    gpus: int
    domain: int

    @staticmethod
    def of(rules: Sequence[TableRule], tables: PlanTables, gpus: int, domain: int) -> Constraints:
        """Applies rules to tables on ``gpus`` GPUs in scale-up domains of ``domain`` GPUs.

        If several rules name a table, all of them apply to it.
        Limits: unknown names, a pattern that matches no table, ranks that do not exist, rules that leave
                no choice for a table -> BadInputError that names the rule
        """
        found = [Allowed() for _ in range(len(tables))]
        for rule in rules:
            named = [at for at, name in enumerate(tables.names) if fnmatch.fnmatchcase(name, rule.pattern)]
            if not named:
                error = unknown_name("table", rule.pattern, tables.names)
                raise BadInputError(f"{rule.where}: {error.message}", error.next_step[:400])
            _check_ranks(rule, gpus)
            for at in named:
                found[at] = _with(found[at], rule, gpus)
        for at, each in enumerate(found):
            if len(each.barred) == gpus:
                raise _nothing_left(tables.names[at], each, "no rank is left for it")
        classes = {each: at for at, each in enumerate(dict.fromkeys(found))}
        apart = np.array([classes[each] for each in found], dtype=np.float64)
        return Constraints(replace(tables, apart=apart), tuple(found), gpus, domain)

    def applied(self, options: Options) -> Options:
        """The allowed options, with the ranks that each kind of table may not use.

        Limits: a table has no option left -> BadInputError that names it, its rules and its possible options
        """
        sample, _, _ = self.tables.kinds
        barred = np.zeros((options.count.size, self.gpus), dtype=bool)
        for q, t in enumerate(sample):
            barred[q, sorted(self.allowed[int(t)].barred)] = True

        def allowed(of: Options) -> Mask:
            each = enumerate(of.group)
            free = [not self._refused(int(sample[q]), of, at, barred[q]) for at, q in each]
            return np.array(free, dtype=bool)

        mask = allowed(options)
        left = np.bincount(options.group[mask], minlength=options.count.size)
        for none in np.flatnonzero(left == 0):
            at, span = int(sample[none]), range(*_span(options, int(none)))
            could = {options.scheme(o).sharding(self.gpus, self.domain) for o in span}
            shape = int(self.tables.rows[at]), int(self.tables.dim[at]), self.gpus, self.domain
            each = self.allowed[at]
            words = (kind.facts.word for kind in each.exchanges or ())
            why = too_small(each.shardings or tuple(words), *shape)
            if why and DATA_PARALLEL in could:
                raise BadInputError(
                    f"table {self.tables.names[at]!r}: {why}.", with_copies(self.allowed[at].rules)
                )
            why = why or f"of what fits ({', '.join(sorted(could))}) none is allowed"
            raise _nothing_left(self.tables.names[at], self.allowed[at], why)
        large = options.too_large
        large = None if large is None else large.kept(allowed(large))
        found = replace(options.kept(mask), barred=barred if barred.any() else None, too_large=large)
        held = np.array([self.allowed[int(t)].inside for t in sample])[found.group]
        inside = held & (found.r == 1) & (found.c > 1) & (self.domain < self.gpus)
        return replace(found, inside=inside if inside.any() else None)

    def _refused(self, t: int, options: Options, at: int, barred: Mask) -> bool:
        """Whether the rules of a table forbid an option, by its scheme or by too few allowed ranks.

        t  index of the table;  at  index of the option;  barred  mask of the ranks that it may not use
        """
        scheme = options.scheme(at)
        if self.allowed[t].why_not(scheme, self.gpus, self.domain):
            return True
        if not barred.any():
            return False
        if scheme.copied or scheme.hot_rows:
            return True  # every rank would hold some of it
        free = int(np.sum(~barred))
        if scheme.by_domain:
            free = int(np.sum(~barred.reshape(-1, self.domain).any(axis=1))) * self.domain
        return scheme.parts > free

    def check_room(self, options: Options, limit_bytes: float) -> None:
        """Check that the tables fit in the memory of all ranks, each with its smallest allowed option.

        Limits: they need more than ``limit_bytes`` per rank -> BadInputError
        """
        least = np.minimum.reduceat(options.average_memory, options.first[:-1])
        total = float(least @ options.count)
        if total <= limit_bytes:
            return
        needs, room = (format_bytes(x * options.gpus, binary=False) for x in (total, limit_bytes))
        rules = list(dict.fromkeys(rule for each in self.allowed for rule in each.rules))
        more = "; …" if len(rules) > _MOST_RULES else ""
        raise BadInputError(
            f"the tables of {self.tables.model} need {needs} of HBM as the constraints want them, and "
            f"{counted(options.gpus, 'GPU')} have {room}.",
            f"{'; '.join(rules[:_MOST_RULES])}{more} says so: allow more, use more GPUs (--gpus), or more of "
            "the memory of each (--max-hbm, --reserve).",
        )

    def check(self, plan: Plan) -> None:
        """Check a plan. Limits: a table of the plan breaks a rule -> BadInputError that names both"""
        for t, (name, placement) in enumerate(zip(plan.tables.names, plan.placements, strict=True)):
            each, scheme = self.allowed[t], placement.scheme
            why = each.why_not(scheme, plan.gpus, plan.domain)
            everywhere = scheme.copied or scheme.hot_rows > 0
            held = set(range(plan.gpus)) if everywhere else set(placement.ranks.tolist())
            if not why and each.inside and placement.sharding(plan.gpus, plan.domain) == COLUMN_WISE:
                why = "" if plan.domain >= plan.gpus else "may not have columns in several scale-up domains"
            if not why and held & each.barred:
                why = f"may not be on rank {min(held & each.barred)}"
            if why:
                raise BadInputError(
                    f"the plan breaks a constraint: table {name!r} {why}.",
                    f"{'; '.join(each.rules)} says so: change the plan, or the constraint.",
                )


def _span(options: Options, kind: int) -> tuple[int, int]:
    return int(options.first[kind]), int(options.first[kind + 1])


def _nothing_left(name: str, allowed: Allowed, why: str) -> BadInputError:
    return BadInputError(
        f"table {name!r}: {why}.",
        f"{'; '.join(allowed.rules)} leaves nothing: allow more, or give it other GPUs (--gpus).",
    )


def _exchanges(names: Sequence[str]) -> set[Exchange]:
    """The kinds of exchange that a rule names; names of shardings are skipped."""
    return {kind for kind in EXCHANGED if kind.key in names}


def _check_ranks(rule: TableRule, gpus: int) -> None:
    beyond = [rank for rank in sorted(rule.ranks | rule.without_ranks) if rank >= gpus]
    if beyond:
        raise BadInputError(f"{rule.where}: rank {beyond[0]} does not exist.", f"ranks are 0 to {gpus - 1}.")


def _with(found: Allowed, rule: TableRule, gpus: int) -> Allowed:
    """The limits of a table after one more rule; ``found``: its limits before."""
    shardings, exchanges = found.shardings, found.exchanges
    only, without = ([_known(name, rule) for name in names] for names in (rule.only, rule.without))
    copies, hot = found.copies, found.hot
    if only:
        said = {name for name in only if name in SHARDINGS}
        kinds = _exchanges(only)
        copies &= DATA_PARALLEL in said
        if said and (said != {DATA_PARALLEL} or not kinds):
            shardings = frozenset(said) & (frozenset(SHARDINGS) if shardings is None else shardings)
        if kinds:
            exchanges = frozenset(kinds) & (frozenset(Exchange) if exchanges is None else exchanges)
        if HOT_ROWS in only:
            raise BadInputError(f"{rule.where}: {HOT_ROWS} are beside a sharding.", "forbid them, or not.")
    gone = {name for name in without if name in SHARDINGS}
    if TABLE_COLUMN_WISE in gone:
        raise BadInputError(
            f"{rule.where}: {TABLE_COLUMN_WISE} is a case of {COLUMN_WISE}, and cannot be forbidden alone.",
            f"forbid {COLUMN_WISE}, or name the ranks that the table may use.",
        )
    if COLUMN_WISE in gone:
        gone.add(TABLE_COLUMN_WISE)
    if gone:
        shardings = (frozenset(SHARDINGS) if shardings is None else shardings) - gone
    dropped = _exchanges(without)
    if dropped:
        exchanges = (frozenset(Exchange) if exchanges is None else exchanges) - dropped
    barred = found.barred | rule.without_ranks
    if rule.ranks:
        barred |= frozenset(range(gpus)) - rule.ranks
    return Allowed(
        shardings,
        exchanges,
        copies and DATA_PARALLEL not in without,
        hot and HOT_ROWS not in without,
        barred,
        (*found.rules, rule.where),
    )


def _known(name: str, rule: TableRule) -> str:
    """The spelling that rules use for a name."""
    plain = name.strip().lower()
    if plain in (*SHARDINGS, HOT_ROWS):
        return plain
    kind = exchange_named(plain)
    if kind is not None:
        return kind.key if kind in EXCHANGED else DATA_PARALLEL
    error = unknown_name("sharding or exchange", name, RULES)
    raise BadInputError(f"{rule.where}: {error.message}", error.next_step)
