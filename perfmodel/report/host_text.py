"""Text of a projection with the host: the answer, then whether host or device is slower in each step."""

from __future__ import annotations

from perfmodel.passes.schemes import ROW_WISE
from perfmodel.projections.hosted import Hosted, Issued
from perfmodel.projections.ids_ahead import IdsAhead
from perfmodel.report.terminal import paragraph, sides, table
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_fraction, format_ratio, format_time

_INDENT = 5
_ALONE = "The device alone:"
HOST_WORDS = {"eager": "an eager host", "compiled": "a compiled pass", "graph": "CUDA graphs"}


_NAMES = {
    "host_call_s": "Python calls",
    "host_operator_s": "operators",
    "host_launch_s": "launches",
    "host_collective_s": "collectives",
    "graph_launch_s": "graphs",
}


def host_headline(found: Hosted, gpus: int, way: str, below: str = "", ways: str = "") -> str:
    """The first lines of an answer with the host; the next lines are for the device without it.

    way    name of the sharding;  ways  why it was chosen; "": the user chose it
    below  the slowdown in words if rows are in a tier below the HBM; "": they are in HBM
    """
    what = HOST_WORDS[found.costs.mode]
    where = counted(gpus, "GPU")
    first = f"{format_ratio(found.slowdown)} slower sharded {way} over {where}, with {what}."
    band = f"band {format_ratio(found.slowdown_low)} – {format_ratio(found.slowdown_high)}"
    times = f"{format_time(found.low_s)} – {format_time(found.high_s)}"
    if below:
        first = f"{below.removesuffix('.')}, with {what}."
    elif gpus == 1:
        band = f"band {times}"
        first = f"{format_time(found.time_s)} per batch with {what}: nothing is sharded."
    compared = gpus > 1 or bool(below)
    instead = f" ({times}), instead of {format_time(found.baseline_time_s)}" if compared else ""
    second = f"     {format_time(found.time_s)} per batch{instead}; {_works(found)}"
    chosen = f"{paragraph(ways, _INDENT)}\n" if ways else ""
    return f"{sides(first, band)}\n{paragraph(second)}\n{chosen}{_ALONE}"


def issued_lines(found: Issued) -> str:
    """The time of a plan with the host; the lines that follow are for the device without it."""
    what = HOST_WORDS[found.costs.mode]
    first = f"With {what} {format_time(found.time_s)} per batch."
    band = f"band {format_time(found.low_s)} – {format_time(found.high_s)}"
    return f"{sides(first, band)}\n{paragraph(f'     {_works(found)}')}\n{_ALONE}"


def _works(found: Issued) -> str:
    return (
        f"the host works {format_time(found.host_s)} of that, and the device waits "
        f"{format_time(found.idle_s)} for it"
    )


def beside_line(found: Hosted) -> str:
    """A line below an answer for the device alone: its slowdown and time with the host."""
    with_host = f"{format_ratio(found.slowdown)}, {format_time(found.time_s)} per batch"
    mode = found.costs.mode
    return paragraph(f"     this is the device alone; with {HOST_WORDS[mode]} {with_host} (--host {mode})")


def host_table(found: Issued, way: str = "") -> str:
    """A table of steps: time on the device, time of the host to issue it, and how long the device waits.

    way  name of the sharding; "": a plan with several shardings
    """
    rows = [
        [
            step.label,
            format_time(step.device_s),
            format_time(step.host_s),
            format_time(step.idle_s) if step.host_is_slower else "",
            "host" if step.host_is_slower else "device",
        ]
        for step in found.steps
    ]
    total = ["", format_time(found.device_s), format_time(found.host_s), format_time(found.idle_s), ""]
    headers = ["step with the host", "device", "host", "device waits", "slower"]
    costs = found.costs
    each = [
        ("a Python call", costs.call_s),
        ("an operator", costs.operator_s),
        ("a launch", costs.launch_s),
        ("a collective", costs.collective_s),
    ]
    each.append(("a stretch until the host waits", costs.stretch_s))
    words = ", ".join(f"{name} {format_time(time)}" for name, time in each if time)
    measured = [_NAMES[key] for key, evidence in costs.known.items() if evidence is Evidence.MEASURED]
    how = f"{costs.evidence}; measured by your own run: {', '.join(measured)}" if measured else costs.evidence
    said = f"On the host {words} ({how}); it waits for the device after the exchange of splits."
    if way != ROW_WISE:
        said += (
            f" Calls were counted in TorchRec's {ROW_WISE} pass, and are assumed to be as many in this one."
        )
    return f"{table(headers, [*rows, total], left=(0, 4))}\n{paragraph(said)}"


def ahead_fact(found: IdsAhead) -> tuple[str, str]:
    """A label, and how much time is hidden if ids of the next batch are sent during this batch."""
    share = format_fraction(found.hidden_s / (found.step_s + found.hidden_s))
    text = (
        f"sending them during this batch, as TorchRec's pipelines do, hides "
        f"{format_time(found.hidden_s)} ({share}), and up to {format_time(found.ids_s)} behind dense layers"
    )
    return "Next ids", text
