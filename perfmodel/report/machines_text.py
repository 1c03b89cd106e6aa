"""Text of machines side by side: what each takes for one question, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, table
from perfmodel.units import counted, format_count, format_number, format_per_second, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

_WORDS = {"time": ("fastest", "slower"), "throughput": ("fastest", "slower"), "cost": ("cheapest", "dearer")}


def machines_text(frame: pd.DataFrame, by: str, currency: str, how: str) -> str:
    """The rows of ``rank_machines`` as a table. currency  of its costs;  how  the sharding in words"""
    equal, first = frame["samples"].nunique() == 1, frame.iloc[0]
    own = not equal and frame["batch"].nunique() > 1
    batch = f"{format_count(first['samples'])} samples on all GPUs together"
    batch = batch if equal else f"{format_count(first['batch'])} samples on each GPU"
    batch = "the largest within the latency" if own else batch
    head = f"{counted(len(frame), 'machine')}, {how}; a batch is {batch}."
    best, more = _WORDS[by]
    rows = []
    for place, row in enumerate(frame.to_dict(orient="records")):
        beside = format_ratio(row["ratio"]) if row["decided"] else "cannot tell"
        cost = format_number(row["cost_of_1e9_samples"]) if currency else ""
        rows.append(
            [
                row["machine"],
                row["sharding"],
                format_count(row["gpus"]),
                format_count(row["gpus_paid"]),
                format_count(row["batch"]) if own else "",
                format_time(row["time_s"]),
                band(row["low_s"], row["high_s"]),
                format_per_second(row["samples_per_s"], "").removesuffix("/s").strip(),
                "no price" if cost == "unknown" else cost,
                beside if place else best,
            ]
        )
    headers = [
        "machine",
        "sharding",
        "GPUs",
        "paid",
        "samples/GPU" if own else "",
        "time",
        "95 % band",
        "samples/s",
    ]
    headers += [f"{currency}/10⁹" if currency else "", more]
    searched = by == "cost" and not own
    notes = ["Cannot tell: the 95 % bands of this and of the first machine overlap."]
    notes = notes if (~frame["decided"].iloc[1:]).any() else []
    notes += ["Costs are of 10⁹ samples, on whole nodes (of an NVL72: trays)."] if currency else []
    notes += ["Each has the number of GPUs that costs least of six, up to twice the fewest."] * searched
    parts = paragraph(head), table(headers, rows, left=(0, 1), drop=(6, 1)), paragraph(" ".join(notes))
    return "\n\n".join(part for part in parts if part)
