"""Traces of a production run: the profiler's record of each rank, one ``RankTrace`` per rank.

Times are seconds of one rank's own clock since ``RankTrace.origin_ns``. A collective's duration on a GPU, or
in a worker thread of gloo, includes the wait for the last rank, which ``trace_alignment.align`` removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

OVERLAP_SHARE = 0.02
"""Share of a collective's or kernel's time beside work on another stream, above which both were slowed."""


_MOST_DIGITS = 19


class KernelFamily(StrEnum):
    """What a kernel does in an embedding pass; OTHER if it has no part in it."""

    GATHER_POOL = "gather_pool"  # FBGEMM's forward, torch's EmbeddingBag
    BACKWARD = "backward"  # gradients of an embedding, with the update of its rows
    BUCKETIZE = "bucketize"  # ids to owners: block_bucketize_sparse_features
    PERMUTE = "permute"  # received ids to table order, bags to sample order
    DENSE = "dense"  # matrix products and element-wise kernels
    COPY = "copy"  # memcpy and memset
    OTHER = "other"


class TraceKind(StrEnum):
    """The program that wrote the trace."""

    KINETO = "kineto"  # torch.profiler, Chrome's trace format
    INSPECTOR = "nccl-inspector"  # NCCL's profiler plugin, JSON lines


@dataclass(frozen=True, slots=True)
class TracedCollective:
    """One collective as one rank ran it.

    collective     as in ``schema.evidence.COLLECTIVES``
    group          name of the process group; ``group_ranks``: its ranks in the world, () if not recorded
    group_size     ranks of the group
    instance       sequence number of the collective in its group: from the trace (``numbered``), else counted
                   from 0 in the order of this rank's launches
    in_bytes, out_bytes   of this rank's send and receive buffer
    payload_bytes  of one rank's buffer as nccl-tests counts it: the send buffer of an all-to-all and a
                   reduce-scatter, the receive buffer of an all-gather, the only buffer of the others
    in_split, out_split   elements for and from each rank of an uneven all-to-all; () if even
    dtype          as the trace spells it: Float, BFloat16, Long, float …
    stream         CUDA stream, or thread of gloo's worker
    start_s, time_s   of the kernel, or of gloo's worker; with the wait for other ranks
    launch_s       time of the host's launch, on the same clock; None if the trace does not have it
    overlap_s      part of time_s beside compute kernels of other streams
    """

    rank: int
    collective: str
    group: str
    group_ranks: tuple[int, ...]
    group_size: int
    instance: int
    numbered: bool
    in_bytes: int
    out_bytes: int
    payload_bytes: int
    dtype: str
    stream: int
    start_s: float
    time_s: float
    correlation: int | None = None
    launch_s: float | None = None
    overlap_s: float = 0.0
    in_split: tuple[int, ...] = ()
    out_split: tuple[int, ...] = ()

    @property
    def overlapped(self) -> bool:
        """Whether compute ran beside it for more than ``OVERLAP_SHARE`` of its time."""
        return self.overlap_s > OVERLAP_SHARE * self.time_s

    @property
    def end_s(self) -> float:
        """Its end, on the clock of ``start_s``."""
        return self.start_s + self.time_s


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """One kernel of a GPU that is no collective; in a trace of a CPU, an operator that counts as a kernel.

    op          operator that launched it (``fbgemm::…``, ``aten::embedding_bag``); "" if not recorded
    shapes      of the operator's inputs, with record_shapes=True; () if not recorded
    scalars     of the operator's inputs, as text: "" for a tensor; () if not recorded
    launch_s    duration of the host's launch call (cudaLaunchKernel); None if not recorded
    queue_s     from the end of that call to the start of the kernel; None if not recorded
    overlap_s   part of time_s beside kernels of other streams, with collectives
    types       of the operator's inputs, as the trace spells them; () if not recorded
    call        number of the operator's call, equal for all kernels that it launched; None if not recorded
    correlation number that the kernel shares with its launch; None if not recorded
    """

    rank: int
    name: str
    family: KernelFamily
    stream: int
    start_s: float
    time_s: float
    correlation: int | None = None
    op: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    scalars: tuple[str, ...] = ()
    launch_s: float | None = None
    queue_s: float | None = None
    overlap_s: float = 0.0
    types: tuple[str, ...] = ()
    call: int | None = None

    @property
    def overlapped(self) -> bool:
        """Whether work of another stream ran beside it for more than ``OVERLAP_SHARE`` of its time."""
        return self.overlap_s > OVERLAP_SHARE * self.time_s


@dataclass(frozen=True, slots=True)
class TracedRange:
    """A named range of the host: ``ProfilerStep#5``, or a record_function of the trainer or of TorchRec."""

    rank: int
    name: str
    start_s: float
    time_s: float
    thread: int

    @property
    def step(self) -> int | None:
        """Number of the training step of a ``ProfilerStep#n``; None for any other range."""
        head, mark, number = self.name.partition("#")
        known = head == "ProfilerStep" and mark and number.isascii() and number.isdigit()
        return int(number) if known and len(number) < _MOST_DIGITS else None


@dataclass(frozen=True)
class RankTrace:
    """Contents of one rank's trace, and counts of what is not used.

    origin_ns   Unix time of 0 s of this trace, by the clock of its host; 0 if the trace has no such clock
    groups      ranks of each process group by its name, as the trace lists them; a second group with the
                same name is ``name#2``
    versions    by name, e.g. ``nccl``, ``cuda_runtime``, ``torch``; "" if the trace does not state it
    events      in the file, with metadata
    unread      communication that is not used: counts, by reason
    cut         whether the file ends before its trace does
    seconds     time that reading took
    """

    file: str
    kind: TraceKind
    rank: int
    world_size: int
    backend: str
    device: str
    host: str
    origin_ns: int
    collectives: Sequence[TracedCollective]
    kernels: Sequence[TracedKernel]
    ranges: Sequence[TracedRange]
    events: int
    unread: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    seconds: float = 0.0

    @property
    def communications(self) -> int:
        """Communication events in the trace, used or not."""
        return len(self.collectives) + sum(self.unread.values())
