"""A calibration: the fitted curves and link constants of one machine, library, version and clock.

``perfmodel.fit`` writes it, ``perfmodel.collectives`` reads it: JSON with sorted keys and rounded numbers, so
that equal samples give equal bytes. Every file is validated when it is read.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from perfmodel import resources
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.schema.evidence import COLLECTIVES, Backend, Clock
from perfmodel.schema.fields import (
    Bytes,
    Interval,
    LogSd,
    Positive,
    Ranks,
    Seconds,
    Share,
    Strict,
    Whole,
    far_from_sold,
    limits_of,
)
from perfmodel.schema.files import invalid_fields, shown, unknown_name
from perfmodel.schema.gate import load_json, read_text
from perfmodel.schema.home import LATEST
from perfmodel.schema.kernel_fits import KernelConstants
from perfmodel.schema.whole_files import cannot_write, write_whole_text

SCHEMA_VERSION = 2
UNKNOWN_VERSION = "unknown"  # of a library, if neither the file nor an option states it
_OPTIONAL = ("kernels", "more_kernels", "after_kernel", "handover_s", "accepted")
"""Fields that are omitted from a file if they are empty."""
_FOLDER = "calibrations"
_SUFFIX = ".json"

_MOST_OF_A_CURVE = {
    "alpha_s": limits_of("sample")["time_s"].most,
    "beta_bytes_per_s": 1e18,  # if the samples do not determine it, a fit may return any large rate
    "p": 100.0,
}


class Curve(Strict):
    """One measured cell: the fitted curve, measured sizes (anchors), errors on sizes left out of the fit."""

    collective: str
    gpus: Annotated[Ranks, Field(ge=2)]
    domain_gpus: Ranks
    alpha_s: Interval
    beta_bytes_per_s: Interval
    p: Interval
    anchor_bytes: list[Bytes]
    anchor_times_s: list[Seconds]
    anchor_log_sd: LogSd
    left_out_log_sd: list[LogSd] = []
    sample_count: Whole
    loo_median: Share | None
    loo_p90: Share | None
    at_bound: list[str] = []
    sources: list[str]
    library_version: str
    clock: Clock

    @model_validator(mode="after")
    def _anchors(self) -> Curve:
        if self.collective not in COLLECTIVES:
            raise ValueError(f"unknown collective {self.collective!r}")
        for name, most in _MOST_OF_A_CURVE.items():
            if (value := getattr(self, name).value) > most:
                raise ValueError(f"{name}.value: at most {most:g}, not {value:g}")
        sizes, times = self.anchor_bytes, self.anchor_times_s
        if self.left_out_log_sd and len(self.left_out_log_sd) != len(sizes):
            raise ValueError(f"{len(sizes)} anchor_bytes but {len(self.left_out_log_sd)} left_out_log_sd")
        if len(sizes) != len(times) or not sizes:
            raise ValueError(f"{len(sizes)} anchor_bytes but {len(times)} anchor_times_s")
        if any(b <= a for a, b in itertools.pairwise(sizes)):
            raise ValueError("anchor_bytes must increase")
        if any(b < a for a, b in itertools.pairwise(times)):
            raise ValueError("anchor_times_s must not decrease")
        return self

    def formula(self) -> str:
        """The curve as text, with its numbers. S is the payload of one rank."""
        alpha = f"{self.alpha_s.value * 1e6:.3g} µs" if self.alpha_s.known else "floor unknown"
        beta = (
            f"{self.beta_bytes_per_s.value / 1e9:.3g} GB/s" if self.beta_bytes_per_s.known else "rate unknown"
        )
        p = self.p.value
        return f"t = (({alpha})^{p:.3g} + (S / {beta})^{p:.3g})^(1/{p:.3g})"


_LONGEST_S = 10.0  # of one step of a collective
_MOST = 1e15  # bytes per second of one link; ratios are far below


class Law(Strict):
    """A fitted law of collectives: its unknowns (``names``, ``values``), with the ``log_sd`` of each.

    residual_log_sd  standard deviation of ln t around the law
    fitted_domains, fitted_gpus  most domains and ranks among the samples
    sources  ids of the samples' sources"""

    law: Literal["ring_tree", "pairwise"]
    collectives: list[str]
    names: list[str]
    values: list[Positive]
    log_sd: list[LogSd]
    residual_log_sd: LogSd
    fitted_domains: Ranks
    fitted_gpus: Ranks
    sources: list[str]

    @model_validator(mode="after")
    def _shapes(self) -> Law:
        n = len(self.names)
        if len(self.values) != n or len(self.log_sd) != n:
            raise ValueError(f"{n} names need {n} values and {n} log_sd")
        for name, value in zip(self.names, self.values, strict=True):
            most = _LONGEST_S if name.endswith("_s") and not name.endswith("per_s") else _MOST
            if value > most:
                raise ValueError(f"{name}: at most {most:g}, not {value:g}")
        if unknown := [c for c in self.collectives if c not in COLLECTIVES]:
            raise ValueError(f"unknown collectives {unknown}")
        return self


