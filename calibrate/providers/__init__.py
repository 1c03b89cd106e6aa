"""Libraries, kernels and whole passes that can be timed, by name; each is imported when it is asked for."""

from __future__ import annotations

import importlib

from calibrate.operations import Availability, Provider
from perfmodel.errors import BadInputError

COLLECTIVE_PROVIDERS = {
    "nccl": "calibrate.providers.nccl:Nccl",
    "nvshmem": "calibrate.providers.nvshmem:Nvshmem",
    "symmetric_memory": "calibrate.providers.symmetric_memory:SymmetricMemory",
    "mpi": "calibrate.providers.mpi:Mpi",
    "gloo": "calibrate.providers.gloo:Gloo",
    "shmem": "calibrate.providers.shmem:Shmem",
}
"""Libraries of collectives: the name is the backend of a point."""

PROVIDERS = {
    **COLLECTIVE_PROVIDERS,
    "torch": "calibrate.passes.kernels:TorchKernels:torch_availability",
    "fbgemm": "calibrate.passes.kernels_fbgemm:FbgemmKernels",
    "exchange": "calibrate.passes.exchange:Exchange",
    "torchrec": "calibrate.passes.torchrec_pass:TorchRec",
}
"""Every provider: module, class and, where it is not ``availability``, the function that says if it runs."""


def availability(name: str) -> Availability:
    """Whether a provider can run here, without starting it.

    Limits: unknown name -> BadInputError; a module that is missing or does not import -> not usable, with why
    """
    module, _, function = _place(name)
    try:
        answer: Availability = getattr(importlib.import_module(module), function)()
    except ImportError as error:
        return Availability(False, f"it cannot be imported ({error})")
    return answer


def load(name: str) -> Provider:
    """A provider that is not open yet."""
    module, kind, _ = _place(name)
    provider: Provider = getattr(importlib.import_module(module), kind)()
    return provider


def _place(name: str) -> tuple[str, str, str]:
    if name not in PROVIDERS:
        raise BadInputError(f"unknown provider {name!r}.", f"known: {', '.join(PROVIDERS)}.")
    module, kind, function = [*PROVIDERS[name].split(":"), "availability"][:3]
    return module, kind, function
