"""What a sweep found, in a few lines: the range of the slowdown and the configurations at its two ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report.terminal import paragraph, table
from perfmodel.units import format_bytes, format_count, format_number, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 5
_CONFIGURATION = (
    "machine",
    "tier",
    "model",
    "table_bytes",
    "gpus",
    "batch",
    "table_count",
    "pooling",
    "dim",
    "dtype",
)


def sweep_text(frame: pd.DataFrame) -> str:
    """Range and median of the slowdown, then the least and the most slowed configurations."""
    kept = frame[frame["fits"]] if frame["fits"].any() else frame
    ordered = kept.sort_values("slowdown", kind="stable")
    slowest, fastest = ordered.tail(_SHOWN).iloc[::-1], ordered.head(_SHOWN)
    low, high = (format_ratio(float(ordered["slowdown"].iloc[i])) for i in (0, -1))
    middle = format_ratio(float(ordered["slowdown"].median()))
    count = format_count(len(kept))
    head = f"{count} configuration{'s' if len(kept) != 1 else ''}: slowdown {low} to {high}, median {middle}."
    if len(kept) < len(frame):
        left = len(frame) - len(kept)
        head += f" {format_count(left)} more {'do' if left > 1 else 'does'} not fit the GPUs (column fits)."
    elif not frame["fits"].any():
        head += " None of them fits the GPUs."
    varying = [name for name in _CONFIGURATION if name in frame.columns and _differs(frame, name)]
    parts = [paragraph(head), "Least slowed\n" + _rows(fastest, varying)]
    if len(kept) > _SHOWN:
        parts.append("Most slowed\n" + _rows(slowest, varying))
    parts.append("All rows: --out sweep.csv (or .parquet), or --csv on stdout.")
    return "\n\n".join(parts)


def _differs(frame: pd.DataFrame, name: str) -> bool:
    return name == "gpus" or frame[name].nunique() > 1


def _rows(frame: pd.DataFrame, varying: list[str]) -> str:
    rows = []
    for record in frame.to_dict(orient="records"):
        cells = [_cell(name, record[name]) for name in varying]
        ratio, low, high = (float(record[k]) for k in ("slowdown", "slowdown_low", "slowdown_high"))
        band = f"{format_ratio(low)} – {format_ratio(high)}"
        memory = format_bytes(float(record["memory_bytes"]), binary=False)
        rows.append([*cells, memory, format_time(float(record["time_s"])), format_ratio(ratio), band])
    names = [_HEADERS.get(name, name) for name in varying]
    return table([*names, "memory/GPU", "time", "slowdown", "95 % band"], rows, drop=(len(names) + 3,))


_HEADERS = {"table_bytes": "tables' bytes", "table_count": "tables"}


def _cell(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    number = float(str(value))
    if name == "table_bytes":
        return format_bytes(number, binary=False)
    return format_number(number) if name == "pooling" else format_count(number)
