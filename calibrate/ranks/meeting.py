"""Where the ranks of an mpirun meet: said in a file of the job on one node, through MPI across nodes.

MPI's own start-up waits for every rank, holds the interpreter meanwhile, and names nobody. The file lies in
the folder that Open MPI gives the job, which nobody else can read, and is gone as soon as all ranks have met.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_FILE = "perfmodel-meeting.json"
_PAUSE_S = 0.05


def job_folder(environ: Mapping[str, str]) -> Path | None:
    """The private folder of an Open MPI job. Limits: several nodes, another MPI, no such folder -> None"""
    size = environ.get("OMPI_COMM_WORLD_SIZE")
    folder = Path(environ.get("PMIX_SERVER_TMPDIR", ""))
    if not size or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") != size or not folder.is_absolute():
        return None
    try:
        seen = folder.stat()
    except OSError:
        return None
    return folder if seen.st_uid == os.getuid() and not seen.st_mode & 0o077 else None


def tell(folder: Path, meeting: Mapping[str, Any]) -> None:
    """Say where the ranks meet: the file is there whole or not at all."""
    new = folder / f"{_FILE}.new"
    new.write_text(json.dumps(meeting), encoding="ascii")
    new.replace(folder / _FILE)


def untell(folder: Path | None) -> None:
    """All have met, or nobody will: the next run of this job must not find this meeting."""
    if folder is not None:
        with contextlib.suppress(OSError):
            (folder / _FILE).unlink()


def hear(folder: Path, timeout_s: float, late_s: float, late: Callable[[], None]) -> dict[str, Any] | None:
    """Where the ranks meet; None where nobody says so within ``timeout_s``. ``late`` is called once."""
    began = time.monotonic()
    said = False
    while (waited_s := time.monotonic() - began) < timeout_s:
        with contextlib.suppress(OSError):
            found: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="ascii"))
            return found
        if not said and waited_s > late_s:
            said = True
            late()
        time.sleep(_PAUSE_S)
    return None
