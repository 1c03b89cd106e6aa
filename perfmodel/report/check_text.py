"""Text of ``perfmodel check``: a line for each curve, and the reasons for curves outside their band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfmodel.collectives.rates import inside_rate
from perfmodel.errors import PerfmodelError
from perfmodel.report.columns import Column, attributes, columns_record, columns_text
from perfmodel.report.terminal import facts, paragraph
from perfmodel.schema.calibration import list_calibrations
from perfmodel.units import counted, format_bytes, format_rate, format_ratio
from perfmodel.validate.checked import Series, Stretch, WrongResults
from perfmodel.validate.reason_table import ReasonRule

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
    Column(data={"reasons": lambda one: [each.to_dict() for each in one.reasons]}),
    Column(data=attributes("payload_bytes", "time_s", "expected_s", "low_s", "high_s", "judged")),
)


Unjudged = Sequence[tuple[str, PerfmodelError]]
"""Logs without a verdict, each with the error that says why."""


def check_text(
    found: Sequence[Series],
    wrong: Sequence[WrongResults] = (),
    unjudged: Unjudged = (),
    stated: Sequence[tuple[str, ReasonRule]] = (),
    settings: Sequence[tuple[str, str, str]] = (),
) -> str:
    """The text of ``perfmodel check``: wrong results, how many curves leave their band, a table, reasons.

    found  curves of the logs;  wrong  logs in which nccl-tests counted wrong results
    unjudged  logs without a verdict, which come last;  stated  logs with what they state of normal curves
    settings  log, variable of NCCL that it says was set, what that costs
    """
    first = [paragraph(f"Wrong results: {words}. {_CORRUPT}") for words in map(_wrong_words, wrong)]
    why = [f"{paragraph(f'{log}: no verdict')}\n{_why(error)}" for log, error in unjudged]
    if not found:
        return "\n\n".join(first + why)
    outside = [one for one in found if one.stretches]
    verdict = f"{len(outside)} outside the band" if outside else "all inside the band"
    beside = f"; no verdict on {counted(len(unjudged), 'other log')}" if unjudged else ""
    models = {one.model.calibration_id: one.model for one in found}
    shipped = set(models) <= set(list_calibrations())
    whose = "clusters like it" if shipped else "this cluster"
    names = ", ".join(f"{model.machine.name} · calibration {key}" for key, model in models.items())
    evidence = " and ".join(sorted({one.evidence for one in found}))
    return "\n\n".join(
        [
            *first,
            paragraph(f"{counted(len(found), 'curve')}, {verdict} of {whose}{beside}."),
            columns_text(_COLUMNS, found),
            *_blocks(outside),
            *(paragraph(f"{log} says {rule.name}: look at {rule.look}") for log, rule in stated),
            *(paragraph(f"{log} was run with {setting}: {cost}.") for log, setting, cost in settings),
            *why,
            paragraph(f"Machine {names} · the 95 % band is {evidence}"),
        ]
    )


def series_record(one: Series) -> dict[str, Any]:
    """A measured curve for JSON, with the keys of the public schema."""
    return columns_record(_COLUMNS, one)


def _why(error: PerfmodelError) -> str:
    """What is wrong and what to do next, of a log without a verdict."""
    texts = [" ".join(text.split()) for text in (error.message, error.next_step)]
    return facts(list(zip(("Why", "Next"), texts, strict=True)), indent=1)


def _wrong_words(wrong: WrongResults) -> str:
    sizes = [format_bytes(size) for size in wrong.payload_bytes]
    said = "#wrong" if wrong.flag == "wrong" else "#wrong cannot be read"
    some = sizes[0] if len(sizes) == 1 else f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"
    return f"{wrong.log}: {wrong.collective.replace('_', '-')} on {wrong.gpus} GPUs, {some} ({said})"


def no_verdict_line(unjudged: Unjudged) -> str:
    """The error message that names the logs without a verdict."""
    return f"no verdict on {counted(len(unjudged), 'log')}: {', '.join(log for log, _ in unjudged)}."


def outside_line(found: Sequence[Series], wrong: Sequence[WrongResults] = ()) -> str:
    """The error message (exit code 6) that names wrong results, else the curves outside their band."""
    if wrong:
        return f"wrong results: {'; '.join(map(_wrong_words, wrong))}."
    outside = [one for one in found if one.stretches]
    named = ", ".join(dict.fromkeys(f"{one.log} {_dashed(one)} ({one.verdict})" for one in outside))
    return f"{len(outside)} of {counted(len(found), 'curve')} outside the band: {named}."


def _blocks(outside: Sequence[Series]) -> list[str]:
    """A paragraph for each curve outside its band.

    The in-place and the out-of-place curve share a paragraph if their reasons are the same.
    """
    blocks: dict[tuple[object, ...], list[Series]] = {}
    for one in outside:
        names = tuple(sorted(each.rule.name for each in one.reasons))
        blocks.setdefault((one.log, one.collective, one.gpus, one.nodes, one.datatype, names), []).append(one)
    return [_block(same[0], " and ".join(map(_place, same))) for same in blocks.values()]


def _block(one: Series, places: str) -> str:
    ranks = f"{one.gpus} GPUs of {counted(one.nodes, 'node')}"
    words = [f"{_dashed(one)} on {ranks}", *filter(None, [one.datatype]), f"{places} of place"]
    title = f"{one.log}: {', '.join(words)}"
    pairs = [("Slow" if each.slow else "Fast", _stretch(one, each)) for each in one.stretches]
    for reason in one.reasons:
        first = "Cannot tell" if reason.cannot_tell else "Likeliest"
        label = first if reason is one.reasons[0] else "Or" if reason.cannot_tell else "Also"
        said = ", and the log says so" if reason.stated else ""
        count = f"{reason.explains} of the {counted(reason.of, 'size')} outside"
        if reason.ratios:
            count = f"it alone makes the time {_spread(reason.ratios)}, and brings {count} back inside"
        pairs.append((label, f"{reason.rule.name}: {reason.words} ({count}{said})"))
        pairs.append(("", f"look at {reason.rule.look} [{reason.rule.source}]"))
    if not one.reasons:
        pairs.append(("Likeliest", "no reason that is tested puts these sizes back into the band"))
    return f"{paragraph(title.replace('in of place', 'in place'))}\n{facts(pairs, indent=1)}"


def _stretch(one: Series, each: Stretch) -> str:
    """A range of sizes outside the band: ``1.6 – 2.0× the expected time, 16 MiB – 1 GiB; busbw …``.

    each  the range: its first and last size, and measured over expected time at each size
    """
    at, size = each.last, format_bytes(one.payload_bytes[each.last])
    own, least, most = (format_rate(float(one.busbw(t)[at])) for t in (one.time_s, one.high_s, one.low_s))
    return (
        f"{_spread(each.ratios)} the expected time, {_sizes(one, each.first, at)}; busbw {own} at {size}, "
        f"where {least} – {most} is normal{_in_switch(one, at)}"
    )


def _spread(ratios: Sequence[float]) -> str:
    low, high = format_ratio(min(ratios)), format_ratio(max(ratios))
    return low if low == high else f"{low} – {high}"


def _in_switch(one: Series, at: int) -> str:
    """That NVLS reductions in the switch allow a bus bandwidth above the links' rate, if it may be so high.

    at  the index of the size.  Limits: no NVLS, not an all-reduce, not above that rate -> ""
    """
    machine = one.model.machine
    link, most = inside_rate(machine), float(one.busbw(one.low_s)[at])
    if not machine.links.nvls or one.collective != "all_reduce" or most <= link:
        return ""
    possible = format_rate(float(one.busbw(one.light_s)[at]))
    return f" (the switch adds, with NVLS: links of {format_rate(link)} allow a busbw of {possible})"


def _stretch_record(one: Series, each: Stretch) -> dict[str, Any]:
    sizes = dict(zip(("from_bytes", "to_bytes"), one.payload_bytes[[each.first, each.last]], strict=True))
    return {"slow": each.slow, **sizes, "ratio": each.ratio}


def _verdict(one: Series) -> str:
    """The verdict by the longest range of sizes: ``slow: 2.0× the time, 16 MiB – 1 GiB``."""
    if not one.stretches:
        return one.verdict
    longest = max(one.stretches, key=lambda each: (len(each.ratios), abs(np.log(each.ratio))))
    sizes = _sizes(one, longest.first, longest.last)
    return f"{one.verdict}: {format_ratio(longest.ratio)} the time, {sizes}"


def _dashed(one: Series) -> str:
    return one.collective.replace("_", "-")


def _place(one: Series) -> str:
    return "in" if one.in_place else "out"


def _sizes(one: Series, first: int, last: int) -> str:
    low, high = (format_bytes(one.payload_bytes[at]) for at in (first, last))
    return low if low == high else f"{low} – {high}"
