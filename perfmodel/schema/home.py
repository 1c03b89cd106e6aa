"""Where the results of a user's own measurements are stored."""

from __future__ import annotations

import os
from pathlib import Path

LATEST = "latest"
"""Word for the newest run that holds a calibration."""

SAMPLES_NAME = "samples.jsonl"
MACHINE_NAME = "machine.toml"
"""File names in the folder of a run, besides its calibrations (``*.json``)."""

SAMPLES_SUFFIX = ".samples.csv"
"""Suffix of the samples' file beside a calibration: ``mine.json``, ``mine.samples.csv``."""

BROKEN = ".broken"
"""Part of the name of a folder that was put aside because its samples cannot be read."""

HOME_VARIABLE = "PERFMODEL_HOME"


def home_folder() -> Path:
    """``$PERFMODEL_HOME``, else the user's data folder of this system. It need not exist."""
    given = os.environ.get(HOME_VARIABLE, "").strip()
    if given:
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("perfmodel", appauthor=False))


def runs_folder() -> Path:
    """Default place of the folders of runs. It need not exist."""
    return home_folder() / "runs"


def runs_by_age(folder: Path | None = None) -> list[Path]:
    """Folders of runs below ``folder`` or ``runs_folder``, last written first.

    Limits: no run, or an unreadable folder -> empty; a run that was put aside -> left out; written at
    the same instant -> the last by name
    """
    root = folder or runs_folder()
    try:
        found = [
            (path.stat().st_mtime_ns, path.parent)
            for path in root.glob(f"*/{SAMPLES_NAME}")
            if BROKEN not in path.parent.name
        ]
    except OSError:
        found = []
    return [run for _, run in sorted(found, reverse=True)]
