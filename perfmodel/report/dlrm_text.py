"""Text of ``perfmodel validate --dlrm``: each measured step with its prediction, then the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.report.validation_text import verdicts_text
from perfmodel.units import format_count, format_fraction, format_ratio, format_time
from perfmodel.validate import Verdict
from perfmodel.validate.dlrm import BASELINE
from perfmodel.validate.dlrm_inputs import load_inputs

_NAME = 20


def dlrm_text(
    efficiency: Mapping[str, float],
    rows: Sequence[Mapping[str, Any]],
    unseen: Sequence[Mapping[str, Any]],
    left_out: Mapping[str, str],
    shares: Sequence[Mapping[str, Any]],
    speedups: Sequence[Mapping[str, Any]],
    verdicts: Sequence[Verdict],
) -> str:
    """The text of ``perfmodel validate --dlrm``: measured and predicted steps, shares, speed-ups, verdicts.

    efficiency  by generation of GPUs, the fitted share of the datasheet's half-precision rate
    rows        a dictionary for each measured MLPerf step: system, gpus, measured_s, predicted_s, ratio …
    unseen      the same steps, each predicted without its own machine in the fits
    left_out    by name of a GPU, why its measured steps are not predicted
    shares, speedups  results for EMBark, as in ``share_table`` and ``speedup_table``
    """
    reached = ", ".join(f"{format_fraction(share)} on {name}" for name, share in efficiency.items())
    assumed = (
        f"Fitted on all rows but L40S: matrix products reach {reached} of the "
        "datasheet's half-precision rate. All else is predicted. Left out: the ratio where the row's "
        "own machine informed nothing; the marks (! outside the band) and verdicts are of that."
    )
    inputs = load_inputs()
    conditions = [paragraph(f"Assumed: {each.why}.") for each in (inputs.mlperf, inputs.embark)]
    parts = [
        "MLPerf DLRM-DCNv2, a training step\n" + paragraph(assumed) + "\n" + conditions[0],
        mlperf_table(rows, unseen),
        "Not predicted\n" + facts(list(left_out.items()), indent=1),
        share_table(shares),
        speedup_table(speedups),
        conditions[1],
        verdicts_text(verdicts, paper=False, what="claims of others"),
    ]
    return "\n\n".join(parts)


_MLPERF = (
    Column("system", lambda pair: _short(str(pair[0]["system"])), left=True),
    Column("GPUs", lambda pair: format_count(pair[0]["gpus"])),
    Column("nodes", lambda pair: format_count(pair[0]["nodes"]), goes=2),
    Column("batch", lambda pair: format_count(pair[0]["global_batch"]), goes=1),
    Column("measured", lambda pair: format_time(pair[0]["measured_s"])),
    Column("predicted", lambda pair: format_time(pair[0]["predicted_s"])),
    Column("95 % band", lambda pair: band(pair[0]["low_s"], pair[0]["high_s"])),
    Column("ratio", lambda pair: f"{pair[0]['ratio']:.2f}"),
    Column("left out", lambda pair: f"{pair[1]['ratio']:.2f}"),
    Column("", lambda pair: "" if pair[1]["inside"] else "!", left=True),
)
"""Columns of a pair: a measured step's prediction, and its prediction without its machine in the fits."""


def mlperf_table(rows: Sequence[Mapping[str, Any]], unseen: Sequence[Mapping[str, Any]]) -> str:
    """A table of MLPerf steps: measured and predicted time, band and ratio (``rows``, as in ``dlrm_text``).

    unseen  the same steps predicted without their own machine in the fits: the last ratio
    """
    return columns_text(_MLPERF, zip(rows, unseen, strict=True))


def _short(system: str) -> str:
    """The name of a system without its maker, at most 20 characters: ``v4.0 DGX H100``."""
    words = system.split()
    kept = words[:1] + words[2:] if len(words) > 2 else words
    name = " ".join(kept).replace("xFusion FusionServer ", "").replace("GIGABYTE ", "").replace("NVIDIA ", "")
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def share_table(shares: Sequence[Mapping[str, Any]]) -> str:
    """A table of the share of embedding communication in a serial step, by number of GPUs (EMBark).

    shares  dictionaries with gpus, batch (per GPU), step_s, share, and kept: "global" or "per GPU", the
            batch that is the same on all numbers of GPUs
    """
    lines = [
        [
            format_count(row["gpus"]),
            format_count(row["batch"]),
            format_time(row["step_s"]),
            format_fraction(row["share"]),
            f"{row['kept']} batch kept",
        ]
        for row in shares
    ]
    title = (
        "EMBark: embedding communication in a serial table-row-wise step (published: 25 % on 8, 51 % on 128)"
    )
    return paragraph(title) + "\n" + table(["GPUs", "batch/GPU", "step", "share", ""], lines, left=(4,))


def speedup_table(speedups: Sequence[Mapping[str, Any]]) -> str:
    """A table of step times by model: serial table-row-wise, with overlap, with another plan, with both.

    speedups  dictionaries with model, gpus, serial_s, overlap_s, plan_s, both_s, and speedup of both
    """
    names = ("serial_s", "overlap_s", "plan_s", "both_s")
    lines = [
        [str(row["model"]), *(format_time(row[name]) for name in names), format_ratio(row["speedup"])]
        for row in speedups
    ]
    count = format_count(speedups[0]["gpus"])
    title = f"EMBark: a step on {count} GPUs (published: 1.5× on average, 1.77× at most)"
    headers = ["", BASELINE, "+ overlap", "planned", "planned + overlap", "speed-up"]
    return paragraph(title) + "\n" + table(headers, lines)
