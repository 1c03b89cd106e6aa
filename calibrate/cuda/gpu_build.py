"""Compiles CUDA C++ to machine code of a GPU with NVRTC, without a compiler installation or a GPU."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.cuda.cache import Kernel, fetch_cached
from perfmodel.errors import NoHardwareError, PerfmodelError
from perfmodel.resources import kernels_path

ABOUT = ".json"
"""Suffix of the file that describes the code beside it."""

INSTALL = (
    "pip install 'cupy-cuda13x>=14,<15' 'cuda-core>=1.2,<2' 'cuda-bindings>=13,<14' "
    "'nvidia-cuda-nvrtc>=13,<14'"
)
OPTIONS = {"std": "c++17", "ptxas_options": "-v", "device_as_default_execution_space": True}
"""Options of ``cuda.core.ProgramOptions`` for every kernel."""

_USAGE = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<spilled>\d+) bytes spill stores"
    r".*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True)
class Usage:
    """Resources that one thread of a kernel takes: registers, and bytes of registers spilled to memory."""

    registers: int
    spilled_bytes: int


@dataclass(frozen=True)
class Cubin:
    """Machine code for one GPU architecture, of several kernels from one source.

    path     the file that holds it
    symbols  by the kernel's name as in C++: its name in the code;  usage  by that name: its resources
    """

    path: Path
    symbols: Mapping[str, str]
    usage: Mapping[str, Usage]

    @property
    def code(self) -> bytes:
        """The machine code, an ELF file."""
        return self.path.read_bytes()


def compile_cubin(kernels: Sequence[Kernel], architecture: str, headers: Sequence[Path] = ()) -> Cubin:
    """Machine code of ``kernels``, all of one source, from the cache or from NVRTC.

    architecture  such as sm_90
    headers       folders of a library's headers: the code is relocatable then, to be linked with the library
    Raises NoHardwareError without NVRTC, PerfmodelError with the compiler's message for invalid code.
    """
    version = _read_nvrtc_version()
    (source,) = {kernel.source for kernel in kernels}
    names = sorted(kernel.name for kernel in kernels)
    parts = ["nvrtc", version, architecture, source, repr(OPTIONS), *map(str, headers), *names]

    def make(path: Path) -> None:
        code, about = _compile(source, names, architecture, headers)
        path.write_bytes(code)
        text = json.dumps(about)  # symbols and usage, beside the code
        fetch_cached(parts, ABOUT, lambda other: other.write_text(text, encoding="utf-8"))

    path = fetch_cached(parts, ".cubin", make)  # calls ``make`` for code that is not in the cache
    if not path.with_suffix(ABOUT).is_file():  # cleared from the cache: both are made anew
        path.unlink(missing_ok=True)
        path = fetch_cached(parts, ".cubin", make)
    about = json.loads(path.with_suffix(ABOUT).read_text(encoding="utf-8"))
    return Cubin(path, about["symbols"], {name: Usage(*used) for name, used in about["usage"].items()})


def _compile(
    source: str, names: Sequence[str], architecture: str, headers: Sequence[Path]
) -> tuple[bytes, Any]:
    """(machine code, a dict with its source, and the symbols and resources of its kernels by name)."""
    from cuda.core import Program, ProgramOptions
    from cuda.core._utils.cuda_utils import CUDAError

    folders = [str(folder) for folder in (kernels_path(), *headers)]
    paths = {"include_path": folders, "relocatable_device_code": bool(headers) or None}
    log = io.StringIO()
    try:
        options = ProgramOptions(name=source, arch=architecture, **OPTIONS, **paths)
        program = Program(kernels_path(source).read_text(encoding="utf-8"), "c++", options)
        compiled = program.compile("cubin", names, logs=log)
    except CUDAError as error:
        raise PerfmodelError(
            f"kernels/{source} does not compile:\n{error}", "this is a defect: report it."
        ) from None
    symbols = {name: symbol.decode() for name, symbol in compiled.symbol_mapping.items()}
    by_symbol = {
        match["name"]: (int(match["registers"]), int(match["spilled"]))
        for match in _USAGE.finditer(log.getvalue())
    }
    usage = {name: by_symbol[symbol] for name, symbol in symbols.items() if symbol in by_symbol}
    return compiled.code, {"source": source, "symbols": symbols, "usage": usage}


def _read_nvrtc_version() -> str:
    try:
        import cuda.core  # noqa: F401 - compiles with it
        from cuda.bindings import nvrtc

        _, *version = nvrtc.nvrtcVersion()
        return ".".join(map(str, version))
    except (ImportError, RuntimeError) as error:
        raise NoHardwareError(f"the CUDA run-time compiler cannot be loaded: {error}.", INSTALL) from None
