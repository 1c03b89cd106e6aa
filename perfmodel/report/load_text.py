"""Text of ``perfmodel load``: how many GPUs, latencies against load, the batches that were tried."""

from __future__ import annotations

from perfmodel.passes.settings import Setting
from perfmodel.projections.hosted import host_costs
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.hourly_text import hourly_words
from perfmodel.report.load_headline import headline, rate, uncertain, unsure
from perfmodel.report.terminal import command_lines, facts, paragraph, table, unbroken
from perfmodel.schema.evidence import Evidence
from perfmodel.service.closed_forms import ABOUT, AT_LEAST, AT_MOST, EQUAL, ClosedForm
from perfmodel.service.events import WAITS
from perfmodel.service.highest import P99, Carried
from perfmodel.service.hourly import HourlyCost
from perfmodel.service.service_load import (
    LoadRow,
    ServiceLoad,
)
from perfmodel.units import (
    counted,
    format_count,
    format_fraction,
    format_number,
    format_time,
)

_NEAR = 3  # batch sizes shown on each side of the best
_ROUGH = (
    "Steps: of two batches, one after the other (in line) or overlapping (overlap). Most/replica: the "
    "highest load of a replica within --p99; no limit: what it serves if requests may wait without end; "
    "~: from a shorter simulation, not confirmed; only the chosen row is confirmed by the longer one. "
    "GPUs: for the load of this answer."
)
_READ = (
    "Used: part of the load that full batches serve. Batch: requests in one, on average. Batching, queue, "
    "pass and slowest add up to the p99; slowest: what the slowest rank of each collective adds."
)
_OPEN = (
    " ±: what so many requests leave open of the p99 (95 %), this close to the most that is served; "
    "--requests follows more."
)
_IN_LINE, _OVERLAPPED = "in line", "overlap"
MEANINGS = {
    "batching": "waits for its batch to fill",
    "queue": "waits for the batches ahead, and for their steps",
    "pass": "its own batch, as if it were alone",
    "stragglers": "the slowest rank of each collective",
}


def load_text(
    answer: ServiceLoad,
    hourly: HourlyCost,
    setting: Setting,
    explain: str,
    calibration_file: str | None = None,
    host: str | None = None,
) -> str:
    """The text of ``perfmodel load``: GPUs, batch, costs, latency against load, closed forms, sources.

    setting           machine and calibration;  hourly  the costs per hour
    calibration_file  the user's own; None: a shipped calibration
    host              how the host issues the pass, if its time is included
    explain           the command that explains these numbers
    """
    parts = [
        headline(answer),
        *map(paragraph, unsure(answer)),
        f"{rule_line(answer)}\n{chosen_by(answer)}",
        facts(hourly_words(hourly, answer)),
        load_table(answer),
        made_of(answer.asked),
        batch_table(answer),
        closed_forms(answer, explain),
        footer(answer, setting, calibration_file, host),
    ]
    return "\n\n".join(parts)


def rule_line(answer: ServiceLoad) -> str:
    """A line: the largest batch, how long its first request waits, and whether batches overlap."""
    best, q = answer.best, answer.question
    size = f"{format_count(best.batch)} on each GPU"
    requests = counted(best.rule.requests, "request")
    each = f", {q.samples:g} samples each" if q.samples != 1 else ""
    wait = f"waits {format_time(best.rule.wait_s)}" if best.rule.wait_s else "does not wait"
    steps = "steps of two batches overlap" if best.rule.overlap else "one batch after the other"
    batch = f"up to {size} ({requests}{each}); the first request {wait}; {steps}"
    chosen = [
        n for n, v in (("--batch", q.batch), ("--wait", q.wait_s), ("--overlap", q.overlap)) if v is not None
    ]
    given = f"; as given: {', '.join(chosen)}" if chosen else ""
    return facts([("Batch", batch + given)])


def chosen_by(answer: ServiceLoad) -> str:
    """By which criterion batch, wait and overlap were chosen; a warning if requested overlap is slower."""
    return "\n".join([facts([("Chosen", choice_words(answer))]), *overlap_words(answer)])


