"""The figure of predicted against measured times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import in_pane, panes, scatter
from perfmodel.report.figures.registry import VALIDATION
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import collective_name, hover, safe, sentence, signed
from perfmodel.units import counted, format_bytes, format_fraction, format_time
from perfmodel.validate import accuracy
from perfmodel.validate.own import compare_run, judged
from perfmodel.validate.points import run_of

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


_BANDS = (0.25, 0.10)
_COLUMNS = ("time_s", "predicted_s", "low_s", "high_s", "error")
_LEFT_OUT, _CLUSTERS = "a size left out of the fit", "a cluster left out of the fit"
_LARGE = "more nodes than in the fit"
_MANY_GPUS = 40
"""Points with at least this many GPUs, beyond the nodes of the fit, have a separate marker."""
_PASSES = "whole passes of this run"


def held_out_points(machine: str, *, across: bool = True) -> dict[str, pd.DataFrame]:
    """Predictions of points that no fit used, without fitting now: frames for ``compare_points``, by kind.

    across  whether the answer leaves a scale-up domain; else points between nodes are left out
    Kinds: sizes of this machine on 8 GPUs, left out of their curve; two-node clusters that no fit used; more
    nodes than in the fit, of all machines. All kinds except the clusters are stored in data/validation.
    Limits: a machine without a preferred calibration -> without its sizes
    """
    frames = {}
    if machine in accuracy.IN_NODE_MACHINES:
        frames[_LEFT_OUT] = accuracy.sizes_left_out(machine)
    if not across:
        return frames
    frames[_CLUSTERS] = accuracy.other_clusters()
    large = accuracy.nodes_left_out()
    many, few = large[large["gpus"] >= _MANY_GPUS], large[large["gpus"] < _MANY_GPUS]
    frames |= {f"{_gpus_of(part)}: {_LARGE}": part for part in (few, many)}
    return frames


def _gpus_of(points: pd.DataFrame) -> str:
    """The least and the largest number of GPUs in words: ``8 to 32 GPUs``."""
    return f"{points['gpus'].min():g} to {counted(int(points['gpus'].max()), 'GPU')}"


def own_run_points(folder: Path) -> dict[str, pd.DataFrame]:
    """The held-out whole passes of a user's own run, for ``compare_points``.

    Limits: no pass, or no calibration of its library -> NoCalibrationError
    """
    passes = judged(compare_run(folder))
    names = {"projected_s": "predicted_s", "projected_low_s": "low_s", "projected_high_s": "high_s"}
    kept = passes.drop(columns=["low_s", "high_s"]).rename(columns=names)
    return {_PASSES: kept}


def validation(subject: Subject) -> Block | Missing:
    """Predicted against measured: the passes of the answer's run if it has any, else public measurements."""
    answer = subject.answer
    calibration = answer.setting.calibration
    folder = run_of(calibration) if calibration is not None else None
    with suppress(NoCalibrationError):
        if folder is not None:
            return compare_points(own_run_points(folder))
    across = answer.domain < answer.gpus
    return compare_points(held_out_points(answer.setting.machine.name, across=across))


def compare_points(frames: Mapping[str, pd.DataFrame]) -> Block | Missing:
    """Predicted against measured times on logarithmic axes, and their ratio below.

    frames  by kind of points: time_s (measured), predicted_s, low_s, high_s, error, inside; further columns
            (machine, collective, payload_bytes, gpus) are in the hover text
    Limits: no point -> Missing
    """
    kinds = {label: frame for label, frame in frames.items() if len(frame)}
    if not kinds:
        return VALIDATION.missing("no measurement has a prediction: perfmodel validate --run latest")
    errors = np.concatenate([f["error"].to_numpy(float) for f in kinds.values()])
    inside = np.concatenate([f["inside"].to_numpy(bool) for f in kinds.values()])
    size = np.abs(errors)
    half, most = (format_fraction(float(np.quantile(size, share))) for share in (0.5, 0.9))
    return VALIDATION.block(
        sentence(
            f"of {counted(size.size, 'point')} left out of the fits{_name_largest(kinds)}, half are "
            f"predicted within {half} and 90 % within {most}; "
            f"{format_fraction(float(inside.mean()))} are inside their 95 % band"
        ),
        "On the line, a prediction is exact; the dark band is ±10 %, the light band ±25 %. "
        "Below: predicted divided by measured.",
        _draw(kinds),
        _describe_points(kinds),
        tuple(row for label, frame in kinds.items() for row in _list_rows(label, frame)),
    )


