"""Text of ``perfmodel chips``: a line for each chip, or every value of a chip with its source."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.schema.chip import CHIP_KEYS, Chip
from perfmodel.units import format_bytes

_CHIPS = (
    Column("chip", lambda chip: chip.name, left=True),
    Column("cores", lambda chip: str(chip.cores)),
    Column("local buffer", lambda chip: format_bytes(chip.value("local_bytes"))),
    Column(
        "vector buffer",
        lambda chip: "the same" if chip.buffers.shared else format_bytes(chip.value("vector_bytes")),
    ),
    Column("its rows", lambda c: "stay" if c.buffers.persist else "copied again", left=True, goes=1),
    Column("memory", lambda chip: str(chip.quantity("gm_bytes_per_s"))),
    Column("cache", lambda chip: _cache(chip.value("cache_bytes")), goes=2),
)


def _cache(size: float) -> str:
    return format_bytes(size, binary=False) if size else "none"


def chips_text(chips: Sequence[Chip]) -> str:
    """A table of chips, a line for each, and how to see more."""
    return "\n\n".join(
        [
            columns_text(_CHIPS, chips),
            facts([(chip.name, chip.title) for chip in chips], indent=1),
            "perfmodel chips NAME shows every value with its source.",
        ]
    )


def chip_text(chip: Chip) -> str:
    """Every value of a chip, with unit, evidence, source and reason."""
    parts = [paragraph(f"{chip.name}   {chip.title}")]
    if chip.notes:
        parts.append(paragraph(chip.notes, indent=1))
    memories = "one memory" if chip.buffers.shared else "two memories"
    rows_do = "stay from batch to batch" if chip.buffers.persist else "are copied again for every batch"
    parts.append(facts([("buffers", f"{memories}; rows {rows_do}. {chip.buffers.source}.")], indent=1))
    rows = []
    for key in CHIP_KEYS:
        quantity = chip.quantity(key)
        rows.append([key, str(quantity), str(quantity.evidence), f"{quantity.source}. {quantity.why}"])
    parts.append(table(["value", "", "evidence", "source and reason"], rows, left=(0, 2, 3)))
    return "\n\n".join(parts)
