"""What state a GPU is in while a batch runs: clocks, temperature, power, and what holds its clock down.

Read through NVML's Python binding, else by ``nvidia-smi``; where neither is there, nobody knows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

from calibrate.machine.local_gpus import ask_smi
from perfmodel.schema.runs import DeviceConditions

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons that say: this GPU is slower than it should be."""

LIMITS = {
    0x02: "clocks set",
    0x04: "power cap",
    0x10: "sync boost",
    0x100: "display clock",
}
"""Bits that say what a clock is at: a GPU at work is often at its power cap, and always where it is capped.
Bit 1, an idle GPU, says nothing of a batch."""

_FIELDS = (
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "temperature.gpu",
    "power.draw",
    "clocks_event_reasons.active",
)

Reader = Callable[[], DeviceConditions | None]


def names_of(mask: int, known: Mapping[int, str]) -> list[str]:
    """What the ``known`` bits of ``mask`` say, in their order. Limits: 0 or only idle -> nothing."""
    return [name for bit, name in known.items() if mask & bit]


def watch_gpu(uuid: str) -> Reader:
    """Reads the state of the GPU with this UUID (``GPU-...``); gives None where nobody can."""
    reader = nvml_reader(uuid)
    if reader is not None:
        return reader
    program = shutil.which("nvidia-smi")
    return smi_reader(uuid, program) if program else lambda: None


def nvml_reader(uuid: str) -> Reader | None:
    """Reads through NVML, in about a millisecond; None without its binding, its driver or this GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:  # not installed, no driver, unknown GPU: NVML's error class may not be importable
        return None
    return lambda: _by_nvml(pynvml, handle)


def _by_nvml(nvml: Any, handle: Any) -> DeviceConditions:
    def ask(function: str, *arguments: Any) -> float | None:
        try:
            return float(getattr(nvml, function)(handle, *arguments))
        except (AttributeError, nvml.NVMLError):  # an older binding, or a GPU that does not say
            return None

    mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if mask is None:
        mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return _conditions(
        sm_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        sm_max_mhz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        memory_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        power_w=_scaled(ask("nvmlDeviceGetPowerUsage"), 1e-3),
        mask=int(mask or 0),
    )


def smi_reader(uuid: str, program: str) -> Reader:
    """Reads by ``nvidia-smi``, in some tens of milliseconds."""

    def read() -> DeviceConditions | None:
        text = ask_smi(program, _FIELDS, uuid)
        return None if text is None else read_query(text)

    return read


def read_query(text: str) -> DeviceConditions | None:
    """Conditions of the one line that ``nvidia-smi`` prints; None when it is not that line."""
    cells = [cell.strip() for cell in text.strip().split(",")]
    if len(cells) != len(_FIELDS):
        return None
    sm_mhz, sm_max_mhz, memory_mhz, temperature_c, power_w = (_number(cell) for cell in cells[:-1])
    mask = int(cells[-1], 16) if cells[-1].lower().startswith("0x") else 0
    return _conditions(sm_mhz, sm_max_mhz, memory_mhz, temperature_c, power_w, mask)


def _conditions(
    sm_mhz: float | None,
    sm_max_mhz: float | None,
    memory_mhz: float | None,
    temperature_c: float | None,
    power_w: float | None,
    mask: int,
) -> DeviceConditions:
    return DeviceConditions(
        sm_clock_hz=_scaled(sm_mhz, 1e6),
        sm_clock_max_hz=_scaled(sm_max_mhz, 1e6),
        memory_clock_hz=_scaled(memory_mhz, 1e6),
        temperature_c=temperature_c,
        power_w=power_w,
        throttle_reasons=names_of(mask, SLOWDOWNS),
        limits=names_of(mask, LIMITS),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]" and its like
        return None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
