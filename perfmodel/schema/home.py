"""Where the results of this user's own measurements lie."""

from __future__ import annotations

import os
from pathlib import Path

from perfmodel.errors import NoCalibrationError

LATEST = "latest"
"""What a user says for the newest run."""

SAMPLES_NAME = "samples.jsonl"
MACHINE_NAME = "machine.toml"
"""Names of the files in the folder of a run, beside its calibrations (``*.json``)."""

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


def latest_run(folder: Path | None = None) -> Path:
    """The folder of the run that was written to last, below ``folder`` or ``runs_folder``.

    Limits: no run -> NoCalibrationError; two written at the same instant -> the last by name
    """
    root = folder or runs_folder()
    try:
        runs = [(path.stat().st_mtime_ns, path.parent) for path in root.glob(f"*/{SAMPLES_NAME}")]
    except OSError:
        runs = []
    if not runs:
        raise NoCalibrationError(
            f"nothing was measured yet: no run in {root}.", "perfmodel calibrate --quick"
        )
    return max(runs)[1]
