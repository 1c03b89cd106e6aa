"""``--effort`` of the commands that search for a plan."""

from __future__ import annotations

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.schema.files import unknown_name


def effort_of(name: str | None) -> float:
    """The counted work that ``--effort NAME`` allows a search [s]. Limits: unknown name -> BadInputError"""
    name = name or DEFAULT_EFFORT
    if name not in EFFORTS:
        raise unknown_name("--effort", name, EFFORTS)
    return EFFORTS[name]
