"""Libraries, kernels and whole passes that can be timed, by name; each is imported on demand."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

from calibrate.cuda.cache import read_sources
from calibrate.cuda.gpu_build import INSTALL
from calibrate.machine.libraries import (
    PACKAGES,
    find_version,
    format_nvshmem_command,
    format_torch_command,
    format_torchrec_command,
)
from calibrate.machine.node import find_gpus
from calibrate.operations import Availability, Provider
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.runs import KERNELS

CLOCKS = (Clock.EAGER, Clock.STREAM)
_CPU = ("cpu",)
_GPU = ("cuda",)
_BOTH = (*_CPU, *_GPU)
_INSTALL_ROCM = "pip install torch --index-url https://download.pytorch.org/whl/rocm6.4"


@dataclass(frozen=True)
class Offer:
    """What a provider times, and what it needs.

    place     its module and class
    devices   kinds of ranks that it works for
    needs     modules that must be installed;  install  function that gives the command for the last of them
    names     libraries whose versions are its version
    """

    place: str
    operations: tuple[str, ...]
    clocks: tuple[Clock, ...] = CLOCKS
    devices: tuple[str, ...] = _BOTH
    needs: tuple[str, ...] = ("torch",)
    install: Callable[[], str] = format_torch_command
    names: tuple[str, ...] = ("torch",)


_PASS = ("row_wise",)
_EAGER = (Clock.EAGER,)
_TORCHREC = "torchrec", "fbgemm_gpu", "torch", "torchmetrics", "tensordict"
_CUPY = "cuda", "cuda.core", "cupy"
_NVSHMEM = "nvshmem", "nvshmem4py"
COLLECTIVE_PROVIDERS = {
    "nccl": Offer("providers.torch_world:Nccl", COLLECTIVES, devices=_GPU),
    "rccl": Offer("providers.torch_world:Rccl", COLLECTIVES, devices=_GPU),
    "nvshmem": Offer(
        "providers.nvshmem:Nvshmem", COLLECTIVES, CLOCKS, _GPU, ("torch", "nvshmem"),
        format_nvshmem_command, _NVSHMEM,
    ),
    "gloo": Offer("providers.torch_world:Gloo", COLLECTIVES, devices=_CPU),
}  # fmt: skip
"""Libraries of collectives, by the backend of a point."""

PROVIDERS = {
    **COLLECTIVE_PROVIDERS,
    "torch": Offer("passes.torch_kernels:TorchKernels", KERNELS),
    "fbgemm": Offer(
        "passes.fbgemm_kernels:FbgemmKernels", ("gather_pool",), CLOCKS, _BOTH, ("fbgemm_gpu",),
        format_torchrec_command, ("fbgemm",),
    ),
    "perfmodel": Offer(
        "passes.own_kernels:OwnKernels", ("gather_pool",), CLOCKS, _GPU, ("torch", *_CUPY), lambda: INSTALL
    ),
    "exchange": Offer("passes.exchange_pass:ExchangePass", _PASS, _EAGER),
    "torchrec": Offer(
        "passes.torchrec_pass:TorchRec", _PASS, _EAGER, _BOTH, _TORCHREC, format_torchrec_command,
        ("torchrec",),
    ),
    "one_sided": Offer("passes.one_sided_pass:OneSidedPass", ("three", "fused")),
}  # fmt: skip
"""Every provider."""


def describe(name: str) -> Availability:
    """Whether a provider can run here, without starting it.

    Limits: unknown name -> BadInputError; a GPU, a module or a compiler is missing -> not usable, with reason
    """
    offer = _find(name)
    gpus = bool(find_gpus())
    if name == "one_sided":
        changes = {"devices": _GPU, "needs": ("torch", *_CUPY, "nvshmem"), "install": format_nvshmem_command}
        offer = replace(offer, **changes) if gpus else replace(offer, devices=_CPU)  # type: ignore[arg-type]
    if name != "rccl" and offer.devices == _GPU and not gpus:  # then no installation would help
        return Availability(False, "there is no NVIDIA GPU here")
    for module in offer.needs:
        if importlib.util.find_spec(module) is None:
            install = format_torch_command() if module == "torch" else offer.install()
            install = INSTALL if module in _CUPY else install
            return Availability(False, f"{module} is not installed", install)
    why = install = ""
    if name in ("rccl", "one_sided") or offer.devices == _GPU:
        why, install = _explain_build(name, gpus)
    if why:
        return Availability(False, why, install)
    devices = offer.devices
    if "fbgemm_gpu" in offer.needs and find_version(("fbgemm-gpu-cpu",)):  # a build for CPUs alone
        devices = _CPU
        install = format_torchrec_command()
    versions = [f"{name} {find_version(PACKAGES[name]) or 'unknown'}" for name in offer.names]
    if name == "perfmodel":
        versions = [f"perfmodel {hash_kernels()}"]
    return Availability(True, "", install, ", ".join(versions), offer.clocks, offer.operations, "", devices)


def hash_kernels() -> str:
    """A version of our kernels, which changes whenever their source does."""
    return hashlib.sha256(read_sources()).hexdigest()[:12]


def load(name: str) -> Provider:
    """A provider, not yet open."""
    module, _, kind = _find(name).place.partition(":")
    provider: Provider = getattr(importlib.import_module(f"calibrate.{module}"), kind)()
    return provider


def _find(name: str) -> Offer:
    """What a provider offers. Limits: an unknown name -> BadInputError"""
    if name not in PROVIDERS:
        raise BadInputError(f"unknown provider {name!r}.", f"known: {', '.join(PROVIDERS)}.")
    return PROVIDERS[name]


def _explain_build(name: str, gpus: bool) -> tuple[str, str]:
    """(why the torch or the compiler here is of no use, command for another one); ("", "") if it is."""
    version = find_version(PACKAGES["torch"])
    if name == "one_sided" and not gpus:  # ranks on CPUs that write into each other's memory
        if shutil.which("g++") is None:
            return "g++, which builds the kernels, is not installed", "apt install g++"
        if not hasattr(os, "memfd_create") or platform.machine() not in ("x86_64", "AMD64"):
            return "ranks on CPUs share memory on Linux and x86-64 only", ""
        return "", ""
    if name == "rccl":
        if "rocm" not in version:
            return f"torch {version} is not built for ROCm, and RCCL comes with that build", _INSTALL_ROCM
        return ("" if gpus else "there is no GPU of AMD here"), ""
    if version.endswith("+cpu"):
        return f"torch {version} is built without CUDA", format_torch_command()
    return (f"torch {version} is built for ROCm: use rccl" if "rocm" in version else ""), ""
