"""Text of machines side by side: what each takes for one question, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, table
from perfmodel.units import counted, format_count, format_number, format_per_second, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd


def machines_text(frame: pd.DataFrame, by: str, currency: str, how: str) -> str:
    """The rows of ``rank_machines`` as a table. currency  of its costs;  how  the sharding in words"""
    equal, first = frame["samples"].nunique() == 1, frame.iloc[0]
    own = not equal and frame["batch"].nunique() > 1
    batch = f"{format_count(first['samples'])} samples on all GPUs together"
    batch = batch if equal else f"{format_count(first['batch'])} samples on each GPU"
    batch = "the largest within the latency" if own else batch
    machines = counted(frame["machine"].nunique(), "machine")
    rows = []
    for place, row in enumerate(frame.to_dict(orient="records")):
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
                "cannot tell" if place and not row["decided"] else format_ratio(row["ratio"]),
            ]
        )
    price, ratio = f"{currency}/10⁹" if currency else "", "cost" if by == "cost" else "time"
    headers = ["machine", "sharding", "GPUs", "paid", "samples/GPU" if own else "", "time", "95 % band"]
    headers += ["samples/s", price, f"{ratio} ratio"]
    notes = ["Cannot tell: the 95 % bands of this and of the first row overlap."]
    notes = notes if (~frame["decided"].iloc[1:]).any() else []
    notes += ["Costs are of 10⁹ samples, on whole nodes (of an NVL72: trays)."] if currency else []
    parts = (
        paragraph(f"{machines}, {how}; a batch is {batch}."),
        table(headers, rows, left=(0, 1), drop=(6, 1)),
        paragraph(" ".join(notes)),
    )
    return "\n\n".join(part for part in parts if part)
