"""The state of a GPU during a batch: clocks, temperature, power, and what limits its clock.

It is read through NVML's Python binding, else by ``nvidia-smi``; without either it is unknown.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from calibrate.machine.local_gpus import LIMITS, SLOWDOWNS, ask_smi, names_of
from perfmodel.schema.runs import DeviceConditions

Reader = Callable[[], DeviceConditions | None]


def watch_gpu(uuid: str) -> Reader:
    """A function that returns the state of the GPU with this UUID (``GPU-...``), or None if unknown."""
    reader = nvml_reader(uuid)
    if reader is not None:
        return reader
    program = shutil.which("nvidia-smi")
    return smi_reader(uuid, program) if program else lambda: None


def nvml_reader(uuid: str) -> Reader | None:
    """Reads through NVML, in about a millisecond; None if its binding, driver or this GPU is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:  # not installed, no driver, unknown GPU; NVML's error class may not be importable
        return None
    return lambda: _by_nvml(pynvml, handle)


def _by_nvml(nvml: Any, handle: Any) -> DeviceConditions:
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


def smi_reader(uuid: str, program: str) -> Reader:
    """A function that reads the state by ``nvidia-smi`` (path ``program``), in some tens of milliseconds."""

    def read() -> DeviceConditions | None:
        found = ask_smi(program, uuid)
        if not found:
            return None
        gpu = found[0]
        return DeviceConditions(
            sm_clock_hz=gpu.sm_clock_hz,
            sm_clock_max_hz=gpu.sm_clock_max_hz,
            memory_clock_hz=gpu.memory_clock_hz,
            temperature_c=gpu.temperature_c,
            power_w=gpu.power_w,
            throttle_reasons=names_of(gpu.throttle_mask, SLOWDOWNS),
            limits=names_of(gpu.throttle_mask, LIMITS),
        )

    return read
