"""Text of ``perfmodel check``: a line for each curve, and the reasons for slow ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from perfmodel.model.collectives import compute_bus_factor
from perfmodel.report.columns import Column, attributes, columns_record, columns_text
from perfmodel.report.terminal import facts, paragraph
from perfmodel.schema.calibration import list_calibrations
from perfmodel.units import counted, format_bytes, format_rate, format_ratio
from perfmodel.validate.checked import Series
from perfmodel.validate.reasons import LikelyReason

Places = npt.NDArray[np.int64]

_CORRUPT = "data arrive damaged, by a bad link, card or GPU, or a fault of a library: no time counts before"
_IMPOSSIBLE = "faster than the links allow: look at --machine, --gpus and gpus_per_node"

_COLUMNS = (
    Column("log", lambda series: series.log, left=True, data=attributes("log")),
    Column("collective", lambda s: s.collective.replace("_", "-"), left=True, data=attributes("collective")),
    Column("GPUs", lambda series: str(series.gpus), data=attributes("gpus", "gpus_per_node")),
    Column("nodes", lambda series: str(series.nodes), data=attributes("nodes")),
    Column("type", lambda series: series.datatype, left=True, goes=1, data=attributes("datatype")),
    Column("sizes", lambda series: _format_range(series.payload_bytes, format_bytes), left=True, goes=2),
    Column(
        "verdict",
        lambda series: series.verdict,
        left=True,
        data={
            **attributes("verdict", "evidence"),
            "calibration": lambda series: series.model.calibration_id,
            "stretches": lambda series: [_record_stretch(series, run) for run in series.stretches],
            **attributes("payload_bytes", "time_s"),
            "expected_s": lambda series: series.normal.time_s,
            **attributes("low_s", "high_s", of="normal"),
            **attributes("judged", "wrong_bytes"),
        },
    ),
)


def check_text(
    judged: Sequence[tuple[Series, Sequence[LikelyReason]]], stated: Sequence[tuple[str, str, str]] = ()
) -> str:
    """The text of ``perfmodel check``: how many curves are abnormal, a table, reasons.

    judged  curves with the likely reasons why they are slow
    stated  (log, name, words) of what logs state by themselves
    """
    curves = [series for series, _ in judged]
    models = {series.model.calibration_id: series.model for series in curves}
    whose = "clusters like it" if set(models).issubset(list_calibrations()) else "this cluster"
    abnormal = sum(series.abnormal for series in curves)
    is_fast = any(series.verdict == "fast" for series in curves)
    verdict = f"{abnormal} outside" if abnormal else "none slower than" if is_fast else "all inside"
    head = f"{counted(len(curves), 'curve')}, {verdict} the band of {whose}."
    parts = [paragraph(head), columns_text(_COLUMNS, curves)]
    parts += [_describe_series(s, reasons) for s, reasons in judged if s.stretches or s.abnormal]
    parts += [paragraph(f"{log} says {name}: {words}") for log, name, words in stated]
    names = ", ".join(f"{model.machine.name} · calibration {key}" for key, model in models.items())
    evidence = " and ".join(sorted({series.evidence for series in curves}))
    return "\n\n".join([*parts, paragraph(f"Machine {names} · the 95 % band is {evidence}")])


def record_series(series: Series, reasons: Sequence[LikelyReason]) -> dict[str, object]:
    """A measured curve for JSON, with the keys of the public schema."""
    return columns_record(_COLUMNS, series) | {"reasons": [reason._asdict() for reason in reasons]}


def _record_stretch(series: Series, run: Places) -> dict[str, object]:
    """A stretch of sizes outside the band, with the median of measured over expected times."""
    ends = {"from_bytes": series.payload_bytes[run[0]], "to_bytes": series.payload_bytes[run[-1]]}
    return {"slow": 1 in series.side[run], **ends, "ratio": np.median(series.ratios[run])}


def name_outside(curves: Sequence[Series]) -> str:
    """The error message (exit code 6) that names the abnormal curves."""
    abnormal = [series for series in curves if series.abnormal]
    names = dict.fromkeys(f"{s.log} {s.collective.replace('_', '-')} ({s.verdict})" for s in abnormal)
    return f"{len(abnormal)} of {counted(len(curves), 'curve')} outside the band: {', '.join(names)}."


def _describe_series(series: Series, reasons: Sequence[LikelyReason]) -> str:
    """A paragraph for an abnormal curve: where it is slow or fast, and the likely reasons."""
    ranks = f"{series.gpus} GPUs of {counted(series.nodes, 'node')}"
    title = f"{series.log}: {series.collective.replace('_', '-')} of {series.datatype or 'data'} on {ranks}"
    rows = []
    if series.wrong_bytes.size:
        rows.append(("Wrong", f"#wrong at {_format_range(series.wrong_bytes, format_bytes)}: {_CORRUPT}"))
    for run in series.stretches:
        rows.append(("Slow" if 1 in series.side[run] else "Fast", _describe_stretch(series, run)))
    rows += [("Impossible", _IMPOSSIBLE)] if series.impossible else []
    if series.slow and not reasons:
        rows.append(("Likeliest", "no reason that is tested puts these sizes back into the band"))
    for place, reason in enumerate(reasons):
        first = "Stated" if reason.stated else "Cannot tell" if reason.cannot_tell else "Likeliest"
        count = f"{reason.explains} of the {counted(reason.of, 'size')} outside"
        alone = f"it alone makes the time {_format_range(reason.ratios, format_ratio)}"
        words = f"{reason.name}: {reason.words} ({alone}, and brings {count} back inside)"
        rows += [("Or" if place else first, words), ("", f"look at {reason.look} [{reason.source}]")]
    return f"{paragraph(title)}\n{facts(rows, indent=1)}"


def _describe_stretch(series: Series, run: Places) -> str:
    """A range of sizes outside the band: ``1.6 – 2.0× the expected time, 16 MiB – 1 GiB; busbw …``."""
    last = run[-1]
    wire = series.payload_bytes[last] * compute_bus_factor(series.collective, series.gpus)
    busbw = format_rate(float(wire / series.time_s[last]))
    low = format_rate(float(wire / series.normal.high_s[last]))
    high = format_rate(float(wire / series.normal.low_s[last]))
    times = f"{_format_range(series.ratios[run], format_ratio)} the expected time"
    sizes = _format_range(series.payload_bytes[run], format_bytes)
    largest = format_bytes(series.payload_bytes[last])
    return f"{times}, {sizes}; busbw {busbw} at {largest}, where {low} – {high} is normal"


def _format_range(ends: Sequence[float] | npt.NDArray[np.float64], write: Callable[[float], str]) -> str:
    low = write(min(ends))
    high = write(max(ends))
    return low if low == high else f"{low} – {high}"
