"""A calibration: the fitted curves and link constants of one machine, library, version and clock.

JSON with sorted keys and rounded numbers, so that equal samples give equal bytes.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock
from perfmodel.schema.fields import (
    Bytes,
    Interval,
    LogSd,
    Positive,
    Ranks,
    Seconds,
    Share,
    Span,
    Strict,
    Whole,
    allow_names,
    limits_of,
)
from perfmodel.schema.files import LATEST, invalid_fields, shown, unknown_name, write_whole
from perfmodel.schema.gate import load_json, read_text

SCHEMA_VERSION = 2
UNKNOWN_VERSION = "unknown"  # of a library, if neither the file nor an option states it
_OPTIONAL = ("kernels", "more_kernels", "handover_s")  # omitted from a file if they are empty
_FOLDER = "calibrations"
_SUFFIX = ".json"
_LONGEST_S = limits_of("sample")["time_s"].most
_SHARPEST = 100
_LONGEST_STEP_S = 10.0  # of a law
_FASTEST = 1e15  # bytes per second of one link in a law; ratios are far below

GPU_L2 = "gpu_l2_bytes"
"""Key in the stack of a run: bytes of the L2 cache as reported by the GPU."""

IMPLEMENTATIONS = ("fbgemm", "torch", "perfmodel")
"""Implementations of kernels that a projection can use. The default is the first that was timed, in this
order, because TorchRec runs FBGEMM's kernels."""

Collective = Annotated[str, allow_names(*COLLECTIVES)]
KernelKey = Annotated[str, allow_names(*limits_of("machine"))]
KernelStep = Literal["gather_pool", "bucketize"]
_TIMED = ("all_to_all_splits", "all_to_all_lengths", "all_to_all_ids", "reduce_scatter_bags")
PassStep = Annotated[str, allow_names(*_TIMED, "between_steps")]
"""Steps of a whole row-wise pass that may take longer in it than alone, and the time between steps."""


class Curve(Strict):
    """One measured cell: the fitted curve, measured sizes (anchors), errors on sizes left out of the fit."""

    collective: Collective
    gpus: Annotated[Ranks, Field(ge=2)]
    domain_gpus: Ranks
    alpha_s: Interval  # the floor: time of the smallest message
    beta_bytes_per_s: Interval  # the rate of large ones; any large rate if the samples do not determine it
    p: Interval  # how sharply the curve bends between both
    anchor_bytes: list[Bytes] = Field(min_length=1)
    anchor_times_s: list[Seconds]
    anchor_log_sd: LogSd  # of ln t around the anchors
    left_out_log_sd: list[LogSd] = []  # error of ln t at each anchor, if left out
    sample_count: Whole
    loo_median: Share | None  # relative error of a size left out: median, 90 % quantile
    loo_p90: Share | None
    at_bound: list[str] = []  # parameters that ended at a bound of the fit
    sources: list[str]
    library_version: str
    clock: Clock

    @model_validator(mode="after")
    def _check(self) -> Curve:
        """Raise ValueError for parameters out of range, and for anchors that fall or differ in number."""
        sizes, times = self.anchor_bytes, self.anchor_times_s
        if self.alpha_s.value > _LONGEST_S or self.p.value > _SHARPEST:
            raise ValueError(f"alpha_s must be at most {_LONGEST_S:g}, p {_SHARPEST}")
        if len(sizes) != len(times) or len(self.left_out_log_sd) not in (0, len(sizes)):
            raise ValueError("anchor_bytes, anchor_times_s and left_out_log_sd differ in length")
        if any(b <= a for a, b in itertools.pairwise(sizes)):
            raise ValueError("anchor_bytes must increase")
        if any(b < a for a, b in itertools.pairwise(times)):
            raise ValueError("anchor_times_s must not decrease")
        return self

    @property
    def cell(self) -> tuple[str, int, int]:
        """(collective, GPUs, GPUs of a domain that take part)"""
        return self.collective, self.gpus, min(self.gpus, self.domain_gpus)


