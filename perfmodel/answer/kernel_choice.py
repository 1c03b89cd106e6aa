"""The answer of a projection with the look-up kernels of other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from perfmodel.answer.projection import Projection
from perfmodel.engine.grid import project_grid
from perfmodel.engine.settings import list_kernels, load_setting
from perfmodel.errors import NoCalibrationError


@dataclass(frozen=True)
class OtherKernels:
    """The answer with the kernels of another implementation: slowdown, and both times [s]."""

    implementation: str
    slowdown: float
    time_s: float
    baseline_time_s: float


def other_kernels(p: Projection) -> Iterator[OtherKernels]:
    """The answer with each other implementation whose kernels were timed on this machine, or published.

    Limits: none -> empty
    """
    s = p.setting
    machine = p.question.machine if p.question is not None else s.machine
    for name in list_kernels(s):
        if name == s.kernel_library:
            continue
        try:
            setting = load_setting(machine, s.backend, s.clock, s.scenario, s.calibration, kernels=name)
            columns = project_grid(replace(p.forward, setting=setting), p.work).columns
        except NoCalibrationError:
            continue
        values = (float(columns[key][0]) for key in ("slowdown", "time_s", "baseline_time_s"))
        yield OtherKernels(name, *values)
