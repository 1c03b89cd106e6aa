"""Kernels of a trace that are no collectives: which operator launched each, and how long the launch took.

A trace of CPUs has no kernels; there operators are used in their place: all operators of an embedding pass,
and others if no other operator contains them. Autograd's nodes do not count: they contain operators, or wait
for a collective.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from calibrate.importers.traces.columns import EMBEDDING, KernelColumns, OperatorCall, busy_during
from calibrate.importers.traces.kineto_events import HostCall, KinetoEvents
from calibrate.importers.traces.names import kernel_family
from perfmodel.schema.traces import KernelFamily

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_SCALARS = 64
_COMPUTES = re.compile(r"(?!autograd::|torch::|c10d::|_c10d|profiler::)\w+::")


def join_kernels(events: KinetoEvents) -> None:
    """Add to the kernels of a GPU their operators, launch times, waits in the queue and overlaps."""
    kernels = events.kernels
    launch, queue, launched_at, thread = _launches(events)
    calls = {}
    numbers = {id(call): number for number, call in enumerate(events.embedding.values())}
    for place, _, external in kernels.wanted(events.embedding):
        call = events.embedding.get(external)
        if call is None or not _holds(call, launched_at[place]):
            call = _around(events, launched_at[place], int(thread[place]))
        if call is not None:
            calls[place] = numbers[id(call)], operator_call(call)
    kernels.join(calls, launch, queue, _overlaps(events))


def operator_call(call: HostCall) -> OperatorCall:
    """The recorded data of an operator: its name, shapes and scalars."""
    dims, scalars = call.args.get("Input Dims"), call.args.get("Concrete Inputs")
    shapes = tuple(_flat(one) for one in dims) if isinstance(dims, list) else ()
    texts = tuple(str(one) for one in scalars[:_MOST_SCALARS]) if isinstance(scalars, list) else ()
    types = call.args.get("Input type")
    kinds = tuple(str(one) for one in types) if isinstance(types, list) else ()
    return OperatorCall(call.name, shapes, texts, kinds)


def operators_as_kernels(events: KinetoEvents) -> KernelColumns:
    """Operators of a CPU in the place of kernels: operators of an embedding pass, and others.

    If operators are nested, the outermost counts. But an operator that contains an operator of an embedding
    pass does not count; the operators in it do.
    """
    names = list(events.operator_names)
    family = [kernel_family(name) for name in names]
    kinds = [_kind(name, one) for name, one in zip(names, family, strict=True)]
    found = KernelColumns()
    places = []
    for thread in sorted(set(events.operator_thread)):
        places += _outermost(events, thread, kinds)
    calls = {}
    for place in sorted(places, key=lambda place: events.operator_start[place]):
        number, identity = events.operator_name[place], events.operator_id[place]
        call = events.embedding.get(identity)
        if call is not None and call.name == names[number]:
            calls[len(found)] = len(found), operator_call(call)
        found.add(
            names[number], family[number], events.operator_thread[place],
            events.operator_start[place], events.operator_time[place], external=identity,
        )  # fmt: skip
    nothing = np.full(len(found), np.nan)
    found.join(calls, nothing, nothing, _beside(found.start_s, found.time_s, found.stream))
    return found


def _kind(name: str, family: KernelFamily) -> bool | None:
    """True for an operator of an embedding pass, False for another operator that computes, else None."""
    if family in EMBEDDING:
        return True
    return False if _COMPUTES.match(name) else None


def _outermost(events: KinetoEvents, thread: int, kinds: list[bool | None]) -> list[int]:
    """Indices of a thread's operators that count. kinds  by number of a name: result of ``_kind``"""
    own = np.flatnonzero(np.array(events.operator_thread) == thread)
    own = np.array([place for place in own if kinds[events.operator_name[place]] is not None], dtype=int)
    start, time_s = np.array(events.operator_start)[own], np.array(events.operator_time)[own]
    order = own[np.lexsort((-time_s, start))]
    counted: list[int] = []
    open_ones: list[tuple[float, int, bool]] = []  # end, index, whether it or an enclosing range is of a pass
    dropped: set[int] = set()
    for place in order:
        begin, end = events.operator_start[place], events.operator_start[place] + events.operator_time[place]
        while open_ones and open_ones[-1][0] <= begin:
            open_ones.pop()
        inside = bool(open_ones and open_ones[-1][2])
        embedding = bool(kinds[events.operator_name[place]])
        if embedding and not inside:
            dropped.update(around for _, around, _ in open_ones)
            counted.append(int(place))
        elif not inside and (not open_ones or open_ones[-1][1] in dropped):
            counted.append(int(place))
        open_ones.append((end, int(place), inside or embedding))
    return [place for place in counted if place not in dropped]


