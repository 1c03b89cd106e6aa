"""A ring with an event queue: every proxy and card serves who comes first. Slow, for a few small rings."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from ring_closed_form import ChunkRules, RingLinks

Place = tuple[int, int]
"""A channel and a rank."""
Unit = tuple[int, int]
"""A step and a unit of it."""


class Server:
    """Serves one job at a time, in the order of arrival."""

    def __init__(
        self, ring: EventRing, turn_s: Callable[[float, Any], float], end: Callable[[float, Any], None]
    ) -> None:
        self.ring, self.turn_s, self.end = ring, turn_s, end
        self.waiting, self.busy = deque[Any](), False

    def come(self, now: float, job: Any) -> None:
        """A job joins the queue."""
        self.waiting.append(job)
        self.serve(now)

    def serve(self, now: float) -> None:
        """Begin the next job, if there is one and nothing else is served."""
        if not self.busy and self.waiting:
            self.busy, job = True, self.waiting.popleft()
            self.ring.at(now + self.turn_s(now, job), self.leave, job)

    def leave(self, now: float, job: Any) -> None:
        """A job has had its turn."""
        self.busy = False
        self.end(now, job)
        self.serve(now)


class EventRing:
    """One chunk of every rank round a ring: ``run`` gives the time of the last copy [s]."""

    def __init__(
        self, hops: int, chunk: float, ranks: int, nodes: int, rules: ChunkRules, links: RingLinks
    ) -> None:
        self.hops, self.ranks, self.rules, self.links, self.chunk = hops, ranks, rules, links, chunk
        per_node = ranks // nodes
        self.leaves = [nodes > 1 and rank % per_node == per_node - 1 for rank in range(ranks)]
        units = int(np.clip(np.ceil(chunk / rules.unit_bytes), 1, rules.units))
        empty = 0 if rules.whole else max(rules.posts - units, 0)
        self.sizes = [chunk / units] * units + [0.0] * empty
        self.places = [(channel, rank) for channel in range(links.channels_per_nic) for rank in range(ranks)]
        self.done, self.busy = dict.fromkeys(self.places, 0), dict.fromkeys(self.places, False)
        self.free = dict.fromkeys(self.places, rules.slots)
        self.here: dict[Place, set[Unit]] = {place: set() for place in self.places}
        self.queue, self.number, self.last_s = list[Any](), count(), 0.0
        self.cards = [Server(self, self.card_s, lambda now, job: None) for _ in range(ranks)]
        self.proxies = [Server(self, lambda now, job: links.post_s, self.posted) for _ in range(ranks)]

    def at(self, time: float, what: Callable[..., None], *args: Any) -> None:
        """Something will happen."""
        heapq.heappush(self.queue, (time, next(self.number), what, args))

    def run(self) -> float:
        """Let everything happen."""
        for place in self.places:
            self.start(0.0, place)
        while self.queue:
            now, _, what, args = heapq.heappop(self.queue)
            what(now, *args)
        assert all(done == (self.hops + 1) * len(self.sizes) for done in self.done.values())
        return self.last_s

    def start(self, now: float, place: Place) -> None:
        """Begin the next unit of a thread block, if it is idle, has its data and a slot of the next rank."""
        step, unit = divmod(self.done[place], len(self.sizes))
        if self.busy[place] or step > self.hops or (step and (step, unit) not in self.here[place]):
            return
        if step < self.hops and not (self.rules.whole and unit):
            if not self.free[place]:
                return
            self.free[place] -= 1
        self.busy[place] = True
        self.at(now + self.sizes[unit] / self.links.channel_bytes_per_s, self.copied, place)

    def copied(self, now: float, place: Place) -> None:
        """A unit is copied: its slot goes back, the unit goes on."""
        (channel, rank), links = place, self.links
        step, unit = divmod(self.done[place], len(self.sizes))
        last = unit == len(self.sizes) - 1
        self.done[place], self.busy[place], self.last_s = self.done[place] + 1, False, max(self.last_s, now)
        if step and (last or not self.rules.whole):
            before = (rank - 1) % self.ranks
            self.at(
                now + (links.return_s if self.leaves[before] else links.inside_s),
                self.slot,
                (channel, before),
            )
        if step < self.hops:
            after = channel, (rank + 1) % self.ranks
            if not self.leaves[rank]:
                self.at(now + links.inside_s, self.arrive, after, (step + 1, unit))
            elif not self.rules.whole:
                self.proxies[rank].come(now, (rank, after, self.sizes[unit], [(step + 1, unit)]))
            elif last:
                units = [(step + 1, each) for each in range(len(self.sizes))]
                self.proxies[rank].come(now, (rank, after, self.chunk, units))
        self.start(now, place)

    def posted(self, now: float, job: Any) -> None:
        """A proxy has posted a message."""
        self.cards[job[0]].come(now, job)

    def card_s(self, now: float, job: Any) -> float:
        """A card begins a message: its units arrive one after the other; seconds until the card is free."""
        _, after, size, units = job
        whole = float(size) / self.links.nic_bytes_per_s
        for number, unit in enumerate(units, start=1):
            self.at(now + self.links.network_s + whole * number / len(units), self.arrive, after, unit)
        return whole

    def arrive(self, now: float, place: Place, unit: Unit) -> None:
        """A unit may be read."""
        self.here[place].add(unit)
        self.start(now, place)

    def slot(self, now: float, place: Place) -> None:
        """A place in the buffer of the next rank is free again."""
        self.free[place] += 1
        self.start(now, place)
