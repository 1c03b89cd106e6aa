"""Explains why a table with few rows or columns can have none of the shardings that its rules allow."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from perfmodel.engine.schemes import (
    COLUMN_WISE,
    DATA_PARALLEL,
    EXCHANGED,
    GRID,
    ROW_WISE,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    by_domain,
    over_all,
)
from perfmodel.plan.choices.listing import NARROWEST
from perfmodel.units import counted


def too_small(allowed: Collection[str], rows: int, dim: int, gpus: int, domain: int) -> str:
    """Why a table of ``rows`` and ``dim`` columns can have none of its allowed shardings, in words.

    allowed  names of shardings or of exchanges;  gpus, domain  GPUs of the job, and of a scale-up domain
    Limits: nothing is named, or enough rows or columns for one of them -> ""
    """
    whole = f"a row for each of {counted(gpus, 'GPU')}", gpus, rows, "row"
    inside = f"a row for each of the {counted(domain, 'GPU')} of a scale-up domain", domain, rows, "row"
    columns = f"{2 * NARROWEST} columns or more", 2 * NARROWEST, dim, "column"
    needs = {ROW_WISE: whole, TABLE_ROW_WISE: inside, GRID: inside}
    needs |= {COLUMN_WISE: columns, TABLE_COLUMN_WISE: columns}
    needs |= {kind.facts.word: whole for kind in EXCHANGED if over_all(kind)}
    needs |= {kind.facts.word: inside for kind in EXCHANGED if by_domain(kind)}
    names = sorted(allowed)
    if not names or any(name not in needs or needs[name][2] >= needs[name][1] for name in names):
        return ""
    words = [f"{name} needs {needs[name][0]}" for name in names]
    has = dict.fromkeys(counted(needs[name][2], needs[name][3]) for name in names)
    return f"{', '.join(words)}; the table has {' and '.join(has)}"


def with_copies(rules: Sequence[str]) -> str:
    """Advice for a table that is too small to be split: its rules (allowed shardings) and replication.

    Limits: one rule ``--only table-wise`` -> ``--only table-wise,data-parallel: small tables are then …``
    """
    small = "small tables are then whole on every GPU."
    typed = [rule.removeprefix("--only ") for rule in rules if rule.startswith("--only ")]
    if len(rules) == len(typed) == 1:
        return f"--only {shlex.quote(typed[0] + ',' + DATA_PARALLEL)}: {small}"
    return f"{'; '.join(rules)}: allow {DATA_PARALLEL} too; {small}"