def choice_words(answer: ServiceLoad) -> str:
    """Which of batch, wait and overlap the program chose, and for which aim."""
    q = answer.question
    free = [
        name
        for name, given in (("batch", q.batch), ("wait", q.wait_s), ("overlap", q.overlap))
        if given is None
    ]
    if not free:
        return "nothing: batch, wait and overlap are as given"
    what = " and ".join([", ".join(free[:-1]), free[-1]] if len(free) > 1 else free)
    if q.qps is None:
        return f"{what}: what carries the most load within the limit"
    return (
        f"{what}: what needs the fewest GPUs, then has the lowest p99 at this load; of what comes within 5 % "
        "of that p99, what carries the most load. (The batches below show the most load, not the p99.)"
    )


def overlap_words(answer: ServiceLoad) -> list[str]:
    """A warning if one batch after the other, without overlap, would be faster at this load; else []."""
    if answer.in_line is None:
        return []
    ours, other = (row.run.quantile(P99) for row in (answer.asked, answer.in_line))
    if other * (1 + _LATER) >= ours:
        return []
    words = (
        f"At this load one batch after the other is faster (--no-overlap: p99 {format_time(other)}): the "
        "steps of two batches in flight wait for each other on the GPU and on the links."
    )
    return [paragraph(words)]


_LATER = 0.02


def load_table(answer: ServiceLoad) -> str:
    """A table of latencies: for each load the p50, p95, p99, and the parts of the p99."""
    most = answer.best.rate_per_s * answer.replicas
    rows = [_row(row, answer, most) for row in answer.rows]
    headers = ["load/s", "used", "batch", *("p50", "p95", "p99"), *WAITS[:-1], "slowest", ""]
    shown = paragraph("Latency against load, and what the p99 is made of")
    read = _READ + _OPEN * any(uncertain(row) for row in answer.rows)
    return f"{shown}\n{table(headers, rows, left=(10,), drop=(2, (6, 7, 8, 9)))}\n{paragraph(read)}"


def _whose(answer: ServiceLoad) -> str:
    """Source of the answer's load in a word: "asked" (--qps), "of the file", or "above" (the highest)."""
    q = answer.question
    if q.qps is None:
        return "above"
    return "of the file" if q.qps == q.arrivals.rate_per_s else "asked"


def _row(row: LoadRow, answer: ServiceLoad, most: float) -> list[str]:
    parts = row.run.made_of(P99)
    near = abs(row.load_per_s - most) < 1e-6 * most
    words = [_whose(answer)] * (row is answer.asked) + ["most"] * near + uncertain(row)
    return [
        _per_s(row.load_per_s),
        format_fraction(row.utilisation),
        format_count(row.run.requests),
        *(format_time(row.run.quantile(q)) for q in (0.5, 0.95, P99)),
        *(format_time(max(parts[name], 0.0)) for name in WAITS),
        unbroken(", ".join(words)),
    ]


def made_of(asked: LoadRow) -> str:
    """A table of the parts of the p99 at the load of the answer: name, time, share, meaning."""
    parts, whole = asked.run.made_of(P99), asked.run.quantile(P99)
    rows = [
        [
            name,
            format_time(max(parts[name], 0.0)),
            format_fraction(max(parts[name], 0.0) / whole),
            MEANINGS[name],
        ]
        for name in WAITS
    ]
    return table(
        [f"of the p99 at {rate(asked.load_per_s)}", "time", "share", ""], rows, left=(0, 3), indent=0
    )


def batch_table(answer: ServiceLoad) -> str:
    """A table of batch sizes near the chosen size: time of a pass, wait, highest load, GPUs."""
    best = {each.batch: each for each in sorted(answer.tried, key=lambda each: each.rate_per_s)}
    best[answer.best.batch] = answer.best
    tried = [best[batch] for batch in sorted(best)]
    at = next(place for place, each in enumerate(tried) if each is answer.best)
    shown = tried[max(at - _NEAR, 0) : at + _NEAR + 1]
    columns = (
        Column("batch/GPU", lambda each: format_count(each.batch)),
        Column("pass", lambda each: format_time(each.pass_s)),
        Column("wait", lambda each: format_time(each.rule.wait_s)),
        Column("steps", lambda each: _OVERLAPPED if each.rule.overlap else _IN_LINE, left=True),
        Column("most/replica", lambda each: rough(each) + _per_s(each.rate_per_s)),
        Column("no limit", lambda each: _per_s(each.capacity_per_s), goes=1),
        Column("GPUs", lambda each: rough(each) + format_count(answer.gpus_for(each.rate_per_s))),
        Column("", lambda each: "" if rough(each) else "chosen", left=True),
    )

    def rough(each: Carried) -> str:
        return "" if each is answer.best else "~"

    return f"{columns_text(columns, shown)}\n{paragraph(_ROUGH)}"


