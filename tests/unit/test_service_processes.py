"""Overlap against another program: batches as processes that take and leave devices, in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from test_service_events import BAGS, GATHER, IDS, served

from perfmodel.service.arrivals import Poisson
from perfmodel.service.events import Rule, simulate
from perfmodel.service.served import ServedPass


class Processes:
    """A queue, a former of batches, two batches in flight, and devices that the oldest batch gets first."""

    def __init__(self, one: ServedPass, most: int, come: NDArray[np.float64]) -> None:
        self.one, self.most, self.now, self.order = one, most, 0.0, itertools.count()
        self.queue: list[float] = []
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.taken = {step.device: False for step in one.steps}
        self.waiting: dict[str, list[tuple[int, int, Callable[[], None]]]] = {each: [] for each in self.taken}
        self.flying, self.forming, self.formed = 0, False, 0
        self.found: list[tuple[float, float]] = []
        for each in come.tolist():
            self.at(each, lambda came=each: self.arrive(came))  # type: ignore[misc]
        while self.events:
            self.now, _, then = heapq.heappop(self.events)
            then()

    def at(self, time: float, then: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time, next(self.order), then))

    def arrive(self, came: float) -> None:
        self.queue.append(came)
        self.look()

    def look(self) -> None:
        if self.queue and self.flying < 2 and not self.forming:
            self.flying, self.forming = self.flying + 1, True
            self.take(self.one.steps[0].device, self.formed, self.form)

    def take(self, device: str, batch: int, then: Callable[[], None]) -> None:
        if self.taken[device]:
            heapq.heappush(self.waiting[device], (batch, next(self.order), then))
            return
        self.taken[device] = True
        then()

    def form(self) -> None:
        batch, self.queue = self.queue[: self.most], self.queue[self.most :]
        number, self.formed, self.forming = self.formed, self.formed + 1, False
        self.run(batch, number, 0)
        self.at(self.now, self.look)

    def run(self, batch: list[float], number: int, step: int) -> None:
        time = float(self.one.at(len(batch))[step, 0])
        self.at(self.now + time, lambda: self.done(batch, number, step))

    def done(self, batch: list[float], number: int, step: int) -> None:
        device = self.one.steps[step].device
        self.taken[device] = False
        if self.waiting[device]:
            self.taken[device] = True
            heapq.heappop(self.waiting[device])[2]()
        if step + 1 == len(self.one.steps):
            self.flying -= 1
            self.found += [(came, self.now - came) for came in batch]
        else:
            self.take(self.one.steps[step + 1].device, number, lambda: self.run(batch, number, step + 1))
        self.look()


@pytest.mark.parametrize("used", [0.2, 0.6, 0.9])
def test_overlap_is_what_processes_and_devices_do(used: float) -> None:
    one = served((IDS, 8e-3, 0.3e-3), (GATHER, 10e-3, 0.5e-3), (BAGS, 8e-3, 0.3e-3))
    come = Poisson(6).times(used * 8 / one.gap(8, True), 1, 3000)
    ours = simulate(one, Rule(8, 0.0, overlap=True), come)
    found = sorted(Processes(one, 8, come).found)[300:]
    for q in (0.5, 0.95, 0.99):
        assert ours.quantile(q) == pytest.approx(float(np.quantile([s for _, s in found], q)), rel=0.01)
