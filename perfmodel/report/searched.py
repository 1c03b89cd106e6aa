"""How far a search for a mapping to cores came, and where a closed form is off, in words."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.onechip.answer import Outcome
from perfmodel.onechip.replay import Replayed
from perfmodel.units import format_fraction, format_time

_FAR = 0.1  # of the time of a batch
_LONGER = 10
_OFF = 0.25


def longer(answer: Outcome) -> str:
    """The option with which the search would be ``_LONGER`` times as long."""
    return f"--time-limit {max(1, round(_LONGER * answer.mapped.seconds))}s"


def short_of_time(answer: Outcome) -> str:
    """That time was up far from the bound, and what to do.

    Limits: ended by something else, or near the bound -> nothing;  no bound -> as if it were far
    """
    if answer.stopped != "time" or (answer.gap is not None and answer.gap <= _FAR):
        return ""
    return (
        f"Time was up after {format_time(answer.mapped.seconds)}, before the search was at an end: "
        f"{longer(answer)} may find a faster mapping."
    )


def owned_words(answer: Outcome) -> list[str]:
    """Why no mapping is simulated where cores own tables, or that another search may find another one."""
    late = answer.stopped == "time"
    if not answer.symmetric:
        took = format_time(answer.mapped.seconds)
        said = f"Cores own tables: as a search of {took} found it; {longer(answer)} may find a faster one."
        return [said] if late else []
    said = (
        f"Cores own tables: not simulated, as no such mapping was found that is faster than every core with "
        f"the best ways ({format_time(answer.owned_s)}, not {format_time(answer.best_symmetric.time_s)})."
    )
    return [f"{said} Time was up: {longer(answer)} may find one." if late else said]


def off_words(found: Sequence[Replayed]) -> list[str]:
    """What the closed form and the simulator disagree on by more than ``_OFF``, the largest error first."""
    off = sorted((one for one in found if abs(one.error) > _OFF), key=lambda one: -abs(one.error))
    if not off:
        return []
    names = ", ".join(f"{one.what} {one.way}".strip() for one in off)
    return [f"The closed form is off by more than {format_fraction(_OFF)}: go by the simulated {names}."]
