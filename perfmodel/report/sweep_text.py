"""Text of a sweep: the configurations at the ends of its range, or machines side by side."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph
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
_HEADERS = {"table_bytes": "tables' bytes", "table_count": "tables"}
_CONFIGURATION = (
    *("machine", "model", "table_bytes", "gpus", "batch", "table_count", "pooling", "dim", "dtype"),
    "sharding",
)
_RATE = Column("samples/s", lambda row: format_per_second(row["samples_per_s"], "").strip(" /s"), goes=3)


def sweep_text(frame: pd.DataFrame, how: str) -> str:
    """The range of the results, and the best and worst configurations, or all if they are few.

    how  the sharding in words
    They are ranked by slowdown; if there are several machines by time, because a slowdown is relative to one
    GPU of the same machine.
    """
    fitting = frame[frame["fits"]] if frame["fits"].any() else frame
    by_time = frame["machine"].nunique() > 1
    key = "time_s" if by_time else "slowdown"
    ends = ("Fastest", "Slowest") if by_time else ("Least slowed", "Most slowed")
    form = format_time if by_time else format_ratio
    ordered = fitting.sort_values(key, kind="stable")
    low, high, median = map(form, (ordered[key].iloc[0], ordered[key].iloc[-1], ordered[key].median()))
    quantity = "time of a batch" if key == "time_s" else "slowdown against one GPU with all rows"
    span = f"{low} to {high}, median {median}" if len(fitting) > 1 else low
    head = f"{counted(len(fitting), 'configuration')}, {how}: {quantity} {span}."
    if not (fits := int(frame["fits"].sum())):
        head += " None of them fits the GPUs."
    elif fits < len(frame):
        head += f" More that do not fit the GPUs (column fits): {format_count(len(frame) - fits)}."
    varying = [name for name in frame.columns.intersection(list(_CONFIGURATION)) if frame[name].nunique() > 1]
    names = [name for name in _CONFIGURATION if name in {*varying, "gpus", "sharding"} & set(frame.columns)]
    if len(fitting) <= 2 * _SHOWN:
        title = f"{ends[0]} first\n" if len(fitting) > 1 else ""
        parts = [paragraph(head), f"{title}{_list_rows(ordered, names, key)}"]
    else:
        parts = [paragraph(head), f"{ends[0]}\n{_list_rows(ordered.head(_SHOWN), names, key)}"]
        parts.append(f"{ends[1]}\n{_list_rows(ordered.tail(_SHOWN).iloc[::-1], names, key)}")
    return "\n\n".join([*parts, paragraph("All rows: --out sweep.csv (or .parquet), or --json.")])


def _list_rows(frame: pd.DataFrame, names: list[str], key: str) -> str:
    left = {names[0], "sharding"}
    goes = {} if frame.duplicated([x for x in names if x != "sharding"]).any() else {"sharding": 2}
    columns = [
        *(Column(_HEADERS.get(x, x), partial(_format_cell, x), x in left, goes.get(x, 0)) for x in names),
        Column("memory/GPU", lambda row: format_bytes(row["memory_bytes"], binary=False), goes=1),
        Column("time", lambda row: format_time(row["time_s"])),
        Column("95 % band", lambda row: band(row["low_s"], row["high_s"])),
        Column("slowdown", lambda row: format_ratio(row["slowdown"])),
    ]
    if key == "time_s":
        frame = frame.assign(samples_per_s=frame["gpus"] * frame["batch"] / frame["time_s"])
        columns[-1] = _RATE
    return columns_text(columns, frame.to_dict(orient="records"))


def _format_cell(name: str, row: Mapping[str, float | str]) -> str:
    value = row[name]
    if isinstance(value, str):
        return value
    if name == "table_bytes":
        return format_bytes(float(value), binary=False)
    return format_number(float(value)) if name == "pooling" else format_count(float(value))


def machines_text(frame: pd.DataFrame, by: str, currency: str, how: str) -> str:
    """The rows of ``rank_machines`` as a table. by, currency  criterion, of costs;  how  sharding in words"""
    best = frame.iloc[0]
    cost = "cost_of_1e9_samples"
    batch = f"{format_count(best['samples'])} samples on all GPUs together"
    if frame["samples"].nunique() > 1:
        batch = f"{counted(int(best['batch']), 'sample')} on each GPU"
    columns = [
        Column("machine", lambda row: str(row["machine"]), left=True),
        Column("sharding", lambda row: str(row["sharding"]), left=True, goes=2),
        Column("GPUs", lambda row: format_count(row["gpus"])),
        Column("paid", lambda row: format_count(row["gpus_paid"]), goes=1),
        Column("time", lambda row: format_time(row["time_s"])),
        Column("95 % band", lambda row: band(row["low_s"], row["high_s"])),
        Column("evidence", lambda row: str(row["main_evidence"]), left=True, goes=4),
        _RATE,
        Column(f"{currency}/10⁹", lambda row: format_number(row[cost]).replace("unknown", "no price")),
        Column(f"{'cost' if by == 'cost' else 'time'} ratio", lambda row: str(row["ratio_text"])),
    ]
    decisions = [True, *frame["decided"].iloc[1:]]
    ratios = [
        format_ratio(ratio) if decided else "≈"
        for ratio, decided in zip(frame["ratio"], decisions, strict=True)
    ]
    unpaid = not (frame["gpus"] != frame["gpus_paid"]).any()
    hidden = {"samples/s" if currency else f"{currency}/10⁹", *(["paid"] if unpaid else [])}
    rows = frame.assign(ratio_text=ratios).to_dict(orient="records")
    notes = []
    if "≈" in ratios:
        notes = ["≈: which is better cannot be told: the 95 % bands of this and of the first row overlap."]
    if (frame["samples"] % frame["gpus"]).any():
        notes.append("Where a batch cannot be divided equally, the time is of GPUs with a sample more.")
    if currency:
        notes.append("Costs are of 10⁹ samples, on whole nodes (of an NVL72: trays).")
    parts = (
        paragraph(f"{counted(frame['machine'].nunique(), 'machine')}, {how}; a batch is {batch}."),
        columns_text([column for column in columns if column.head not in hidden], rows),
        paragraph(" ".join(notes)),
    )
    return "\n\n".join(filter(None, parts))
