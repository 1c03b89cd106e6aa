"""Kernels of NCCL in a PyTorch profiler's trace, joined with the description of their collectives.

Newer traces have the description on the kernel. Older traces have it on the host's record_param_comms event,
to which the kernel refers by its External id; still older ones on a ``nccl:…`` range of the host, during
which the kernel was launched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibrate.importers.traces.kineto_events import HostCall, KinetoEvents, NcclKernel, whole
from calibrate.importers.traces.names import (
    all_ranks,
    collective_of,
    datatype_of,
    elements,
    payload_bytes,
    received_bytes,
)
from perfmodel.schema.gate import decode_json
from perfmodel.schema.ranges import MOST_GPUS
from perfmodel.schema.traces import TracedCollective

_NAME = "Collective name"


class TracedWorld(NamedTuple):
    """This rank, the number of all ranks, and the ranks of each process group by its name.

    Several groups may share a name."""

    rank: int
    size: int
    groups: Mapping[str, tuple[tuple[int, ...], ...]]


class Told(NamedTuple):
    """The description of a collective in a trace, besides its times.

    group, ranks  name and ranks of the process group;  size  number of its ranks
    sequence      number of the collective in its group; None if the trace has none
    in_split, out_split  of an all-to-all: elements for each rank, and from each rank
    """

    collective: str
    group: str
    ranks: tuple[int, ...]
    size: int
    sequence: int | None
    in_bytes: int
    out_bytes: int
    dtype: str
    in_split: tuple[int, ...] = ()
    out_split: tuple[int, ...] = ()


class _Launch(NamedTuple):
    start_s: float
    thread: int


def nccl_collectives(
    events: KinetoEvents, world: TracedWorld, unread: Counter[str]
) -> list[TracedCollective]:
    """Collectives of NCCL, in the order of their launches; ``unread`` counts the unusable by reason."""
    streams = {kernel.stream for kernel in events.nccl}
    by_id = {whole(call.args.get("External id", -1)): call for call in events.comms if _NAME in call.args}
    said, launches = _Said(world), _launches(events)
    marks = _Enclosing(events.marks)
    comms = _Enclosing(call for call in events.comms if _NAME in call.args)
    operators = _Enclosing(events.c10d)
    found: list[tuple[NcclKernel, Told, float | None]] = []
    for kernel in events.nccl:
        launch = launches.get(kernel.correlation)
        told = said.by_args(kernel.args, kernel.sequence)
        if told is None and (call := by_id.get(kernel.external)) is not None:
            told = said.by_args(call.args, whole(call.args.get("Seq", -1)))
        if told is None and launch is not None and (call := comms.around(launch)) is not None:
            told = said.by_args(call.args, whole(call.args.get("Seq", -1)))
        if told is None and launch is not None and (call := marks.around(launch)) is not None:
            told = _told_by_range(call, operators.around(launch), world, len(streams))
        if told is None:
            told = _why_untold(launch, bool(events.comms or events.marks))
        if isinstance(told, str):
            unread[told] += 1
        else:
            found.append((kernel, told, None if launch is None else launch.start_s))
    if not events.nccl and events.marks:
        unread["only its launch: profile with ProfilerActivity.CUDA"] += len(events.marks)
    return numbered(found, world.rank)


def numbered(found: Sequence[tuple[NcclKernel, Told, float | None]], rank: int) -> list[TracedCollective]:
    """Collectives with sequence numbers: the trace's own numbers if they differ in each group, else counted.

    found  kernels with their descriptions and launch times [s];  rank  of the trace
    """
    order = sorted(range(len(found)), key=lambda i: (found[i][2] or found[i][0].start_s, found[i][0].start_s))
    sequences: dict[tuple[str, tuple[int, ...]], list[int | None]] = defaultdict(list)
    for i in order:
        told = found[i][1]
        sequences[(told.group, told.ranks)].append(told.sequence)
    whole_numbers = {key: None not in own and len(set(own)) == len(own) for key, own in sequences.items()}
    counted: Counter[tuple[str, tuple[int, ...]]] = Counter()
    collectives = []
    for i in order:
        kernel, told, launch_s = found[i]
        key = (told.group, told.ranks)
        own = whole_numbers[key] and told.sequence is not None
        instance = told.sequence if own and told.sequence is not None else counted[key]
        counted[key] += 1
        collectives.append(
            TracedCollective(
                rank, told.collective, told.group, told.ranks, told.size, instance, own,
                told.in_bytes, told.out_bytes,
                payload_bytes(told.collective, told.in_bytes, told.out_bytes), told.dtype, kernel.stream,
                kernel.start_s, kernel.time_s, kernel.correlation if kernel.correlation >= 0 else None,
                launch_s, 0.0, told.in_split, told.out_split,
            )
        )  # fmt: skip
    return collectives


def why_not_used(told: Told) -> str:
    """The reason why a collective that is described completely cannot be a sample; "" if it can."""
    if told.size == 1:
        return "one rank: nothing was sent"
    if not 1 < told.size <= MOST_GPUS:
        return "of how many ranks is not recorded"
    if told.in_bytes == 0 and told.out_bytes == 0:  # a rank that only receives takes part
        return "no bytes"
    return ""


def whole_list(value: object) -> tuple[int, ...]:
    """The integers of ``[1, 2]``, or of its text; () for a shortened text (``[0, 1, ..., 127]``)."""
    if isinstance(value, str):
        try:
            value, _ = decode_json(value)
        except ValueError:
            return ()
    if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
        return ()
    return tuple(value)


class _Said:
    """Descriptions of collectives that were read before, so that equal descriptions are read only once."""

    def __init__(self, world: TracedWorld) -> None:
        self._world = world
        self._known: dict[int, Told | str | None] = {}

    def by_args(self, args: Mapping[str, Any], sequence: int) -> Told | str | None:
        """The description in ``args``, with sequence number ``sequence``; ``args`` must stay in memory."""
        if id(args) not in self._known:
            self._known[id(args)] = _told_by_args(args, self._world)
        told = self._known[id(args)]
        return told._replace(sequence=sequence) if isinstance(told, Told) and sequence >= 0 else told


def _told_by_args(args: Mapping[str, Any], world: TracedWorld) -> Told | str | None:
    """The description by ``Collective name`` and others in ``args``, or why it is invalid; None without."""
    name = args.get(_NAME)
    if not isinstance(name, str):
        return None
    collective = collective_of(name)
    if not collective:
        return f"{name.strip('_')}: no collective that is modelled"
    datatype = datatype_of(str(args.get("dtype", "")))
    if datatype is None:
        return f"datatype {str(args.get('dtype', ''))[:20]!r} is not known"
    size = whole(args.get("Group size", -1))
    group = str(args.get("Process Group Name", args.get("Process Group ID", "")))
    ranks = whole_list(args.get("Process Group Ranks"))
    if len(ranks) != size:
        ranks = _listed(world, group, size)
    sent, received = (
        max(whole(args.get(f"{way} msg nelems", 0)), 0) * datatype.item_bytes for way in ("In", "Out")
    )
    told = Told(
        collective, group, ranks, size, None, sent, received,
        datatype.name, whole_list(args.get("In split size")), whole_list(args.get("Out split size")),
    )  # fmt: skip
    return why_not_used(told) or told


def _listed(world: TracedWorld, group: str, size: int) -> tuple[int, ...]:
    """Ranks of a process group, from the trace's list of groups; () if two groups have that name."""
    listed = [ranks for ranks in world.groups.get(group, ()) if len(ranks) == size]
    if len(listed) == 1:
        return listed[0]
    return all_ranks(size) if size == world.size else ()


