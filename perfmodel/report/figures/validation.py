"""The figure of predicted against measured times."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import place_trace, scatter, split_panes
from perfmodel.report.figures.registry import VALIDATION
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import collective_name, hover, safe, sentence
from perfmodel.resources import data_path
from perfmodel.units import counted, format_bytes, format_fraction, format_ratio, format_time

Row = Mapping[str, Any]
_STORED = {
    "a size left out of the fit": "sizes_left_out.csv",
    "a cluster left out of the fit": "clusters_left_out.csv",
    "more nodes than in the fit": "nodes_left_out.csv",
}
"""Files of data/validation by the kind of their points; the first is of one machine, inside a node."""
_PASSES = "whole passes of this run"


def draw_validation(subject: Subject) -> Block | Missing:
    """Predicted against measured: the passes of the answer's run if it has any, else public measurements.

    Of these, sizes of the answer's machine; clusters where it has none, or the answer leaves a scale-up
    domain.
    """
    answer = subject.answer
    rows = list(_read_run(subject.run)) if subject.run is not None else []
    if not rows:
        name = answer.setting.machine.name
        rows = list(read_held_out(name, across=answer.domain < answer.gpus))
        rows = rows or list(read_held_out(name, across=True))
    return compare_points(rows)


def read_held_out(machine: str, *, across: bool) -> Iterator[dict[str, Any]]:
    """Predictions of points that no fit used, as ``benchmarks/accuracy.py --write`` has stored them.

    across  whether points between nodes are wanted too, of all machines
    """
    for number, (kind, name) in enumerate(_STORED.items()):
        if number and not across:
            return
        with data_path("validation", name).open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                if number or row["machine"] == machine:
                    numbers = ("gpus", "payload_bytes", "time_s", "predicted_s", "low_s", "high_s")
                    values = {name: float(row[name]) for name in numbers}
                    yield {"kind": kind, "machine": row["machine"], "collective": row["collective"], **values}


def _read_run(folder: Path) -> Iterator[dict[str, Any]]:
    """The held-out whole passes of a user's own run. Limits: no pass, or no calibration for it -> nothing"""
    from perfmodel.validate.own import compare_run, judged  # with pandas, and what fits

    try:
        passes = judged(compare_run(folder))
    except NoCalibrationError:
        return
    names = {"time_s": "time_s", "predicted_s": "projected_s", "low_s": "projected_low_s",
             "high_s": "projected_high_s", "gpus": "gpus"}  # fmt: skip
    for row in passes.to_dict(orient="records"):
        yield {"kind": _PASSES, **{name: float(row[column]) for name, column in names.items()}}


def compare_points(points: Sequence[Row]) -> Block | Missing:
    """Predicted against measured times on logarithmic axes, and their ratio below.

    points  each with kind, time_s (measured), predicted_s, low_s, high_s and gpus
    Limits: no point -> Missing
    """
    if not points:
        return VALIDATION.missing("no measurement has a prediction: perfmodel validate --run latest")
    rows = [
        {
            **row,
            "error": row["predicted_s"] / row["time_s"] - 1,
            "inside": row["low_s"] <= row["time_s"] <= row["high_s"],
        }
        for row in points
    ]
    errors = [abs(row["error"]) for row in rows]
    half, nine_tenths = (format_fraction(float(np.quantile(errors, share))) for share in (0.5, 0.9))
    inside = format_fraction(float(np.mean([row["inside"] for row in rows])))
    gpus = counted(int(max(row["gpus"] for row in rows)), "GPU")
    title = sentence(
        f"of {counted(len(rows), 'point')} left out of the fits, on up to {gpus}, half are predicted within "
        f"{half} and 90 % within {nine_tenths}; {inside} are inside their 95 % band"
    )
    how = "On the line, a prediction is exact. Below: predicted divided by measured."
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    parts = [
        f"{kind}, {counted(len(members), 'point')}, median error "
        + format_fraction(float(np.median([abs(row["error"]) for row in members])))
        for kind, members in kinds.items()
    ]
    source = f"Predicted and measured: {'; '.join(parts)}."
    return VALIDATION.block(title, how, _draw(kinds), source, rows)


def _draw(kinds: Mapping[str, Sequence[Row]]) -> Any:
    rows = [row for members in kinds.values() for row in members]
    times = [row[name] for row in rows for name in ("time_s", "predicted_s")]
    ratios = [1 + row["error"] for row in rows]
    low, high = min(times) / 1.3, max(times) * 1.3
    ends = min(*ratios, 1.0) / 1.1, max(*ratios, 1.0) * 1.1
    line = {"color": style.RULE, "width": 1}
    quiet: dict[str, Any] = {"mode": "lines", "line": line, "hoverinfo": "skip", "showlegend": False}
    traces = [
        place_trace(scatter([low, high], exact, "", "exact", **quiet), row)
        for row, exact in enumerate(([low, high], [1.0, 1.0]))
    ]
    for number, (kind, members) in enumerate(kinds.items()):
        marker = {"color": style.colour(number), "symbol": style.symbol(number), "size": 6, "opacity": 0.75}
        measured = [row["time_s"] for row in members]
        predicted, words = [row["predicted_s"] for row in members], list(map(_describe, members))
        upper = scatter(measured, predicted, words, kind, marker, legendgroup=kind)
        lower = {**upper, "y": [1 + row["error"] for row in members], "showlegend": False}
        traces += [place_trace(upper, 0), place_trace(lower, 1)]
    measured_axis = style.time_axis(low, high, "measured time")
    axes = [[style.time_axis(low, high, "predicted time")], [style.ratio_axis(*ends, "over measured (×)")]]
    return style.new_figure(traces, height=680, **split_panes([measured_axis], axes, (2, 1), gaps=(0, 0.06)))


def _describe(row: Row) -> str:
    predicted, measured, low, high = (
        format_time(row[name]) for name in ("predicted_s", "time_s", "low_s", "high_s")
    )
    names = [safe(row["machine"]), collective_name(row["collective"])] if "machine" in row else []
    names += [format_bytes(row["payload_bytes"])] if "payload_bytes" in row else []
    return hover(
        [
            ", ".join([*names, counted(int(row["gpus"]), "GPU")]),
            f"{predicted} predicted, {measured} measured: {format_ratio(1 + row['error'])}",
            f"band {low} – {high}{'' if row['inside'] else ', left'}",
            row["kind"],
        ]
    )
