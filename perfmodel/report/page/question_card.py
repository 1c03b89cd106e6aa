"""The headline (card) of a row-wise answer: a sentence, both times, and their bands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.what_would_help import find_next_experiment
from perfmodel.report.experiment_text import experiment_text
from perfmodel.report.figures.style import EVIDENCE_COLOURS
from perfmodel.report.page.parts import Card
from perfmodel.report.projection_text import sentence, shards_words
from perfmodel.schema.evidence import MAIN_SHARE, Evidence
from perfmodel.units import format_bytes, format_fraction, format_ratio, format_time


def question_card(answer: Answer) -> Card:
    """The headline of a row-wise projection: a sentence, both times, bands, evidence.

    Limits: one GPU -> nothing is sharded, and no evidence bar
    """
    count = answer.gpu_count
    if answer.gpus == 1:
        size = format_bytes(count.table_bytes, binary=False)
        first = f"{format_ratio(answer.slowdown)}: {size} of tables fit on one GPU, so nothing is sharded."
        times, sure = f"{format_time(answer.time_s)} per batch", ""
    else:
        first = sentence(answer)
        times = (
            f"{format_time(answer.time_s)} per batch, instead of {format_time(answer.baseline_time_s)} "
            f"on one GPU; {format_ratio(answer.totals['throughput_ratio'])} its samples per second"
        )
        sure = _sure(answer)
    return Card(
        first,
        times,
        sure,
        "; ".join(filter(None, [str(count), shards_words(answer), _memory(answer)])),
        evidence_bar(answer.evidence_shares()),
        _alert(answer),
        list(answer.every_note),
    )


def _memory(answer: Answer) -> str:
    return f"{'' if answer.gpu_count.fits else 'does not fit: '}{answer.gpu_count.describe_memory()}"


def _sure(answer: Answer) -> str:
    low, high = (format_ratio(value) for value in answer.band)
    floor, data = (format_ratio(answer.totals[f"slowdown_{name}"]) for name in ("floor_part", "bytes_part"))
    return f"95 % band {low} – {high}; {floor} of it is latency and {data} is bytes"


def evidence_bar(shares: Mapping[Evidence, float]) -> list[dict[str, Any]]:
    """For each kind of evidence, the strongest first: a dictionary with kind, share, words and colour.

    shares  of the time, by evidence
    """
    return [
        {
            "kind": str(kind),
            "share": float(f"{share:.4g}"),
            "words": f"{format_fraction(share)} {kind}",
            "colour": EVIDENCE_COLOURS[kind],
        }
        for kind, share in shares.items()
    ]


def _alert(answer: Answer) -> str:
    """What to measure if more than a fifth of the time is assumed; else ""."""
    share = answer.evidence_shares().get(Evidence.ASSUMED, 0.0)
    if share <= MAIN_SHARE:
        return ""
    rests = f"{format_fraction(share)} of the time rests on "
    experiment = find_next_experiment(answer)
    if experiment is None:
        return f"{rests}something assumed."
    text = unwrapped(experiment_text(experiment, answer.setting.machine.name))
    same = text.startswith(rests)  # unmeasured and assumed are the same numbers: said once
    return f"{rests}something assumed{': ' if same else '. '}{text.removeprefix(rests)}"


def unwrapped(text: str) -> str:
    """Text of a terminal with each paragraph on one line; an indented line, a command, stays as it is."""
    return re.sub(r"\n(?=\S)", " ", text)
