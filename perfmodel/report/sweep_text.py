"""Text of a sweep: the range of the slowdown, or of the time, and the configurations at its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, table
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_number,
    format_per_second,
    format_ratio,
    format_time,
)

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 5
_CONFIGURATION = (
    "machine",
    "model",
    "table_bytes",
    "gpus",
    "batch",
    "table_count",
    "pooling",
    "dim",
    "dtype",
    "sharding",
)


_TIME = ("time_s", "time of a batch", format_time, ("Fastest", "Slowest"))
_SLOWDOWN = ("slowdown", "slowdown", format_ratio, ("Least slowed", "Most slowed"))


def sweep_text(frame: pd.DataFrame, how: str) -> str:
    """The range of the results and the best and worst configurations.

    how  the sharding, in words
    They are ranked by slowdown; if there are several machines by time, because a slowdown is relative to one
    GPU of the same machine.
    """
    kept = frame[frame["fits"]] if frame["fits"].any() else frame
    by_time = frame["machine"].nunique() > 1
    key, what, form, ends = _TIME if by_time else _SLOWDOWN
    ordered = kept.sort_values(key, kind="stable")
    most, least = ordered.tail(_SHOWN).iloc[::-1], ordered.head(_SHOWN)
    low, high = (form(float(ordered[key].iloc[i])) for i in (0, -1))
    middle = form(float(ordered[key].median()))
    of = "" if by_time else " the time of one GPU with all rows"
    head = f"{counted(len(kept), 'configuration')}, {how}: {what} {low} to {high}{of}, "
    head += f"median {middle}."
    if len(kept) < len(frame):
        left = len(frame) - len(kept)
        head += f" {format_count(left)} more {'do' if left > 1 else 'does'} not fit the GPUs (column fits)."
    elif not frame["fits"].any():
        head += " None of them fits the GPUs."
    if by_time and frame["gpus"].nunique() > 1 and frame["batch"].nunique() == 1:
        head += " Each GPU has as many samples, so more GPUs process more in a batch."
    varying = [name for name in _CONFIGURATION if name in frame.columns and _differs(frame, name)]
    parts = [paragraph(head), f"{ends[0]}\n{_rows(least, varying, by_time)}"]
    if len(kept) > _SHOWN:
        parts.append(f"{ends[1]}\n{_rows(most, varying, by_time)}")
    parts.append(paragraph("All rows: --out sweep.csv (or .parquet), or --json."))
    return "\n\n".join(parts)


def _differs(frame: pd.DataFrame, name: str) -> bool:
    return name in ("gpus", "sharding") or frame[name].nunique() > 1


def _rows(frame: pd.DataFrame, varying: list[str], by_time: bool) -> str:
    rows = []
    for record in frame.to_dict(orient="records"):
        cells = [_cell(name, record[name]) for name in varying]
        memory = format_bytes(float(record["memory_bytes"]), binary=False)
        ratio, low, high = (float(record[k]) for k in ("slowdown", "slowdown_low", "slowdown_high"))
        more = [format_ratio(ratio), f"{format_ratio(low)} – {format_ratio(high)}"]
        if by_time:
            rate = format_per_second(record["gpus"] * record["batch"] / record["time_s"], "samples")
            more = [rate, band(record["low_s"], record["high_s"])]
        rows.append([*cells, memory, format_time(float(record["time_s"])), *more])
    names = [_HEADERS.get(name, name) for name in varying]
    heads = ("all GPUs", "95 % band of the time") if by_time else ("slowdown", "95 % band")
    return table([*names, "memory/GPU", "time", *heads], rows, drop=(len(names) + 3,))


_HEADERS = {"table_bytes": "tables' bytes", "table_count": "tables"}


def _cell(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    number = float(str(value))
    if name == "table_bytes":
        return format_bytes(number, binary=False)
    return format_number(number) if name == "pooling" else format_count(number)
