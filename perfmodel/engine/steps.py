"""The steps of a pass, the resources whose bytes they wait for, and their lines in an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import count
from typing import Any

from perfmodel.schema.evidence import Clock, Evidence


class Resource(IntEnum):
    """Quantities in bytes that a rank sends, receives or moves, and that the steps of a pass wait for.

    ``X_SENT`` and ``X_RECEIVED`` are the two sides of one collective.
    """

    BUCKETIZE = 0  # ids and lengths sorted by owner
    LENGTHS_SENT = 1
    LENGTHS_RECEIVED = 2
    IDS_SENT = 3
    IDS_RECEIVED = 4
    DEDUPLICATE = 5  # ids in exchange ub
    REQUESTS_SENT = 6  # distinct ids in exchange ub
    REQUESTS_RECEIVED = 7
    DEDUPLICATE_REQUESTS = 8  # ids that arrived at a holder, of all ranks
    GATHER_DRAM = 9
    GATHER_L2 = 10
    ROWS_SENT = 11  # unique rows in exchange ub
    ROWS_RECEIVED = 12
    POOL_DRAM = 13  # pooling of the unique rows that arrived
    POOL_L2 = 14
    CONVERT_OUT = 15  # bags converted to another precision before an exchange
    REDUCE_SCATTER = 16
    REDUCE_INSIDE = 17  # row parts that reduce by domains: inside each domain
    REDUCE_ACROSS = 18  # then across, if all domains hold row parts
    ACROSS_SENT = 19  # then across, if some domains hold row parts
    ACROSS_RECEIVED = 20
    BAGS_SENT = 21
    BAGS_RECEIVED = 22
    SPARSE_SENT = 23
    SPARSE_RECEIVED = 24
    CONVERT_IN = 25
    LOCAL_SUM = 26
    SORT = 27  # training: look-ups sorted by row
    UPDATE_DRAM = 28  # gradients added up by row, rows and optimizer state updated
    UPDATE_L2 = 29
    ACCUMULATE_DRAM = 30  # exchange ub: gradients added up by row before they are sent
    ACCUMULATE_L2 = 31
    ROW_GRADIENTS_SENT = 32
    ROW_GRADIENTS_RECEIVED = 33
    COPIED_GRADIENTS = 34  # of replicated tables
    WEIGHTS_SENT = 35  # weights of ids, where they are sent apart from the ids
    WEIGHTS_RECEIVED = 36
    CACHED_INDICES = 37  # of rows in host memory: looked up in the cache in HBM
    HOST_ROWS = 38  # rows over the link to the host, with the look-up of a page for each short row
    HOST_PACKETS = 39  # the same without these look-ups
    PLACED_ROWS = 40  # unpooled rows that arrived, put in the order of the ids


TOGETHER = len(Resource)  # number of resources of a pass that exchanges all tables together

_OF_INPUT = (
    Resource.LENGTHS_SENT,
    Resource.LENGTHS_RECEIVED,
    Resource.IDS_SENT,
    Resource.IDS_RECEIVED,
    Resource.WEIGHTS_SENT,
    Resource.WEIGHTS_RECEIVED,
)
_OF_BAGS = Resource.BAGS_SENT, Resource.BAGS_RECEIVED
_OF_TYPE: dict[str, tuple[Resource, ...]] = {
    "row_wise": _OF_INPUT,
    "table_row_wise": _OF_INPUT,
    "column_wise": (*_OF_INPUT, *_OF_BAGS),
    "table_column_wise": (*_OF_INPUT, *_OF_BAGS),
    "grid_shard": (*_OF_INPUT, Resource.REDUCE_INSIDE, Resource.ACROSS_SENT, Resource.ACROSS_RECEIVED),
}
SHARDING_TYPES = tuple(_OF_TYPE)
"""TorchRec's sharding types whose tables exchange by themselves; first those of plans that we export."""
_NUMBERS = count(len(Resource))
BY_TYPE: dict[str, dict[Resource, int]] = {
    name: {resource: next(_NUMBERS) for resource in resources} for name, resources in _OF_TYPE.items()
}
"""For each of ``SHARDING_TYPES``, the number of its own resource for each resource of all tables."""
WHOLE: dict[int, Resource] = {
    number: resource for numbers in BY_TYPE.values() for resource, number in numbers.items()
}
"""For each resource of a sharding type, the resource of all tables."""
WIDTH = next(_NUMBERS)  # number of resources, those of sharding types counted


