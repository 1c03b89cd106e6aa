"""``perfmodel project --max-latency``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perfmodel.answer import Question
from perfmodel.answer.keywords import configurations
from perfmodel.answer.latency import sweep_within
from perfmodel.answer.swept import swept
from perfmodel.errors import BadInputError
from perfmodel.report.terminal import paragraph
from perfmodel.units import counted, format_count, format_per_second, format_time, parse_time


def within_latency(question: Question, text: str, ways: Sequence[str] | None) -> tuple[Question, str]:
    """(the question with the largest batch within a latency, a line about that batch).

    text  of ``--max-latency``;  ways  the sharding; None: the fastest
    Limits: nothing fits -> the question itself, "";  one sample takes longer -> BadInputError with that time
    """
    limit_s, ignore = parse_time(text, "--max-latency"), lambda number: None
    columns, shared = configurations(None, question.keywords())
    found = sweep_within(columns, ways, ignore, shared, limit_s)
    if found.empty:
        found = swept({**columns, "batch": np.ones(1)}, ways, ignore, shared)
        if found.empty or not found["fits"].all():
            return question, ""
    row = found.iloc[0]
    batch, gpus = int(row["batch"]), int(row["gpus"])
    end, limit = format_time(row["high_s"]), format_time(limit_s)
    if row["high_s"] > limit_s:
        where = f"one sample on each of {counted(gpus, 'GPU')}"
        raise BadInputError(f"--max-latency {limit}: {where} takes up to {end}.", "allow more than that.")
    rate = format_per_second(batch * gpus / row["time_s"], "samples")
    samples = f"{format_count(batch)} samples per GPU ({format_count(batch * gpus)} in all)"
    line = f"Largest batch within {limit}: {samples}, {rate}; its 95 % band ends at {end}."
    alone = swept({**columns, "batch": np.array([batch])}, ways, ignore, shared)
    count = question.gpus if int(alone["gpus"].iloc[0]) == gpus else gpus
    return replace(question, batch=batch, gpus=count, max_latency_s=limit_s), paragraph(line)
