"""The interface between libraries, kernels and the measuring loop: providers and operations.

A *provider* is a library (gloo, nccl, ...), a set of kernels (torch, perfmodel, fbgemm) or a whole pass
(exchange, torchrec). It turns a ``Point`` into an ``Operation``; ``calibrate.ranks.clocks`` times operations;
``calibrate.ranks.rank`` serves them to the coordinator. A provider knows nothing of rounds, noise or files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point


@dataclass(frozen=True)
class Place:
    """Position of this rank in the job.

    rank, ranks  its number in the job, and how many ranks the job has;  node  number of its node
    local_rank, local_ranks  its number on its node, and how many ranks the node has
    """

    rank: int
    ranks: int
    node: int = 0
    local_rank: int = 0
    local_ranks: int = 1
    device: str = "cpu"  # cpu or cuda


@dataclass(frozen=True)
class Availability:
    """Whether a provider can run on this machine.

    why_not          the reason if it cannot;  install  the command that installs it
    clocks           ways in which it can be timed: eager, stream, graph
    operations       names of the collectives, kernels or passes that it offers
    functional_only  why its times say nothing about the hardware, although it runs; "" if they are valid
    devices          kinds of ranks that it works for
    """

    usable: bool
    why_not: str = ""
    install: str = ""
    version: str = ""
    clocks: tuple[Clock, ...] = ()
    operations: tuple[str, ...] = ()
    functional_only: str = ""
    devices: tuple[str, ...] = ("cpu", "cuda")


class Operation(Protocol):
    """One call to time on this rank, together with its input and output buffers.

    Several operations may share buffers. Subclasses implement it; most keep some of the defaults here.
    """

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to others in one call."""

    def prepare(self, salt: int) -> None:
        """Fill the inputs with the pattern of ``salt`` and poison the outputs. Not timed."""

    def before(self) -> None:
        """Do the untimed work before a timed call: take the next set of ids, clear the caches."""

    def run(self) -> None:
        """Make the call. On a GPU it is only queued: ``run`` returns before the GPU has finished it."""

    def check(self) -> tuple[int, int]:
        """Compare the outputs with the pattern of the last ``prepare``: (wrong, compared) elements."""

    def steps_s(self) -> Mapping[str, float]:
        """Of a pass: time of each step of the last run on this rank [s], by name; else empty."""
        return {}


class Provider(Protocol):
    """A library of collectives, a set of kernels, or a whole pass, on one rank."""

    name: str

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join the job. Called on every rank, in the same order. ``address``: see calibrate.ranks.rank."""

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make a communicator for these ranks. Called on every rank of the job, in the same order.

        Kernels and passes do nothing: they use the groups and the barrier of a library of collectives.
        """

    def operation(self, point: Point, ranks: Sequence[int]) -> Operation:
        """The operation of a point for this rank, which is one of ``ranks``.

        Raises BadInputError for a point that the library does not support, before anything is sent.
        """

    def barrier(self, ranks: Sequence[int]) -> None:
        """Wait for all of ``ranks``; they leave as close together as the library allows."""

    def close(self) -> None:
        """Leave the job; never hangs on a rank that died."""


@dataclass(frozen=True)
class RankTimes:
    """Times that one rank measured in one visit (a batch of timed calls of one point).

    starts_s, ends_s  this rank's monotonic clock before and after each timed call, or group of calls, [s]
    calls_each        calls between one start and its end
    checked, wrong    elements of the results that were compared, and how many differed
    steps_s           of a pass: times of each step, by its name [s]
    slowdowns         why this rank's GPU was slower than it should be
    """

    starts_s: list[float]
    ends_s: list[float]
    calls_each: int = 1
    bytes_sent: int = 0
    checked: int = 0
    wrong: int = 0
    steps_s: Mapping[str, list[float]] = field(default_factory=dict)
    slowdowns: Sequence[str] = ()
