"""Constraints on tables, as users write them: in a TOML file, or as options of a command."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from perfmodel.errors import BadInputError
from perfmodel.schema.files import shown
from perfmodel.schema.gate import over
from perfmodel.schema.ranges import MOST_GPUS
from perfmodel.schema.strict import Exact, read_as

_WHAT = "constraint file"
_RANKS = "ranks:"


@dataclass(frozen=True)
class TableRule:
    """Constraints on the tables that one pattern matches.

    where    names the rule in a message;  pattern  for table names, with ``*`` and ``?`` as in a shell
    only     names of the only allowed shardings and exchanges; empty: all are allowed
    without  names of forbidden shardings and exchanges
    ranks, without_ranks  the only ranks that may hold its shards; ranks that may not; empty: no constraint
    row_parts, col_parts  exact numbers; None: no constraint
    least_columns         least width of a column part; None: no constraint
    """

    where: str
    pattern: str
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    ranks: frozenset[int] = frozenset()
    without_ranks: frozenset[int] = frozenset()
    row_parts: int | None = None
    col_parts: int | None = None
    least_columns: int | None = None


_Ranks = list[Annotated[int, Field(ge=0, le=MOST_GPUS)] | str]


class _Entry(Exact):
    """One ``[[tables]]`` entry of a file."""

    name: str = Field(default="*", min_length=1)
    only: list[str] = []
    without: list[str] = []
    ranks: _Ranks = []
    without_ranks: _Ranks = []
    row_parts: int | None = Field(default=None, ge=1)
    col_parts: int | None = Field(default=None, ge=1)
    least_columns: int | None = Field(default=None, ge=1)


class _File(Exact):
    """A whole file."""

    tables: list[_Entry] = Field(min_length=1)


def read_constraints(path: Path) -> tuple[TableRule, ...]:
    """Rules of a TOML file, one per ``[[tables]]``.

    Limits: unknown fields, wrong types, no rule, invalid ranks -> BadInputError
    """
    file = read_as(_File, path, _WHAT)
    rules, left = [], MOST_GPUS
    for at, entry in enumerate(file.tables):
        where = f"{_WHAT} {path}, tables.{at}"
        ranks = _ranks(entry.ranks, where, left)
        others = _ranks(entry.without_ranks, where, left - len(ranks))
        left -= len(ranks) + len(others)
        rules.append(
            TableRule(
                where,
                entry.name,
                tuple(entry.only),
                tuple(entry.without),
                ranks,
                others,
                entry.row_parts,
                entry.col_parts,
                entry.least_columns,
            )
        )
    return tuple(rules)


def typed_rules(only: Iterable[str], without: Iterable[str]) -> tuple[TableRule, ...]:
    """Rules of ``--only`` and ``--without``: ``NAMES`` for all tables, ``PATTERN=NAMES`` for some.

    NAMES are separated by commas; ``ranks:0-7+12`` among them means ranks.
    Limits: no name, invalid ranks -> BadInputError
    """
    rules = []
    for option, texts in (("--only", only), ("--without", without)):
        for text in texts:
            where = f"{option} {text}"
            pattern, equals, names = text.rpartition("=")
            said = [name.strip() for name in names.split(",") if name.strip()]
            if not said or (equals and not pattern.strip()):
                raise BadInputError(
                    f"{where} names nothing.", f"for example {option} 'user_*=row-wise,table-wise'"
                )
            plain = tuple(name for name in said if not name.startswith(_RANKS))
            spans = [name.removeprefix(_RANKS).split("+") for name in said if name.startswith(_RANKS)]
            ranks = _ranks([span for each in spans for span in each], where)
            rule = TableRule(where, pattern.strip() or "*")
            if option == "--only":
                rules.append(TableRule(where, rule.pattern, only=plain, ranks=ranks))
            else:
                rules.append(TableRule(where, rule.pattern, without=plain, without_ranks=ranks))
    return tuple(rules)


def _ranks(spans: Iterable[int | str], where: str, most: int = MOST_GPUS) -> frozenset[int]:
    """Ranks from ``8`` and ``"0-7"``; ``most`` is the number of ranks that the file may still list."""
    found: list[range] = []
    for span in spans:
        first, dash, last = str(span).partition("-")
        ends = [end.strip() for end in ((first, last) if dash else (first, first))]
        if not all(end.isascii() and end.isdigit() and len(end) <= 7 for end in ends):
            raise BadInputError(f"{where}: ranks {shown(span)} are not ranks.", 'give 3, or "0-7".')
        low, high = (int(end) for end in ends)
        if high < low:
            raise BadInputError(f"{where}: ranks {shown(span)} run backwards.", f'give "{high}-{low}".')
        found.append(range(low, high + 1))
    if sum(map(len, found)) > most:
        raise over(f"{where}: the file", "ranks", MOST_GPUS, "name fewer")
    return frozenset(itertools.chain.from_iterable(found))
