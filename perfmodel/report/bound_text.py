"""Text of the bound: how much faster than the best plan any plan could be, and which plans it covers."""

from __future__ import annotations

from perfmodel.plan.outcome import Planned
from perfmodel.plan.searching.found import Found
from perfmodel.report.terminal import unbroken
from perfmodel.units import format_fraction, format_time

STOPPED = {
    "bound": "less than 1 % was enough",
    "no improvement": "nothing better was found",
    "effort": "the effort was spent",
    "time-limit": "--time-limit cut it short",
    "interrupt": "it was stopped",
}
"""Why a search ended, in words."""


LOOSE = 0.5
"""Share of a plan's time: if more could be saved, the bound is called loose."""


def bound_words(answer: Planned) -> str:
    """A sentence: no plan is faster than the bound, so at most this share of the time can be saved.

    The bound covers only some schemes; ``listed_fact`` lists them.
    """
    found = answer.found
    if answer.given:
        return "This plan was given. Without --plan, a search shows how much faster a plan can be."
    stopped = STOPPED[found.stopped]
    if not found.bound_s:
        return f"How much faster a plan can be is not known ({stopped})."
    which = f"No {answer.bound_over.replace('plans', 'plan', 1)}"
    words = f"{which} is faster than {format_time(found.bound_s)}: "
    words += f"at most {format_fraction(found.gap)} of the time can be saved ({stopped})."
    if found.gap > LOOSE:
        words += f" This bound is not tight yet: less may be possible.{more_effort_words(found)}"
    return words


def cut_words(found: Found) -> str:
    """That --time-limit cut the search short, and how much was done; "" otherwise."""
    if found.stopped != "time-limit":
        return ""
    done = format_fraction(found.done)
    return f"stopped by --time-limit after {done} of the work: another run may find another plan"


def listed_fact(answer: Planned) -> tuple[str, str]:
    """A label and the schemes that plans could use where the bound was computed; both "" without a bound."""
    if answer.given or not answer.found.bound_s:
        return "", ""
    if answer.found.restricted:
        return "Shardings", f"TorchRec's: {answer.listed_schemes}"
    return "Listed", answer.listed_schemes


def listed_words(answer: Planned) -> str:
    """The schemes that the bound covers, as a sentence."""
    name, schemes = listed_fact(answer)
    return f"{name}: {schemes}." if schemes else ""


def more_effort_words(found: Found) -> str:
    """The advice to search longer, if the effort ended the search."""
    more = unbroken("--effort thorough")
    return f" More work may raise it: {more}." if found.stopped == "effort" else ""


def progress_words(best_s: float, bound_s: float) -> str:
    """How far a search is: the time of the best plan, and the lower bound."""
    gap = f", no listed plan is below {format_time(bound_s)}" if bound_s > 0 else ""
    return f"best {format_time(best_s)}{gap}"
