"""One-sided collectives over shared memory: puts and signals as in NVSHMEM, between CPU ranks of a node.

A rank writes into the others' landing zones (memory for data that arrives, see ``heap``) and signals that it
did; there are no requests or acknowledgements. Received data stays in the zone and is used there; sums are
computed in the receive buffer. A reduce-scatter is an all-to-all and a local sum; a large all-reduce is a
reduce-scatter and an all-gather.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.operations import Availability, Place, RawCollectives, Slots
from calibrate.patterns import BufferLayout
from calibrate.providers.heap import FOLDER, ZONE_BYTES, SymmetricHeap, remove_stale, require_addresses
from calibrate.providers.host_collectives import Call, HostCollectives, HostOperation, as_numpy
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS

ONE_SHOT_BYTES = 16 * 1024
"""Up to this size an all-reduce sends all data to all ranks and sums once."""

_LINE_BYTES = 64
Landing = Callable[[Any, Any], NDArray[Any]]
"""A call that returns its result: (send, receive) -> result."""


def availability() -> Availability:
    """Whether ranks here can share memory, on a processor that keeps the order of stores."""
    if sys.platform != "linux" or not os.access(FOLDER, os.W_OK):
        return Availability(False, f"it needs {FOLDER}, as Linux has it")
    if platform.machine() not in ("x86_64", "AMD64"):
        return Availability(False, f"plain stores may be seen out of order on {platform.machine()}")
    version = f"numpy {importlib.metadata.version('numpy')}"
    return Availability(
        True, version=version, clocks=Shmem.clocks, operations=SAMPLE_OPERATIONS, devices=("cpu",)
    )


class ShmemOperation(HostOperation):
    """A collective whose result may stay in a landing zone instead of the receive buffer.

    A rank cannot poison its zone, into which others may write already. An old result still fails the check:
    its pattern has another salt or send buffer.
    """

    def run(self) -> None:
        """Run the call, and keep its result."""
        self._recv = self._land(self._send, self._wrapped_recv)

    @property
    def _land(self) -> Landing:
        return self._call  # type: ignore[return-value]


class Shmem(HostCollectives, RawCollectives):
    """Collectives over shared memory between ranks of one node; each group has a symmetric heap."""

    name = "shmem"

    def __init__(self) -> None:
        super().__init__()
        self._raw_calls: dict[tuple[tuple[int, ...], int, Any], Landing] = {}

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Keep this rank's place and the name of the run; remove segments that killed runs left behind.

        Limits: too little address space to map the zones of all ranks of the node -> NoHardwareError
        """
        require_addresses(place.local_ranks)
        remove_stale()
        self._place, self._rank, self._run = place, place.rank, address["run"]

    def open_group(self, ranks: Sequence[int]) -> None:
        """Members map each other's zones; other ranks return at once.

        Limits: ranks of several nodes -> BadInputError; a member that does not join -> NoHardwareError
        """
        if self._rank not in ranks or tuple(ranks) in self._groups:
            return
        first = self._place.rank - self._place.local_rank
        if not all(first <= rank < first + self._place.local_ranks for rank in ranks):
            raise BadInputError(f"ranks {list(ranks)} are on several nodes: shmem ends at the node.")
        self._groups[tuple(ranks)] = SymmetricHeap(self._run, ranks, list(ranks).index(self._rank))

    def barrier(self, ranks: Sequence[int]) -> None:
        """Signal to all ranks, and wait for all."""
        self._group(ranks).barrier()

    def raw_all_to_all(self, send: Slots, recv: Slots, ranks: Sequence[int], *, equal: bool = False) -> None:
        """As in RawCollectives, by puts; received data is copied to ``recv``, equal parts too.

        Limits: a part above ZONE_BYTES / ranks -> BadInputError
        """
        heap: SymmetricHeap = self._group(ranks)
        out, into = as_numpy(send.buffer), as_numpy(recv.buffer)
        slot = ZONE_BYTES // heap.size // _LINE_BYTES * _LINE_BYTES
        if max([*send.counts, *recv.counts]) * out.dtype.itemsize > slot:
            raise BadInputError(
                "a part of an all-to-all does not fit the symmetric heap.", f"a part may have {slot} bytes."
            )
        half = heap.enter()
        ends = [0, *accumulate(send.counts)]
        for peer in heap.others:
            zone = heap.zone(half, peer, slot * heap.index, send.counts[peer], out.dtype)
            zone[...] = out[ends[peer] : ends[peer + 1]]
            heap.signal(peer)
        at = [0, *accumulate(recv.counts)]
        me = heap.index
        into[at[me] : at[me + 1]] = out[ends[me] : ends[me + 1]]
        for peer in heap.others:
            heap.wait([peer])
            zone = heap.zone(half, me, slot * peer, recv.counts[peer], out.dtype)
            into[at[peer] : at[peer + 1]] = zone

    def raw_reduce_scatter(self, send: Any, recv: Any, ranks: Sequence[int]) -> None:
        """As in RawCollectives, by puts and a sum in ``recv``."""
        out, into = as_numpy(send), as_numpy(recv)
        key = (tuple(ranks), out.size, out.dtype)
        call = self._raw_calls.get(key)
        if call is None:
            call = self._raw_calls[key] = _reduce_scatter(self._group(ranks), out.size, out.dtype)
        call(out, into)

    def close(self) -> None:
        """Free the memory."""
        self._raw_calls.clear()
        for heap in self._groups.values():
            heap.close()
        self._groups.clear()

    def _call(self, one: BufferLayout, variant: str, group: Any) -> Call:
        calls: dict[str, Callable[[], Landing]] = {
            "all_to_all": lambda: _all_to_all(group, one.send_counts, one.dtype),
            "reduce_scatter": lambda: _reduce_scatter(group, one.elements, one.dtype),
            "all_gather": lambda: _all_gather(group, one.elements, one.dtype),
            "all_reduce": lambda: _all_reduce(group, one.elements, one.dtype),
            "broadcast": lambda: _broadcast(group, one.elements, one.dtype),
            "sendrecv": lambda: _ring_shift(group, one.elements, one.dtype),
        }
        return calls[one.operation]()  # type: ignore[return-value]

    @staticmethod
    def _kind(operation: str) -> type[HostOperation]:
        return ShmemOperation


