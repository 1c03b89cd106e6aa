"""Tables and sums of benchmarks/planner.py."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfmodel.report.terminal import table

OURS, RESTRICTED, OURS_SOON = "ours", "ours for TorchRec", "ours soon"
THEIRS, EMBARK, PER_BYTE, RANDOM = "TorchRec", "EMBark's greedy", "per-byte greedy", "random"
UNIFORM = ("row-wise", "table-wise", "table-row-wise")
PLANNERS = (OURS, OURS_SOON, RESTRICTED, THEIRS, EMBARK, PER_BYTE, RANDOM, *UNIFORM)
OTHERS = (THEIRS, EMBARK, PER_BYTE, RANDOM)
README = Path(__file__).with_name("README.md")
WIDTH = 120
"""Columns of the table of all cases."""
_TO_MS = 1e3
_EQUAL = 0.9995  # of a time: as it is printed, less is faster
_HEADS = ("case", "soon ms", "CPU s", "ours ms", "gap %", "TorchRec", "EMBark", "per byte", "random", "lead")
_OF_OURS = 5  # of these columns: our searches alone
_BLOCK = re.compile(r"(?<=<!-- table planners -->\n```text\n).*?(?=```\n<!-- end -->)", re.DOTALL)


@dataclass
class Row:
    """One plan, or why there is none. plan_s  what finding it took of the CPU [s]"""

    planner: str
    plan_s: float | None = None
    found: tuple[tuple[float, float], ...] = ()  # when our search had a better plan [s], and its time [s]
    step_ms: float | None = None
    torchrec_ms: float | None = None
    gap: float | None = None  # to the bound of the listed schemes
    memory_gb: float | None = None
    shardings: str = ""
    why: str = ""


def text(rows: list[Row]) -> str:
    """The table of one case."""

    best = next((row.step_ms for row in rows if row.planner == OURS), None)
    lines = [
        [
            row.planner,
            format_digits(row.plan_s, 2),
            format_digits(row.found[-1][0], 2) if row.found else "",
            format_digits(row.step_ms, 4),
            f"{row.step_ms / best:.2f}" if row.step_ms and best else "-",
            format_digits(row.torchrec_ms, 4),
            "" if row.gap is None else format_percent(row.gap),
            format_digits(row.memory_gb, 3),
            row.why or row.shardings,
        ]
        for row in rows
    ]
    heads = ["planner", "plan s", "found s", "step ms", "x", "theirs ms", "gap %", "GB", "exchanges"]
    return table(heads, lines, left=(0, 8))


def mean(ratios: list[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def format_digits(value: float | None, digits: int) -> str:
    if value is None:
        return "-"
    return "<0.01" if value < 0.01 else f"{value:#.{digits}g}".rstrip(".")


def format_percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def format_milliseconds(row: Row | None) -> str:
    return "-" if row is None else format_digits(row.step_ms, 4)


def compared(cases: dict[str, list[Row]], soon_s: float, ours_s: float) -> str:
    """A line for each case: our plan soon and in the end, its gap, other planners'; then the lost cases, in
    which another planner's plan is faster than ours soon.

    soon_s, ours_s  counted seconds of our two searches
    Limits: no other planner was run -> our columns alone
    """
    alone = not any(row.planner in OTHERS for rows in cases.values() for row in rows)
    lines, lost, none = [], [], []
    for name, rows in cases.items():
        of = {row.planner: row for row in rows}
        ours, soon = of[OURS], of[OURS_SOON]
        best = min(
            (of[planner].step_ms for planner in OTHERS if planner in of and of[planner].step_ms), default=None
        )
        if best is not None and best < (soon.step_ms or math.inf) * _EQUAL:
            lost.append(name)
        elif not soon.step_ms:
            none.append(name)
        lead = "-" if best is None or not soon.step_ms else f"{best / soon.step_ms:.2f}"
        times = [format_milliseconds(of.get(planner)) for planner in OTHERS]
        of_soon = format_milliseconds(soon), format_digits(soon.plan_s, 2)
        lines.append([name, *of_soon, format_milliseconds(ours), format_percent(ours.gap), *times, lead])
    count = len(cases) - len(none)
    words = [
        f"soon: our plan with an effort of {soon_s:g} counted seconds, and CPU s what it took; ours: with "
        f"{ours_s:g}; gap %: what a plan of the listed schemes can save of its time at most"
        + ("." if alone else "; lead: the best other plan over soon.")
    ]
    words += [] if alone else [f"Lost, as another plan is faster than ours soon: {name_cases(lost, count)}."]
    words += [f"No plan fits in {name_cases(none, len(cases))}."] if none else []
    wrapped = [line for planner in words for line in textwrap.wrap(planner, WIDTH, break_on_hyphens=False)]
    columns = _OF_OURS if alone else len(_HEADS)
    return "\n".join([make_plain(_HEADS[:columns], [line[:columns] for line in lines]), *wrapped])


def name_cases(names: Sequence[str], count: int) -> str:
    """``3 of 40 cases: embark-t510 (forward 8, 64; training 8)``."""
    passes_of: dict[str, dict[str, list[str]]] = {}
    for name in names:
        model, _, gpus, kind = name.rsplit(maxsplit=3)
        passes_of.setdefault(model, {}).setdefault(kind, []).append(gpus)
    said = []
    for model, passes in passes_of.items():
        words = [f"{kind} {', '.join(gpus)}" for kind, gpus in passes.items()]
        said.append(f"{model} ({'; '.join(words)})")
    return f"{len(names)} of {count} cases" + (f": {', '.join(said)}" if said else "")


def make_plain(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, the first one to the left: wider than a terminal's table may be."""
    cells = [heads, *lines]
    widths = [max(len(line[k]) for line in cells) for k in range(len(heads))]
    body = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in cells]
    return "\n".join(" " + "  ".join(line) for line in body)


