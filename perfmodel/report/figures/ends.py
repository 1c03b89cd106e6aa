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
    """The last point (x, y) of a line, in the units of the axes, with the label and colour of the line."""

    text: str
    x: float
    y: float
    colour: str


def dodged(wanted: Sequence[float], gap: float, room: float) -> list[float]:
    """Positions of labels: as near to ``wanted`` as possible, in the same order, but at least ``gap`` apart.

    room  the largest position; the smallest is 0
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
    """A y axis from ``lowest`` to ``highest``, ``pixels`` long; log  whether it is logarithmic."""

    lowest: float
    highest: float
    pixels: float
    log: bool

    def of(self, value: float) -> float:
        """The value as plotly stores it on this axis: its logarithm if the axis is logarithmic."""
        return math.log10(value) if self.log else value

    def pixel(self, value: float) -> float:
        """The distance of a value from the upper end of the axis [pixels]."""
        span = self.of(self.highest) - self.of(self.lowest)
        return self.pixels * (self.of(self.highest) - self.of(value)) / span


def end_labels(ends: Sequence[LabelledEnd], scale: PixelScale) -> list[dict[str, Any]]:
    """Plotly annotations: a label right of each line's end, joined to it; the x axis must be logarithmic."""
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
