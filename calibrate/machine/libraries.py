"""Libraries for measuring: commands that install them, and their versions.

A run loads only what it measures, so versions are read from package metadata, and NCCL's without starting it.

Versions that work together: FBGEMM's kernels are built for one version of torch, so torch is installed first,
and the packages above it without their dependencies (which would bring another build of the same kernels).
"""

from __future__ import annotations

import importlib.metadata
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from calibrate.machine.node import find_gpus

PACKAGES = {
    "numpy": ("numpy",),
    "nvshmem": ("nvidia-nvshmem-cu13", "nvidia-nvshmem-cu12"),
    "nvshmem4py": ("nvshmem4py-cu13", "nvshmem4py-cu12"),
    "torch": ("torch",),
    "torchrec": ("torchrec",),
    "fbgemm": ("fbgemm-gpu-cpu", "fbgemm-gpu", "fbgemm-gpu-nightly"),
}
"""Distributions that may provide a library; the first that is installed counts."""

_TORCH = "torch==2.13.0"
_ABOVE_TORCH = "tensordict==0.15.3 tqdm pyre-extensions lightning-utilities"


def format_torch_command() -> str:
    """The command for PyTorch. With GPUs it removes torch first, as pip would keep a build for CPUs."""
    return _call_pip(*(["uninstall -y torch"] if find_gpus() else []), f"install {_TORCH}")


def format_nvshmem_command() -> str:
    """The command that installs NVSHMEM and its Python binding."""
    return _call_pip("install nvidia-nvshmem-cu13==3.4.5 nvshmem4py-cu13==0.4.1")


def format_torchrec_command() -> str:
    """The command that installs TorchRec, FBGEMM and the torch that they are built for.

    It takes FBGEMM's build for GPUs if there is a GPU. The builds for CPUs and for GPUs share one folder:
    each replaces the other.
    """
    gpus = bool(find_gpus())
    alone, kernels = (
        ("--no-deps --force-reinstall", "fbgemm-gpu") if gpus else ("--no-deps", "fbgemm-gpu-cpu")
    )
    lines = [
        f"install {_TORCH}",
        f"install {alone} torchrec==1.8.0 {kernels}==1.8.0 torchmetrics==1.0.3",
        f"install {_ABOVE_TORCH}",
    ]
    return _call_pip("uninstall -y fbgemm-gpu-cpu", *lines) if gpus else _call_pip(*lines)


def _call_pip(*lines: str) -> str:
    """Calls of this Python's pip, which may not be the pip on the path."""
    beside = Path(shutil.which("pip") or "").parent == Path(sys.executable).parent
    pip = "pip" if beside else f"{shlex.quote(sys.executable)} -m pip"
    return " && ".join(f"{pip} {words}" for words in lines)


def list_versions(device: str) -> dict[str, str]:
    """Versions of the libraries that are installed for ranks on ``device``, by name; none is opened.

    ``nccl``, ``rccl``: of the loaded library; ``gloo``: of the torch that provides it; all others: of the
    package. Limits: not installed -> left out
    """
    names = ("numpy",) if device == "cpu" else ("nvshmem", "nvshmem4py")
    versions = {name: find_version(PACKAGES[name]) for name in (*names, "torch", "torchrec", "fbgemm")}
    if device == "cuda":
        versions["rccl" if "rocm" in versions["torch"] else "nccl"] = read_nccl_version()
    elif versions["torch"]:
        versions["gloo"] = f"torch {versions['torch']}"
    return {name: version for name, version in versions.items() if version}


def find_version(names: Sequence[str]) -> str:
    """Version of the first of these packages that is installed; "" if none is."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def read_nccl_version() -> str:
    """Version of the NCCL or RCCL that PyTorch loads: ``2.29.7``. Limits: PyTorch has neither -> empty"""
    import torch

    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return ""
