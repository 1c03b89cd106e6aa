"""A calibration run on disk: measurements as JSON lines, appended and never rewritten.

    {"type": "run", ...}      first line: the stack, the machine, the allow-listed environment
    {"type": "point", ...}    what is measured, before its first visit; a second line voids earlier visits
    {"type": "visit", ...}    one batch of timed calls of a point, checked
    {"type": "finish", ...}   a point is done, and how

If the last line is incomplete (lost power), it is ignored.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Clock
from perfmodel.schema.fields import Positive, Ranks, Seconds, Span, Strict, Whole
from perfmodel.schema.files import BROKEN, describe_problems
from perfmodel.units import counted

RUN_FILE = "run file"
_BLANK = b" \t\r\0"  # what may surround a line: lost power leaves zero bytes
Count = Annotated[int, Field(ge=0, le=2**53)]

KERNELS = ("gather_pool", "copy")
"""Kernels that are timed by themselves; all others are steps of whole passes."""

_PASSES = ("row_wise",)


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
    shards: Whole = 1  # parts that the rows of each table are cut into


class Point(Strict):
    """A *cell* of a measurement plan: what is timed, where, on which clock. ``key`` is its permanent name."""

    kind: PointKind
    operation: str  # a collective, kernel or pass
    backend: str = ""  # library of the collectives; "" for a kernel
    implementation: str = ""  # kernels: torch, perfmodel, fbgemm; whole: exchange, torchrec, three, fused
    clock: Clock
    payload_bytes: Count = 0  # collectives: as nccl-tests prints it; kernels: bytes counted by the model
    gpus: Ranks
    nodes: Ranks = 1
    gpus_per_node: Ranks
    dtype: str = "fp32"
    work: LookupWork | None = None  # of a kernel or pass
    held_out: bool = False  # never used by a fit; validation compares with it

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError for an unknown operation, an empty payload, or ranks that do not fit the nodes."""
        operations = {PointKind.COLLECTIVE: SAMPLE_OPERATIONS, PointKind.KERNEL: KERNELS}
        if self.operation not in (names := operations.get(self.kind, _PASSES)):
            raise ValueError(f"unknown {self.kind} {self.operation!r}; known: {', '.join(names)}")
        if self.kind is PointKind.COLLECTIVE and not self.payload_bytes:
            raise ValueError("payload_bytes: a collective sends at least 1 byte")
        if self.gpus > self.nodes * self.gpus_per_node or self.nodes > self.gpus:
            raise ValueError(f"{self.gpus} ranks do not fit {self.nodes} nodes of {self.gpus_per_node}")
        return self

    @property
    def key(self) -> str:
        """Canonical text of all fields that are not defaults: equal points have equal keys."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


class RunHeader(Strict):
    """First line of a run: all that must be equal for samples to be merged, and further information."""

    type: Literal["run"] = "run"
    schema_version: Literal[2] = 2
    fingerprint: str
    started_at: str
    machine: str
    stack: Mapping[str, str]  # versions and topology; its hash is the fingerprint
    environment: Mapping[str, str] = {}  # allow-listed
    host: str = ""  # hashes
    seed: Count = 0  # for the random order of rounds
    ranks: Ranks
    nodes: Ranks
    functional_only: bool = False  # ranks took turns, or a GPU was simulated: no calibration


REHEARSAL = "(rehearsal)"  # part of the name of a simulated GPU: its times are invented


def functional_reason(header: RunHeader) -> str:
    """Why a run is a functional check and no calibration; older runs do not state it."""
    return header.stack.get("turns", "more ranks than cores")


class PointLine(Strict):
    """The line of a run's file that a point is about to be measured for the first time, or is restarted."""

    type: Literal["point"] = "point"
    key: str
    point: Point


