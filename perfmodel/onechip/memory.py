"""Whether the tables fit the global memory of a chip: no mapping makes them smaller."""

from __future__ import annotations

from perfmodel.schema.chip import Chip
from perfmodel.units import format_bytes


def too_large(chip: Chip, table_bytes: float) -> list[str]:
    """One note where tables do not fit global memory, else none.

    table_bytes  of all tables [bytes]
    Limits: a chip that does not say what its memory holds (``gm_size_bytes`` 0) -> no note
    """
    size = chip.value("gm_size_bytes")
    if not 0 < size < table_bytes:
        return []
    tables, memory = (format_bytes(value, binary=False) for value in (table_bytes, size))
    return [f"Tables of {tables} do not fit the {memory} of {chip.name}: the time is as if they did."]
