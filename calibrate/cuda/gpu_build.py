"""Compiles CUDA C++ to machine code of a GPU with NVRTC, without a compiler installation or a GPU."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.cuda.cache import cached
from calibrate.cuda.kernel import Kernel
from perfmodel.errors import NoHardwareError, PerfmodelError
from perfmodel.resources import kernels_path

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
"""A100, H100 and H200, B200: every kernel compiles for these."""

ABOUT = ".json"
"""Suffix of the file that describes the code beside it."""

INSTALL = "pip install 'cupy-cuda13x>=14,<15' 'cuda-bindings>=13,<14' 'nvidia-cuda-nvrtc>=13,<14'"
OPTIONS = ("--std=c++17", "--ptxas-options=-v", "-default-device")

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


def compile_cubin(kernels: Sequence[Kernel], architecture: str, options: Sequence[str] = ()) -> Cubin:
    """Machine code of ``kernels``, all of one source, from the cache or from NVRTC.

    architecture  such as sm_90;  options  further options of the compiler
    Raises NoHardwareError without NVRTC, PerfmodelError with the compiler's message for invalid code.
    """
    nvrtc = _nvrtc()
    (source,) = {kernel.source for kernel in kernels}
    names = sorted(kernel.name for kernel in kernels)
    version = ".".join(map(str, _ok(nvrtc, nvrtc.nvrtcVersion())))
    parts = ["nvrtc", version, architecture, source, *OPTIONS, *options, *names]

    def make(path: Path) -> None:
        code, about = _compiled(nvrtc, source, names, [f"--gpu-architecture={architecture}", *options])
        path.write_bytes(code)
        cached(parts, ABOUT, lambda other: _write(other, about))

    path = cached(parts, ".cubin", make)
    if not path.with_suffix(ABOUT).is_file():
        path.unlink(missing_ok=True)
        path = cached(parts, ".cubin", make)
    about = json.loads(path.with_suffix(ABOUT).read_text(encoding="utf-8"))
    return Cubin(path, about["symbols"], {name: Usage(*used) for name, used in about["usage"].items()})


def _compiled(nvrtc: Any, source: str, names: Sequence[str], options: Sequence[str]) -> tuple[bytes, Any]:
    """(machine code, a dict with its source, and the symbols and resources of its kernels by name)."""
    text = kernels_path(source).read_bytes()
    program = _ok(nvrtc, nvrtc.nvrtcCreateProgram(text, source.encode(), 0, [], []))
    try:
        for name in names:
            _ok(nvrtc, nvrtc.nvrtcAddNameExpression(program, name.encode()))
        every = [*OPTIONS, f"--include-path={kernels_path()}", *options]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(every), [option.encode() for option in every])
        log = _text(nvrtc, program)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise PerfmodelError(f"kernels/{source} does not compile:\n{log}", "this is a defect: report it.")
        symbols = {
            name: _ok(nvrtc, nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names
        }
        code: bytes = b" " * _ok(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        _ok(nvrtc, nvrtc.nvrtcGetCUBIN(program, code))
    finally:
        _ok(nvrtc, nvrtc.nvrtcDestroyProgram(program))
    return code, {"source": source, "symbols": symbols, "usage": _usage(log, symbols)}


def _write(path: Path, about: Any) -> None:
    path.write_text(json.dumps(about, sort_keys=True), encoding="utf-8")


def _usage(log: str, symbols: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    seen = {match["name"]: (int(match["registers"]), int(match["spilled"])) for match in _USAGE.finditer(log)}
    return {name: seen[symbol] for name, symbol in symbols.items() if symbol in seen}


def _text(nvrtc: Any, program: Any) -> str:
    log: bytes = b" " * _ok(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
    _ok(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
    return log.decode(errors="replace").rstrip("\0 \n")


def _nvrtc() -> Any:
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        raise NoHardwareError("the CUDA run-time compiler is not installed.", INSTALL)
    from cuda.bindings import nvrtc

    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise NoHardwareError(f"the CUDA run-time compiler cannot be loaded: {error}.", INSTALL) from None
    return nvrtc


def _ok(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    """The result of a call of NVRTC, whose status ``answer`` has first: nothing, one value or several."""
    result, *values = answer
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise PerfmodelError(f"NVRTC says {result.name}.", "this is a defect: report it.")
    return values[0] if len(values) == 1 else values