def into_readme(text: str, path: Path = README) -> None:
    """Put the command and its table into the README, between the marks."""
    page = path.read_text(encoding="utf-8")
    path.write_text(_BLOCK.sub(lambda match: f"{text}\n", page), encoding="utf-8")


def summary(cases: list[list[Row]]) -> str:
    """Each planner against ours: our score, TorchRec's, time to plan; and gaps to the bound."""
    named = [{row.planner: row for row in rows} for rows in cases]
    lines = []
    for name in dict.fromkeys(name for rows in named for name in rows):
        pairs = [(rows[OURS], rows[name]) for rows in named if name in rows]
        times = [theirs.step_ms / ours.step_ms for ours, theirs in pairs if ours.step_ms and theirs.step_ms]
        took = [theirs.plan_s for _, theirs in pairs if theirs.plan_s]
        faster = str(sum(ratio < 0.999 for ratio in times))
        spread = [f"{x:.2f}" for x in (mean(times), min(times), max(times))] if times else ["-"] * 3
        lines.append([name, str(len(times)), *spread, faster, f"{mean(took):.2g}" if took else "-"])
    heads = ["planner", "plans", "x ours, mean", "least", "most", "faster than ours", "plan s, mean"]
    return "\n".join([table(heads, lines), *compare_torchrec(named), *list_gaps(named)])


def compare_torchrec(named: list[dict[str, Row]]) -> Iterator[str]:
    compared = [rows for rows in named if THEIRS in rows and rows[THEIRS].step_ms]
    scores, slower = [], []
    for rows in compared:
        ours, theirs = rows.get(RESTRICTED), rows[THEIRS]
        if ours and ours.torchrec_ms:
            scores.append(ours.torchrec_ms / theirs.torchrec_ms)
        if ours and ours.step_ms:
            slower.append(theirs.step_ms / ours.step_ms)
    if scores:
        worse = sum(ratio > 1.01 for ratio in scores)
        yield (
            f"TorchRec's own score of {RESTRICTED}: {mean(scores):.2f} x that of TorchRec's plan, mean "
            f"({min(scores):.2f} to {max(scores):.2f}); more than 1 % worse in {worse} of {len(scores)}."
        )
    if slower:
        spread = f"{mean(slower):.2f} x, mean ({min(slower):.2f} to {max(slower):.2f})"
        yield f"By our model TorchRec's plan takes {spread}, as long as {RESTRICTED}."
    yield from find_sooner(compared)


def find_sooner(known: list[dict[str, Row]]) -> Iterator[str]:
    """How much longer TorchRec's planner takes than ours until that has a plan that is no worse."""
    sooner, never = [], 0
    for rows in known:
        if rows[OURS].plan_s is None:
            continue
        theirs = rows[THEIRS]
        moments = [when for when, best_s in rows[OURS].found if best_s * _TO_MS <= theirs.step_ms * 1.001]
        never += not moments
        sooner += [theirs.plan_s / moments[0]] if moments else []
    if sooner:
        spread = f"{mean(sooner):.1f} x, mean ({min(sooner):.1f} to {max(sooner):.0f})"
        yield (
            f"TorchRec's planner takes {spread}, as long as {OURS} until that has a plan that is no worse "
            f"by our model; it never has one in {never} of {len(known)}."
        )


def list_gaps(named: list[dict[str, Row]]) -> Iterator[str]:
    gaps = [100 * rows[OURS].gap for rows in named if rows[OURS].plan_s]
    if gaps:
        spread = f"{sum(gaps) / len(gaps):.1f} %, mean, {max(gaps):.1f} % at most"
        yield f"Gap of {OURS} to the bound of the listed schemes: {spread}."
