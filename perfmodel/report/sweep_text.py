"""Text of a sweep: the configurations at the ends of its range, or machines side by side."""

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
_HEADERS = {"table_bytes": "tables' bytes", "table_count": "tables"}
_CONFIGURATION = (
    *("machine", "model", "table_bytes", "gpus", "batch", "table_count", "pooling", "dim", "dtype"),
    "sharding",
)


def sweep_text(frame: pd.DataFrame, how: str) -> str:
    """The range of the results and the best and worst configurations.

    how  the sharding, in words
    They are ranked by slowdown; if there are several machines by time, because a slowdown is relative to one
    GPU of the same machine.
    """
    fitting = frame[frame["fits"]] if frame["fits"].any() else frame
    by_time = frame["machine"].nunique() > 1
    key, quantity, ends, of = "time_s", "time of a batch", ("Fastest", "Slowest"), ""
    if not by_time:
        key, quantity, ends = "slowdown", "slowdown", ("Least slowed", "Most slowed")
        of = " the time of one GPU with all rows"
    form = format_time if by_time else format_ratio
    ordered = fitting.sort_values(key, kind="stable")
    low, high = (form(float(ordered[key].iloc[place])) for place in (0, -1))
    median = form(float(ordered[key].median()))
    head = (
        f"{counted(len(fitting), 'configuration')}, {how}: {quantity} {low} to {high}{of}, median {median}."
    )
    if left := len(frame) - len(fitting):
        head += f" {format_count(left)} more {'do' if left > 1 else 'does'} not fit the GPUs (column fits)."
    elif not frame["fits"].any():
        head += " None of them fits the GPUs."
    if by_time and frame["gpus"].nunique() > 1 and frame["batch"].nunique() == 1:
        head += " Each GPU has as many samples, so more GPUs process more in a batch."
    varying = [name for name in _CONFIGURATION if name in frame.columns and _is_varying(frame, name)]
    parts = [paragraph(head), f"{ends[0]}\n{_list_rows(ordered.head(_SHOWN), varying, by_time)}"]
    if len(fitting) > _SHOWN:
        parts.append(f"{ends[1]}\n{_list_rows(ordered.tail(_SHOWN).iloc[::-1], varying, by_time)}")
    return "\n\n".join([*parts, paragraph("All rows: --out sweep.csv (or .parquet), or --json.")])


def _is_varying(frame: pd.DataFrame, name: str) -> bool:
    return name in ("gpus", "sharding") or frame[name].nunique() > 1


def _list_rows(frame: pd.DataFrame, varying: list[str], by_time: bool) -> str:
    rows = []
    for record in frame.to_dict(orient="records"):
        cells = [_format_cell(name, record[name]) for name in varying]
        cells.append(format_bytes(float(record["memory_bytes"]), binary=False))
        ratio, low, high = (float(record[k]) for k in ("slowdown", "slowdown_low", "slowdown_high"))
        ends = [format_ratio(ratio), f"{format_ratio(low)} – {format_ratio(high)}"]
        if by_time:
            rate = format_per_second(record["gpus"] * record["batch"] / record["time_s"], "samples")
            ends = [rate, band(record["low_s"], record["high_s"])]
        rows.append([*cells, format_time(float(record["time_s"])), *ends])
    names = [_HEADERS.get(name, name) for name in varying]
    heads = ("all GPUs", "95 % band of the time") if by_time else ("slowdown", "95 % band")
    return table([*names, "memory/GPU", "time", *heads], rows, drop=(len(names), len(names) + 3))


def _format_cell(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    number = float(str(value))
    if name == "table_bytes":
        return format_bytes(number, binary=False)
    return format_number(number) if name == "pooling" else format_count(number)


def machines_text(frame: pd.DataFrame, by: str, currency: str, how: str) -> str:
    """The rows of ``rank_machines`` as a table. currency  of its costs;  how  the sharding in words"""
    best = frame.iloc[0]
    batch = f"{format_count(best['samples'])} samples on all GPUs together"
    if frame["samples"].nunique() > 1:
        batch = f"{counted(int(best['batch']), 'sample')} on each GPU"
    paid, rows = (frame["gpus"] != frame["gpus_paid"]).any(), []
    for place, row in enumerate(frame.to_dict(orient="records")):
        cost = format_number(row["cost_of_1e9_samples"]) if currency else ""
        rows.append(
            [
                row["machine"],
                row["sharding"],
                format_count(row["gpus"]),
                format_count(row["gpus_paid"]) if paid else "",
                format_time(row["time_s"]),
                band(row["low_s"], row["high_s"]),
                str(row["main_evidence"]),
                "" if currency else format_per_second(row["samples_per_s"], "").removesuffix("/s").strip(),
                "no price" if cost == "unknown" else cost,
                "≈" if place and not row["decided"] else format_ratio(row["ratio"]),
            ]
        )
    price, ratio = f"{currency}/10⁹" if currency else "", "cost" if by == "cost" else "time"
    headers = ["machine", "sharding", "GPUs", "paid" if paid else "", "time", "95 % band", "evidence"]
    headers += ["" if currency else "samples/s", price, f"{ratio} ratio"]
    notes = "≈: which is better cannot be told: the 95 % bands of this and of the first row overlap."
    notes = notes if (~frame["decided"].iloc[1:]).any() else ""
    if currency:
        notes = f"{notes} Costs are of 10⁹ samples, on whole nodes (of an NVL72: trays).".strip()
    parts = (
        paragraph(f"{counted(frame['machine'].nunique(), 'machine')}, {how}; a batch is {batch}."),
        table(headers, rows, left=(0, 1, 6), drop=(3, 1, 7)),
        paragraph(notes),
    )
    return "\n\n".join(piece for piece in parts if piece)
