"""The folder of a run: its calibrations, its machine file, and what ``latest`` means."""

from __future__ import annotations

from pathlib import Path

from perfmodel.errors import NoCalibrationError
from perfmodel.schema.calibration import Calibration, read_calibration
from perfmodel.schema.home import LATEST, MACHINE_NAME, SAMPLES_NAME, latest_run

_SUFFIX = ".json"


def run_folder(text: str) -> Path | None:
    """The folder that ``latest``, the path of a run's folder, or that of its samples means; else None.

    Limits: ``latest`` without any run -> NoCalibrationError
    """
    if text == LATEST:
        return latest_run()
    path = Path(text)
    folder = path.parent if path.name == SAMPLES_NAME else path
    try:
        return folder if folder.is_dir() else None
    except (OSError, ValueError):
        return None


def calibrations_of(folder: Path) -> dict[Path, Calibration]:
    """Calibrations in the folder of a run by file, the preferred one first."""
    found = {path: read_calibration(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))}
    return dict(sorted(found.items(), key=lambda item: (not item[1].preferred, item[0].name)))


def calibration_in(folder: Path, backend: str | None = None, clock: str | None = None) -> Path:
    """The calibration of a run for a library and clock; the preferred one where nobody says.

    Limits: no calibration in the folder, or none of that library and clock -> NoCalibrationError
    """
    found = calibrations_of(folder)
    if not found:
        raise NoCalibrationError(
            f"run {folder.name} holds no calibration: no collective was measured to its end.",
            "perfmodel calibrate goes on where it stopped.",
        )
    for path, one in found.items():
        if backend in (None, str(one.backend)) and clock in (None, str(one.clock)):
            return path
    asked = " at clock ".join(part for part in (backend, clock) if part)
    there = ", ".join(f"--backend {one.backend} --clock {one.clock}" for one in found.values())
    raise NoCalibrationError(f"run {folder.name} has nothing of {asked}.", f"it has {there}.")


def machine_file_beside(calibration: str) -> Path | None:
    """The machine file in the folder of a calibration's file; None where there is none."""
    path = Path(calibration)
    try:
        beside = path.with_name(MACHINE_NAME)
        return beside if path.suffix == _SUFFIX and beside.is_file() else None
    except (OSError, ValueError):
        return None
