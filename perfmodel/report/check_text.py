"""Text of ``perfmodel check``: a line for each curve, and the reasons for slow ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from perfmodel.report.columns import Column, attributes, columns_record, columns_text
from perfmodel.report.terminal import facts, paragraph
from perfmodel.schema.calibration import list_calibrations
from perfmodel.units import counted, format_bytes, format_rate, format_ratio
from perfmodel.validate.checked import Series, Stretch, WrongResults
from perfmodel.validate.reasons import LikelyReason, ReasonRule

_CORRUPT = (
    "Data arrive damaged: look for a bad link, card or GPU, or a library's fault, before any time counts."
)
_IMPOSSIBLE = "faster than the links allow: look at --machine, --gpus and gpus_per_node"
_FASTER = "a newer library, registered buffers (-R 2), a CUDA graph (-G) or a tuner plugin"

_OF_STRETCH = ("slow", "from_bytes", "to_bytes", "ratio")
_COLUMNS = (
    Column("log", lambda series: series.log, left=True, data=attributes("log")),
    Column("collective", lambda series: _name(series), left=True, data=attributes("collective")),
    Column("GPUs", lambda series: str(series.gpus), data=attributes("gpus", "gpus_per_node")),
    Column("nodes", lambda series: str(series.nodes), data=attributes("nodes")),
    Column("type", lambda series: series.datatype, left=True, goes=1, data=attributes("datatype")),
    Column("place", lambda s: "in" if s.in_place else "out", left=True, goes=2, data=attributes("in_place")),
    Column("sizes", lambda series: _format_range(series.payload_bytes, format_bytes), left=True, goes=3),
    Column(
        "verdict",
        lambda series: _format_verdict(series),
        left=True,
        data={
            **attributes("verdict", "evidence"),
            "calibration": lambda series: series.model.calibration_id,
            "stretches": lambda series: [
                {key: getattr(stretch, key) for key in _OF_STRETCH} for stretch in series.stretches
            ],
            **attributes("payload_bytes", "time_s", "expected_s", "low_s", "high_s", "judged"),
        },
    ),
)


def check_text(
    judged: Sequence[tuple[Series, Sequence[LikelyReason]]],
    wrong: Sequence[WrongResults] = (),
    stated: Sequence[tuple[str, ReasonRule]] = (),
    settings: Sequence[tuple[str, str, str]] = (),
    unjudged: int = 0,
) -> str:
    """The text of ``perfmodel check``: wrong results, how many curves are abnormal, a table, reasons.

    judged  curves with the likely reasons why they are slow;  wrong  what nccl-tests counted as wrong
    stated  logs with what they state of curves that are not slow;  settings  log, variable of NCCL, its cost
    unjudged  number of logs without a verdict
    """
    parts = [paragraph(f"Wrong results: {words}. {_CORRUPT}") for words in map(_describe_wrong, wrong)]
    curves = [series for series, _ in judged]
    if not curves:
        return "\n\n".join(parts)
    models = {series.model.calibration_id: series.model for series in curves}
    whose = "clusters like it" if set(models) <= set(list_calibrations()) else "this cluster"
    abnormal, fast = (sum(s.abnormal for s in curves), sum(s.verdict == "fast" for s in curves))
    verdict = f"{abnormal} outside" if abnormal else "none slower than" if fast else "all inside"
    beside = f"; no verdict on {counted(unjudged, 'other log')}" if unjudged else ""
    parts.append(paragraph(f"{counted(len(curves), 'curve')}, {verdict} the band of {whose}{beside}."))
    parts.append(columns_text(_COLUMNS, curves))
    if fast:
        parts.append(paragraph(f"Faster than {whose} is not abnormal: {_FASTER}."))
    parts += [_describe_series(series, reasons) for series, reasons in judged if series.abnormal]
    parts += [paragraph(f"{log} says {rule.name}: look at {rule.look}") for log, rule in stated]
    parts += [paragraph(f"{log} was run with {setting}: {cost}.") for log, setting, cost in settings]
    names = ", ".join(f"{model.machine.name} · calibration {key}" for key, model in models.items())
    evidence = " and ".join(sorted({series.evidence for series in curves}))
    return "\n\n".join([*parts, paragraph(f"Machine {names} · the 95 % band is {evidence}")])


def record_series(series: Series, reasons: Sequence[LikelyReason]) -> dict[str, Any]:
    """A measured curve for JSON, with the keys of the public schema."""
    return columns_record(_COLUMNS, series) | {"reasons": [vars(reason) for reason in reasons]}


def name_outside(curves: Sequence[Series], wrong: Sequence[WrongResults] = ()) -> str:
    """The error message (exit code 6) that names wrong results, else the abnormal curves."""
    if wrong:
        return f"wrong results: {'; '.join(map(_describe_wrong, wrong))}."
    abnormal = [series for series in curves if series.abnormal]
    names = dict.fromkeys(f"{series.log} {_name(series)} ({series.verdict})" for series in abnormal)
    return f"{len(abnormal)} of {counted(len(curves), 'curve')} outside the band: {', '.join(names)}."


def _describe_wrong(wrong: WrongResults) -> str:
    sizes = [format_bytes(size) for size in wrong.payload_bytes]
    count = "#wrong" if wrong.flag == "wrong" else "#wrong cannot be read"
    ends = sizes[0] if len(sizes) == 1 else f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"
    return f"{wrong.log}: {_name(wrong)} on {wrong.gpus} GPUs, {ends} ({count})"


def _describe_series(series: Series, reasons: Sequence[LikelyReason]) -> str:
    """A paragraph for an abnormal curve: where it is slow or fast, and the likely reasons."""
    place = "in place" if series.in_place else "out of place"
    ranks = f"{_name(series)} on {series.gpus} GPUs of {counted(series.nodes, 'node')}"
    title = f"{series.log}: {', '.join(filter(None, [ranks, series.datatype, place]))}"
    rows = [("Slow" if run.slow else "Fast", _describe_stretch(series, run)) for run in series.stretches]
    rows += [("Impossible", _IMPOSSIBLE)] if series.impossible else []
    if not reasons and not series.impossible:
        rows.append(("Likeliest", "no reason that is tested puts these sizes back into the band"))
    return f"{paragraph(title)}\n{facts([*rows, *_list_reasons(reasons)], indent=1)}"


def _list_reasons(reasons: Sequence[LikelyReason]) -> Iterator[tuple[str, str]]:
    for place, reason in enumerate(reasons):
        label = "Or" if place else "Cannot tell" if reason.cannot_tell else "Likeliest"
        stated = ", and the log says so" if reason.stated else ""
        count = f"{reason.explains} of the {counted(reason.of, 'size')} outside"
        alone = f"it alone makes the time {_format_range(reason.ratios, format_ratio)}"
        yield label, f"{reason.name}: {reason.words} ({alone}, and brings {count} back inside{stated})"
        yield "", f"look at {reason.look} [{reason.source}]"


def _describe_stretch(series: Series, stretch: Stretch) -> str:
    """A range of sizes outside the band: ``1.6 – 2.0× the expected time, 16 MiB – 1 GiB; busbw …``."""
    place = int(np.flatnonzero(series.payload_bytes == stretch.to_bytes)[0])
    ends = series.time_s, series.high_s, series.low_s
    busbw, low, high = (format_rate(float(series.compute_busbw(times)[place])) for times in ends)
    times = f"{_format_range(stretch.ratios, format_ratio)} the expected time"
    sizes = _format_range((stretch.from_bytes, stretch.to_bytes), format_bytes)
    return (
        f"{times}, {sizes}; busbw {busbw} at {format_bytes(stretch.to_bytes)}, where {low} – {high} is normal"
    )


def _format_verdict(series: Series) -> str:
    """The verdict by the longest range of sizes: ``slow: 2.0× the time, 16 MiB – 1 GiB``."""
    if not series.stretches:
        return series.verdict
    longest = max(series.stretches, key=lambda run: (len(run.ratios), abs(np.log(run.ratio))))
    sizes = _format_range((longest.from_bytes, longest.to_bytes), format_bytes)
    return f"{series.verdict}: {format_ratio(longest.ratio)} the time, {sizes}"


def _name(row: Series | WrongResults) -> str:
    return row.collective.replace("_", "-")


def _format_range(ends: Sequence[float], write: Callable[[float], str]) -> str:
    low, high = write(min(ends)), write(max(ends))
    return low if low == high else f"{low} – {high}"
