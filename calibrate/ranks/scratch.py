"""A folder for Open MPI's run-time files, which the next run removes if this one is killed.

Open MPI removes its shared memory and session folder when it ends well. The leader of a run holds the lock
of its folder; an unlocked folder belonged to a run that was killed, and the next run removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "perfmodel-mpi-"


class Scratch:
    """The folder for Open MPI's files of one run: in shared memory if possible, else a temporary folder."""

    def __init__(self, base: Path | None = None) -> None:
        folder = _base() if base is None else base
        remove_abandoned(folder)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
            self._lock = os.open(self.path, os.O_RDONLY)
            if _taken(self._lock) and self.path.exists():
                return
            os.close(self._lock)  # another start took it for an abandoned folder before it was locked

    def environment(self) -> dict[str, str]:
        """Variables that make Open MPI keep its shared memory and its session folder here."""
        return {
            "OMPI_MCA_btl_sm_backing_directory": str(self.path),
            "PRTE_MCA_prte_tmpdir_base": str(self.path),
            "PMIX_MCA_pmix_tmpdir_base": str(self.path),
        }

    def close(self) -> None:
        """Remove the folder. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_abandoned(base: Path) -> None:
    """Remove this user's folders in ``base`` whose runs have ended; others' and locked folders are kept."""
    for path in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # gone by now, or not ours to open
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if _taken(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _base() -> Path:
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