def _flat(dims: object) -> tuple[int, ...]:
    """The shape of a tensor as recorded; for a list of tensors, the shape of the first."""
    if not isinstance(dims, list):
        return ()
    if dims and isinstance(dims[0], list):
        return _flat(dims[0])
    return tuple(one for one in dims if isinstance(one, int))


def _holds(call: HostCall, launched_at: float) -> bool:
    """Whether the operator was running at ``launched_at`` [s]; True if that time is unknown (nan)."""
    return np.isnan(launched_at) or call.start_s <= launched_at <= call.end_s


def _around(events: KinetoEvents, launched_at: float, thread: int) -> HostCall | None:
    """The shortest operator of an embedding pass on ``thread`` that was running at ``launched_at`` [s]."""
    inside = [
        call
        for call in events.embedding.values()
        if call.thread == thread and call.start_s <= launched_at <= call.end_s
    ]
    return min(inside, key=lambda call: call.time_s, default=None)


def _launches(
    events: KinetoEvents,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Per kernel: (time of the launch call, wait in the queue, begin of the call, its thread).

    The wait is from the end of the call to the kernel's start; times are in seconds.
    Limits: no launch recorded -> nan, and thread -1
    """
    kernels = events.kernels
    number = np.array(events.launch_correlation, dtype=np.int64)
    launch = np.full(len(kernels), np.nan)
    queue, launched_at = launch.copy(), launch.copy()
    thread = np.full(len(kernels), -1, dtype=np.int64)
    if not len(number) or not len(kernels):
        return launch, queue, launched_at, thread
    order = np.argsort(number, kind="stable")
    place = np.minimum(np.searchsorted(number[order], kernels.correlation), len(number) - 1)
    found = order[place]
    known = number[found] == kernels.correlation
    start, time_s = np.array(events.launch_start), np.array(events.launch_time)
    launch[known] = time_s[found][known]
    launched_at[known] = start[found][known]
    queue[known] = kernels.start_s[known] - (start + time_s)[found][known]
    thread[known] = np.array(events.launch_thread, dtype=np.int64)[found][known]
    return launch, queue, launched_at, thread


def _overlaps(events: KinetoEvents) -> NDArray[np.float64]:
    """For each kernel of a GPU, the seconds during which another stream ran a kernel or collective."""
    kernels = events.kernels
    start = np.concatenate([kernels.start_s, [one.start_s for one in events.nccl]])
    time_s = np.concatenate([kernels.time_s, [one.time_s for one in events.nccl]])
    stream = np.concatenate([kernels.stream, np.array([one.stream for one in events.nccl], dtype=np.int64)])
    return _beside(start, time_s, stream)[: len(kernels)]


def _beside(
    start_s: NDArray[np.float64], time_s: NDArray[np.float64], stream: NDArray[np.int64]
) -> NDArray[np.float64]:
    overlap = np.zeros(len(start_s))
    for own in np.unique(stream):
        mine, others = stream == own, stream != own
        overlap[mine] = busy_during(
            start_s[mine], (start_s + time_s)[mine], start_s[others], (start_s + time_s)[others]
        )
    return overlap
