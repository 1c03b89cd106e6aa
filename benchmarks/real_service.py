"""A small service that really runs, beside what ``load`` predicts of it: percentiles of its latencies.

A clock thread sends requests at Poisson times. Servers take them from a queue in batches, up to a size or a
wait, and run a pass: each of its steps holds its device, and sleeps as long as it is said to take or looks
rows up on this CPU. Nothing of the simulation is used: threads, locks and the operating system decide what
happens. The prediction knows when requests come and how long steps are said to take. On a busy machine
threads wake late: ``passes`` is how much longer steps took than they were said to. ``as run`` is what the
difference is where the prediction has each step as long as it took: that of the queue and the batches alone.
A case whose steps took more than 2 % longer is run again, three times at most; only quiet runs count.

python benchmarks/real_service.py                  about 3 minutes on an idle machine
python benchmarks/real_service.py --requests 600   about 1 minute; with --look-ups one more
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import schedule
from perfmodel.schema.evidence import Evidence
from perfmodel.service.arrivals import Poisson
from perfmodel.service.events import Rule, simulate
from perfmodel.service.highest import Replica
from perfmodel.service.served import ServedPass, ServedStep
from perfmodel.service.stragglers import Lateness, RankDelay, lateness

Array = NDArray[np.float64]
GATHER = ServedStep("gather_pool", "", schedule.COMPUTE)
IDS = ServedStep("all_to_all_ids", "all_to_all", schedule.NETWORK)
BAGS = ServedStep("reduce_scatter_bags", "reduce_scatter", schedule.NETWORK)
MOST, WARM = 4096, 0.1
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LATE_S, RANKS = 2e-3, 8
OF_A_REQUEST = 10_000
NOISE, TRIES = 0.02, 3


@dataclass(frozen=True)
class Case:
    """A service.

    used  of its capacity;  steps  (step, fixed s, s a request);  ranks  whose slowest ends a pass
    """

    name: str
    rule: Rule
    used: float
    steps: tuple[tuple[ServedStep, float, float], ...]
    replicas: int = 1
    ranks: int = 1


PASS = ((GATHER, 20e-3, 1e-3),)
STEPS = ((IDS, 8e-3, 0.3e-3), (GATHER, 10e-3, 0.5e-3), (BAGS, 8e-3, 0.3e-3))
CASES = (
    Case("one at a time", Rule(1, 0.0, overlap=False), 0.6, PASS),
    Case("batches up to 8, no wait", Rule(8, 0.0, overlap=False), 0.5, PASS),
    Case("batches up to 8, nearly full", Rule(8, 0.0, overlap=False), 0.75, PASS),
    Case("batches up to 8, wait 30 ms", Rule(8, 30e-3, overlap=False), 0.3, PASS),
    Case("all that wait at once", Rule(200, 0.0, overlap=False), 0.3, PASS),
    Case("three steps, two batches overlap", Rule(8, 0.0, overlap=True), 0.6, STEPS),
    Case("slowest of 8 ranks", Rule(8, 0.0, overlap=False), 0.5, ((IDS, 20e-3, 1e-3),), ranks=RANKS),
    Case("three replicas", Rule(8, 0.0, overlap=False), 0.5, PASS, replicas=3),
)


class Device:
    """What one step at a time runs on: of those that wait the one of the oldest batch is next."""

    def __init__(self) -> None:
        self._free, self._waiting = True, list[tuple[int, threading.Event]]()
        self._lock = threading.Lock()

    def take(self, batch: int) -> None:
        """Wait for the turn of a batch, by its number."""
        turn = threading.Event()
        with self._lock:
            if self._free:
                self._free = False
                return
            heapq.heappush(self._waiting, (batch, turn))
        turn.wait()

    def leave(self) -> None:
        """The next one's turn."""
        with self._lock:
            if self._waiting:
                heapq.heappop(self._waiting)[1].set()
            else:
                self._free = True