class Law(Strict):
    """A fitted law of collectives: its unknowns (``names``, ``values``), with the ``log_sd`` of each."""

    law: Literal["ring_tree", "pairwise"]
    collectives: list[Collective]
    names: list[str]
    values: list[Positive]
    log_sd: list[LogSd]
    residual_log_sd: LogSd  # of ln t around the law
    fitted_domains: Ranks  # most among the samples
    fitted_gpus: Ranks
    sources: list[str]

    @model_validator(mode="after")
    def _check(self) -> Law:
        """Raise ValueError for lists of unequal length, and for a latency or rate that no link has."""
        if not len(self.names) == len(self.values) == len(self.log_sd):
            raise ValueError("names, values and log_sd differ in length")
        for name, value in zip(self.names, self.values, strict=True):
            most = _LONGEST_STEP_S if name.endswith("_s") and not name.endswith("per_s") else _FASTEST
            if value > most:
                raise ValueError(f"{name}: at most {most:g}, not {value:g}")
        return self


class KernelFit(Strict):
    """Errors of the model of one kernel on samples left out of the fit, and the range of their bytes."""

    log_sd: LogSd
    sample_count: Whole
    loo_median: Share | None
    loo_p90: Share | None
    low_bytes: Bytes  # as the model counts them
    high_bytes: Bytes


class InPass(Strict):
    """How much slower a kernel is in a whole pass than in a loop of its own: t_pass = more_s + factor t_loop.

    log_sd  of the residual of ln t_pass;  passes  number of passes behind it
    """

    factor: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    more_s: Span
    log_sd: LogSd
    passes: Whole


class KernelConstants(Strict):
    """Constants of the kernel model, fitted to kernels timed on the machine itself, all ranks at once."""

    values: Mapping[KernelKey, Interval]  # in place of the machine file's
    fits: Mapping[KernelStep, KernelFit]  # of the timed steps
    at_bound: list[KernelKey] = []  # whose value ended at a bound: the samples do not determine it
    untold: list[KernelKey] = []  # absent from values: the machine file's are used
    in_pass: Mapping[KernelStep, InPass] = {}  # already included in values
    implementation: str
    clock: Clock

    @property
    def sample_count(self) -> int:
        """Number of samples of all its fits."""
        return sum(fit.sample_count for fit in self.fits.values())

    @model_validator(mode="after")
    def _check(self) -> KernelConstants:
        """Raise ValueError for a constant that samples determine, outside its allowed range."""
        for key, interval in self.values.items():
            outside = limits_of("machine")[key].refusal(interval.value) if interval.known else ""
            if outside:
                raise ValueError(f"values.{key}: {outside}")
        return self


