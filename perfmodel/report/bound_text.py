"""How much better than the best that was found a plan can be, in words that say which plans."""

from __future__ import annotations

from perfmodel.plan.outcome import Planned
from perfmodel.plan.searching.found import Found
from perfmodel.report.terminal import unbroken
from perfmodel.units import format_fraction, format_time

STOPPED = {
    "bound": "less than 1 % was enough",
    "no improvement": "nothing better was found",
    "time": "the time limit was reached",
    "interrupt": "it was stopped",
}
"""Why a search ended, in words."""


LOOSE = 0.5
"""Of a plan's time: a bound that is further below says little of what can be saved."""
LONGER, LEAST_S = 6, 10
"""Times that a search took, and seconds at the least: what a longer one is advised to have."""


def bound_words(answer: Planned) -> str:
    """How much better a plan of the listed schemes can be, and any plan; ``listed_fact``: which those are."""
    found = answer.found
    if answer.given:
        return "This plan was given. Without --plan, a search shows how much faster a plan can be."
    stopped = STOPPED[found.stopped]
    if not found.bound_s:
        return f"How much faster a plan can be is not known ({stopped})."
    one = format_time(found.all_plans_s or 0.0) == format_time(found.bound_s)
    which = _every(answer) if one else f"No {answer.bound_over.replace('plans', 'plan', 1)}"
    words = f"{which} is faster than {format_time(found.bound_s)}"
    words += f": {_saved(found.gap)} ({stopped})."
    if found.gap > LOOSE:
        words += f" This bound is not tight yet: less may be possible.{longer_words(found)}"
    return " ".join([words, *([] if one else all_plans_words(answer))])


def listed_fact(answer: Planned) -> tuple[str, str]:
    """A name, and which schemes the first bound is over; no words where there is no bound."""
    if answer.given or not answer.found.bound_s:
        return "", ""
    if answer.found.restricted:
        return "Shardings", f"TorchRec's: {answer.listed_schemes}"
    return "Listed", answer.listed_schemes


def listed_words(answer: Planned) -> str:
    """The same as a sentence."""
    name, schemes = listed_fact(answer)
    return f"{name}: {schemes}." if schemes else ""


def longer_words(found: Found) -> str:
    """What to do about a bound that is far below the plan."""
    if found.stopped != "time":
        return ""
    longer = unbroken(f"--time-limit {max(LONGER * found.seconds, LEAST_S):.0f}s")
    return f" A longer search may raise it: {longer}."


def all_plans_words(answer: Planned) -> list[str]:
    """The bound over every plan; that there is none with tiers; nothing where nobody asked."""
    found = answer.found
    if found.all_plans_s is None or found.all_plans_gap is None:
        tiers = answer.evaluator.model.below is not None and not found.restricted
        return ["With --tier there is no bound over plans of other schemes."] if tiers else []
    if not found.all_plans_s:
        return ["How much faster plans of other schemes can be is not known."]
    words = f"{_every(answer)} is faster than {format_time(found.all_plans_s)}: {_saved(found.all_plans_gap)}"
    return [f"{words}{' (not tight yet)' if found.all_plans_gap > LOOSE else ''}."]


def _saved(gap: float) -> str:
    return f"at most {format_fraction(gap)} of the time can be saved"


def _every(answer: Planned) -> str:
    return f"No plan{answer.allowed or ' at all'}, whatever its row parts, column parts and hot rows,"


def progress_text(best_s: float, bound_s: float, spent_s: float, limit_s: float, columns: int | None) -> str:
    """One line while it searches."""
    gap = f", no listed plan is below {format_time(bound_s)}" if bound_s > 0 else ""
    text = f"best {format_time(best_s)}{gap}   {spent_s:.0f} s of at most {format_time(limit_s)}"
    return text[: (columns or len(text) + 1) - 1]
