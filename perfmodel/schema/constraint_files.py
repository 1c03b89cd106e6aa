"""What plans may do with tables, as people write it: in a TOML file, or as options of a command."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfmodel.errors import BadInputError
from perfmodel.schema.files import invalid_fields, shown
from perfmodel.schema.gate import over, read_toml
from perfmodel.schema.ranges import MOST_GPUS

_WHAT = "constraint file"
_RANKS = "ranks:"


@dataclass(frozen=True)
class TableRule:
    """What the plan may do with the tables that one pattern names.

    where    names the rule in a message;  pattern  of the tables' names: ``*`` and ``?`` as in a shell
    only     names of shardings and exchanges that alone may be used; empty: any
    without  names of those that may not
    ranks, without_ranks  that alone may hold shards, or that may hold none; empty: any
    row_parts, col_parts  exactly so many; None: any
    least_columns         of a column part; None: any
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


class _Entry(BaseModel):
    """One ``[[tables]]`` of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(default="*", min_length=1)
    only: list[str] = []
    without: list[str] = []
    ranks: _Ranks = []
    without_ranks: _Ranks = []
    row_parts: int | None = Field(default=None, ge=1)
    col_parts: int | None = Field(default=None, ge=1)
    least_columns: int | None = Field(default=None, ge=1)


class _File(BaseModel):
    """A whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tables: list[_Entry] = Field(min_length=1)


def read_constraints(path: Path) -> tuple[TableRule, ...]:
    """Rules of a TOML file with a ``[[tables]]`` for each.

    Limits: unknown fields, values of another type, no rule, ranks that are none -> BadInputError
    """
    try:
        file = _File.model_validate(read_toml(path, _WHAT))
    except ValidationError as error:
        raise invalid_fields(error, _WHAT, str(path)) from None
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

    NAMES are separated by commas; ``ranks:0-7+12`` among them are ranks.
    Limits: no name, ranks that are none -> BadInputError
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
    """Ranks of ``8`` and of ``"0-7"``; no more of them than ``most``, what its file may still name."""
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
