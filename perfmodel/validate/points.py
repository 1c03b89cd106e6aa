"""What a calibration was fitted to: its run, and which points of it."""

from __future__ import annotations

from pathlib import Path

from perfmodel.schema.calibration import Calibration
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.schema.runs import Point, PointKind


def run_of(name: str | Path) -> Path | None:
    """The folder of the run that a calibration's file belongs to; None if it belongs to no run."""
    path = Path(name)
    return path.parent if path.suffix == ".json" and (path.parent / SAMPLES_NAME).is_file() else None


def is_behind(point: Point, item: Calibration) -> bool:
    """Whether a measured point was used for this calibration: same library and clock, or a kernel."""
    return point.kind is PointKind.KERNEL or (point.backend, point.clock) == (str(item.backend), item.clock)