class Visit(Strict):
    """One batch of timed calls, which began at ``at``; its result was compared with what is right."""

    type: Literal["visit"] = "visit"
    key: str
    round: Count
    at: str
    calls_each: Whole = 1  # calls per time (many, on back-to-back clocks)
    times_s: list[Seconds]  # of each call, on its slowest rank; none where the note says why
    bytes_sent: Count = 0  # of one rank in one call, as counted by the sender
    checked: Count = 0
    wrong: Count = 0
    steps_s: Mapping[str, list[Span]] = {}  # composed: slowest rank's time of each step
    slowdowns: list[str] = []  # why a GPU was slower than it should be
    note: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError for a visit that has no times and does not say why."""
        if not self.times_s and not self.note:
            raise ValueError("times_s: a visit without times says why in its note")
        return self


class Finish(Strict):
    """A point has ended. ``median_s`` with its 95 % interval over visits."""

    type: Literal["finish"] = "finish"
    key: str
    status: Status
    reason: str = ""
    rank_lost: bool = False  # a rank died: earlier visits count, and the next start resumes it
    median_s: Seconds | None = None
    low_s: Positive | None = None
    high_s: Positive | None = None
    visits: Count = 0
    calls: Count = 0
    target: Positive | None = None  # target half-width of the interval, as a share of the time


_LINE: TypeAdapter[RunHeader | PointLine | Visit | Finish] = TypeAdapter(
    Annotated[RunHeader | PointLine | Visit | Finish, Field(discriminator="type")]
)


class Damage(NamedTuple):
    """An unusable line, and why."""

    number: int
    why: str


@dataclass(frozen=True)
class RunLines:
    """Contents of a file: the header, the usable lines after it with their numbers, and damaged lines."""

    header: RunHeader
    whole_bytes: int  # of the complete lines
    good: Sequence[tuple[int, PointLine | Visit | Finish]]
    damage: Sequence[Damage]


def read_lines(raw: bytes, file: Path) -> RunLines:
    """The lines of a run's file, given as ``raw`` bytes. Blank lines, and zero bytes around one, are ignored.

    Limits: no whole line, or a first line that is no header -> BadInputError; other bad lines -> damage
    """
    complete = raw[: raw.rfind(b"\n") + 1]
    first, *lines = complete.split(b"\n")
    if not complete:
        raise BadInputError(f"{RUN_FILE} {file} holds no whole line.", put_away(file))
    header = header_of(first, file)
    good: list[tuple[int, PointLine | Visit | Finish]] = []
    damage: list[Damage] = []
    visits: dict[str, list[Visit]] = {}  # so far, of each point
    for number, text in enumerate(lines, 2):
        if not (bare := text.strip(_BLANK)):
            continue
        try:
            line = _LINE.validate_json(bare, strict=True)
            why = "a second header" if isinstance(line, RunHeader) else _find_contradiction(line, visits)
        except ValidationError as error:
            why = describe_problems(error)
        if why or isinstance(line, RunHeader):
            damage.append(Damage(number, why))
            continue
        if isinstance(line, PointLine):
            visits[line.key] = []
        elif isinstance(line, Visit):
            visits[line.key].append(line)
        good.append((number, line))
    return RunLines(header, len(complete), good, damage)


def _find_contradiction(line: PointLine | Visit | Finish, visits: dict[str, list[Visit]]) -> str:
    """Why a readable line contradicts the visits before it, by point; "" if it is usable."""
    if isinstance(line, PointLine):
        return "" if line.key == line.point.key else "the key is not that of the point"
    if line.key not in visits:
        return f"a {line.type} of a point that no line before it names"
    before = visits[line.key]
    if isinstance(line, Visit):
        return ""
    if line.visits > len(before):
        return f"the end of a point of {counted(line.visits, 'visit')}, of which {len(before)} are there"
    usable = line.status is Status.FAILED or any(visit.times_s for visit in before)
    return "" if usable else "the end of a point that was never timed"


def header_of(first: bytes, file: Path) -> RunHeader:
    """The header of a run in the first line of its file. Limits: anything else -> BadInputError"""
    why = "not the header of a run"
    try:
        header = _LINE.validate_json(first, strict=True)
        if isinstance(header, RunHeader):
            return header
    except ValidationError as error:
        why = describe_problems(error)
    raise BadInputError(f"{RUN_FILE} {file}, line 1: {why}.", put_away(file))


def put_away(file: Path) -> str:
    """Advice for a message: how to put the folder of a run aside, under an unused name."""
    folder = file.parent
    names = (folder.with_name(f"{folder.name}{BROKEN}{number or ''}") for number in itertools.count())
    aside = next(path for path in names if not path.exists())
    return f"put the folder away and measure again:\n  {shlex.join(['mv', str(folder), str(aside)])}"
