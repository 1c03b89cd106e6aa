"""Libraries for measuring: commands that install them.

Versions that work together: FBGEMM's kernels are built for one version of torch, so torch is installed first,
and the packages above it without their dependencies (which would bring another build of the same kernels).
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from calibrate.machine.local_gpus import find_gpus

_TORCH = "torch==2.13.0"
_ABOVE_TORCH = ("tensordict==0.15.3", "tqdm", "pyre-extensions", "lightning-utilities")


def install_torch() -> str:
    """The command for PyTorch. With GPUs it removes torch first, as pip would keep a build for CPUs."""
    return f"{_pip('uninstall -y torch')} && {_install(_TORCH)}" if find_gpus() else _install(_TORCH)


def install_nvshmem() -> str:
    """The command that installs NVSHMEM and its Python binding."""
    return _install("nvidia-nvshmem-cu13==3.4.5", "nvshmem4py-cu13==0.4.1")


def install_torchrec() -> str:
    """The command that installs TorchRec, FBGEMM and the torch that they are built for.

    It takes FBGEMM's build for GPUs if there is a GPU. The builds for CPUs and for GPUs share one folder:
    each replaces the other.
    """
    gpus = bool(find_gpus())
    alone = "--no-deps --force-reinstall" if gpus else "--no-deps"
    kernels = "fbgemm-gpu==1.8.0" if gpus else "fbgemm-gpu-cpu==1.8.0"
    lines = [
        _install(_TORCH),
        _install(alone, "torchrec==1.8.0", kernels, "torchmetrics==1.0.3"),
        _install(*_ABOVE_TORCH),
    ]
    return " && ".join([_pip("uninstall -y fbgemm-gpu-cpu"), *lines] if gpus else lines)


def _install(*words: str) -> str:
    return _pip(f"install {' '.join(words)}")


def _pip(words: str) -> str:
    """A call of this Python's pip, which may not be the pip on the path."""
    found = shutil.which("pip")
    own = found is not None and Path(found).parent == Path(sys.executable).parent
    return f"pip {words}" if own else f"{shlex.quote(sys.executable)} -m pip {words}"
