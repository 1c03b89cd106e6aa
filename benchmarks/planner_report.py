"""Tables and sums of benchmarks/planner.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.report.terminal import table

OURS, RESTRICTED, BY_SCORE, BOTH = "ours", "ours for TorchRec", "ours by its score", "ours by both"
OURS_SOON = "ours soon"
THEIRS, EMBARK, PER_BYTE, RANDOM = "TorchRec", "EMBark's greedy", "per-byte greedy", "random"
UNIFORM = ("row-wise", "table-wise", "table-row-wise")
PLANNERS = (OURS, OURS_SOON, RESTRICTED, BY_SCORE, BOTH, THEIRS, EMBARK, PER_BYTE, RANDOM, *UNIFORM)
OTHERS = (THEIRS, EMBARK, PER_BYTE, RANDOM)
_TO_MS = 1e3
_EQUAL = 0.9995  # of a time: as it is printed, less is faster


@dataclass
class Row:
    """One plan, or why there is none."""

    planner: str
    plan_s: float | None = None
    found: tuple[tuple[float, float], ...] = ()  # when our search had a better plan [s], and its time [s]
    step_ms: float | None = None
    torchrec_ms: float | None = None
    gap: float | None = None
    torchrec_gap: float | None = None  # of its score to a bound of it
    memory_gb: float | None = None
    shardings: str = ""
    why: str = ""


def text(rows: list[Row]) -> str:
    """The table of one case."""

    def number(value: float | None, digits: int = 3) -> str:
        if value is None:
            return "-"
        return "<0.01" if value < 0.01 else f"{value:#.{digits}g}".rstrip(".")

    best = next((row.step_ms for row in rows if row.planner == OURS), None)
    lines = [
        [
            row.planner,
            number(row.plan_s, 2),
            number(row.found[-1][0], 2) if row.found else "",
            number(row.step_ms, 4),
            f"{row.step_ms / best:.2f}" if row.step_ms and best else "-",
            number(row.torchrec_ms, 4),
            "" if row.gap is None else f"{100 * row.gap:.1f}",
            number(row.memory_gb),
            row.why or row.shardings,
        ]
        for row in rows
    ]
    heads = ["planner", "plan s", "found s", "step ms", "x", "theirs ms", "gap %", "GB", "exchanges"]
    return table(heads, lines, left=(0, 8))


def mean(ratios: list[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def aims(cases: dict[str, list[Row]]) -> str:
    """Case by case: our plan soon and in the end, its gap to the bound, and the plans of other planners."""
    lines, lost = [], 0
    for name, rows in cases.items():
        of = {row.planner: row for row in rows}
        soon, ours = (of[each].step_ms if each in of else None for each in (OURS_SOON, OURS))
        others = [of[each].step_ms if each in of else None for each in OTHERS]
        best = min((ms for ms in others if ms), default=None)
        lead = "-" if best is None or not soon else f"{best / soon:.2f}"
        lost += best is not None and soon is not None and best < soon * _EQUAL
        took, gap = of[OURS_SOON].plan_s if OURS_SOON in of else None, of[OURS].gap
        lines.append(
            [
                name,
                *("-" if ms is None else f"{ms:#.4g}" for ms in (soon, ours)),
                "-" if gap is None else f"{100 * gap:.1f}",
                *("-" if ms is None else f"{ms:#.4g}" for ms in others),
                lead,
                "-" if took is None else f"{took:.1f}",
            ]
        )
    heads = ["step ms", "ours soon", "ours", "gap %", *OTHERS, "best / soon", "soon s"]
    text = f"Ours soon is slower than the best other planner in {lost} of {len(lines)} cases."
    return f"{table(heads, lines)}\n{text}"


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
    return "\n".join([table(heads, lines), *_against_torchrec(named), *_gaps(named)])


def _against_torchrec(named: list[dict[str, Row]]) -> Iterator[str]:
    known = [rows for rows in named if THEIRS in rows and rows[THEIRS].step_ms]
    for name in (RESTRICTED, BY_SCORE, BOTH):
        own = [
            rows[name].torchrec_ms / rows[THEIRS].torchrec_ms
            for rows in known
            if name in rows and rows[name].torchrec_ms
        ]
        if own:
            worse = sum(ratio > 1.01 for ratio in own)
            yield (
                f"TorchRec's own score of {name}: {mean(own):.2f} x that of TorchRec's plan, mean "
                f"({min(own):.2f} to {max(own):.2f}); more than 1 % worse in {worse} of {len(own)}."
            )
    for name in (RESTRICTED, BOTH):
        has = [rows for rows in known if name in rows and rows[name].step_ms]
        slower = [rows[THEIRS].step_ms / rows[name].step_ms for rows in has]
        if slower:
            spread = f"{mean(slower):.2f} x, mean ({min(slower):.2f} to {max(slower):.2f})"
            yield f"By our model TorchRec's plan takes {spread}, as long as {name}."
    for name, score in ((OURS, "step_ms"), (BY_SCORE, "torchrec_ms")):
        yield from _sooner(known, name, score)


def _sooner(known: list[dict[str, Row]], name: str, score: str) -> Iterator[str]:
    """How much longer TorchRec's planner takes than ours until that has a plan that is no worse."""
    sooner, never = [], 0
    for rows in known:
        if name not in rows or rows[name].plan_s is None:
            continue
        theirs = rows[THEIRS]
        at = [when for when, best_s in rows[name].found if best_s * _TO_MS <= getattr(theirs, score) * 1.001]
        never += not at
        sooner += [theirs.plan_s / at[0]] if at else []
    if sooner:
        spread = f"{mean(sooner):.1f} x, mean ({min(sooner):.1f} to {max(sooner):.0f})"
        whose = "by our model" if score == "step_ms" else "by TorchRec's score"
        yield (
            f"TorchRec's planner takes {spread}, as long as {name} until that has a plan that is no worse "
            f"{whose}; it never has one in {never} of {len(known)}."
        )


def _gaps(named: list[dict[str, Row]]) -> Iterator[str]:
    gaps = [100 * rows[OURS].gap for rows in named if rows[OURS].gap is not None]
    if gaps:
        spread = f"{sum(gaps) / len(gaps):.1f} %, mean, {max(gaps):.1f} % at most"
        yield f"Gap of ours to the bound of the listed schemes: {spread}."
    gaps = [100 * rows[BY_SCORE].torchrec_gap for rows in named if BY_SCORE in rows and rows[BY_SCORE].plan_s]
    if gaps:
        spread = f"{sum(gaps) / len(gaps):.1f} %, mean, {max(gaps):.1f} % at most"
        yield f"Gap of {BY_SCORE} to a bound of TorchRec's score: {spread}."
