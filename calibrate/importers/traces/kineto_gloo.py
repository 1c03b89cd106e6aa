"""Collectives of gloo in a PyTorch profiler's trace of CPUs.

A worker is a thread that runs gloo's collectives. It leaves a ``gloo:all_to_all`` range with the shape of the
send buffer. The ``c10d::`` operator that requested it has both buffers, the splits and the time of the
request. gloo has no reduce-scatter of its own: PyTorch runs an all-reduce for it, and only the operator shows
which collective was requested. A worker belongs to one process group, which no event names: it is the only
group of the trace whose size fits all collectives of the worker. If several have that size, workers in order
of their thread numbers are assigned to groups in order of the trace, since each group starts its workers when
it is made. There must be as many sets of workers as groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from calibrate.importers.traces.kineto_events import HostCall, KinetoEvents, NcclKernel
from calibrate.importers.traces.kineto_nccl import (
    Told,
    TracedWorld,
    all_to_all_of,
    numbered,
    whole_list,
    why_not_used,
)
from calibrate.importers.traces.names import (
    Datatype,
    all_ranks,
    collective_of,
    consecutive,
    datatype_of,
    elements,
    received_bytes,
)
from perfmodel.schema.traces import TracedCollective

_RUN_AS = {"reduce_scatter": "all_reduce"}
_SEVERAL = "its process group is not recorded, and several fit"


class _Group(NamedTuple):
    """The process group of a worker thread. If several groups of that size fit: name "", ranks ()."""

    name: str
    ranks: tuple[int, ...]
    size: int


class _Asked(NamedTuple):
    """A collective of gloo.

    ran         the worker's time span;  operator  the operator that requested it, None if unknown
    collective  its name in this program
    """

    ran: HostCall
    operator: HostCall | None
    collective: str


def gloo_collectives(
    events: KinetoEvents, world: TracedWorld, unread: Counter[str]
) -> list[TracedCollective]:
    """Collectives of gloo, in the order of their operators; ``unread`` counts the unusable by reason."""
    asked = _join(events)
    groups = _groups_of_threads(asked, world)
    found: list[tuple[NcclKernel, Told, float | None]] = []
    for one in asked:
        told: Told | str = "its operator is not in the trace"
        if one.operator is not None or not events.c10d or not one.collective:
            told = _told(one, groups[one.ran.thread])
        if isinstance(told, str):
            unread[told] += 1
            continue
        ran = one.ran
        as_kernel = NcclKernel(ran.thread, ran.start_s, ran.time_s)
        found.append((as_kernel, told, one.operator.start_s if one.operator else None))
    return numbered(found, world.rank)


def _join(events: KinetoEvents) -> list[_Asked]:
    """Each collective of gloo with its operator, the first unused operator of the same kind and shape."""
    open_ones: dict[tuple[str, tuple[int, ...]], list[HostCall]] = defaultdict(list)
    for call in sorted(events.c10d, key=lambda call: -call.start_s):
        collective = collective_of(call.name)
        open_ones[(_RUN_AS.get(collective, collective), _send_shape(call))].append(call)
    asked = []
    for ran in sorted(events.gloo, key=lambda call: call.start_s):
        collective = collective_of(ran.name)
        waiting = open_ones.get((collective, _shape(ran.args.get("Input Dims"))), [])
        operator = waiting.pop() if waiting and waiting[-1].start_s <= ran.start_s else None
        asked.append(_Asked(ran, operator, collective_of(operator.name) if operator else collective))
    return asked


def _send_shape(call: HostCall) -> tuple[int, ...]:
    """Numbers of elements of an operator's send buffer, in the form in which its worker's range has them."""
    dims = call.args.get("Input Dims")
    if not isinstance(dims, list) or not dims:
        return ()
    has_output = collective_of(call.name) in ("all_to_all", "all_gather", "reduce_scatter")
    return _shape([dims[1]] if has_output and len(dims) > 1 else [dims[0]])


def _shape(dims: object) -> tuple[int, ...]:
    return (elements(dims),)


def _group_size(asked: _Asked) -> int:
    """Number of ranks of the process group, from the sizes of both buffers, or the splits; 0 if unknown."""
    operator = asked.operator
    dims = operator.args.get("Input Dims") if operator else None
    if operator is None or not isinstance(dims, list) or len(dims) < 2:
        return 0
    output, sent = elements(dims[0]), elements(dims[1])
    if asked.collective == "all_gather" and sent and output % sent == 0:
        return output // sent
    if asked.collective == "reduce_scatter" and output and sent % output == 0:
        return sent // output
    scalars = operator.args.get("Concrete Inputs")
    if asked.collective == "all_to_all" and isinstance(scalars, list) and len(scalars) > 4:
        return len(whole_list(scalars[4]))
    return 0


def _told(asked: _Asked, group: _Group | None) -> Told | str:
    """The description of a collective, or the reason why it cannot be used."""
    ran = asked.ran
    if not asked.collective:
        return f"{ran.name.removeprefix('gloo:')}: no collective that is modelled"
    count, types = elements(ran.args.get("Input Dims")), ran.args.get("Input type")
    datatype = datatype_of(str(types[0])) if isinstance(types, list) and types else None
    if "Input Dims" not in ran.args:
        return "sizes are not recorded: profile with record_shapes=True"
    if datatype is None:
        return f"datatype {str(types)[:20]!r} is not known"
    if group is None:
        return _SEVERAL
    name, ranks, size = group
    sent = count * datatype.item_bytes
    received, splits = _received(asked, datatype, sent, size)
    told = Told(asked.collective, name, ranks, size, None, sent, received, datatype.name, *splits)
    return why_not_used(told) or told


def _received(
    asked: _Asked, datatype: Datatype, sent: int, ranks: int
) -> tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    received = received_bytes(asked.collective, sent, ranks)
    if asked.collective == "all_to_all" and asked.operator is not None:
        return all_to_all_of(asked.operator, datatype.item_bytes, received)
    return received, ((), ())


def _groups_of_threads(asked: Sequence[_Asked], world: TracedWorld) -> dict[int, _Group | None]:
    """The process group of each worker thread, by thread number; None if it cannot be determined."""
    sizes: dict[int, set[int]] = {one.ran.thread: set() for one in asked}
    for one in asked:
        if size := _group_size(one):
            sizes[one.ran.thread].add(size)
    groups = {thread: _group(world, shown) for thread, shown in sizes.items()}
    for size in sorted({group.size for group in groups.values() if group is not None and not group.ranks}):
        fitting = _fitting(world, {size})
        workers = consecutive(sorted(t for t, group in groups.items() if group == _Group("", (), size)))
        if len(workers) == len(fitting):
            for threads, (ranks, name) in zip(workers, fitting.items(), strict=True):
                groups.update(dict.fromkeys(threads, _Group(name, ranks, size)))
    return groups


def _fitting(world: TracedWorld, sizes: set[int]) -> dict[tuple[int, ...], str]:
    """Groups with this rank, by ranks, with their names. sizes  allowed numbers of ranks; empty: any"""
    by_ranks: dict[tuple[int, ...], str] = {}
    for name, several in world.groups.items():
        for ranks in several:
            if world.rank in ranks and len(ranks) > 1 and (not sizes or len(ranks) in sizes):
                by_ranks.setdefault(ranks, name)
    return by_ranks


def _group(world: TracedWorld, sizes: set[int]) -> _Group | None:
    """The process group of a worker.

    sizes  numbers of ranks that its collectives show
    Limits: no group listed -> the world;  several of one size fit -> only the size;  else None
    """
    if len(sizes) > 1:
        return None
    if not world.groups and world.size > 1:
        return _Group("", all_ranks(world.size), world.size)
    fitting = _fitting(world, sizes)
    if len(fitting) == 1:
        ((ranks, name),) = fitting.items()
        return _Group(name, ranks, len(ranks))
    lengths = {len(ranks) for ranks in fitting}
    return _Group("", (), lengths.pop()) if len(lengths) == 1 else None