class Server(threading.Thread):
    """One replica: forms batches of its queue, and runs their steps on its devices.

    run  a step of so many requests: holds the thread as long as it takes, and says how long it should
    over_s, took_s  of each batch and step: what it took longer, and what it took
    """

    def __init__(self, rule: Rule, steps: tuple[ServedStep, ...], run: Callable[[int, int], float]) -> None:
        super().__init__(daemon=True)
        self.rule, self.steps, self.run_step = rule, steps, run
        self.queue = deque[float]()
        self.come = threading.Condition()
        self.ended = False
        self.latencies: list[tuple[float, float]] = []  # when it came, how long it took
        self.over_s: list[list[float]] = []
        self.took_s = 0.0
        self._devices = {step.device: Device() for step in steps}
        self._flying = threading.Semaphore(2 if rule.overlap else 1)

    def send(self, at: float) -> None:
        """A request that came at a time of ``time.monotonic``."""
        with self.come:
            self.queue.append(at)
            self.come.notify()

    def end(self) -> None:
        """Nobody comes any more."""
        with self.come:
            self.ended = True
            self.come.notify()

    def run(self) -> None:
        """Batch after batch, until the last is done."""
        flying: list[threading.Thread] = []
        first = self._devices[self.steps[0].device]
        while self._closed():
            self._flying.acquire()
            first.take(len(self.over_s))
            with self.come:
                count = min(len(self.queue), self.rule.requests)
                batch = [self.queue.popleft() for _ in range(count)]
            over = [0.0] * len(self.steps)
            self.over_s.append(over)
            if self.rule.overlap:
                flying.append(threading.Thread(target=self._serve, args=(batch, over, len(self.over_s) - 1)))
                flying[-1].start()
            else:
                self._serve(batch, over, len(self.over_s) - 1)
        for each in flying:
            each.join()

    def _closed(self) -> bool:
        """Wait until a batch is full, or its first request has waited; False: there is none any more."""
        with self.come:
            while not self.queue:
                if self.ended:
                    return False
                self.come.wait()
            until = self.queue[0] + (self.rule.wait_s if self.rule.requests > 1 else 0.0)
            while len(self.queue) < self.rule.requests and not self.ended:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self.come.wait(left)
            return True

    def _serve(self, batch: list[float], over: list[float], number: int) -> None:
        for at, step in enumerate(self.steps):
            device = self._devices[step.device]
            if at:
                device.take(number)
            begin = time.monotonic()
            said = self.run_step(at, len(batch))
            took = time.monotonic() - begin
            device.leave()
            over[at] = took - said
            self.took_s += took
        now = time.monotonic()
        self._flying.release()
        self.latencies += [(came, now - came) for came in batch]


def serve(servers: list[Server], times: Array, dealt: NDArray[np.int64]) -> Array:
    """Latencies of requests that come at these times; without those while queues fill."""
    for server in servers:
        server.start()
    begin = time.monotonic() + 0.1
    for at, to in zip((begin + times).tolist(), dealt.tolist(), strict=True):
        left = at - time.monotonic()
        if left > 0:
            time.sleep(left)
        servers[to].send(at)
    for server in servers:
        server.end()
    for server in servers:
        server.join()
    found = sorted(each for server in servers for each in server.latencies)
    return np.array([latency for _, latency in found[int(WARM * len(found)) :]])


def served_pass(case: Case) -> ServedPass:
    """The pass of a case as ``load`` knows it; the mean time of a rank has its own delay in it."""
    ends = np.array([1.0, MOST])
    own = LATE_S if case.ranks > 1 else 0.0
    times = np.array([[fixed + each + own, fixed + each * MOST + own] for _, fixed, each in case.steps])
    names = tuple(step for step, _, _ in case.steps)
    return ServedPass(1, ends, names, times, times, times, (Evidence.MEASURED,) * 2, np.ones(2, bool))


def replica_of(case: Case, served: ServedPass) -> Replica:
    """As ``load`` has it."""
    late = None
    if case.ranks > 1:
        spread = RankDelay(LATE_S, LATE_S, LATE_S, 0.0, 0.0, 0.0, Evidence.MEASURED, "")
        late = lateness(spread, (1,), case.ranks)
    return Replica(served, Poisson(), 1.0, late, replicas=case.replicas)


def predicted(
    case: Case, replica: Replica, times: Array, dealt: NDArray[np.int64], servers: list[Server] | None
) -> Array:
    """Latencies that ``load`` simulates of requests that come at these times, dealt like this.

    servers  whose batches took longer than they were said to; None: nothing took longer
    """
    found = []
    for each in range(case.replicas):
        late = replica.late
        if servers is not None:
            over = np.array(servers[each].over_s)
            drawn = 0.0 if late is None else LATE_S * np.resize(late.draws, over.shape)
            late = Lateness(1.0, 0.0, over + drawn)
        found.append(simulate(replica.served, case.rule, times[dealt == each], late).latency_s)
    return np.concatenate(found)