ALL, INSIDE, ACROSS = "all", "inside", "across"
"""Ranks of a collective: all; the ranks of one scale-up domain; the ranks with one place in all domains."""
SPLITS = "all_to_all_splits"
CONVERT_OUT = "convert_out"
CONVERT_IN = "convert_in"
PLACE_ROWS = "place_rows"
SORT_ALONE = "sort_lookups"  # the sort of the backward pass, which FBGEMM runs
_SORTS = frozenset({"deduplicate", "deduplicate_requests", SORT_ALONE})
HANDOVER = "handover"  # time that a pass adds to its collectives, where a calibration measured it


def label_step(name: str) -> str:
    """The label of a step that people read, and may type: ``all-to-all (bags)`` for ``all_to_all_bags``.

    Limits: with every run of characters other than letters and digits as one ``_``, it is the name again
    """
    for collective in ("all_to_all", "reduce_scatter", "all_gather", "all_reduce"):
        if name.startswith(f"{collective}_"):
            words = name.removeprefix(f"{collective}_").replace("_", " ")
            return f"{collective.replace('_', '-')} ({words})"
    return "gather + pool" if name == "gather_pool" else name.replace("_", " ")


@dataclass(frozen=True)
class Step:
    """One step of a pass; its time is a function of the largest load of each of its resources on any rank.

    collective  name of the collective; "" for a kernel;  ranks  its group of ranks: ALL, INSIDE or ACROSS
    resources   for a collective, the bytes sent and, if they differ, received: the larger counts;
                for a kernel, the bytes that it streams, or DRAM and L2 bytes of a gather
    splits      a collective of constant size, which runs if the resource is in use
    alone       whether a kernel also runs on a single GPU
    like        step of a row-wise pass whose hand-over and kernel constants it uses
    sharding    TorchRec's sharding type whose tables exchange by themselves;  whole  name of the
                corresponding step of all tables
    in_place    whether a collective needs no buffers besides memory that is kept anyway
    hosted      whether it is of rows in host memory;  always  whether it runs in every pass, even on one GPU
    grouped     whether it is one kernel for each group of tables (``exchange_sets.LookUpGroups``)
    is_kernel   whether it runs on one GPU without communication
    gathers     whether it reads rows and pools them, so that it has DRAM and L2 bytes
    sorts       whether it deduplicates ids, by a sort or a hash table (``PassBasis.list_sorts``)
    cause       of its error: errors of steps with one cause are fully correlated
    label       that people read, and may type (``label_step``)
    """

    name: str
    resources: tuple[int, ...]
    collective: str = ""
    ranks: str = ALL
    splits: bool = False
    alone: bool = False
    like: str = ""
    sharding: str = ""
    whole: str = ""
    in_place: bool = False
    grouped: bool = False
    hosted: bool = False
    always: bool = False
    is_kernel: bool = field(init=False)
    gathers: bool = field(init=False)
    sorts: bool = field(init=False)
    cause: str = field(init=False)
    label: str = field(init=False)

    def __post_init__(self) -> None:
        """Compute the fields that follow from the others, and are read in inner loops."""
        kind = self.sharding.replace("_", "-")
        kernel = not self.collective and self.name != HANDOVER
        sorts = self.name in _SORTS
        of_kernel = "host memory" if self.hosted else "sorts" if sorts else "kernels"
        facts = {
            "is_kernel": kernel,
            "gathers": kernel and not self.hosted and len(self.resources) == 2,
            "sorts": sorts,
            "cause": of_kernel if kernel else "exchanges",
            "label": f"{label_step(self.whole)[:-1]}, {kind})" if kind else label_step(self.name),
        }
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    def copy_for(self, sharding: str) -> Step | None:
        """This step for the tables of one sharding type of TorchRec; None if they have no bytes in it."""
        numbers = {int(resource): number for resource, number in BY_TYPE[sharding].items()}
        if not self.collective or set(self.resources) - numbers.keys():
            return None
        resources = tuple(numbers[resource] for resource in self.resources)
        name = f"{self.name}_{sharding}"
        like = self.like or self.name
        return replace(self, name=name, resources=resources, like=like, sharding=sharding, whole=self.name)