def _name_largest(kinds: Mapping[str, pd.DataFrame]) -> str:
    """``, on up to 80 GPUs``, the most GPUs of any point; no column gpus -> "" """
    most = [int(frame["gpus"].max()) for frame in kinds.values() if "gpus" in frame.columns]
    return f", on up to {counted(max(most), 'GPU')}" if most else ""


def _describe_points(kinds: Mapping[str, pd.DataFrame]) -> str:
    parts = []
    for label, frame in kinds.items():
        error = format_fraction(float(frame["error"].abs().median()))
        parts.append(f"{label}, {counted(len(frame), 'point')}, median error {error}")
    return "Predicted and measured: " + "; ".join(parts) + "."


def _draw(kinds: Mapping[str, pd.DataFrame]) -> Any:
    import pandas as pd

    points = pd.concat(kinds.values())
    times, over = points[["time_s", "predicted_s"]].to_numpy(float), _divide(points)
    low, high = float(times.min()) / 1.3, float(times.max()) * 1.3
    ends = min(over.min(), 1 - _BANDS[0]) / 1.1, max(over.max(), 1 + _BANDS[0]) * 1.1
    above = style.time_axis(low, high, "", showticklabels=False, matches="x2")
    below, up = (style.time_axis(low, high, f"{what} time") for what in ("measured", "predicted"))
    marks = (_list_marks(*kind, index) for index, kind in enumerate(kinds.items()))
    pairs = [*_list_guides(low, high), *marks]
    return style.new_figure(
        [in_pane(trace, row) for pair in pairs for row, trace in enumerate(pair, 1)],
        height=680,
        **panes([(above, up, _PANES[0]), (below, style.ratio_axis(*ends, "over measured (×)"), _PANES[1])]),
    )


_PANES = ((0.3608, 1.0), (0.0, 0.3008))
BothPanes = tuple[dict[str, Any], dict[str, Any]]
"""A trace for the upper pane and a trace for the lower."""


def _list_guides(low: float, high: float) -> Iterator[BothPanes]:
    """Plotly traces for both panes: the line of equal times, and bands of ±10 and ±25 % around it."""
    quiet: dict[str, Any] = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
    ends = [low, high, high, low]
    fill: dict[str, Any] = {"fill": "toself", "fillcolor": style.faded(style.PALETTE[7], 0.22)}
    for share in _BANDS:
        up, down = 1 + share, 1 - share
        upper, lower = [low * up, high * up, high * down, low * down], [up] * 2 + [down] * 2
        one, two = (
            scatter(ends, y, "", f"±{share:.0%}", line={"width": 0}, **fill, **quiet) for y in (upper, lower)
        )
        yield one, two
    line = {"color": style.RULE, "width": 1}
    one, two = (scatter(ends[:2], y, "", "equal", line=line, **quiet) for y in ([low, high], [1.0, 1.0]))
    yield one, two


def _list_marks(label: str, frame: pd.DataFrame, index: int) -> BothPanes:
    marker = {"color": style.colour(index), "symbol": style.symbol(index), "size": 6, "opacity": 0.75}
    words = [_point_text(label, row) for row in frame.to_dict(orient="records")]
    upper = scatter(frame["time_s"], frame["predicted_s"], words, label, marker, legendgroup=label)
    return upper, {**upper, "y": _divide(frame).tolist(), "showlegend": False}


def _divide(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Each point's predicted time divided by its measured time."""
    return 1 + frame["error"].to_numpy(float)


def _point_text(label: str, row: Mapping[Any, Any]) -> str:
    names = ("predicted_s", "time_s", "low_s", "high_s")
    predicted, measured, low, high = (format_time(float(row[name])) for name in names)
    what = [safe(str(row["machine"]))] if "machine" in row else []
    if "collective" in row:
        size = format_bytes(float(row["payload_bytes"]))
        what.append(f"{collective_name(str(row['collective']))} of {size}")
    what += [counted(int(row["gpus"]), "GPU")] if "gpus" in row else []
    return hover(
        [
            ", ".join(what),
            f"{predicted} predicted, {measured} measured ({signed(float(row['error']))})",
            f"band {low} – {high}{'' if row['inside'] else ', left'}",
            label,
        ]
    )


def _list_rows(label: str, frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    words = [name for name in ("machine", "collective", "sources") if name in frame.columns]
    counts = [name for name in ("gpus", "payload_bytes") if name in frame.columns]
    for row in frame.to_dict(orient="records"):
        yield {
            "kind": label,
            **{name: str(row[name]) for name in words},
            **{name: float(row[name]) for name in (*counts, *_COLUMNS)},
            "inside": bool(row["inside"]),
        }