def _told_by_range(call: HostCall, operator: HostCall | None, world: TracedWorld, streams: int) -> Told | str:
    """The description of a collective from a ``nccl:…`` range of the host, or why it is not known.

    operator  the operator around the range, if any;  streams  number of streams with kernels of NCCL
    """
    collective = collective_of(call.name)
    if not collective:
        return f"{call.name.rpartition(':')[2].strip('_')}: no collective that is modelled"
    count = elements(call.args.get("Input Dims"))
    types = call.args.get("Input type")
    datatype = datatype_of(str(types[0])) if isinstance(types, list) and types else None
    if datatype is None or not count:
        return "sizes are not recorded: profile with record_shapes=True"
    if streams > 1 or world.size < 1:
        return "its process group is not recorded, and there are several"
    sent = count * datatype.item_bytes
    received = received_bytes(collective, sent, world.size)
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if collective == "all_to_all" and operator is not None and collective_of(operator.name) == collective:
        received, splits = all_to_all_of(operator, datatype.item_bytes, received)
    told = Told(
        collective, "", all_ranks(world.size), world.size, None, sent, received, datatype.name, *splits
    )
    return why_not_used(told) or told


def all_to_all_of(
    operator: HostCall, item_bytes: int, received: int
) -> tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Data that ``c10d::alltoall_base_`` received: (bytes, (elements for, elements from each rank)).

    Its inputs are output, input, group, rows from each rank, rows for each rank (PyTorch's own schema).
    received  bytes to return if the operator does not show them
    """
    dims, scalars = operator.args.get("Input Dims"), operator.args.get("Concrete Inputs")
    if not isinstance(dims, list) or len(dims) < 2 or not operator.name.endswith("alltoall_base_"):
        return received, ((), ())
    received = elements(dims[0]) * item_bytes
    if not isinstance(scalars, list) or len(scalars) < 5:
        return received, ((), ())
    splits = []
    for side, text in ((1, scalars[4]), (0, scalars[3])):
        rows, shape = whole_list(text), dims[side]
        row = elements(shape[1:]) if isinstance(shape, list) and len(shape) > 1 else int(bool(shape))
        splits.append(tuple(count * row for count in rows))
    return received, (splits[0], splits[1])


def _why_untold(launch: _Launch | None, host_was_traced: bool) -> str:
    if launch is None:
        return "its launch is not in the trace"
    if not host_was_traced:
        return "the host's side is not in the trace: profile with ProfilerActivity.CPU"
    return "no record of which collective it is"


def _launches(events: KinetoEvents) -> dict[int, _Launch]:
    """By correlation: when, and on which thread, the host launched each kernel of NCCL."""
    wanted = {kernel.correlation for kernel in events.nccl}
    numbers = np.array(events.launch_correlation, dtype=np.int64)
    found = {}
    for place in np.flatnonzero(np.isin(numbers, list(wanted))):
        found[events.launch_correlation[place]] = _Launch(
            events.launch_start[place], events.launch_thread[place]
        )
    return found


class _Enclosing:
    """Ranges of the host, to find the innermost range that was open on a thread at a given time."""

    def __init__(self, calls: Iterable[HostCall]) -> None:
        self._calls: dict[int, list[HostCall]] = defaultdict(list)
        for call in calls:
            self._calls[call.thread].append(call)
        for own in self._calls.values():
            own.sort(key=lambda call: call.start_s)
        self._starts = {thread: [call.start_s for call in own] for thread, own in self._calls.items()}

    def around(self, launch: _Launch) -> HostCall | None:
        """The last range on the launch's thread that was open then; None if there is none."""
        own, starts = self._calls.get(launch.thread, []), self._starts.get(launch.thread, [])
        place = bisect_right(starts, launch.start_s) - 1
        for call in own[max(place - 3, 0) : place + 1][::-1]:
            if call.end_s >= launch.start_s:
                return call
        return None
