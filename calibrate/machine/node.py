"""Facts about a node: files of its kernel, output of programs, its GPUs.

GPUs are listed without a CUDA context: ``nvidia-smi`` comes with the driver; without it (AMD, some
containers) torch names the devices.
"""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, SubprocessError, check_output

ROOT = Path("/")  # holds proc and sys; functions take another ``root`` in tests


def read_fact(path: Path) -> str:
    """The content of a file, stripped. Limits: it cannot be read -> empty"""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def get_output(*command: str, timeout_s: float = 20.0, environ: Mapping[str, str] | None = None) -> str:
    """The output of a program. Limits: it is missing, fails, or takes longer -> empty"""
    try:
        output = check_output(command, timeout=timeout_s, stdin=DEVNULL, stderr=DEVNULL, env=environ)
        return output.decode(errors="replace")
    except (OSError, SubprocessError):
        return ""


_QUERY = ("--query-gpu=index,name,uuid,driver_version", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class LocalGpu:
    """A GPU as its driver describes it. Unreadable values are empty."""

    index: int
    name: str
    uuid: str = ""
    driver: str = ""


def find_gpus(environ: Mapping[str, str] | None = None) -> tuple[LocalGpu, ...]:
    """GPUs that a process started here would see, in its order.

    Limits: no driver, no GPU, CUDA_VISIBLE_DEVICES empty -> none
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return tuple(_list_by_torch())
    chosen = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    return select_visible(read_query(get_output(program, *_QUERY)), chosen)


def select_visible(gpus: Sequence[LocalGpu], chosen: str | None) -> tuple[LocalGpu, ...]:
    """GPUs that CUDA_VISIBLE_DEVICES selects: numbers, prefixes of a UUID, a MIG slice.

    Limits: not set -> all; as in CUDA, the first entry that names no GPU ends the list; a slice -> the first
    GPU, for its name and driver
    """
    if chosen is None:
        return tuple(gpus)
    if chosen.startswith("MIG-"):
        return tuple(gpus[:1])
    selected: list[LocalGpu] = []
    for word in (text.strip() for text in chosen.split(",")):
        by_uuid = word.startswith("GPU-")
        match = [gpu for gpu in gpus if (gpu.uuid.startswith(word) if by_uuid else str(gpu.index) == word)]
        if len(match) != 1:
            break
        selected += match
    return tuple(selected)


def read_query(text: str) -> list[LocalGpu]:
    """GPUs from the bare CSV of ``nvidia-smi --query-gpu``; lines without a GPU are left out."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [LocalGpu(int(cells[0]), *cells[1:]) for cells in rows if len(cells) == 4 and cells[0].isdigit()]


def _list_by_torch() -> list[LocalGpu]:
    """Names from torch, only if a device file indicates a GPU, because torch is slow to import."""
    if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd"))):  # of NVIDIA, of AMD
        return []
    try:
        from torch import cuda

        count = cuda.device_count()
        return [LocalGpu(index, cuda.get_device_properties(index).name) for index in range(count)]
    except (ImportError, OSError, RuntimeError, AssertionError):  # torch without CUDA asserts
        return []