_R = Resource
_BAGS = "all_to_all_bags"
_ACROSS = "reduce_scatter_across"
FORWARD: tuple[Step, ...] = (
    Step("bucketize", (_R.BUCKETIZE,)),
    Step(SPLITS, (_R.LENGTHS_SENT,), "all_to_all", splits=True),
    Step("all_to_all_lengths", (_R.LENGTHS_SENT, _R.LENGTHS_RECEIVED), "all_to_all"),
    Step("all_to_all_ids", (_R.IDS_SENT, _R.IDS_RECEIVED), "all_to_all"),
    Step("deduplicate", (_R.DEDUPLICATE,)),
    Step("all_to_all_request_splits", (_R.REQUESTS_SENT,), "all_to_all", splits=True, like=SPLITS),
    Step(
        "all_to_all_requests", (_R.REQUESTS_SENT, _R.REQUESTS_RECEIVED), "all_to_all", like="all_to_all_ids"
    ),
    Step("deduplicate_requests", (_R.DEDUPLICATE_REQUESTS,)),
    Step("look_up_cache", (_R.CACHED_INDICES,), alone=True, hosted=True),
    Step("read_host_rows", (_R.HOST_ROWS, _R.HOST_PACKETS), alone=True, hosted=True),
    Step("gather_pool", (_R.GATHER_DRAM, _R.GATHER_L2), alone=True, grouped=True, always=True),
    Step("all_to_all_rows", (_R.ROWS_SENT, _R.ROWS_RECEIVED), "all_to_all", like=_BAGS),
    Step(PLACE_ROWS, (_R.PLACED_ROWS,), like="local_sum"),
    Step("pool_unique_rows", (_R.POOL_DRAM, _R.POOL_L2), like="gather_pool"),
    Step(CONVERT_OUT, (_R.CONVERT_OUT,), like="local_sum"),
    Step("reduce_scatter_bags", (_R.REDUCE_SCATTER,), "reduce_scatter"),
    Step("reduce_scatter_inside", (_R.REDUCE_INSIDE,), "reduce_scatter", INSIDE),
    Step(_ACROSS, (_R.REDUCE_ACROSS,), "reduce_scatter", ACROSS),
    Step("all_to_all_across", (_R.ACROSS_SENT, _R.ACROSS_RECEIVED), "all_to_all", ACROSS, like=_ACROSS),
    Step(_BAGS, (_R.BAGS_SENT, _R.BAGS_RECEIVED), "all_to_all"),
    Step("all_to_all_sparse_bags", (_R.SPARSE_SENT, _R.SPARSE_RECEIVED), "all_to_all", like=_BAGS),
    Step(CONVERT_IN, (_R.CONVERT_IN,), like="local_sum"),
    Step("local_sum", (_R.LOCAL_SUM,)),
)
"""Steps of the forward pass, in order."""

BACKWARD: tuple[Step, ...] = (
    Step("convert_gradients_out", (_R.CONVERT_IN,), like="local_sum"),
    Step("all_to_all_gradients", (_R.BAGS_RECEIVED, _R.BAGS_SENT), "all_to_all", like=_BAGS),
    Step("all_to_all_sparse_gradients", (_R.SPARSE_RECEIVED, _R.SPARSE_SENT), "all_to_all", like=_BAGS),
    Step(
        "all_to_all_gradients_across",
        (_R.ACROSS_RECEIVED, _R.ACROSS_SENT),
        "all_to_all",
        ACROSS,
        like=_ACROSS,
    ),
    Step("all_gather_across", (_R.REDUCE_ACROSS,), "all_gather", ACROSS),
    Step("all_gather_inside", (_R.REDUCE_INSIDE,), "all_gather", INSIDE),
    Step("all_gather_gradients", (_R.REDUCE_SCATTER,), "all_gather"),
    Step("convert_gradients_in", (_R.CONVERT_OUT,), like="local_sum"),
    Step("accumulate_row_gradients", (_R.ACCUMULATE_DRAM, _R.ACCUMULATE_L2), like="gather_pool"),
    Step(
        "all_to_all_row_gradients",
        (_R.ROW_GRADIENTS_SENT, _R.ROW_GRADIENTS_RECEIVED),
        "all_to_all",
        like=_BAGS,
    ),
    Step(SORT_ALONE, (_R.SORT,), alone=True, grouped=True),
    Step("all_reduce_copies", (_R.COPIED_GRADIENTS,), "all_reduce"),
    Step("update_rows", (_R.UPDATE_DRAM, _R.UPDATE_L2), alone=True, like="gather_pool", grouped=True),
)
"""Steps of the tables' backward pass, in order: the forward exchanges transposed, and the update of rows."""

