"""Collectives of RCCL on AMD GPUs: a PyTorch built for ROCm provides it under NCCL's name."""

from __future__ import annotations

from calibrate.machine.local_gpus import find_gpus
from calibrate.operations import Availability
from calibrate.providers.device_collectives import CLOCKS, torch_version
from calibrate.providers.nccl import Nccl
from perfmodel.schema.evidence import COLLECTIVES

_INSTALL = "pip install torch --index-url https://download.pytorch.org/whl/rocm6.4"


def availability() -> Availability:
    """Whether PyTorch for ROCm and a GPU are here. Limits: a PyTorch for CUDA or CPUs -> not usable"""
    version = torch_version()
    if "rocm" not in version:
        built = f"torch {version} is not built for ROCm" if version else "torch is not installed"
        return Availability(False, f"{built}, and RCCL comes with that build", _INSTALL)
    if not find_gpus():
        return Availability(False, "there is no GPU of AMD here")
    return Availability(True, version=f"torch {version}", clocks=CLOCKS, operations=COLLECTIVES)


class Rccl(Nccl):
    """Collectives of torch.distributed on tensors of a ROCm build: torch's backend ``nccl`` is RCCL there."""

    name = "rccl"