def sleeping(case: Case, random: np.random.Generator) -> Callable[[int, int], float]:
    """Steps that sleep, of several ranks until the last is ready: how long they are said to take [s]."""

    def run(at: int, requests: int) -> float:
        _, fixed, each = case.steps[at]
        late = LATE_S * float(random.standard_exponential(case.ranks).max()) if case.ranks > 1 else 0.0
        time.sleep(fixed + each * requests + late)
        return fixed + each * requests + late

    return run


def look_ups(requests: int) -> tuple[Case, ServedPass, Callable[[int, int], float]]:
    """A real embedding-bag forward pass on this CPU: its times are measured alone, then it is served.

    requests  of a full batch, each with ``OF_A_REQUEST`` bags of 200 rows
    """
    import torch

    torch.set_num_threads(1)
    table = torch.nn.EmbeddingBag(500_000, 64, mode="sum")
    ids = torch.randint(500_000, (requests * OF_A_REQUEST, 200))

    said: dict[int, float] = {}

    def run(at: int, count: int) -> float:
        with torch.no_grad():
            table(ids[: OF_A_REQUEST * count])
        return float(np.interp(count, list(said), list(said.values())))

    said |= dict.fromkeys((1, 2, 4, requests), 0.0)
    for count in said:
        each = []
        for _ in range(15):
            begin = time.monotonic()
            run(0, count)
            each.append(time.monotonic() - begin)
        said[count] = statistics.median(each)
    row = np.array([list(said.values())])
    known = ServedPass(
        1, np.array(list(said), float), (GATHER,), row, row, row, (Evidence.MEASURED,) * 4, np.ones(4, bool)
    )
    return Case("embedding bags on this CPU", Rule(requests, 0.0, overlap=False), 0.5, PASS), known, run


def compared(
    case: Case, served: ServedPass, run: Callable[[int, int], float], count: int, seed: int
) -> tuple[float, list[tuple[float, float]]]:
    """How much longer steps took, and relative differences from what was predicted, as said and as run."""
    replica, random = replica_of(case, served), np.random.default_rng(seed)
    rate = case.used * replica.capacity(case.rule) * case.replicas
    times = np.cumsum(random.exponential(1 / rate, count))
    dealt = random.integers(case.replicas, size=count)
    servers = [Server(case.rule, served.steps, run) for _ in range(case.replicas)]
    found = serve(servers, times, dealt)
    said, ran = (predicted(case, replica, times, dealt, each) for each in (None, servers))
    errors, cells = [], []
    for q in QUANTILES.values():
        really, plain, long = (float(np.quantile(each, q)) for each in (found, said, ran))
        errors.append((really / plain - 1, really / long - 1))
        cells.append(f"{1e3 * really:7.1f} {1e3 * plain:7.1f} {errors[-1][0]:+7.1%} {errors[-1][1]:+7.1%}")
    took, over = (sum(each) for each in zip(*((s.took_s, np.sum(s.over_s)) for s in servers), strict=True))
    longer = over / (took - over)
    print(f"{case.name:33} {case.used:5.0%} {longer:+7.1%} " + " ".join(cells), flush=True)
    return longer, errors


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000, help="sent in each case")
    parser.add_argument("--seed", type=int, default=1, help="of the requests that are sent")
    parser.add_argument("--look-ups", action="store_true", help="also a real pass; needs an idle core")
    asked = parser.parse_args()
    columns = " ".join(f"{name + ' ran':>7} {'said':>7} {'differs':>7} {'as run':>7}" for name in QUANTILES)
    print(f"{'latencies in ms':33} {'used':>5} {'passes':>7} {columns}")
    errors: list[tuple[float, float]] = []
    quiet = 0
    for at, case in enumerate(CASES):
        for again in range(TRIES):
            seed = asked.seed + len(CASES) * again + at
            random = np.random.default_rng(seed)
            longer, found = compared(case, served_pass(case), sleeping(case, random), asked.requests, seed)
            if longer <= NOISE:
                errors, quiet = errors + found, quiet + 1
                break
    print(f"{quiet} of {len(CASES)} cases were quiet: steps took at most {NOISE:.0%} longer than said")
    if not errors:
        return
    for name, each in zip(("as said", "as run"), zip(*errors, strict=True), strict=True):
        sizes = [abs(error) for error in each]
        print(f"passes that sleep, {name}: median {statistics.median(sizes):.1%}, largest {max(sizes):.1%}")
    if asked.look_ups:
        compared(*look_ups(8), asked.requests // 4, asked.seed)


if __name__ == "__main__":
    main()
