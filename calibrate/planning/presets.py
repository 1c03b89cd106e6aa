"""The presets quick and standard: clocks, sizes, precision and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calibrate.running.stopping import Target
from perfmodel.schema.evidence import Clock
from perfmodel.schema.files import unknown_name

MIB = 2**20


@dataclass(frozen=True)
class Preset:
    """Points of a preset, their precision, and their time; mappings are by device (``cpu``, ``cuda``).

    target      when a point ends: the precision to reach, and the most time
    total_s     time after which points with the least visits end without that precision [s]; None: never
    most_bytes  largest payload
    clocks      ways of timing, used if the library offers them
    """

    name: str
    target: Target
    total_s: float | None
    most_bytes: Mapping[str, int]
    clocks: Mapping[str, tuple[Clock, ...]]


PRESETS = {
    "quick": Preset(
        name="quick",
        target=Target(relative=0.05, min_visits=3, max_time_s=2.0, batch_s=0.010),
        total_s=45.0,
        most_bytes={"cpu": 8 * MIB, "cuda": 512 * MIB},
        clocks={"cpu": (Clock.EAGER,), "cuda": (Clock.STREAM,)},
    ),
    "standard": Preset(
        name="standard",
        target=Target(relative=0.02, min_visits=5, max_time_s=3.0),
        total_s=None,
        most_bytes={"cpu": 64 * MIB, "cuda": 4096 * MIB},
        clocks={"cpu": (Clock.EAGER, Clock.STREAM), "cuda": (Clock.STREAM, Clock.EAGER)},
    ),
}


def find_preset(name: str) -> Preset:
    """The preset of that name. Limits: any other name -> BadInputError with the known ones."""
    if name not in PRESETS:
        raise unknown_name("preset", name, list(PRESETS))
    return PRESETS[name]
