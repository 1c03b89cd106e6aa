"""Discrete-event simulation of a chip: single row requests, copies, two buffers, channels, an LRU cache.

Each core runs its pieces one after the other (``chip.programs``). A request waits until its core may issue
it, then for its slice of the cache and, on a miss, for its channel of global memory; each of these serves one
request at a time, first come first served. Latency is added. If cores have their own caches, gathered rows
are looked up there first. A row that is requested while it is in flight is waited for, not fetched again.
No parameter is fitted to the closed forms.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from perfmodel.schema.chip import Chip

Array = NDArray[np.float64]

_FRESH, _ASKING, _UNLOCK, _NEXT, _PASSED = -1, -2, -3, -4, -5
"""Kinds of events; 0 or more: a request of that chunk has arrived; _PASSED - n: request n leaves a core."""

LOCAL = -1
"""Channel of a request that never leaves the core."""


@dataclass(eq=False, slots=True)
class Fetch:
    """Requests of one core, in chunks that are processed in order.

    at_once       requests that may be in flight at the same time
    For each request:
    size, issue   bytes, and time until the core may issue the next [s]
    place         address, which determines slice and channel; ``LOCAL``: inside the core
    key           its row in the cache; None: it bypasses the cache
    chunk         number of its chunk; non-decreasing, every chunk at least once
    For each chunk:
    work          time to process it after its arrival [s]
    free_from     chunks before this one wait for no buffer; later chunks take turns with two buffers
    posted        a write: the core does not wait for an answer
    looked_up     whether rows may be in the core's own cache
    """

    size: list[float]
    issue: list[float]
    place: list[int]
    key: list[int] | None
    chunk: list[int]
    work: list[float]
    at_once: int
    free_from: int = 0
    posted: bool = False
    looked_up: bool = False


@dataclass(frozen=True)
class Meet:
    """An action: the core waits here until all cores are here."""


CoreAction = Fetch | Meet | float
"""What a core does next: fetch, wait for the others, or work for so long [s]."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """Result of a simulated batch.

    seconds   until the last core has finished [s];  core_s  until each core has finished [s]
    gm_bytes  that channels of global memory carried [bytes];  channel_s  busy time of each channel [s]
    requests  number sent to memory and cache;  hits  requests whose row was in the cache, or on its way to it
    in_core   number of rows that were in the requesting core's own cache, or on their way to it
    """

    seconds: float
    core_s: Array
    gm_bytes: float
    channel_s: Array
    requests: int
    hits: int
    in_core: int = 0


def simulate(chip: Chip, programs: Sequence[Iterator[CoreAction]]) -> Simulated:
    """Run the programs of all cores to the end. Deterministic.

    programs  actions of each core, at most as many as the chip has cores; all synchronize equally often
    Limits: no work -> 0 s;  one core, one row at a time -> the sum of their latencies
    """
    return _Machine(chip, programs).run()


@dataclass(eq=False, slots=True)
class _Active:
    """A fetch in progress on a core.

    asked, sent    requests that may be issued so far, and that were sent;  limit  requests that may be sent
    unlocked       last chunk for which there is a buffer;  parked  free places that wait for a buffer
    asking_until   when the core may issue again;  working_until  when it has processed what has arrived
    current        next chunk to process;  left  requests of each chunk that have not arrived
    ends           number of requests up to the end of each chunk;  arrived  when each chunk had arrived
    """

    fetch: Fetch
    core: int
    left: list[int]
    ends: list[int]
    arrived: list[float]
    working_until: float
    unlocked: int
    limit: int
    parked: int
    asking_until: float = 0.0
    asked: int = 0
    sent: int = 0
    current: int = 0


class _Machine:
    """State of a simulation. An event is (time, the object that it concerns, its kind)."""

    def __init__(self, chip: Chip, programs: Sequence[Iterator[CoreAction]]) -> None:
        self.programs = list(programs)
        self.active: dict[int, _Active] = {}
        self.ready = [0.0] * len(self.programs)
        self.heap: list[tuple[float, int, int]] = []
        self.begun, self.met = 0, 0
        self.memory = _Memory(chip)
        own = len(self.programs) if chip.value("core_cache_bytes") else 0
        self.near = [CoreCache(chip) for _ in range(own)]
        self.passing: dict[tuple[int, int], CachedRow] = {}

    def run(self) -> Simulated:
        heap = self.heap
        for core in range(len(self.programs)):
            heappush(heap, (0.0, core, _NEXT))
        while heap:
            now, number, what = heappop(heap)
            if what == _NEXT:
                self._next(number, now)
                continue
            state = self.active.get(number)
            if state is None:
                continue
            if what == _ASKING:
                self._send(number, state, now)
                continue
            if what == _UNLOCK:
                self._unlock(number, state, now)
                continue
            if what <= _PASSED:
                self._pass(number, state, _PASSED - what, now)
                continue
            if what >= 0:
                state.left[what] -= 1
                if not state.left[what]:
                    self._arrived(number, state, what, now)
            at = state.asked
            if at >= state.limit:
                state.parked += 1
                continue
            state.asked = at + 1
            begin = max(state.asking_until, now)
            state.asking_until = begin + state.fetch.issue[at]
            if begin > now:
                heappush(heap, (begin, number, _ASKING))
            else:
                self._send(number, state, now)
        m, core_s = self.memory, np.array(self.ready)
        in_core = sum(one.hits for one in self.near)
        seconds = float(core_s.max(initial=0))
        return Simulated(seconds, core_s, m.bytes, np.array(m.busy), m.requests, m.hits, in_core)

    def _next(self, core: int, now: float) -> None:
        """Start the next action of a core at time ``now``."""
        step = next(self.programs[core], None)
        if step is None:
            self.ready[core] = now
            return
        if isinstance(step, float):
            heappush(self.heap, (now + step, core, _NEXT))
            return
        if isinstance(step, Meet):
            self.met += 1
            if self.met == len(self.programs):
                self.met = 0
                for one in range(len(self.programs)):
                    heappush(self.heap, (now, one, _NEXT))
            return
        chunks = len(step.work)
        left = np.bincount(step.chunk, minlength=chunks).tolist()
        ends = np.cumsum(left).tolist()
        unlocked = min(step.free_from + 1, chunks - 1)
        places = min(step.at_once, ends[unlocked])
        number = len(self.programs) + self.begun
        self.begun += 1
        self.active[number] = _Active(
            step, core, left, ends, [now] * chunks, now, unlocked, ends[unlocked], step.at_once - places
        )
        for _ in range(places):
            heappush(self.heap, (now, number, _FRESH))

    def _send(self, number: int, state: _Active, now: float) -> None:
        """Send one request of a fetch; its return is a later event.

        number  of the core;  state  its fetch
        """
        fetch, at = state.fetch, state.sent
        state.sent = at + 1
        place = fetch.place[at]
        if place == LOCAL:
            back = now + fetch.issue[at]
        elif self.near and fetch.looked_up:
            self._look_up(number, state, at, now)
            return
        else:
            key = None if fetch.key is None else fetch.key[at]
            back = self.memory.serve(now, fetch.size[at], place, key, fetch.posted)
        heappush(self.heap, (back, number, fetch.chunk[at]))

    def _look_up(self, number: int, state: _Active, at: int, now: float) -> None:
        """Look up a row in the core's own cache; on a miss, the request leaves the core.

        number, state  the core and its fetch;  at  the request
        """
        fetch, near = state.fetch, self.near[state.core]
        assert fetch.key is not None
        line = near.find(fetch.key[at])
        if line is None:
            self.passing[number, at] = near.bring(fetch.key[at], fetch.size[at])
            begin = near.leave(now, fetch.size[at])
            if begin > now:
                heappush(self.heap, (begin, number, _PASSED - at))
            else:
                self._pass(number, state, at, now)
        elif line.there is None:
            line.waiting.append(fetch.chunk[at])
        else:
            heappush(self.heap, (near.back(now, fetch.size[at], line.there), number, fetch.chunk[at]))

    def _pass(self, number: int, state: _Active, at: int, now: float) -> None:
        """Request a row from the shared resources; requests that wait for it receive it at the same time.

        number, state  the core and its fetch;  at  the request
        """
        fetch, line = state.fetch, self.passing.pop((number, at))
        key = None if fetch.key is None else fetch.key[at]
        line.there = self.memory.serve(now, fetch.size[at], fetch.place[at], key, fetch.posted)
        for chunk in (fetch.chunk[at], *line.waiting):
            heappush(self.heap, (line.there, number, chunk))
        line.waiting.clear()

    def _unlock(self, number: int, state: _Active, now: float) -> None:
        """A buffer has become free: fetch the next chunk into it."""
        state.unlocked += 1
        state.limit = state.ends[state.unlocked]
        for _ in range(state.parked):
            heappush(self.heap, (now, number, _FRESH))
        state.parked = 0

    def _arrived(self, number: int, state: _Active, chunk: int, now: float) -> None:
        """A chunk has arrived: process it, and then the chunks that waited for it."""
        fetch, chunks = state.fetch, len(state.fetch.work)
        state.arrived[chunk] = now
        while state.current < chunks and not state.left[state.current]:
            begin = max(state.arrived[state.current], state.working_until)
            state.working_until = begin + fetch.work[state.current]
            if state.current >= fetch.free_from and state.current + 2 < chunks:
                heappush(self.heap, (state.working_until, number, _UNLOCK))
            state.current += 1
        if state.current == chunks:
            del self.active[number]
            heappush(self.heap, (state.working_until, state.core, _NEXT))


class _Memory:
    """The channels of global memory, and a cache in slices that evict the least recently used row."""

    def __init__(self, chip: Chip) -> None:
        v = chip.value
        self.channels, self.slices = int(v("channels")), int(v("cache_slices"))
        self.per_byte = self.channels / v("gm_bytes_per_s")
        self.far, self.near = v("row_latency_s"), v("cache_latency_s")
        self.free = [0.0] * self.channels
        self.busy = [0.0] * self.channels
        self.bytes, self.requests, self.hits = 0.0, 0, 0
        if self.slices:
            self.slice_per_byte = self.slices / v("cache_bytes_per_s")
            self.slice_free = [0.0] * self.slices
            self.room = [v("cache_bytes") / self.slices] * self.slices
            self.held: list[OrderedDict[int, tuple[float, float]]] = [
                OrderedDict() for _ in range(self.slices)
            ]

    def serve(self, now: float, size: float, place: int, key: int | None, posted: bool) -> float:
        """Time at which a request is answered; a write (``posted``) is done once it is served.

        now  time of the request;  size, place, key  as in ``Fetch``
        """
        self.requests += 1
        if key is None or not self.slices:
            done = self._channel(now, size, place)
            return done if posted else done + self.far
        part = place % self.slices
        done = max(now, self.slice_free[part]) + size * self.slice_per_byte
        self.slice_free[part] = done
        held = self.held[part]
        found = held.get(key)
        if found is not None:
            self.hits += 1
            held.move_to_end(key)
            return max(done + self.near, found[0])
        there = self._channel(done, size, place) + self.far
        held[key] = (there, size)
        self.room[part] -= size
        while self.room[part] < 0:
            self.room[part] += held.popitem(last=False)[1][1]
        return there

    def _channel(self, now: float, size: float, place: int) -> float:
        """Time at which the channel of ``place`` has served a request of ``size`` bytes."""
        at, took = place % self.channels, size * self.per_byte
        done = max(now, self.free[at]) + took
        self.free[at] = done
        self.busy[at] += took
        self.bytes += size
        return done


@dataclass(eq=False, slots=True)
class CachedRow:
    """A row in the cache.

    size  bytes;  there  time of arrival, None: not requested;  waiting  chunks of requests that wait for it
    """

    size: float
    there: float | None = None
    waiting: list[int] = field(default_factory=list)


class CoreCache:
    """The cached rows of one core, and its exit to shared memory, through which requests leave one by one."""

    def __init__(self, chip: Chip) -> None:
        self.room, self.latency = chip.value("core_cache_bytes"), chip.value("core_cache_latency_s")
        self.per_byte = 1 / chip.value("core_cache_bytes_per_s")
        self.out_per_byte = 1 / chip.value("core_bytes_per_s")
        self.free, self.hits = 0.0, 0
        self.held: OrderedDict[int, CachedRow] = OrderedDict()

    def find(self, key: int) -> CachedRow | None:
        """The row with this key if it is in the cache or on its way; else None."""
        line = self.held.get(key)
        if line is not None:
            self.hits += 1
            self.held.move_to_end(key)
        return line

    def bring(self, key: int, size: float) -> CachedRow:
        """Make space for a row that will arrive, and return its entry."""
        line = self.held[key] = CachedRow(size)
        self.room -= size
        while self.room < 0:
            self.room += self.held.popitem(last=False)[1].size
        return line

    def leave(self, now: float, size: float) -> float:
        """Time at which a request of ``size`` bytes has left the core."""
        begin = max(now, self.free)
        self.free = begin + size * self.out_per_byte
        return begin

    def back(self, now: float, size: float, there: float) -> float:
        """Time at which a row has been read that arrives, or arrived, at ``there``."""
        return max(now + self.latency + size * self.per_byte, there)
