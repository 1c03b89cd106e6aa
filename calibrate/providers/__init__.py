"""Libraries, kernels and whole passes that can be timed, by name; each is imported on demand."""

from __future__ import annotations

import importlib

from calibrate.operations import Availability, Provider
from perfmodel.errors import BadInputError

COLLECTIVE_PROVIDERS = {
    "nccl": "calibrate.providers.torch_world:Nccl:describe_nccl",
    "rccl": "calibrate.providers.torch_world:Rccl:describe_rccl",
    "nvshmem": "calibrate.providers.nvshmem:Nvshmem",
    "gloo": "calibrate.providers.torch_world:Gloo:describe_gloo",
}
"""Libraries of collectives, by the backend of a point."""

PROVIDERS = {
    **COLLECTIVE_PROVIDERS,
    "torch": "calibrate.passes.torch_kernels:TorchKernels:torch_availability",
    "fbgemm": "calibrate.passes.fbgemm_kernels:FbgemmKernels",
    "perfmodel": "calibrate.passes.own_kernels:OwnKernels",
    "exchange": "calibrate.passes.exchange_pass:ExchangePass",
    "torchrec": "calibrate.passes.torchrec_pass:TorchRec",
    "one_sided": "calibrate.passes.one_sided_pass:OneSidedPass",
}
"""Every provider: module, class and, if it is not ``availability``, the function that checks it."""


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