def _all_to_all(heap: SymmetricHeap, counts: Sequence[int], dtype: np.dtype[Any]) -> Landing:
    """The call of an all-to-all: part p of each sender, ``counts[p]`` elements, is written to p's zone."""
    me, width = heap.index, dtype.itemsize
    ends = [0, *accumulate(counts)]
    order = [*heap.others, me]
    zones = [[heap.zone(h, p, me * counts[p] * width, counts[p], dtype) for p in order] for h in (0, 1)]
    mine = [heap.zone(h, me, 0, counts[me] * heap.size, dtype) for h in (0, 1)]
    parts = [slice(ends[p], ends[p + 1]) for p in order]

    def call(send: Any, recv: Any) -> NDArray[Any]:
        half = heap.enter()
        for peer, part, zone in zip(order, parts, zones[half], strict=True):
            zone[...] = send[part]
            if peer != me:
                heap.signal(peer)
        heap.wait(heap.others)
        return mine[half]

    return call


def _reduce_scatter(heap: SymmetricHeap, elements: int, dtype: np.dtype[Any]) -> Landing:
    """The call of a reduce-scatter: part p goes to p's zone; each rank sums what it received."""
    block = elements // heap.size
    return _sum_parts(heap, [block] * heap.size, dtype)


def _sum_parts(heap: SymmetricHeap, counts: Sequence[int], dtype: np.dtype[Any]) -> Landing:
    """The call that sums all ranks' parts for this rank into ``recv``.

    counts  elements of each rank's part
    """
    me = heap.index
    ends = [0, *accumulate(counts)]
    step = -(-max(counts) * dtype.itemsize // _LINE_BYTES) * _LINE_BYTES
    zones = [[heap.zone(h, p, me * step, counts[p], dtype) for p in heap.others] for h in (0, 1)]
    mine = [[heap.zone(h, me, p * step, counts[me], dtype) for p in heap.others] for h in (0, 1)]
    parts = [slice(ends[p], ends[p + 1]) for p in heap.others]
    own = slice(ends[me], ends[me + 1])

    def call(send: Any, recv: Any) -> NDArray[Any]:
        half = heap.enter()
        for peer, part, zone in zip(heap.others, parts, zones[half], strict=True):
            zone[...] = send[part]
            heap.signal(peer)
        total = send[own]
        for peer, landed in zip(heap.others, mine[half], strict=True):
            heap.wait((peer,))
            total = np.add(total, landed, out=recv)
        return recv  # type: ignore[no-any-return]

    return call


def _all_gather(heap: SymmetricHeap, elements: int, dtype: np.dtype[Any]) -> Landing:
    """The call of an all-gather: each rank writes its block into every zone, in rank order."""
    return _gather_parts(heap, [elements // heap.size] * heap.size, dtype)


def _gather_parts(heap: SymmetricHeap, counts: Sequence[int], dtype: np.dtype[Any]) -> Landing:
    me = heap.index
    ends = [0, *accumulate(counts)]
    order = [*heap.others, me]
    zones = [[heap.zone(h, p, ends[me] * dtype.itemsize, counts[me], dtype) for p in order] for h in (0, 1)]
    mine = [heap.zone(h, me, 0, ends[-1], dtype) for h in (0, 1)]

    def call(send: Any, recv: Any) -> NDArray[Any]:
        half = heap.enter()
        for peer, zone in zip(order, zones[half], strict=True):
            zone[...] = send
            if peer != me:
                heap.signal(peer)
        heap.wait(heap.others)
        return mine[half]

    return call


def _all_reduce(heap: SymmetricHeap, elements: int, dtype: np.dtype[Any]) -> Landing:
    """The call of an all-reduce. Small: all ranks get all data and sum it. Large: sum parts, gather them."""
    if elements * dtype.itemsize <= ONE_SHOT_BYTES:
        return _one_shot(heap, elements, dtype)
    ends = [elements * p // heap.size for p in range(heap.size + 1)]
    counts = [high - low for low, high in pairwise(ends)]
    scatter, gather = _sum_parts(heap, counts, dtype), _gather_parts(heap, counts, dtype)
    part = counts[heap.index]
    return lambda send, recv: gather(scatter(send, recv[:part]), recv)


def _one_shot(heap: SymmetricHeap, elements: int, dtype: np.dtype[Any]) -> Landing:
    me = heap.index
    step = -(-elements * dtype.itemsize // _LINE_BYTES) * _LINE_BYTES
    zones = [[heap.zone(h, p, me * step, elements, dtype) for p in heap.others] for h in (0, 1)]
    mine = [[heap.zone(h, me, p * step, elements, dtype) for p in heap.others] for h in (0, 1)]

    def call(send: Any, recv: Any) -> NDArray[Any]:
        half = heap.enter()
        for peer, zone in zip(heap.others, zones[half], strict=True):
            zone[...] = send
            heap.signal(peer)
        total = send
        for peer, landed in zip(heap.others, mine[half], strict=True):
            heap.wait((peer,))
            total = np.add(total, landed, out=recv)
        return recv  # type: ignore[no-any-return]

    return call


def _broadcast(heap: SymmetricHeap, elements: int, dtype: np.dtype[Any]) -> Landing:
    """The call of a broadcast: rank 0 of the group writes into every zone; the others wait for it."""
    zones = [[heap.zone(h, p, 0, elements, dtype) for p in heap.others] for h in (0, 1)]
    mine = [heap.zone(h, heap.index, 0, elements, dtype) for h in (0, 1)]

    def root(send: Any, recv: Any) -> NDArray[Any]:
        half = heap.enter()
        for peer, zone in zip(heap.others, zones[half], strict=True):
            zone[...] = send
            heap.signal(peer)
        return recv  # type: ignore[no-any-return]

    def receiver(send: Any, recv: Any) -> NDArray[Any]:
        half = heap.enter()
        heap.signal_all()
        heap.wait((0,))
        return mine[half]

    return root if heap.index == 0 else receiver


def _ring_shift(heap: SymmetricHeap, elements: int, dtype: np.dtype[Any]) -> Landing:
    """The call of a ring shift: each rank writes into the next rank's zone, then waits for its own data."""
    after, ahead = heap.others[0], heap.others[-1]
    zones = [heap.zone(h, after, 0, elements, dtype) for h in (0, 1)]
    mine = [heap.zone(h, heap.index, 0, elements, dtype) for h in (0, 1)]

    def call(send: Any, recv: Any) -> NDArray[Any]:
        half = heap.enter()
        zones[half][...] = send
        heap.signal_all()
        heap.wait((ahead,))
        return mine[half]

    return call
