"""The presets quick, standard and rigorous: density, sizes, precision and time."""

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

    relative        half-width of the 95 % interval at which a point ends, as a share of its time
    min_visits      least visits of every point;  most_visits  most visits
    point_s         most time for one point [s]
    total_s         time after which points with ``min_visits`` visits end without that precision [s]
    batch_s         intended time of the timed calls of one visit [s]
    most_bytes      largest payload
    clocks          ways of timing, used if the library offers them
    after_kernel_sizes  number of sizes for this variant
    """

    name: str
    relative: float
    min_visits: int
    point_s: float
    total_s: float | None
    most_bytes: Mapping[str, int]
    clocks: Mapping[str, tuple[Clock, ...]]
    after_kernel_sizes: int = 6
    batch_s: float = 0.015
    most_visits: int = 100

    @property
    def target(self) -> Target:
        """When a point ends: the precision to reach, and the most time."""
        return Target(self.relative, self.min_visits, self.point_s, self.most_visits, self.batch_s)


_EAGER = (Clock.EAGER,)

_PRESETS = (
    Preset(
        name="quick",
        relative=0.05,
        min_visits=3,
        point_s=2.0,
        total_s=45.0,
        most_bytes={"cpu": 8 * MIB, "cuda": 512 * MIB},
        clocks={"cpu": _EAGER, "cuda": (Clock.STREAM, Clock.GRAPH)},
        batch_s=0.010,
    ),
    Preset(
        name="standard",
        relative=0.02,
        min_visits=5,
        point_s=3.0,
        total_s=None,
        most_bytes={"cpu": 64 * MIB, "cuda": 4096 * MIB},
        clocks={"cpu": (Clock.EAGER, Clock.STREAM), "cuda": (Clock.STREAM, Clock.GRAPH, Clock.EAGER)},
    ),
    Preset(
        name="rigorous",
        relative=0.01,
        min_visits=7,
        point_s=15.0,
        total_s=None,
        most_bytes={"cpu": 256 * MIB, "cuda": 16384 * MIB},
        clocks={"cpu": (Clock.EAGER, Clock.STREAM), "cuda": tuple(Clock)},
        batch_s=0.020,
        most_visits=200,
    ),
)

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _PRESETS}


def find_preset(name: str) -> Preset:
    """The preset of that name. Limits: any other name -> BadInputError with the known ones."""
    if name not in PRESETS:
        raise unknown_name("preset", name, list(PRESETS))
    return PRESETS[name]