WEIGHTS = Step(
    "all_to_all_weights", (_R.WEIGHTS_SENT, _R.WEIGHTS_RECEIVED), "all_to_all", like="all_to_all_ids"
)
"""Exchange of the weights of ids, after the ids: in TorchRec, whose bags are all weighted or none."""


def split_by_type(steps: tuple[Step, ...], shardings: tuple[str, ...] = SHARDING_TYPES) -> tuple[Step, ...]:
    """The steps, with each exchange of all tables followed by the same exchange of each sharding type."""
    expanded: list[Step] = []
    for step in steps:
        twins = (step.copy_for(sharding) for sharding in shardings)
        expanded += [step, *(twin for twin in twins if twin is not None)]
    return tuple(expanded)


STEPS: dict[str, Step] = {
    step.name: step for step in (*split_by_type((*FORWARD, WEIGHTS, *BACKWARD)), Step(HANDOVER, ()))
}
"""All steps, by name."""


def evidence_shares(rows: Iterable[StepRow]) -> dict[Evidence, float]:
    """Share of a pass's time [-] by evidence, strongest first. rows  of the pass"""
    steps = list(rows)
    shares = {e: sum(row.share for row in steps if row.evidence is e) for e in Evidence}
    return {e: share for e, share in shares.items() if share}


Times = tuple[Any, Any, Any]  # (low, centre, high) [s]: numbers, or arrays of one shape


def sum_causes(times: Iterable[tuple[str, Any, Any, Any]]) -> dict[str, Times]:
    """Times of steps, added up by cause of error: (low, centre, high) of each cause [s].

    times  (cause, low, centre, high) of each step
    """
    sums: dict[str, Times] = {}
    for cause, low, time, high in times:
        before = sums.get(cause, (0.0, 0.0, 0.0))
        sums[cause] = before[0] + low, before[1] + time, before[2] + high
    return sums


@dataclass(frozen=True)
class StepRow:
    """One line of an answer: a step with its time.

    payload_bytes  of the busiest GPU: sent by a collective, moved by a kernel
    share          its part of the time of the pass [-];  floor_s  its time with almost no bytes [s]
    evidence, limit   weakest evidence among its inputs, and the input that has it
    mean_bytes, rank  in a plan: mean bytes of a GPU, and the busiest rank
    """

    name: str
    label: str
    collective: str  # "" for a kernel
    library: str  # nccl, nvshmem or kernel
    payload_bytes: float
    time_s: float
    share: float
    low_s: float
    high_s: float
    floor_s: float
    clock: Clock
    evidence: Evidence
    limit: str
    mean_bytes: float = 0.0
    rank: int = 0

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel, which runs on one GPU without communication."""
        return not self.collective and self.name != HANDOVER

    @property
    def imbalance(self) -> float:
        """Bytes of the busiest rank over the mean; 1 if all ranks have equal loads."""
        return self.payload_bytes / self.mean_bytes if self.mean_bytes else 1.0

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON, without mean bytes and busiest rank: an answer of a plan adds them."""
        words = {"clock": str(self.clock), "evidence": str(self.evidence)}
        left_out = {"mean_bytes", "rank"}
        return {k: v for k, v in (vars(self) | words).items() if k not in left_out}


@dataclass(frozen=True)
class StepCost:
    """Cost of a pass: its steps one after the other, and their sum with its band."""

    rows: tuple[StepRow, ...]
    time_s: float
    low_s: float
    high_s: float
    evidence: Evidence

    @property
    def limiting(self) -> StepRow:
        """The longest step."""
        return max(self.rows, key=lambda row: row.time_s)
