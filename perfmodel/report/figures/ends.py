"""Names of lines at their ends, moved up and down until none covers another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GAP = 18.0
"""Pixels from one label to the next."""
REACH = 16  # pixels from the end of a line to its label


@dataclass(frozen=True)
class LabelledEnd:
    """The end of a line: its last point, in the units of the axes."""

    text: str
    x: float
    y: float
    colour: str


def dodged(wanted: Sequence[float], gap: float, room: float) -> list[float]:
    """Places as near to ``wanted`` as may be, ``gap`` apart and in their order, between 0 and ``room``.

    Limits: all far apart -> as wanted;  more than fit -> evenly over the room
    """
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    if len(wanted) > 1:
        gap = min(gap, room / (len(wanted) - 1))
    groups: list[tuple[list[int], float]] = []  # members, place of the first
    for at in order:
        members, start = [at], _held(wanted[at], 0, room)
        while groups and groups[-1][1] + len(groups[-1][0]) * gap > start:
            members = [*groups.pop()[0], *members]
            middle = sum(wanted[m] - k * gap for k, m in enumerate(members)) / len(members)
            start = _held(middle, 0, room - (len(members) - 1) * gap)
        groups.append((members, start))
    places = [0.0] * len(wanted)
    for members, start in groups:
        for k, m in enumerate(members):
            places[m] = start + k * gap
    return places


def _held(value: float, low: float, high: float) -> float:
    return min(max(value, low), max(low, high))


@dataclass(frozen=True)
class PixelScale:
    """A y axis that is so many pixels long."""

    lowest: float
    highest: float
    pixels: float
    log: bool

    def of(self, value: float) -> float:
        """A value as plotly takes it on this axis."""
        return math.log10(value) if self.log else value

    def pixel(self, value: float) -> float:
        """Pixels below the upper end."""
        span = self.of(self.highest) - self.of(self.lowest)
        return self.pixels * (self.of(self.highest) - self.of(value)) / span


def end_labels(ends: Sequence[LabelledEnd], scale: PixelScale) -> list[dict[str, Any]]:
    """Annotations right of the ends, each with a short line to its own; the x axis is logarithmic."""
    wanted = [scale.pixel(end.y) for end in ends]
    places = dodged(wanted, GAP, scale.pixels)
    return [
        {
            "x": math.log10(end.x), "y": scale.of(end.y), "ax": REACH, "ay": round(place - own, 1),
            "xanchor": "left", "text": end.text, "name": end.text, "showarrow": True, "arrowhead": 0,
            "arrowwidth": 1.5, "arrowcolor": end.colour, "standoff": 2, "font": {"size": 12},
        }
        for end, own, place in zip(ends, wanted, places, strict=True)
    ]  # fmt: skip
