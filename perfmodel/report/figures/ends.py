"""Labels at the ends of lines, moved up or down so that they do not overlap."""

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
    """The last point of a line, in the units of the axes, with its label."""

    text: str
    x: float
    y: float
    colour: str


def dodged(wanted: Sequence[float], gap: float, room: float) -> list[float]:
    """Places as near to ``wanted`` as possible, in the same order, ``gap`` apart, between 0 and ``room``.

    Limits: all far apart -> as wanted;  too many to fit -> evenly spaced
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
    """A y axis with its range and its length in pixels."""

    lowest: float
    highest: float
    pixels: float
    log: bool

    def of(self, value: float) -> float:
        """A value in plotly's units of this axis."""
        return math.log10(value) if self.log else value

    def pixel(self, value: float) -> float:
        """Pixels from the upper end of the axis to a value."""
        span = self.of(self.highest) - self.of(self.lowest)
        return self.pixels * (self.of(self.highest) - self.of(value)) / span


def end_labels(ends: Sequence[LabelledEnd], scale: PixelScale) -> list[dict[str, Any]]:
    """Labels right of the ends, each joined to its end by a short line; the x axis is logarithmic."""
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
