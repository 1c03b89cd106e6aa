"""The GPUs of this machine, read without a CUDA context.

``nvidia-smi`` comes with the driver and is tried first; if it is missing (some containers), the Python
binding of NVML; if that is missing too, torch, which only names the devices.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibrate.machine.node import said_by

_OLD_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
"""Names of fields in drivers before 535."""

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons for a GPU that is slower than it should be."""

LIMITS = {
    0x02: "clocks set",
    0x04: "power cap",
    0x10: "sync boost",
    0x100: "display clock",
}
"""Bits for normal limits of a clock: a GPU at work is often at its power cap, if capped always.

Bit 1, an idle GPU, says nothing about a batch."""


@dataclass(frozen=True)
class LocalGpu:
    """A GPU as its driver describes it. Unreadable values are None or empty.

    mig  whether it is divided into slices"""

    index: int
    name: str
    uuid: str = ""
    driver: str = ""
    mig: bool | None = None
    slices: tuple[str, ...] = ()  # UUIDs of its MIG slices
    sm_clock_hz: float | None = None
    sm_clock_max_hz: float | None = None
    throttle_mask: int = 0  # bits of NVML's clocks event reasons
    temperature_c: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None


def _number(unit: float = 1.0) -> Callable[[str], float | None]:
    """A reader of numbers in ``unit``. Limits: a text that is no number, as for unknown values -> None"""

    def read(text: str) -> float | None:
        try:
            return unit * float(text)
        except ValueError:
            return None

    return read


_SWITCH = {"enabled": True, "disabled": False}
_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "index": ("index", int),
    "name": ("name", str),
    "uuid": ("uuid", str),
    "driver": ("driver_version", str),
    "mig": ("mig.mode.current", lambda text: _SWITCH.get(text.lower())),
    "sm_clock_hz": ("clocks.sm", _number(1e6)),
    "sm_clock_max_hz": ("clocks.max.sm", _number(1e6)),
    "throttle_mask": (
        "clocks_event_reasons.active",
        lambda text: int(text, 16) if text.lower().startswith("0x") else 0,
    ),
    "temperature_c": ("temperature.gpu", _number()),
    "memory_clock_hz": ("clocks.mem", _number(1e6)),
    "power_w": ("power.draw", _number()),
}
"""Fields of ``LocalGpu``: the name of each for ``nvidia-smi --query-gpu``, and how its text is read."""


def find_gpus(environ: Mapping[str, str] | None = None) -> tuple[LocalGpu, ...]:
    """GPUs that a process started here would see, in its order.

    Limits: no driver, no GPU, CUDA_VISIBLE_DEVICES empty -> none
    """
    environment = os.environ if environ is None else environ
    readers: tuple[Callable[[], list[LocalGpu] | None], ...] = (_by_nvidia_smi, _by_nvml)
    for read in readers:
        found = read()
        if found is not None:
            return visible(found, environment.get("CUDA_VISIBLE_DEVICES"))
    return tuple(_by_torch())


def visible(found: Sequence[LocalGpu], chosen: str | None) -> tuple[LocalGpu, ...]:
    """GPUs of ``found`` that CUDA_VISIBLE_DEVICES selects: numbers, prefixes of a UUID, MIG slices.

    Limits: not set -> all; as in CUDA, the first entry that names no GPU ends the list;
    a slice -> only this slice
    """
    if chosen is None:
        return tuple(found)
    kept = []
    for word in (part.strip() for part in chosen.split(",")):
        match = [
            gpu
            for gpu in found
            if (word.isdigit() and gpu.index == int(word))
            or (word[:4] == "GPU-" and gpu.uuid[: len(word)] == word)
            or (word[:4] == "MIG-" and any(one[: len(word)] == word for one in gpu.slices))
        ]
        if len(match) != 1:
            break
        kept += match
        if word[:4] == "MIG-":
            break
    return tuple(kept)


def _by_nvidia_smi() -> list[LocalGpu] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    found = ask_smi(program)
    return None if found is None else _with_slices(found, program)


def _with_slices(found: list[LocalGpu], program: str) -> list[LocalGpu]:
    """The GPUs of ``found`` with the UUIDs of their MIG slices, which only ``nvidia-smi -L`` lists."""
    listing = said_by(program, "-L") if any(gpu.mig for gpu in found) else None
    slices = read_listing(listing or "")
    return [replace(gpu, slices=slices.get(gpu.uuid, ())) for gpu in found]


def names_of(mask: int, known: Mapping[int, str]) -> list[str]:
    """Names in ``known`` of the bits that are set in ``mask``; bits without a name are left out."""
    return [name for bit, name in known.items() if mask & bit]


def ask_smi(program: str, gpu: str = "") -> list[LocalGpu] | None:
    """GPUs as ``nvidia-smi`` describes them.

    If it does not know a field, it is asked by the field's old name.
    program   nvidia-smi with its path
    gpu       UUID of the only GPU to ask about; "": all
    Limits: it fails, or takes more than 20 s -> None
    """
    which = [f"--id={gpu}"] if gpu else []
    fields = [name for name, _ in _FIELDS.values()]
    for names in (fields, [_OLD_NAMES.get(name, name) for name in fields]):
        text = said_by(program, *which, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits")
        if text is not None:
            return read_query(text)
    return None


def read_listing(text: str) -> dict[str, tuple[str, ...]]:
    """UUIDs of the MIG slices, by the UUID of their GPU; ``text`` is the output of ``nvidia-smi -L``."""
    found: dict[str, tuple[str, ...]] = {}
    gpu = ""
    for uuid in re.findall(r"\(UUID: ([^)]+)\)", text):
        if uuid.startswith("MIG-"):
            found[gpu] = (*found.get(gpu, ()), uuid)
        else:
            gpu = uuid
    return found


def read_query(text: str) -> list[LocalGpu]:
    """GPUs from the bare CSV of ``nvidia-smi --query-gpu``; lines without a GPU are left out."""
    found = []
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(cells) == len(_FIELDS) and cells[0].strip().isdigit():
            texts = zip(_FIELDS.items(), cells, strict=True)
            found.append(LocalGpu(**{name: read(text.strip()) for (name, (_, read)), text in texts}))
    return found


def _by_nvml() -> list[LocalGpu] | None:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, or no driver: then NVML's error class cannot be imported
        return None
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(
                LocalGpu(
                    index=index,
                    name=_text(pynvml.nvmlDeviceGetName(handle)),
                    uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                    driver=_text(pynvml.nvmlSystemGetDriverVersion()),
                )
            )
        return found
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _by_torch() -> list[LocalGpu]:
    """Names from torch, only if a device file indicates a GPU, because torch is slow to import."""
    if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd"))):  # of NVIDIA, of AMD
        return []
    try:
        import torch

        count = torch.cuda.device_count()
        return [LocalGpu(index, str(torch.cuda.get_device_properties(index).name)) for index in range(count)]
    except (ImportError, OSError, RuntimeError, AssertionError):  # torch without CUDA asserts
        return []