PASS_STEPS = (
    "all_to_all_splits",
    "all_to_all_lengths",
    "all_to_all_ids",
    "reduce_scatter_bags",
    "between_steps",
)
"""Steps of a whole row-wise pass that may take longer in it than alone, and the time between steps."""


class Calibration(Strict):
    """Everything fitted from one set of samples.

    accepted      limits that correct samples break, as the user said with ``import --accept``
    this_cluster  whether it was measured on the cluster in question; false: on another of its kind (shipped)
    kernels       constants of the default implementation;  more_kernels  of other implementations
    after_kernel  curves of collectives that were timed right after a kernel that clears the caches
    handover_s    by step of a whole pass: extra time in the pass compared with its curve (after a kernel, if
                  there is one); ``between_steps``: time of the pass beyond its steps
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
    accepted: list[str] = []
    sample_count: Annotated[int, Field(ge=0, le=2**53)]
    samples_sha256: str
    environment: Mapping[str, str] = {}
    curves: list[Curve]
    laws: list[Law]
    kernels: KernelConstants | None = None
    more_kernels: list[KernelConstants] = []
    after_kernel: list[Curve] = []
    handover_s: Mapping[str, Interval] = {}

    @model_validator(mode="after")
    def _distinct(self) -> Calibration:
        if unknown := [name for name in self.handover_s if name not in PASS_STEPS]:
            raise ValueError(f"handover_s: unknown steps {unknown}")
        if unknown := [name for name in self.accepted if name not in limits_of("sample")]:
            raise ValueError(f"accepted: unknown names {unknown}")
        names = [one.implementation for one in self.more_kernels]
        if names and (self.kernels is None or len({self.kernels.implementation, *names}) <= len(names)):
            raise ValueError(f"more_kernels: {names} are of other implementations than kernels, one each")
        longest = limits_of("sample")["time_s"].most
        if long := [name for name, interval in self.handover_s.items() if interval.value > longest]:
            raise ValueError(f"handover_s.{long[0]}.value: at most {longest:g} s")
        for curves in (self.curves, self.after_kernel):
            cells = [(c.collective, c.gpus, min(c.gpus, c.domain_gpus)) for c in curves]
            for cell, count in Counter(cells).items():
                if count > 1:
                    raise ValueError(
                        f"{count} curves of {cell[0]} on {cell[1]} GPUs, {cell[2]} in a domain: keep one"
                    )
        return self

    def curve(
        self, collective: str, gpus: int, domain_gpus: int, *, after_kernel: bool = False
    ) -> Curve | None:
        """The curve that was measured on these ranks; None if there is none.

        after_kernel  the curve of calls right after a kernel that clears the caches
        """
        group = min(gpus, domain_gpus)
        for curve in self.after_kernel if after_kernel else self.curves:
            own = min(curve.gpus, curve.domain_gpus)
            if (curve.collective, curve.gpus, own) == (collective, gpus, group):
                return curve
        return None

    def kernels_of(self, implementation: str | None) -> KernelConstants | None:
        """Constants of the kernels of that implementation if they were timed; None: of the default."""
        if implementation is None:
            return self.kernels
        known = [self.kernels] if self.kernels is not None else []
        return next(
            (one for one in [*known, *self.more_kernels] if one.implementation == implementation), None
        )

    def law(self, collective: str) -> Law | None:
        """The law that predicts ``collective`` where it was not measured."""
        return next((law for law in self.laws if collective in law.collectives), None)

    def doubts(self) -> dict[str, str]:
        """Measured values that are far from every product on the market: reason by name of the limit.

        Values that the user accepted are left out.
        """
        found: dict[str, str] = {}
        for curve in (*self.curves, *self.after_kernel):
            sizes, times = np.asarray(curve.anchor_bytes), np.asarray(curve.anchor_times_s)
            found = {**far_from_sold(sizes, times, np.asarray([float(curve.gpus)])), **found}
        return {name: text for name, text in found.items() if name not in self.accepted}

    def to_json(self) -> str:
        """The file's text: sorted keys, one line per list, identical for identical content."""
        content = self.model_dump(mode="json")
        for name in _OPTIONAL:
            if not content[name]:
                del content[name]
        return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration atomically: the file is complete, or unchanged."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error, "calibration") from None
    write_whole_text(path, calibration.to_json(), "calibration")


