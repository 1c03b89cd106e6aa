"""Constraints on tables, as users type them: ``--only`` and ``--without``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.schema.files import shown
from perfmodel.schema.gate import MOST_GPUS, over

_RANKS = "ranks:"


@dataclass(frozen=True)
class TableRule:
    """Constraints on the tables that one pattern matches.

    where    names the rule in a message;  pattern  for table names, with ``*`` and ``?`` as in a shell
    only     names of the only allowed shardings and exchanges; empty: all are allowed
    without  names of forbidden shardings and exchanges
    ranks, without_ranks  the only ranks that may hold its shards; ranks that may not; empty: no constraint
    """

    where: str
    pattern: str
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    ranks: frozenset[int] = frozenset()
    without_ranks: frozenset[int] = frozenset()


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


def _ranks(spans: Iterable[str], where: str) -> frozenset[int]:
    """Ranks from ``8`` and ``0-7``."""
    found: list[range] = []
    for span in spans:
        first, dash, last = span.partition("-")
        ends = [end.strip() for end in ((first, last) if dash else (first, first))]
        if not all(end.isascii() and end.isdigit() and len(end) <= 7 for end in ends):
            raise BadInputError(f"{where}: ranks {shown(span)} are not ranks.", "give 3, or 0-7.")
        low, high = (int(end) for end in ends)
        if high < low:
            raise BadInputError(f"{where}: ranks {shown(span)} run backwards.", f"give {high}-{low}.")
        found.append(range(low, high + 1))
    if sum(map(len, found)) > MOST_GPUS:
        raise over(where, "ranks", MOST_GPUS, "name fewer")
    return frozenset(itertools.chain.from_iterable(found))
