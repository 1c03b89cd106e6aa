"""``perfmodel project --max-latency``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.answer.question import Question
from perfmodel.answer.sweep import sweep_columns, sweep_within
from perfmodel.errors import BadInputError
from perfmodel.report.terminal import paragraph
from perfmodel.units import counted, format_count, format_per_second, format_time, parse_time


def within_latency(question: Question, text: str) -> tuple[Question, str]:
    """(the question with the largest batch within a latency, a line about that batch).

    text  of ``--max-latency``
    Limits: nothing fits -> the question itself, "";  one sample takes longer -> BadInputError with that time
    """
    limit_s = parse_time(text, "--max-latency")
    columns = {name: np.array([value]) for name, value in question.given.items() if name != "batch"}
    without: dict[str, Any] = dict.fromkeys([*columns, "batch"])
    free = replace(question, **without)
    rows = sweep_within(free, columns, lambda number: None, limit_s)
    if rows.empty:
        rows = sweep_columns(free, {**columns, "batch": np.ones(1)})
        if rows.empty or not rows["fits"].all():
            return question, ""
    row = rows.iloc[0]
    batch, gpus = int(row["batch"]), int(row["gpus"])
    end, limit = format_time(row["high_s"]), format_time(limit_s)
    if row["high_s"] > limit_s:
        where = f"one sample on each of {counted(gpus, 'GPU')}"
        raise BadInputError(f"--max-latency {limit}: {where} takes up to {end}.", "allow more than that.")
    rate = format_per_second(batch * gpus / row["time_s"], "samples")
    samples = f"{format_count(batch)} samples per GPU ({format_count(batch * gpus)} in all)"
    line = f"Largest batch within {limit}: {samples}, {rate}; its 95 % band ends at {end}."
    alone = sweep_columns(free, {**columns, "batch": np.array([batch])})
    count = question.gpus if int(alone["gpus"].iloc[0]) == gpus else gpus
    return replace(question, batch=batch, gpus=count, max_latency_s=limit_s), paragraph(line)
