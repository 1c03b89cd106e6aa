"""``--effort`` and ``--time-limit`` of the commands that search for a plan."""

from __future__ import annotations

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_time


def effort_of(name: str | None) -> float:
    """The counted work that ``--effort NAME`` allows a search [s]. Limits: unknown name -> BadInputError"""
    name = name or DEFAULT_EFFORT
    if name not in EFFORTS:
        raise unknown_name("--effort", name, EFFORTS)
    return EFFORTS[name]


def limit_of(text: str | None) -> float | None:
    """The text of ``--time-limit`` as seconds; None without the option. Limits: 0 or less -> BadInputError"""
    return None if text is None else parse_time(text, "--time-limit")
