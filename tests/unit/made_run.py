"""A made traced run: collectives that real ranks of TorchRec ran over gloo, at times that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme
from perfmodel.schema.traces import (
    KernelFamily,
    RankTrace,
    TracedCollective,
    TracedKernel,
    TracedRange,
    TraceKind,
)
from perfmodel.schema.workload import Table, TableSet

BATCH = 512
TABLES = (
    ("users", 200_000, 64, 20.0),
    ("goods", 50_000, 64, 10.0),
    ("shops", 2000, 32, 4.0),
    ("days", 400, 32, 1.0),
)
"""By rows, by rows, whole on rank 0, whole on rank 1."""
_GAP_S, _START_S = 1e-6, 1e-3


@dataclass(frozen=True)
class Event:
    """A collective, or kernels of a family where ``family`` is one; bytes and waits by rank.

    step  that it is in truth, "" for none of the plan's;  groups  that run it at once, () for all ranks
    """

    step: str
    kind: str
    sent: tuple[int, ...] = (0, 0)
    received: tuple[int, ...] = (0, 0)
    own_s: float = 10e-6
    wait_s: tuple[float, ...] = (0.0, 0.0)
    gap_s: float = _GAP_S
    overlap: bool = False
    family: KernelFamily | None = None
    rank_s: tuple[float, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()


def _both(step: str, kind: str, sent: int, received: int | None = None) -> Event:
    back = sent if received is None else received
    return Event(step, kind, (sent, sent), (back, back))


def _kernel(step: str, family: KernelFamily) -> Event:
    return Event(step, "", family=family, rank_s=(5e-6, 5e-6))


FORWARD: tuple[Event, ...] = (
    _kernel("bucketize", KernelFamily.BUCKETIZE),
    _both("all_to_all_splits_row_wise", "all_to_all", 48),
    _both("all_to_all_splits", "all_to_all", 48),
    _both("all_to_all_lengths_row_wise", "all_to_all", 16384),
    Event("all_to_all_ids_row_wise", "all_to_all", (122880, 122880), (124224, 121536)),
    _both("all_to_all_lengths", "all_to_all", 8192),
    Event("all_to_all_ids", "all_to_all", (20480, 20480), (32768, 8192)),
    _kernel("gather_pool", KernelFamily.GATHER_POOL),
    _both("reduce_scatter_bags", "reduce_scatter", 524288, 262144),
    _both("all_to_all_bags", "all_to_all", 131072),
)
BACKWARD: tuple[Event, ...] = (
    _both("all_to_all_gradients", "all_to_all", 131072),
    _both("all_gather_gradients", "all_gather", 262144, 524288),
    _kernel("backward", KernelFamily.BACKWARD),
)
"""As TorchRec 1.8 ran them on two ranks (``benchmarks/torchrec_traces.py --training``)."""


def plan_of(ranks: int = 2) -> tuple[PlanTables, Plan]:
    """The plan that was run."""
    tables = PlanTables.of(TableSet("mine", tuple(Table(*each) for each in TABLES)))
    rows = Placement.of(Scheme(Exchange.RS, ranks), range(ranks))
    whole = [Placement.of(Scheme(Exchange.RB), [rank]) for rank in (0, 1)]
    return tables, Plan(tables, (rows, rows, *whole), ranks, ranks)


def evaluator_of(
    tables: PlanTables, *, training: bool = True, batch: int = BATCH, ranks: int = 2
) -> Evaluator:
    """On GPUs of a shipped machine: the times of a test are made, and its bytes are not."""
    sets = ExchangeSets(("row_wise", "row_wise", "table_wise", "table_wise"))
    how = {"training": training, "optimizer": "sgd" if training else "none", "sets": sets}
    return Evaluator.on("h100-sxm-ib", tables, batch, ranks, **how)


@dataclass
class MadeRun:
    """Traces of all ranks, iteration after iteration."""

    ranks: int = 2
    world_size: int = 2
    iterations: list[Sequence[Event]] = field(default_factory=list)

    def traces(self, only: Sequence[int] | None = None) -> list[RankTrace]:
        """As an importer reads them."""
        own: dict[int, tuple[list[TracedCollective], list[TracedKernel], list[TracedRange]]] = {
            rank: ([], [], []) for rank in range(self.ranks)
        }
        at, number = _START_S, 0
        for step, events in enumerate(self.iterations):
            began = at
            at += _GAP_S
            for event in events:
                if event.family is not None:
                    for rank, time in enumerate(event.rank_s):
                        own[rank][1].append(TracedKernel(rank, event.step, event.family, 7, at, time))
                    at += max(event.rank_s) + event.gap_s
                    continue
                end = at + event.own_s + max(event.wait_s)
                for group in event.groups or (tuple(range(self.world_size)),):
                    for rank in group:
                        if rank < self.ranks:
                            time = event.own_s + event.wait_s[rank]
                            own[rank][0].append(_collective(event, rank, group, number, end - time, time))
                number += 1
                at = end + event.gap_s
            for rank in range(self.ranks):
                own[rank][2].append(TracedRange(rank, f"ProfilerStep#{step}", began, at - began, 1))
        picked = range(self.ranks) if only is None else only
        return [_trace(rank, self.world_size, *own[rank]) for rank in picked]


def _collective(
    event: Event, rank: int, group: tuple[int, ...], number: int, start_s: float, time_s: float
) -> TracedCollective:
    sent, received = event.sent[rank], event.received[rank]
    payload = received if event.kind == "all_gather" else sent
    return TracedCollective(
        rank, event.kind, "-".join(map(str, group)), group, len(group), number, True, sent, received, payload,
        "float", 1, start_s, time_s, overlap_s=time_s if event.overlap else 0.0,
    )  # fmt: skip


def _trace(
    rank: int,
    world: int,
    collectives: list[TracedCollective],
    kernels: list[TracedKernel],
    ranges: list[TracedRange],
) -> RankTrace:
    return RankTrace(
        f"trace_rank{rank}.json", TraceKind.KINETO, rank, world, "gloo", "cpu", "host", 0,
        tuple(collectives), tuple(kernels), tuple(ranges), len(collectives) + len(kernels),
    )  # fmt: skip


def at_times(events: Sequence[Event], times: dict[str, float], kernels: dict[str, float]) -> list[Event]:
    """The same events, each as long as its step is predicted."""
    found = []
    for event in events:
        if event.family is not None:
            found.append(replace(event, rank_s=(kernels[str(event.family)],) * 2))
        else:
            found.append(replace(event, own_s=times.get(event.step, event.own_s)))
    return found
