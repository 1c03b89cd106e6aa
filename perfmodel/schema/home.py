"""Where the results of this user's own measurements lie."""

from __future__ import annotations

import os
from pathlib import Path

LATEST = "latest"
"""What a user says for the newest run that holds a calibration."""

SAMPLES_NAME = "samples.jsonl"
MACHINE_NAME = "machine.toml"
"""Names of the files in the folder of a run, beside its calibrations (``*.json``)."""

SAMPLES_SUFFIX = ".samples.csv"
"""What the file of the samples is called beside a calibration: ``mine.json``, ``mine.samples.csv``."""

BROKEN = ".broken"
"""In the name of a folder that was put away because its samples cannot be read."""

HOME_VARIABLE = "PERFMODEL_HOME"


def home_folder() -> Path:
    """``$PERFMODEL_HOME``, else the user's data folder of this system. It need not exist."""
    given = os.environ.get(HOME_VARIABLE, "").strip()
    if given:
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("perfmodel", appauthor=False))


def runs_folder() -> Path:
    """Where the folders of runs lie, unless the user names another place. It need not exist."""
    return home_folder() / "runs"


def runs_by_age(folder: Path | None = None) -> list[Path]:
    """Folders of runs below ``folder`` or ``runs_folder``, the one that was written to last first.

    Limits: no run, or a folder that cannot be read -> empty; a run that was put away -> left out; written at
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
