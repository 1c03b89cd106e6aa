"""Kernels, and their compiled code on disk: a file per source, target and compiler, written atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfmodel.errors import BadInputError
from perfmodel.resources import kernels_path
from perfmodel.schema.files import home_folder

FOLDER = "kernels"
"""Name of the folder of compiled kernels in the user's home folder of perfmodel."""

SYMBOL_ENTRY = "pm_entry_"


@dataclass(frozen=True, order=True)
class Kernel:
    """One ``__global__`` function of one source.

    source  name of the file in ``kernels/``;  name  as C++ writes it: ``pm::gather_pool<float, int, 8>``
    sm_shared_bytes  shared memory that all its blocks on one multiprocessor need together [bytes]; the GPU is
            asked to take it from the memory that it shares with the L1 cache. 0: no request
    """

    source: str
    name: str
    sm_shared_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"


def read_sources() -> bytes:
    """The sources of all kernels, concatenated: a change in any of them makes all be compiled again."""
    files = [path for path in sorted(kernels_path().iterdir()) if path.suffix in (".cu", ".cuh", ".hpp")]
    return b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)


def fetch_cached(parts: Sequence[str], suffix: str, make: Callable[[Path], object]) -> Path:
    """The cached file whose name is a hash of the kernels' sources and ``parts`` (target, options, names).

    suffix  end of the file's name
    make    function that writes the file to the path it is given; called if there is none yet
    Raises BadInputError if the folder cannot be written.
    """
    digest = hashlib.sha256(read_sources() + "\0".join(parts).encode()).hexdigest()[:32]
    folder = home_folder() / FOLDER
    path = folder / f"{digest}{suffix}"
    if path.is_file():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=suffix, dir=folder)
        os.close(handle)
    except OSError as error:
        raise BadInputError(
            f"compiled kernels cannot be kept in {folder}: {error.strerror}.",
            "set PERFMODEL_HOME to a folder that can be written.",
        ) from None
    try:
        make(Path(name))
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    return path