class Calibration(Strict):
    """Everything fitted from one set of samples.

    this_cluster  whether it was measured on the cluster in question; false: on another of its kind (shipped)
    kernels       constants of the default implementation;  more_kernels  of other implementations
    handover_s    by step of a whole pass: extra time in the pass compared with its curve;
                  ``between_steps``: time of the pass beyond its steps
    preferred     whether projections use it by default;  samples_sha256  digest of the samples
    complete, checked   whether every planned point has ended; whether all results were right
    """

    schema_version: Literal[2]
    calibration_id: str
    machine: str
    backend: Backend
    library_version: str
    clock: Clock
    domain_gpus: Ranks
    complete: bool
    checked: bool
    preferred: bool = False
    this_cluster: bool = True
    note: str = ""
    sample_count: Annotated[int, Field(ge=0, le=2**53)]
    samples_sha256: str
    environment: Mapping[str, str] = {}
    curves: list[Curve]
    laws: list[Law]
    kernels: KernelConstants | None = None
    more_kernels: list[KernelConstants] = []
    handover_s: Mapping[PassStep, Interval] = {}

    @model_validator(mode="after")
    def _check(self) -> Calibration:
        """Raise ValueError for two sets of kernels of one implementation, and two curves of one cell."""
        names = [getattr(kernels, "implementation", "") for kernels in (self.kernels, *self.more_kernels)]
        if self.more_kernels and ("" in names or len(set(names)) != len(names)):
            raise ValueError(f"more_kernels: {names[1:]} are of other implementations than kernels, one each")
        for cell, count in Counter(curve.cell for curve in self.curves).items():
            if count > 1:
                group = f"{cell[1]} GPUs, {cell[2]} in a domain"
                raise ValueError(f"{count} curves of {cell[0]} on {group}: keep one")
        return self

    def curve(self, collective: str, gpus: int, domain_gpus: int) -> Curve | None:
        """The curve that was measured on so many GPUs, with so many in a domain; None if there is none."""
        cell = collective, gpus, min(gpus, domain_gpus)
        return next((curve for curve in self.curves if curve.cell == cell), None)

    def kernels_of(self, implementation: str | None) -> KernelConstants | None:
        """Constants of the kernels of that implementation if they were timed; None: of the default."""
        timed = [self.kernels, *self.more_kernels] if self.kernels else []
        return next((item for item in timed if implementation in (None, item.implementation)), None)

    def law(self, collective: str) -> Law | None:
        """The law that predicts ``collective`` where it was not measured."""
        return next((law for law in self.laws if collective in law.collectives), None)

    def to_json(self) -> str:
        """The file's text: sorted keys, a line for each value, identical for identical content."""
        empty = {name for name in _OPTIONAL if not getattr(self, name)}
        content = self.model_dump(mode="json", exclude=empty)
        return json.dumps(content, sort_keys=True, indent=1) + "\n"


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration, and the folders that it lacks. Limits: as ``write_whole``"""
    with suppress(OSError):  # which the writing then says
        path.parent.mkdir(parents=True)
    write_whole(path, calibration.to_json(), "calibration")


def read_calibration(path: Path) -> Calibration:
    """A calibration from its file. Limits: not JSON, truncated, another schema version -> BadInputError."""
    text = read_text(path, "calibration")
    document: Any = load_json(text, f"calibration {path}", "cut short? perfmodel import writes one.")
    if not isinstance(document, dict) or "calibration_id" not in document:
        step = "perfmodel import writes one from logs; perfmodel plan --plan FILE reads a plan."
        raise BadInputError(f"{path} is not a calibration: it has no calibration_id.", step)
    if (version := document.get("schema_version")) != SCHEMA_VERSION:
        raise BadInputError(
            f"calibration {path} has schema_version {shown(version)}; this program reads {SCHEMA_VERSION}.",
            "fit it again from its samples: perfmodel import LOG… --out FILE.",
        )
    try:
        return Calibration.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise invalid_fields(error, "calibration", str(path)) from None


def list_calibrations(machine: str | None = None) -> list[str]:
    """Names of the shipped calibrations, ``machine/backend-version-clock``."""
    paths = sorted(resources.data_path(_FOLDER).glob(f"*/*{_SUFFIX}"))
    of_machine = [path for path in paths if machine in (None, path.parent.name)]
    return [f"{path.parent.name}/{path.name.removesuffix(_SUFFIX)}" for path in of_machine]


@lru_cache(maxsize=64)
def shipped_calibration(calibration_id: str) -> Calibration:
    """A shipped calibration by name, one of ``list_calibrations``."""
    return read_calibration(resources.data_path(_FOLDER, calibration_id + _SUFFIX))


def load_calibration(name_or_path: str | Path) -> Calibration:
    """A shipped calibration by name, or a user's own file by path."""
    text = str(name_or_path)
    if isinstance(name_or_path, str) and text in list_calibrations():
        return shipped_calibration(text)
    if text.endswith(_SUFFIX) or os.path.exists(text):  # not Path.exists: any text may be a name
        return read_calibration(Path(text))
    raise unknown_name("calibration", text, [LATEST, *list_calibrations()])
