"""Kernel constants in a calibration, fitted to kernels that were timed on the machine itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from perfmodel.schema.evidence import Clock
from perfmodel.schema.fields import Bytes, Interval, LogSd, Share, Strict, Whole, limits_of

KERNEL_KEYS = (
    "launch_floor_s",
    "gather_bytes_per_s",
    "l2_bytes_per_s",
    "row_access_bytes",
    "bag_factor",
    "bucketize_floor_s",
    "bucketize_bytes_per_s",
    "local_sum_bytes_per_s",
    "l2_bytes",
)
"""Machine values that kernel samples can determine, and the size of the L2 cache, which a GPU reports."""

GPU_L2 = "gpu_l2_bytes"
"""Key in the stack of a run: bytes of the L2 cache as reported by the GPU."""

IMPLEMENTATIONS = ("fbgemm", "torch", "perfmodel")
"""Implementations of kernels that a projection can use. The default is the first that was timed, in this
order, because TorchRec runs FBGEMM's kernels."""

KernelStep = Literal["gather_pool", "bucketize", "local_sum"]


class KernelFit(Strict):
    """How well the model of one kernel fits its samples.

    log_sd  standard deviation of ln t, for samples left out of the fit
    loo_median, loo_p90    relative errors of these samples
    low_bytes, high_bytes  range of the samples, in bytes as the model counts them
    """

    log_sd: LogSd
    sample_count: Whole
    loo_median: Share | None
    loo_p90: Share | None
    low_bytes: Bytes
    high_bytes: Bytes

    @model_validator(mode="after")
    def _ordered(self) -> KernelFit:
        if self.high_bytes < self.low_bytes:
            raise ValueError(f"low_bytes {self.low_bytes} is above high_bytes {self.high_bytes}")
        return self


class InPass(Strict):
    """How much slower a kernel is in a whole pass than in a loop of its own: t_pass = more_s + factor t_loop.

    log_sd  of the residual of ln t_pass;  passes  number of passes behind it
    """

    factor: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    more_s: Annotated[float, Field(ge=0, le=limits_of("sample")["time_s"].most, allow_inf_nan=False)]
    log_sd: LogSd
    passes: Whole


class KernelConstants(Strict):
    """Constants of the kernel model, fitted to kernels timed on the machine itself, all ranks at once.

    values     by machine key; they replace the machine file's
    in_pass    by step: how a whole pass slows the kernel; already included in ``values``
    fits       by step of a projection, for timed steps only
    log_sd, sample_count, loo_median, loo_p90   of all fits together
    at_bound   keys whose value ended at a bound: the samples do not determine it
    of_other   steps that the implementation lacks, with the implementation that is used instead
    untold     keys that the samples do not determine: absent from ``values``, so the machine file's are used
    """

    values: Mapping[str, Interval]
    fits: Mapping[KernelStep, KernelFit]
    log_sd: LogSd
    sample_count: Whole
    loo_median: Share | None
    loo_p90: Share | None
    at_bound: list[str] = []
    untold: list[str] = []
    in_pass: Mapping[KernelStep, InPass] = {}
    implementation: str
    of_other: Mapping[KernelStep, str] = {}
    clock: Clock

    @model_validator(mode="after")
    def _known(self) -> KernelConstants:
        if unknown := [key for key in (*self.values, *self.at_bound, *self.untold) if key not in KERNEL_KEYS]:
            raise ValueError(f"unknown kernel constants {unknown}")
        for key, interval in self.values.items():
            outside = limits_of("machine")[key].refusal(interval.value) if interval.known else ""
            if outside:
                raise ValueError(f"values.{key}: {outside}")
        return self
