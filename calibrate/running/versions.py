"""Versions of the libraries on this machine, determined in the same way every time.

The fingerprint of a run has the versions of all libraries, but a run loads only the libraries that it
measures. So versions are read without loading a library into this process: from package metadata, and for
NCCL without starting it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from calibrate.operations import Place

PACKAGES = {
    "numpy": ("numpy",),
    "nvshmem": ("nvidia-nvshmem-cu13", "nvidia-nvshmem-cu12"),
    "nvshmem4py": ("nvshmem4py-cu13", "nvshmem4py-cu12"),
    "torch": ("torch",),
    "torchrec": ("torchrec",),
    "fbgemm": ("fbgemm-gpu-cpu", "fbgemm-gpu", "fbgemm-gpu-nightly"),
}
"""Distributions that may provide a library; the first that is installed counts."""

_OF_DEVICE = {"cpu": ("numpy",), "cuda": ("nvshmem", "nvshmem4py")}
_ANYWHERE = ("torch", "torchrec", "fbgemm")


def library_versions(place: Place) -> dict[str, str]:
    """Versions of the libraries that are installed for a rank's device, by name; none is opened.

    ``torch``, ``numpy``, ``torchrec``, ``fbgemm``, ``nvshmem``: of the package; ``nccl``, ``rccl``: of the
    loaded library; ``gloo``: of the torch that provides it. Limits: not installed -> left out
    """
    device = place.device
    found = {name: package_version(PACKAGES[name]) for name in (*_OF_DEVICE[device], *_ANYWHERE)}
    if device == "cuda":
        found["rccl" if "rocm" in found["torch"] else "nccl"] = nccl_version()
    elif found["torch"]:
        found["gloo"] = f"torch {found['torch']}"
    return {name: version for name, version in found.items() if version}


def package_version(names: Sequence[str]) -> str:
    """Version of the first of these packages that is installed; "" if none is."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def nccl_version() -> str:
    """Version of the NCCL or RCCL that PyTorch loads: ``2.29.7``. Limits: PyTorch has neither -> empty"""
    import torch

    try:
        found = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError):
        return ""
    return ".".join(map(str, found))
