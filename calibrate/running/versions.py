"""Versions of the libraries on this machine, determined in the same way every time.

The fingerprint of a run has the versions of all libraries, but a run loads only the libraries that it
measures. So versions are read without loading a library into this process: from package metadata, and for MPI
and NCCL without starting them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence

from calibrate.machine.node import said_by
from calibrate.operations import Place

_ASK_MPI = (
    "import mpi4py; mpi4py.rc.initialize = mpi4py.rc.finalize = False; "
    "from mpi4py import MPI; print(MPI.Get_library_version())"
)
_ASK_MPI_S = 30.0
PACKAGES = {
    "mpi4py": ("mpi4py",),
    "numpy": ("numpy",),
    "nvshmem": ("nvidia-nvshmem-cu13", "nvidia-nvshmem-cu12"),
    "nvshmem4py": ("nvshmem4py-cu13", "nvshmem4py-cu12"),
    "torch": ("torch",),
    "torchrec": ("torchrec",),
    "fbgemm": ("fbgemm-gpu-cpu", "fbgemm-gpu", "fbgemm-gpu-nightly"),
}
"""Distributions that may provide a library; the first that is installed counts."""

_OF_DEVICE = {"cpu": ("mpi4py", "numpy"), "cuda": ("nvshmem", "nvshmem4py")}
_ANYWHERE = ("torch", "torchrec", "fbgemm")
_PART_OF = {"cpu": {"shmem": "numpy", "gloo": "torch"}, "cuda": {"symmetric_memory": "torch"}}


def library_versions(place: Place) -> dict[str, str]:
    """Versions of the libraries that are installed for a rank's device, by name; none is opened.

    ``torch``, ``numpy``, ``torchrec``, ``fbgemm``, ``nvshmem``: of the package; ``mpi``, ``nccl``, ``rccl``:
    of the loaded library; ``gloo``, ``shmem``, ``symmetric_memory``: of the package that provides them.
    Limits: not installed -> left out; only the first rank of each node asks MPI
    """
    device = place.device
    found = {name: package_version(PACKAGES[name]) for name in (*_OF_DEVICE[device], *_ANYWHERE)}
    for name, package in _PART_OF[device].items():
        found[name] = f"{package} {found[package]}" if found[package] else ""
    if device == "cuda":
        found["rccl" if "rocm" in found["torch"] else "nccl"] = nccl_version()
    elif place.local_rank == 0:
        found["mpi"] = mpi_version()
    return {name: version for name, version in found.items() if version}


def package_version(names: Sequence[str]) -> str:
    """Version of the first of these packages that is installed; "" if none is."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def mpi_version() -> str:
    """Name and version of the MPI library behind mpi4py: ``Open MPI v5.0.11``, asked in a separate process.

    Limits: no mpi4py, or an MPI that does not load -> ""
    """
    if importlib.util.find_spec("mpi4py") is None:
        return ""
    text = said_by(sys.executable, "-c", _ASK_MPI, timeout_s=_ASK_MPI_S) or ""
    return text.split(",")[0].splitlines()[0].strip(" \x00") if text.strip() else ""


def nccl_version() -> str:
    """Version of the NCCL or RCCL that PyTorch loads: ``2.29.7``. Limits: PyTorch has neither -> empty"""
    import torch

    try:
        found = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError):
        return ""
    return ".".join(map(str, found))