def _per_s(per_s: float) -> str:
    """A rate without its unit, ``500 k``, for columns."""
    return rate(per_s).partition("request")[0].strip()


def closed_forms(answer: ServiceLoad, explain: str) -> str:
    """A table of values in closed form beside the simulated values, and the command ``explain``."""
    who = "a replica" if answer.replicas > 1 else "the service"
    first = f"Closed forms beside the simulation of {who}, at {rate(answer.asked.load_per_s)}"
    inside = answer.asked.to_dict()["requests_inside"]
    many = format_count(inside) if inside >= _FEW else format_number(inside)
    words = (
        f"A request that comes alone takes {format_time(answer.least_s)} at its own p99, slowest ranks "
        "included. That is no sum of the pass and the slowest above, which are means over the requests near "
        f"the p99 of all. {many} "
        "requests are inside on average (Little's law). The equation behind each number:"
    )
    shown = table(["", *CLOSED_HEAD], closed_rows(answer), left=(0,))
    return f"{paragraph(first)}\n{shown}\n{paragraph(words)}\n{command_lines(explain)}"


_FEW = 10  # requests; below, a fraction is printed
CLOSED_HEAD = ("closed form", "simulated", "")


def closed_rows(answer: ServiceLoad) -> list[list[str]]:
    """A row for each closed form: its name, its value, the simulated value, the difference."""
    rows = []
    for each in answer.closed:
        closed, simulated = _number(each, each.closed), _number(each, each.simulated)
        rows.append([each.words, _KINDS[each.kind] + closed, simulated, _apart(each)])
    return rows


_KINDS = {AT_LEAST: "≥ ", AT_MOST: "≤ ", EQUAL: "", ABOUT: "≈ "}


def _number(each: ClosedForm, value: float) -> str:
    return rate(value).replace("requests", "").replace(" /s", "/s") if each.per_second else format_time(value)


def _apart(each: ClosedForm) -> str:
    """By how much the simulated value differs, in percent; "" if the closed form is only a bound."""
    if each.kind not in (EQUAL, ABOUT):
        return ""
    return f"{100 * (each.simulated / each.closed - 1):+.1f} %"


def footer(
    answer: ServiceLoad, setting: Setting, calibration_file: str | None, host: str | None = None
) -> str:
    """The line of sources: machine, calibration, host, sharding, arrivals, and how late ranks are."""
    q, machine = answer.question, setting.machine
    assumed = [f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides)]
    parts = [
        f"Machine {machine.name}",
        *([f"assumed: {', '.join(assumed)}"] if assumed else []),
        f"calibration {calibration_file or ', '.join(dict.fromkeys(setting.links.calibrations))}",
        host_source(answer, host, calibration_file),
        f"pass {q.served.sharding}",
        *([q.served.rows] if q.served.rows else []),
        f"times of the pass {q.served.evidence_at(answer.best.batch)}",
        f"arrivals {q.arrivals.name}, seed {q.arrivals.seed}"
        + (", dealt to replicas at random" if answer.replicas > 1 else ""),
    ]
    return f"{paragraph(' · '.join(parts))}\n{paragraph(stragglers(answer))}"


def host_source(answer: ServiceLoad, host: str | None, calibration_file: str | None = None) -> str:
    """Whether the times include the host, and the evidence of its time."""
    if host is not None:
        return f"host {host} ({host_costs(host, calibration_file).evidence})"
    known = answer.question.served.host
    return f"the host is in its times ({known})" if known else "the device alone, no host"


def stragglers(answer: ServiceLoad) -> str:
    """How late a rank comes to a collective on average, and whether that is measured or assumed."""
    spread = answer.question.spread
    if not spread.floor_s and not spread.share:
        return "No rank is slower than another (--no-stragglers)."
    size = f"{format_time(spread.floor_s)} + {format_fraction(spread.share)} of the collective"
    how = "measured, " if spread.evidence is Evidence.MEASURED else "assumed, after "
    return f"A rank is {size} late on average, exponentially distributed ({how}{spread.source})."
