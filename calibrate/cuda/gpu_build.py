"""CUDA C++ to machine code of a GPU with NVRTC: needs neither a compiler nor a GPU."""

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
"""A100, H100 and H200, B200: what every kernel compiles for."""

INSTALL = "pip install 'cuda-bindings>=13' 'nvidia-cuda-nvrtc>=13'"
OPTIONS = ("--std=c++17", "--ptxas-options=-v", "-default-device")

_USAGE = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<spilled>\d+) bytes spill stores"
    r".*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True)
class Usage:
    """What one thread of a kernel takes: registers, and bytes that did not fit them."""

    registers: int
    spilled_bytes: int


@dataclass(frozen=True)
class Cubin:
    """Machine code of kernels of one source for one architecture.

    symbols  name of each kernel in the code;  usage  of each kernel
    """

    code: bytes
    symbols: Mapping[str, str]
    usage: Mapping[str, Usage]


def compile_cubin(kernels: Sequence[Kernel], architecture: str, options: Sequence[str] = ()) -> Cubin:
    """Machine code of ``kernels``, all of one source, from the cache or from NVRTC.

    Raises NoHardwareError without NVRTC, PerfmodelError with the compiler's words for code that is wrong.
    """
    nvrtc = _nvrtc()
    (source,) = {kernel.source for kernel in kernels}
    names = sorted(kernel.name for kernel in kernels)
    version = ".".join(map(str, _ok(nvrtc, nvrtc.nvrtcVersion())))
    parts = ["nvrtc", version, architecture, source, *OPTIONS, *options, *names]

    def make(path: Path) -> None:
        path.write_bytes(_compiled(nvrtc, source, names, [f"--gpu-architecture={architecture}", *options]))

    return _unpacked(cached(parts, ".cubin", make).read_bytes())


def _compiled(nvrtc: Any, source: str, names: Sequence[str], options: Sequence[str]) -> bytes:
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
    head = json.dumps({"symbols": symbols, "usage": _usage(log, symbols)}, sort_keys=True).encode()
    return head + b"\n" + code


def _unpacked(stored: bytes) -> Cubin:
    head, code = stored.split(b"\n", 1)
    about = json.loads(head)
    return Cubin(code, about["symbols"], {name: Usage(*used) for name, used in about["usage"].items()})


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
    """What a call of NVRTC gave: nothing, one value or several."""
    result, *values = answer
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise PerfmodelError(f"NVRTC says {result.name}.", "this is a defect: report it.")
    return values[0] if len(values) == 1 else values
