"""Text of the bound: how much faster than the best plan any plan could be, and which plans it covers."""

from __future__ import annotations

from perfmodel.plan.outcome import Planned
from perfmodel.plan.searching.found import Found
from perfmodel.units import format_fraction, format_time

STOPPED = {
    "bound": "less than 1 % was enough",
    "no improvement": "nothing better was found",
    "effort": "the effort was spent",
    "time-limit": "--time-limit cut it short",
    "interrupt": "it was stopped",
}
"""Why a search ended, in words."""


def bound_words(answer: Planned) -> str:
    """A sentence: no plan is faster than the bound, so at most this share of the time can be saved.

    The bound covers only some schemes; ``listed_fact`` lists them.
    Limits: a bound far below the plan -> ""
    """
    found = answer.found
    if answer.given:
        return "This plan was given. Without --plan, a search looks for a faster one."
    if not answer.bounded:
        return ""
    which = f"No {answer.bound_over.replace('plans', 'plan', 1)}"
    words = f"{which} is faster than {format_time(found.bound_s)}: "
    return f"{words}at most {format_fraction(found.gap)} of the time can be saved ({STOPPED[found.stopped]})."


def cut_words(found: Found) -> str:
    """What cut the search short, and how much was done; "" if nothing did."""
    what = {"time-limit": "--time-limit", "interrupt": "Ctrl-C"}.get(found.stopped)
    if what is None:
        return ""
    done = format_fraction(found.done)
    return f"stopped by {what} after {done} of the work: another run may find another plan"


def listed_fact(answer: Planned) -> tuple[str, str]:
    """A label and the schemes that the printed bound covers; both "" without one."""
    if not answer.bounded:
        return "", ""
    if answer.found.restricted:
        return "Shardings", f"TorchRec's: {answer.listed_schemes}"
    return "Listed", answer.listed_schemes


def listed_words(answer: Planned) -> str:
    """The schemes that the bound covers, as a sentence."""
    name, schemes = listed_fact(answer)
    return f"{name}: {schemes}." if schemes else ""
