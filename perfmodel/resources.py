"""The data files and CUDA sources that are shipped with the program, and the memory limits of this process.

Shipped files lie inside the installed package, or next to it in a source checkout.
"""

from __future__ import annotations

import errno
import math
from importlib import resources
from pathlib import Path

from perfmodel.errors import NoHardwareError, PerfmodelError
from perfmodel.units import format_bytes

DEFAULT_MACHINE = "h100-sxm-ib"
"""The machine that is used where the user names none: the paper's."""

_PACKAGE = "perfmodel"
_NO_ROOM = ("annot allocate memory", "an't allocate memory", "failed to map segment", "an't start new thread")
"""How libraries say that the system gave them no memory; errors about GPU memory are other errors."""


def data_path(*parts: str) -> Path:
    """Path of a shipped data file or folder; it need not exist.

    A wheel installs the folder ``data/`` as ``perfmodel/data``; in a source checkout it lies next to
    ``perfmodel``.
    """
    return _folder("data").joinpath(*parts)


def kernels_path(*parts: str) -> Path:
    """Path of a shipped CUDA source, as ``data_path`` gives the path of data."""
    return _folder("kernels").joinpath(*parts)


def data_names(folder: str, suffix: str) -> list[str]:
    """Sorted file names without ``suffix`` (``.toml``) of the shipped data folder ``folder``."""
    return sorted(path.name.removesuffix(suffix) for path in data_path(folder).glob(f"*{suffix}"))


def _folder(name: str) -> Path:
    """The shipped folder of this name: inside the package, or beside it. Limits: neither -> PerfmodelError"""
    package = Path(str(resources.files(_PACKAGE)))
    beside = [package.parent] if (package.parent / "pyproject.toml").is_file() else []
    for folder in (package, *beside):
        if (folder / name).is_dir():
            return folder / name
    raise PerfmodelError(
        f"the shipped folder {name!r} is missing: this installation of {_PACKAGE} is incomplete.",
        "install it again from a wheel or a source checkout.",
    )


def address_space_bytes() -> float:
    """This process's limit on its address space (``ulimit -v``) [byte]. Limits: none, or no Unix -> inf"""
    try:
        import resource
    except ImportError:  # not a Unix
        return float("inf")
    limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    return float("inf") if limit_bytes == resource.RLIM_INFINITY else float(limit_bytes)


def out_of_memory(error: BaseException) -> NoHardwareError | None:
    """If ``error`` means that memory ran out, an error that names the reached limit; else None."""
    text = " ".join(str(error).split())
    limit_bytes = address_space_bytes()
    no_room = isinstance(error, OSError) and error.errno == errno.ENOMEM
    # C code that gets no memory, not even for an exception, where there is a limit to reach
    no_room |= isinstance(error, SystemError) and math.isfinite(limit_bytes)
    if not (no_room or isinstance(error, MemoryError) or any(words in text for words in _NO_ROOM)):
        return None
    words = f"memory ran out{f' ({text})' if text else ''}"
    step = "end other programs"
    if math.isfinite(limit_bytes):
        words += f": this process is limited to {format_bytes(limit_bytes)} of addresses (ulimit -v)"
        step = "allow it more (ulimit -v unlimited)"
    return NoHardwareError(f"{words}.", f"{step}, or ask for less.")
