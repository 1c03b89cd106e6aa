"""A calibration run on disk: measurements as JSON lines, appended and never rewritten.

    {"type": "run", ...}      first line: the stack, the machine, the allow-listed environment
    {"type": "point", ...}    what is measured, before its first visit; a second line voids earlier visits
    {"type": "visit", ...}    one batch of timed calls of a point, checked
    {"type": "finish", ...}   a point is done, and how

If the last line is incomplete (lost power), it is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Clock
from perfmodel.schema.fields import Strict, limits_of, within

SCHEMA_VERSION = 1

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, within("sample", "time_s")]
Span = Annotated[float, Field(ge=0, le=limits_of("sample")["time_s"].most, allow_inf_nan=False)]
Reading = Annotated[float, Field(ge=-1e3, le=1e12, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Whole = Annotated[int, Field(ge=1, le=2**53)]
Ranks = Annotated[int, Field(ge=1, le=int(limits_of("sample")["gpus"].most))]

KERNELS = ("gather_pool", "bucketize", "partial_sum", "copy", "launch_floor")
"""Kernels that are timed: gather and pool, ids by owner, sum of partial bags, copies, an empty launch."""

COMPOSED = ("row_wise",)
"""Whole passes: the row-wise embedding bag, end to end."""


class PointKind(StrEnum):
    """Kinds of points."""

    COLLECTIVE = "collective"
    KERNEL = "kernel"
    COMPOSED = "composed"  # for the model: half are fitted, half are compared
    LOOKUP = "lookup"  # for the paper's figures: every implementation, no fit


class Status(StrEnum):
    """How a point ended."""

    OK = "ok"  # the interval reached the target
    NOISY = "noisy"  # the time limit was reached first
    THROTTLED = "throttled"  # a clock was throttled meanwhile
    FAILED = "failed"  # wrong result, or an error; its times are not used


class LookupWork(Strict):
    """The look-ups of a kernel or of a whole pass: B (batch), T (tables), L (pooling), D (dim), E (rows)."""

    batch: Whole
    tables: Whole = 1
    pooling: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 1
    dim: Whole = 32
    rows: Whole = 1
    id_bytes: Literal[4, 8] = 8
    distribution: str = "uniform"  # uniform | zipf:ALPHA | one-row
    shards: Whole = 1  # kernels: owners of ids, sources of ids, partial bags to sum


class Point(Strict):
    """A *cell* of a measurement plan: what is timed, where, on which clock. ``key`` is its permanent name.

    work  look-ups of a kernel, else None;  held_out  whether fits leave it out, to be tested with it
    operation  a collective, kernel or pass;  variant  default or after_kernel (older runs: uneven)"""

    kind: PointKind
    operation: str
    backend: str = ""  # library of the collectives; "" for a kernel
    implementation: str = ""  # kernels: torch, perfmodel, fbgemm; whole: exchange, torchrec, three, fused
    clock: Clock
    variant: str = "default"  # default | after_kernel
    payload_bytes: Count = 0  # collectives: as nccl-tests prints it; kernels: bytes counted by the model
    gpus: Ranks
    nodes: Ranks = 1
    gpus_per_node: Ranks
    dtype: str = "fp32"
    work: LookupWork | None = None
    held_out: bool = False  # never used by a fit; validation compares with it

    @model_validator(mode="after")
    def _known(self) -> Point:
        known = {
            PointKind.COLLECTIVE: SAMPLE_OPERATIONS,
            PointKind.KERNEL: KERNELS,
            PointKind.COMPOSED: COMPOSED,
            PointKind.LOOKUP: COMPOSED,
        }[self.kind]
        if self.operation not in known:
            raise ValueError(f"unknown {self.kind} {self.operation!r}; known: {', '.join(known)}")
        if self.gpus > self.nodes * self.gpus_per_node or self.nodes > self.gpus:
            raise ValueError(f"{self.gpus} ranks do not fit {self.nodes} nodes of {self.gpus_per_node}")
        return self

    @property
    def key(self) -> str:
        """Canonical text of all fields that are not defaults: equal points have equal keys."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


class DeviceConditions(Strict):
    """State of the slowest device while a batch ran. Missing where it cannot be read (CPUs).

    throttle_reasons  why a device runs below its normal clock: heat, a power brake; the visit gets a flag
    limits            normal limits of the clock, mostly a power cap; no flag
    """

    sm_clock_hz: Reading | None = None
    sm_clock_max_hz: Reading | None = None
    memory_clock_hz: Reading | None = None
    temperature_c: Reading | None = None
    power_w: Reading | None = None
    throttle_reasons: list[str] = []
    limits: list[str] = []


class RunHeader(Strict):
    """First line of a run: everything that must be equal for samples to be merged, and further information.

    stack        versions and topology; its hash is the fingerprint
    environment  allow-listed variables only
    functional_only  ranks took turns on too few cores, or a GPU was simulated: it shows that the code works,
                     and is no calibration; ``stack["turns"]`` says which
    started_at   date and time of the first start
    """

    type: Literal["run"] = "run"
    schema_version: Literal[1] = 1
    fingerprint: str
    started_at: str
    machine: str
    stack: Mapping[str, str]
    environment: Mapping[str, str] = {}
    host: str = ""  # a hash, unless --keep-hostnames
    seed: Count = 0  # for the random order of rounds
    ranks: Ranks
    nodes: Ranks
    functional_only: bool = False


REHEARSAL = "(rehearsal)"
"""Part of the name of a simulated GPU: its times are invented."""


def functional_reason(header: RunHeader) -> str:
    """Why a run is a functional check and no calibration; older runs do not state it."""
    return header.stack.get("turns", "more ranks than cores")


class PointLine(Strict):
    """The line of a run's file that a point is about to be measured for the first time, or is restarted."""

    type: Literal["point"] = "point"
    key: str
    point: Point


class Visit(Strict):
    """One batch of timed calls. ``times_s``: one entry per call, on its slowest rank, in order; empty if
    ``note`` says why the clock was not credible.

    checked, wrong  elements of the result that were compared, and that differed;  at  when it began
    round  number of the round of visits"""

    type: Literal["visit"] = "visit"
    key: str
    round: Count
    at: str
    calls_each: Whole = 1  # calls per time (many, on back-to-back clocks)
    times_s: list[Seconds]
    skew_s: Span = 0.0  # median over calls of slowest minus fastest rank
    slowest_rank: Count = 0
    bytes_sent: Count = 0  # of one rank in one call, as counted by the sender
    checked: Count = 0
    wrong: Count = 0
    steps_s: Mapping[str, list[Span]] = {}  # composed: slowest rank's time of each step
    conditions: DeviceConditions | None = None
    note: str = ""

    @model_validator(mode="after")
    def _timed(self) -> Visit:
        if not self.times_s and not self.note:
            raise ValueError("times_s: a visit without times says why in its note")
        return self


class Finish(Strict):
    """A point has ended. ``median_s`` with its 95 % interval over visits.

    rank_lost   it failed because a rank died: earlier visits count, and the next start resumes it
    """

    type: Literal["finish"] = "finish"
    key: str
    status: Status
    reason: str = ""
    rank_lost: bool = False
    median_s: Seconds | None = None
    low_s: Positive | None = None
    high_s: Positive | None = None
    visits: Count = 0
    calls: Count = 0
    target: Positive | None = None  # target half-width of the interval, as a share of the time


Line = Annotated[RunHeader | PointLine | Visit | Finish, Field(discriminator="type")]
