"""What NVML says about a GPU, with a fake of it."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from calibrate.ranks.gpu_conditions import watch_gpu

UUID = "GPU-0f1e2d3c"


class NVMLError(Exception):
    pass


def fake_nvml(**answers: Any) -> types.ModuleType:
    """NVML with one GPU; a function without an answer raises as NVML does."""
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 1, 2, 0
    module.nvmlInit = lambda: None

    def by_uuid(uuid: str) -> str:
        if uuid != UUID:
            raise NVMLError("not found")
        return "handle"

    module.nvmlDeviceGetHandleByUUID = by_uuid
    for name in ("GetClockInfo", "GetMaxClockInfo", "GetTemperature", "GetPowerUsage"):

        def ask(handle: str, *arguments: Any, name: str = name) -> Any:
            if name not in answers:
                raise NVMLError("not supported")
            assert handle == "handle"
            return answers[name](*arguments)

        setattr(module, f"nvmlDevice{name}", ask)
    for name in ("GetCurrentClocksEventReasons", "GetCurrentClocksThrottleReasons"):
        if name in answers:
            setattr(module, f"nvmlDevice{name}", lambda handle, name=name: answers[name])
    return module


def test_nvml_gives_clocks_in_hertz_power_in_watts_and_what_holds_the_clock_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = fake_nvml(
        GetClockInfo=lambda kind: {1: 1410, 2: 2619}[kind],
        GetMaxClockInfo=lambda kind: {1: 1980}[kind],
        GetTemperature=lambda sensor: 83,
        GetPowerUsage=lambda: 412_500,
        GetCurrentClocksEventReasons=0x40 | 0x1,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = watch_gpu(UUID)()
    assert found is not None
    assert (found.sm_clock_hz, found.sm_clock_max_hz, found.memory_clock_hz) == (1410e6, 1980e6, 2619e6)
    assert (found.temperature_c, found.power_w) == (83.0, 412.5)
    assert found.throttle_reasons == ["thermal (hardware)"]


def test_without_nvml_or_with_another_gpu_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert watch_gpu(UUID)() is None
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert watch_gpu("GPU-another")() is None
