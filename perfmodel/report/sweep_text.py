"""What a sweep found, in a few lines: the range of the slowdown, or of the time, and what is at its ends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, table
from perfmodel.units import (
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
    """The range and the configurations at its two ends: of several machines by time, of one by slowdown.

    A slowdown is against one GPU of the same machine, so it ranks no machines.
    """
    kept = frame[frame["fits"]] if frame["fits"].any() else frame
    told = _OF_TIME if frame["machine"].nunique() > 1 else _OF_SLOWDOWN
    ordered = kept.sort_values(told.key, kind="stable")
    most, least = ordered.tail(_SHOWN).iloc[::-1], ordered.head(_SHOWN)
    low, high = (told.form(float(ordered[told.key].iloc[i])) for i in (0, -1))
    middle = told.form(float(ordered[told.key].median()))
    count = format_count(len(kept))
    head = (
        f"{count} configuration{'s' if len(kept) != 1 else ''}: {told.what} {low} to {high}, median {middle}."
    )
    if len(kept) < len(frame):
        left = len(frame) - len(kept)
        head += f" {format_count(left)} more {'do' if left > 1 else 'does'} not fit the GPUs (column fits)."
    elif not frame["fits"].any():
        head += " None of them fits the GPUs."
    if told is _OF_TIME and frame["gpus"].nunique() > 1 and (frame["gpus"] * frame["batch"]).nunique() > 1:
        head += " Each GPU has as many samples, so more GPUs process more in a batch."
    varying = [name for name in _CONFIGURATION if name in frame.columns and _differs(frame, name)]
    parts = [paragraph(head), f"{told.least}\n{_rows(least, varying, told)}"]
    if len(kept) > _SHOWN:
        parts.append(f"{told.most}\n{_rows(most, varying, told)}")
    parts.append("All rows: --out sweep.csv (or .parquet), or --csv on stdout.")
    return "\n\n".join(parts)


def _differs(frame: pd.DataFrame, name: str) -> bool:
    return name == "gpus" or frame[name].nunique() > 1


@dataclass(frozen=True)
class _Told:
    """What configurations are sorted by, and the columns beside it: head and text of a record."""

    key: str
    what: str
    form: Callable[[float], str]
    least: str
    most: str
    columns: Sequence[tuple[str, Callable[[Mapping[Hashable, Any]], str]]]


def _band(record: Mapping[Hashable, Any]) -> str:
    return f"{format_ratio(record['slowdown_low'])} – {format_ratio(record['slowdown_high'])}"


def _rate(record: Mapping[Hashable, Any]) -> str:
    return format_per_second(record["gpus"] * record["batch"] / record["time_s"], "samples")


_OF_SLOWDOWN = _Told(
    "slowdown",
    "slowdown",
    format_ratio,
    "Least slowed",
    "Most slowed",
    (("slowdown", lambda each: format_ratio(each["slowdown"])), ("95 % band", _band)),
)
_OF_TIME = _Told(
    "time_s",
    "time of a batch",
    format_time,
    "Fastest",
    "Slowest",
    (
        ("all GPUs", _rate),
        ("95 % band of the time", lambda each: band(each["low_s"], each["high_s"])),
    ),
)


def _rows(frame: pd.DataFrame, varying: list[str], told: _Told) -> str:
    rows = []
    for record in frame.to_dict(orient="records"):
        cells = [_cell(name, record[name]) for name in varying]
        memory = format_bytes(float(record["memory_bytes"]), binary=False)
        more = [text(record) for _, text in told.columns]
        rows.append([*cells, memory, format_time(float(record["time_s"])), *more])
    names = [_HEADERS.get(name, name) for name in varying]
    heads = [head for head, _ in told.columns]
    return table([*names, "memory/GPU", "time", *heads], rows, drop=(len(names) + 3,))


_HEADERS = {"table_bytes": "tables' bytes", "table_count": "tables"}


def _cell(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    number = float(str(value))
    if name == "table_bytes":
        return format_bytes(number, binary=False)
    return format_number(number) if name == "pooling" else format_count(number)
