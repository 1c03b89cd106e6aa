"""Tables and sums of benchmarks/planner.py."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfmodel.report.terminal import table

OURS, RESTRICTED, BY_SCORE, BOTH = "ours", "ours for TorchRec", "ours by its score", "ours by both"
OURS_SOON = "ours soon"
THEIRS, EMBARK, PER_BYTE, RANDOM = "TorchRec", "EMBark's greedy", "per-byte greedy", "random"
UNIFORM = ("row-wise", "table-wise", "table-row-wise")
PLANNERS = (OURS, OURS_SOON, RESTRICTED, BY_SCORE, BOTH, THEIRS, EMBARK, PER_BYTE, RANDOM, *UNIFORM)
OTHERS = (THEIRS, EMBARK, PER_BYTE, RANDOM)
README = Path(__file__).with_name("README.md")
WIDTH = 120
"""Columns of the table of all cases."""
_TO_MS = 1e3
_EQUAL = 0.9995  # of a time: as it is printed, less is faster
_AIM, _AIM_FAR, _FAR = 0.05, 0.10, 128  # of the gap of ours, and beyond so many GPUs
_HEADS = ("case", "soon ms", "ours ms", "gap %", "all %", "TorchRec", "EMBark", "per byte", "random", "lead")
_OF_OURS = 5  # of these columns: our searches alone
_BLOCK = r"(?<=<!-- table {} -->\n```text\n).*?(?=```\n<!-- end -->)"


@dataclass
class Row:
    """One plan, or why there is none."""

    planner: str
    plan_s: float | None = None
    found: tuple[tuple[float, float], ...] = ()  # when our search had a better plan [s], and its time [s]
    step_ms: float | None = None
    torchrec_ms: float | None = None
    gap: float | None = None  # to the bound of the listed schemes
    all_gap: float | None = None  # to the bound over all plans; None: not known
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
            "" if row.gap is None else _percent(row.gap),
            "" if row.gap is None else _percent(row.all_gap),
            number(row.memory_gb),
            row.why or row.shardings,
        ]
        for row in rows
    ]
    heads = ["planner", "plan s", "found s", "step ms", "x", "theirs ms", "gap %", "all %", "GB", "exchanges"]
    return table(heads, lines, left=(0, 9))


def mean(ratios: list[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _milliseconds(row: Row | None) -> str:
    return "-" if row is None or not row.step_ms else f"{row.step_ms:#.4g}".rstrip(".")


def aims(cases: dict[str, list[Row]], soon_s: float | None, ours_s: float) -> str:
    """A line for each case: our plan soon and in the end, its gaps, other planners'; then where ours is not
    what it shall be: a lost case is one in which another planner's plan is faster than ours in ``soon_s``.

    soon_s  of a first search [s]; None: there was one, of ``ours_s``
    Limits: no other planner was run -> our columns alone
    """
    alone = not any(row.planner in OTHERS for rows in cases.values() for row in rows)
    lines, lost, none = [], [], []
    above: dict[str, list[str]] = {"the listed schemes": [], "all plans": []}
    for name, rows in cases.items():
        of = {row.planner: row for row in rows}
        ours, soon = of[OURS], of.get(OURS_SOON, of[OURS])
        best = min((of[each].step_ms for each in OTHERS if each in of and of[each].step_ms), default=None)
        if not soon.step_ms:
            none.append(name)
        elif best is not None and best < soon.step_ms * _EQUAL:
            lost.append(name)
        aim = _AIM if int(name.split(" x ")[1].split()[0]) <= _FAR else _AIM_FAR
        for gap, names in zip((ours.gap, ours.all_gap), above.values(), strict=True):
            if ours.step_ms and (gap is None or gap > aim):
                names.append(name)
        lead = "-" if best is None or not soon.step_ms else f"{best / soon.step_ms:.2f}"
        times = [_milliseconds(of.get(each)) for each in OTHERS]
        gaps = _percent(ours.gap), _percent(ours.all_gap)
        lines.append([name, _milliseconds(soon), _milliseconds(ours), *gaps, *times, lead])
    words = [*_words(f"{soon_s or ours_s:g} s", f"{ours_s:g} s", lost, above, len(cases) - len(none), alone)]
    words += [f"No plan fits in {_named(none, len(cases))}."] if none else []
    wrapped = [line for each in words for line in textwrap.wrap(each, WIDTH, break_on_hyphens=False)]
    columns = _OF_OURS if alone else len(_HEADS)
    return "\n".join([_plain(_HEADS[:columns], [line[:columns] for line in lines]), *wrapped])


def _words(
    first: str, then: str, lost: list[str], above: dict[str, list[str]], count: int, alone: bool
) -> Iterator[str]:
    """What the columns are, and in which of ``count`` cases ours is not what it shall be; alone: without
    other planners."""
    yield (
        f"soon: our plan in {first}; ours: in {then}; gap %, all %: what a plan of the listed schemes, and "
        "any plan at all, can save of its time at most (-: not known)"
        + ("." if alone else "; lead: the best other plan over soon.")
    )
    if not alone:
        yield f"Lost, as another plan is faster than ours in {first}: {_named(lost, count)}."
    for what, names in above.items():
        aim = f"{100 * _AIM:g} %, beyond {_FAR} GPUs {100 * _AIM_FAR:g} %"
        yield f"Above the aim of {aim}, the gap to the bound of {what}: {_named(names, count)}."


def _named(names: Sequence[str], count: int) -> str:
    """``3 of 40 cases: embark-t510 (forward 8, 64; training 8)``."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in names:
        model, _, gpus, each = name.rsplit(maxsplit=3)
        found.setdefault(model, {}).setdefault(each, []).append(gpus)
    said = []
    for model, passes in found.items():
        words = [f"{each} {', '.join(gpus)}" for each, gpus in passes.items()]
        said.append(f"{model} ({'; '.join(words)})")
    return f"{len(names)} of {count} cases" + (f": {', '.join(said)}" if said else "")


def _plain(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, the first one to the left: wider than a terminal's table may be."""
    cells = [heads, *lines]
    widths = [max(len(line[k]) for line in cells) for k in range(len(heads))]
    rest = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in cells]
    return "\n".join(" " + "  ".join(line) for line in rest)


def into_readme(text: str, name: str, path: Path = README) -> None:
    """Put the command and its table into the README, between the marks of this name."""
    block = re.compile(_BLOCK.format(name), re.DOTALL)
    page = path.read_text(encoding="utf-8")
    path.write_text(block.sub(lambda match: f"{text}\n", page), encoding="utf-8")


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
    for what, name in (("the listed schemes", "gap"), ("all plans", "all_gap")):
        known = [getattr(rows[OURS], name) for rows in named if rows[OURS].step_ms]
        gaps = [100 * gap for gap in known if gap is not None]
        if gaps:
            spread = f"{sum(gaps) / len(gaps):.1f} %, mean, {max(gaps):.1f} % at most"
            unknown = f"; not known in {len(known) - len(gaps)}" if len(gaps) < len(known) else ""
            yield f"Gap of ours to the bound of {what}: {spread}{unknown}."
    gaps = [100 * rows[BY_SCORE].torchrec_gap for rows in named if BY_SCORE in rows and rows[BY_SCORE].plan_s]
    if gaps:
        spread = f"{sum(gaps) / len(gaps):.1f} %, mean, {max(gaps):.1f} % at most"
        yield f"Gap of {BY_SCORE} to a bound of TorchRec's score: {spread}."