def read_calibration(path: Path) -> Calibration:
    """A calibration from its file. Limits: not JSON, truncated, another schema version -> BadInputError."""
    text = read_text(path, "calibration")
    document: Any = load_json(text, f"calibration {path}", "cut short? write it again with perfmodel import.")
    if not isinstance(document, dict) or "schema_version" not in document:
        raise BadInputError(
            f"{path} is not a calibration: it has no schema_version.",
            "perfmodel import writes one from logs.",
        )
    if document["schema_version"] != SCHEMA_VERSION:
        raise BadInputError(
            f"calibration {path} has schema_version {shown(document['schema_version'])}; this program reads "
            f"{SCHEMA_VERSION}.",
            "fit it again from its samples: perfmodel import LOG… --out FILE.",
        )
    try:
        found = Calibration.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise invalid_fields(error, "calibration", str(path)) from None
    if doubted := found.doubts():
        lines = "\n".join(f"calibration {path}: {name}: {words}" for name, words in doubted.items())
        step = f'if it is correct: write "accepted": {json.dumps([*found.accepted, *doubted])}'
        raise BadInputError(lines, f"check the logs that it was made of; {step}.")
    return found


def list_calibrations(machine: str | None = None) -> list[str]:
    """Names of the shipped calibrations, ``machine/backend-version-clock``."""
    root = resources.data_path(_FOLDER)
    found = sorted(root.glob(f"*/*{_SUFFIX}")) if root.is_dir() else []
    names = [f"{path.parent.name}/{path.name.removesuffix(_SUFFIX)}" for path in found]
    return [name for name in names if machine is None or name.startswith(machine + "/")]


@lru_cache(maxsize=64)
def shipped_calibration(calibration_id: str) -> Calibration:
    """A shipped calibration by name."""
    if calibration_id not in list_calibrations():
        raise NoCalibrationError(
            f"there is no calibration {calibration_id!r}.",
            "perfmodel show calibrations lists what is shipped.",
        )
    return read_calibration(resources.data_path(_FOLDER, calibration_id + _SUFFIX))


def load_calibration(name_or_path: str | Path) -> Calibration:
    """A shipped calibration by name, or a user's own file by path."""
    text = str(name_or_path)
    if isinstance(name_or_path, str) and text in list_calibrations():
        return shipped_calibration(text)
    path = Path(text)
    if path.suffix == _SUFFIX or os.path.exists(text):  # not Path.exists: any text may be a name
        return read_calibration(path)
    raise unknown_name("calibration", text, [LATEST, *list_calibrations()])
