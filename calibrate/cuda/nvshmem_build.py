"""Builds kernels with NVSHMEM, without a compiler or a GPU: NVRTC, NVSHMEM's device library, nvJitLink.

The headers come with the wheels nvidia-nvshmem-cu13, nvidia-cuda-runtime and nvidia-cuda-cccl. Compiled code
(a cubin) has NVSHMEM's state in it, so it is registered with NVSHMEM (nvshmemx_cumodule_init) once it is
loaded, before its kernels run.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from calibrate.cuda import kernel_launch
from calibrate.cuda.cache import Kernel, fetch_cached
from calibrate.cuda.gpu_build import Cubin, compile_cubin
from calibrate.machine.libraries import find_version
from perfmodel.errors import NoHardwareError, PerfmodelError

INSTALL = (
    "pip install nvidia-nvshmem-cu13==3.4.5 nvshmem4py-cu13==0.4.1 'nvidia-cuda-cccl>=13,<14' "
    "'nvidia-cuda-runtime>=13,<14' 'nvidia-nvjitlink>=13,<14' 'cuda-core>=1.2,<2' 'cuda-bindings>=13,<14'"
)

_loaded: list[tuple[int, list[Kernel], Any]] = []


@dataclass(frozen=True)
class Wheels:
    """Files that a build needs, in one or several folders.

    host_library    NVSHMEM's library for programs on the host
    device_library  NVSHMEM's library to link with kernels
    includes        folders of the headers of NVSHMEM, of the CUDA runtime and of CCCL
    """

    host_library: Path
    device_library: Path
    includes: tuple[Path, ...]


_HOST_LIBRARY = "nvshmem/lib/libnvshmem_host.so.3"
_DEVICE_LIBRARY = "nvshmem/lib/libnvshmem_device.a"
_PARTS = {
    _HOST_LIBRARY: ("", "nvidia-nvshmem-cu13"),
    _DEVICE_LIBRARY: ("", "nvidia-nvshmem-cu13"),
    "nvshmem/include/nvshmem.h": ("nvshmem/include", "nvidia-nvshmem-cu13"),
    "cu13/include/cuda_runtime.h": ("cu13/include", "nvidia-cuda-runtime"),
    "cu13/include/cccl/cuda/std/type_traits": ("cu13/include/cccl", "nvidia-cuda-cccl"),
}
"""Files that identify a part, the folder of its headers, and the wheel that provides it."""


def find_wheels(folders: Sequence[str] | None = None) -> Wheels:
    """Locate the files that a build needs, each by itself, as wheels may be installed in several folders.

    folders  that may contain a folder ``nvidia`` (None: the folders that Python imports from)
    Limits: a missing part -> NoHardwareError that names it
    """
    places: dict[str, Path] = {}
    lacking = []
    for name, (_, wheel) in _PARTS.items():
        candidates = (Path(folder, "nvidia") for folder in (sys.path if folders is None else folders))
        place = next((place for place in candidates if (place / name).is_file()), None)
        if place is None:
            lacking.append(f"{name.rsplit('/', 1)[1]} ({wheel})")
        else:
            places[name] = place
    if lacking:
        raise NoHardwareError(
            f"NVSHMEM cannot be built with: {', '.join(lacking)} is in no folder that Python imports from.",
            INSTALL,
        )
    return Wheels(
        host_library=places[_HOST_LIBRARY] / _HOST_LIBRARY,
        device_library=places[_DEVICE_LIBRARY] / _DEVICE_LIBRARY,
        includes=tuple(places[name] / headers for name, (headers, _) in _PARTS.items() if headers),
    )


def build(kernels: Sequence[Kernel], architecture: str) -> Cubin:
    """Machine code of ``kernels``, all of one source, linked with NVSHMEM; from the cache or built.

    architecture  sm_80, sm_90, sm_100, ...: NVSHMEM's device library must support it
    Raises NoHardwareError if a wheel is missing, PerfmodelError if compiler or linker fail.
    """
    wheels = find_wheels()
    compiled = compile_cubin(kernels, architecture, wheels.includes)
    versions = [find_version((name,)) for name in ("nvidia-nvshmem-cu13", "nvidia-nvjitlink")]
    parts = ["nvshmem", *versions, architecture]
    parts.append(hashlib.sha256(compiled.code).hexdigest())

    def make(path: Path) -> None:
        path.write_bytes(_link(compiled.code, architecture, wheels.device_library))

    return Cubin(fetch_cached(parts, ".cubin", make), compiled.symbols, compiled.usage)


def load(kernels: Sequence[Kernel], device: Any) -> None:
    """Build kernels for this GPU, load them, and register them with NVSHMEM, which must be running."""
    import torch

    missing = [kernel for kernel in kernels if not kernel_launch.is_built(kernel, device)]
    if not missing:
        return
    major, minor = torch.cuda.get_device_capability(device)
    cubin = build(missing, f"sm_{major}{minor}")
    module = kernel_launch.load_gpu_functions(missing, device, cubin)
    result = load_host_library().cumodule_init(module)
    if result:
        raise PerfmodelError(
            f"NVSHMEM does not take its kernels (status {result}).",
            f"the wheel of NVSHMEM must be the one they were built with: {INSTALL}",
        )
    _loaded.append((module, missing, device))


def unload() -> None:
    """Unregister all kernels, before NVSHMEM ends; they cannot be launched any more."""
    for module, kernels, device in _loaded:
        load_host_library().cumodule_finalize(module)
        kernel_launch.forget(kernels, device)
    _loaded.clear()


@lru_cache
def load_host_library() -> Any:
    """NVSHMEM's functions for the host, as nvshmem4py binds them, of the wheel that kernels link with."""
    path = find_wheels().host_library
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        import nvshmem.bindings
    except (ImportError, OSError) as error:
        raise NoHardwareError(f"NVSHMEM cannot be loaded: {error}.", INSTALL) from None
    return nvshmem.bindings


def _link(code: bytes, architecture: str, library: Path) -> bytes:
    """Machine code of kernels, linked with NVSHMEM's device library. Limits: it fails -> PerfmodelError"""
    from cuda.bindings.nvjitlink import nvJitLinkError
    from cuda.core import Linker, LinkerOptions, ObjectCode

    if Linker.which_backend() != "nvJitLink":
        raise NoHardwareError("the CUDA linker nvJitLink cannot be loaded.", INSTALL)
    parts = ObjectCode.from_cubin(code, name="kernels"), ObjectCode.from_library(str(library))
    try:
        linked: bytes = Linker(*parts, options=LinkerOptions(arch=architecture)).link("cubin").code
    except nvJitLinkError as error:
        raise PerfmodelError(
            f"kernels do not link with {library.name} for {architecture}: {str(error)[-2000:]}",
            "NVSHMEM 3.4.5 has device code for sm_80, sm_90, sm_100 and sm_120.",
        ) from None
    return linked
