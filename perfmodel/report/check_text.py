"""Text of ``perfmodel check``: a line for each curve, and the reasons for curves outside their band."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.collectives.link_laws import inside_rate
from perfmodel.errors import PerfmodelError
from perfmodel.report.columns import Column, attributes, columns_record, columns_text
from perfmodel.report.terminal import facts, paragraph
from perfmodel.schema.calibration import list_calibrations
from perfmodel.units import counted, format_bytes, format_rate, format_ratio
from perfmodel.validate.checked import ReasonRule, Series, Stretch, WrongResults

_CORRUPT = (
    "Data arrive damaged: look for a bad link, card or GPU, or a library's fault, before any time counts."
)

_COLUMNS = (
    Column("log", lambda one: one.log, left=True, data=attributes("log")),
    Column("collective", lambda one: _dashed(one), left=True, data=attributes("collective")),
    Column("GPUs", lambda one: str(one.gpus), data=attributes("gpus", "gpus_per_node")),
    Column("nodes", lambda one: str(one.nodes), data=attributes("nodes")),
    Column("type", lambda one: one.datatype, left=True, goes=1, data=attributes("datatype")),
    Column("place", lambda one: _place(one), left=True, goes=2, data=attributes("in_place")),
    Column("sizes", lambda one: _sizes(one, 0, -1), left=True, goes=3),
    Column("verdict", lambda one: _verdict(one), left=True, data=attributes("verdict")),
    Column(data={"calibration": lambda one: one.model.calibration_id, **attributes("evidence")}),
    Column(data={"stretches": lambda one: [_stretch_record(one, each) for each in one.stretches]}),
    Column(data={"reasons": lambda one: [reason.to_dict() for reason in one.reasons]}),
    Column(data=attributes("payload_bytes", "time_s", "expected_s", "low_s", "high_s", "judged")),
)

Unjudged = dict[str, PerfmodelError]
"""Logs without a verdict, each with the error that says why."""


def check_text(
    curves: Sequence[Series],
    wrong: Sequence[WrongResults] = (),
    unjudged: Mapping[str, PerfmodelError] | None = None,
    stated: Sequence[tuple[str, ReasonRule]] = (),
    settings: Sequence[tuple[str, str, str]] = (),
) -> str:
    """The text of ``perfmodel check``: wrong results, how many curves leave their band, a table, reasons.

    wrong  logs in which nccl-tests counted wrong results;  unjudged  logs without a verdict, which come last
    stated  logs with what they state of normal curves;  settings  log, variable of NCCL, what it costs
    """
    damaged = [paragraph(f"Wrong results: {words}. {_CORRUPT}") for words in map(_wrong_words, wrong)]
    unjudged = unjudged or {}
    why = [f"{paragraph(f'{log}: no verdict')}\n{_error_text(error)}" for log, error in unjudged.items()]
    if not curves:
        return "\n\n".join(damaged + why)
    outside = [one for one in curves if one.stretches]
    verdict = f"{len(outside)} outside the band" if outside else "all inside the band"
    beside = f"; no verdict on {counted(len(unjudged), 'other log')}" if unjudged else ""
    models = {one.model.calibration_id: one.model for one in curves}
    whose = "clusters like it" if set(models) <= set(list_calibrations()) else "this cluster"
    names = ", ".join(f"{model.machine.name} · calibration {key}" for key, model in models.items())
    evidence = " and ".join(sorted({one.evidence for one in curves}))
    return "\n\n".join(
        [
            *damaged,
            paragraph(f"{counted(len(curves), 'curve')}, {verdict} of {whose}{beside}."),
            columns_text(_COLUMNS, curves),
            *map(_block, outside),
            *(paragraph(f"{log} says {rule.name}: look at {rule.look}") for log, rule in stated),
            *(paragraph(f"{log} was run with {setting}: {cost}.") for log, setting, cost in settings),
            *why,
            paragraph(f"Machine {names} · the 95 % band is {evidence}"),
        ]
    )


def series_record(one: Series) -> dict[str, Any]:
    """A measured curve for JSON, with the keys of the public schema."""
    return columns_record(_COLUMNS, one)


def outside_line(curves: Sequence[Series], wrong: Sequence[WrongResults] = ()) -> str:
    """The error message (exit code 6) that names wrong results, else the curves outside their band."""
    if wrong:
        return f"wrong results: {'; '.join(map(_wrong_words, wrong))}."
    outside = [one for one in curves if one.stretches]
    named = ", ".join(dict.fromkeys(f"{one.log} {_dashed(one)} ({one.verdict})" for one in outside))
    return f"{len(outside)} of {counted(len(curves), 'curve')} outside the band: {named}."


def _error_text(error: PerfmodelError) -> str:
    """What is wrong and what to do next, of a log without a verdict."""
    texts = [" ".join(text.split()) for text in (error.message, error.next_step)]
    return facts(list(zip(("Why", "Next"), texts, strict=True)), indent=1)


def _wrong_words(wrong: WrongResults) -> str:
    sizes = [format_bytes(size) for size in wrong.payload_bytes]
    said = "#wrong" if wrong.flag == "wrong" else "#wrong cannot be read"
    some = sizes[0] if len(sizes) == 1 else f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"
    return f"{wrong.log}: {wrong.collective.replace('_', '-')} on {wrong.gpus} GPUs, {some} ({said})"


def _block(one: Series) -> str:
    """A paragraph for a curve outside its band: where it is slow or fast, and the likely reasons."""
    ranks = f"{one.gpus} GPUs of {counted(one.nodes, 'node')}"
    place = "in place" if one.in_place else "out of place"
    title = f"{one.log}: " + ", ".join([f"{_dashed(one)} on {ranks}", *filter(None, [one.datatype]), place])
    pairs = [("Slow" if stretch.slow else "Fast", _stretch_text(one, stretch)) for stretch in one.stretches]
    if not one.reasons:
        pairs.append(("Likeliest", "no reason that is tested puts these sizes back into the band"))
    return f"{paragraph(title)}\n{facts([*pairs, *_reason_rows(one)], indent=1)}"


def _reason_rows(one: Series) -> Iterator[tuple[str, str]]:
    for reason in one.reasons:
        first = "Cannot tell" if reason.cannot_tell else "Likeliest"
        label = first if reason is one.reasons[0] else "Or" if reason.cannot_tell else "Also"
        said = ", and the log says so" if reason.stated else ""
        count = f"{reason.explains} of the {counted(reason.of, 'size')} outside"
        if reason.ratios:
            count = f"it alone makes the time {_spread(reason.ratios)}, and brings {count} back inside"
        yield label, f"{reason.rule.name}: {reason.words} ({count}{said})"
        yield "", f"look at {reason.rule.look} [{reason.rule.source}]"


def _stretch_text(one: Series, stretch: Stretch) -> str:
    """A range of sizes outside the band: ``1.6 – 2.0× the expected time, 16 MiB – 1 GiB; busbw …``.

    An all-reduce in the switch (NVLS) allows a bus bandwidth above the links' rate, which is said.
    """
    at, machine, link = stretch.last, one.model.machine, inside_rate(one.model.machine)
    rates = [float(one.busbw(times)[at]) for times in (one.time_s, one.high_s, one.low_s, one.light_s)]
    own, least, most, possible = map(format_rate, rates)
    text = (
        f"{_spread(stretch.ratios)} the expected time, {_sizes(one, stretch.first, at)}; busbw {own} at "
        f"{format_bytes(one.payload_bytes[at])}, where {least} – {most} is normal"
    )
    if machine.links.nvls and one.collective == "all_reduce" and rates[2] > link:
        allowed = f"links of {format_rate(link)} allow a busbw of {possible}"
        text += f" (the switch adds, with NVLS: {allowed})"
    return text


def _stretch_record(one: Series, stretch: Stretch) -> dict[str, Any]:
    first, last = one.payload_bytes[[stretch.first, stretch.last]]
    ratio = float(np.median(stretch.ratios))
    return {"slow": stretch.slow, "from_bytes": first, "to_bytes": last, "ratio": ratio}


def _verdict(one: Series) -> str:
    """The verdict by the longest range of sizes: ``slow: 2.0× the time, 16 MiB – 1 GiB``."""
    if not one.stretches:
        return one.verdict
    ratios = {stretch: float(np.median(stretch.ratios)) for stretch in one.stretches}
    longest = max(ratios, key=lambda stretch: (len(stretch.ratios), abs(np.log(ratios[stretch]))))
    sizes = _sizes(one, longest.first, longest.last)
    return f"{one.verdict}: {format_ratio(ratios[longest])} the time, {sizes}"


def _dashed(one: Series) -> str:
    return one.collective.replace("_", "-")


def _place(one: Series) -> str:
    return "in" if one.in_place else "out"


def _spread(ratios: Sequence[float]) -> str:
    low, high = format_ratio(min(ratios)), format_ratio(max(ratios))
    return low if low == high else f"{low} – {high}"


def _sizes(one: Series, first: int, last: int) -> str:
    low, high = (format_bytes(one.payload_bytes[at]) for at in (first, last))
    return low if low == high else f"{low} – {high}"
