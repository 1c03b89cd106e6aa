"""The state of a GPU during a batch, through NVML: clocks, temperature, power, what limits its clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.schema.runs import DeviceConditions

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


def watch_gpu(uuid: str) -> Callable[[], DeviceConditions | None]:
    """A function that returns the state of the GPU with this UUID (``GPU-...``), in about a millisecond.

    Limits: NVML's binding (nvidia-ml-py), the driver or this GPU is missing -> it returns None
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:  # not installed, no driver, unknown GPU; NVML's error class may not be importable
        return lambda: None
    return lambda: _read_state(pynvml, handle)


def _read_state(nvml: Any, handle: Any) -> DeviceConditions:
    def ask(function: str, *arguments: Any, unit: float = 1.0) -> float | None:
        try:
            return unit * float(getattr(nvml, function)(handle, *arguments))
        except (AttributeError, nvml.NVMLError):  # an old binding, or a GPU that does not report it
            return None

    mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if mask is None:
        mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return DeviceConditions(
        sm_clock_hz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM, unit=1e6),
        sm_clock_max_hz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM, unit=1e6),
        memory_clock_hz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM, unit=1e6),
        temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        power_w=ask("nvmlDeviceGetPowerUsage", unit=1e-3),
        throttle_reasons=names_of(int(mask or 0), SLOWDOWNS),
        limits=names_of(int(mask or 0), LIMITS),
    )


def names_of(mask: int, known: Mapping[int, str]) -> list[str]:
    """Names in ``known`` of the bits that are set in ``mask``; bits without a name are left out."""
    return [name for bit, name in known.items() if mask & bit]
