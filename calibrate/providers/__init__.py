"""Libraries, kernels and whole passes that can be timed, by name; each is imported on demand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from calibrate.cuda.gpu_build import INSTALL
from calibrate.machine.libraries import (
    import_troubles,
    install_nvshmem,
    install_torch,
    install_torchrec,
)
from calibrate.operations import Availability, Provider
from perfmodel.errors import BadInputError

COLLECTIVE_PROVIDERS = {
    "nccl": "calibrate.providers.nccl:Nccl",
    "rccl": "calibrate.providers.rccl:Rccl",
    "nvshmem": "calibrate.providers.nvshmem:Nvshmem",
    "gloo": "calibrate.providers.gloo:Gloo",
}
"""Libraries of collectives, by the backend of a point."""

PROVIDERS = {
    **COLLECTIVE_PROVIDERS,
    "torch": "calibrate.passes.torch_kernels:TorchKernels:torch_availability",
    "fbgemm": "calibrate.passes.fbgemm_kernels:FbgemmKernels",
    "perfmodel": "calibrate.passes.own_kernels:OwnKernels",
    "exchange": "calibrate.passes.exchange_pass:ExchangePass",
    "torchrec": "calibrate.passes.torchrec_pass:TorchRec",
}
"""Every provider: module, class and, if it is not ``availability``, the function that checks it."""

_KERNELS = "import torch, cupy, cuda.core; from cuda.bindings import nvrtc; nvrtc.nvrtcVersion()"
_TORCH = ("import torch", install_torch)
IMPORTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    **dict.fromkeys(("nccl", "rccl", "gloo", "torch", "exchange"), _TORCH),
    "nvshmem": ("import torch, nvshmem.core", install_nvshmem),
    "fbgemm": ("import torch, fbgemm_gpu", install_torchrec),
    "torchrec": ("import torchrec", install_torchrec),
    "perfmodel": (_KERNELS, lambda: INSTALL),
}
"""Imports of a provider when it opens, and the command that installs them."""


def availability(name: str) -> Availability:
    """Whether a provider can run here, without starting it.

    Limits: unknown name -> BadInputError; a missing module, or a failing import -> not usable, with reason
    """
    module, _, function = _place(name)
    try:
        answer: Availability = getattr(importlib.import_module(module), function)()
    except ImportError as error:
        return Availability(False, f"it cannot be imported ({error})")
    return answer


def proven(found: Mapping[str, Availability]) -> dict[str, Availability]:
    """``found``, with providers that cannot be imported marked as not usable; takes seconds."""
    tried = {name: IMPORTS[name] for name, one in found.items() if one.usable}
    troubles = import_troubles([statement for statement, _ in tried.values()])
    kept = dict(found)
    for name, (statement, install) in tried.items():
        if troubles.get(statement):
            kept[name] = replace(found[name], usable=False, why_not=troubles[statement], install=install())
    return kept


def load(name: str) -> Provider:
    """A provider, not yet open."""
    module, kind, _ = _place(name)
    provider: Provider = getattr(importlib.import_module(module), kind)()
    return provider


def _place(name: str) -> tuple[str, str, str]:
    if name not in PROVIDERS:
        raise BadInputError(f"unknown provider {name!r}.", f"known: {', '.join(PROVIDERS)}.")
    module, kind, function = [*PROVIDERS[name].split(":"), "availability"][:3]
    return module, kind, function
