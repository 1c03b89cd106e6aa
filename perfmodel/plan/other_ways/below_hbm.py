"""Rows below the HBM: the number of GPUs, tier and exchange with the fewest GPU-hours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.passes import schemes
from perfmodel.plan.other_ways.one_alternative import EqualBatch, node_of
from perfmodel.projections import Projection, prepare, project_one
from perfmodel.projections.grid import project_grid
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.units import counted, format_count

IN_PLACE, CACHED, FROM_SSD = "uvm", "uvm-caching", "ssd"
FEWEST, SHORTEST = "the fewest that hold the rows", "the shortest time"
ALL_ROWS = 0.9995
"""Share of the rows in HBM above which memory below it is useless: it is printed as 100 %."""
_REDUCTIONS = (schemes.AUTO, *schemes.BY_ROWS)
_MANY = 6
"""Numbers of GPUs that are tried, evenly spaced in the logarithm."""
_FASTER = 0.98
"""A variant is listed separately only if its time is below this share of the cheapest variant's."""


@dataclass(frozen=True, eq=False)
class OnGpus:
    """A number of GPUs with a tier and an exchange.

    options  of ``project_one``;  cost  paid GPU-seconds per sample (``EqualBatch.cost``)"""

    options: Mapping[str, Any]
    gpus: int
    time_s: float
    cost: float


@dataclass(frozen=True, eq=False)
class Chosen:
    """An answer, its words, and why it has its number of GPUs.

    what  where the rows are, in words;  fastest  whether it is the fastest variant, not the cheapest"""

    what: str
    answer: Projection
    gpus_why: str
    fastest: bool = False


@dataclass(frozen=True)
class MostGpus:
    """Largest number of GPUs to try; ``given``: the user set it, and rows that need more are impossible."""

    gpus: int
    given: bool = False

    def check(self, least: int, node: int) -> int:
        """``least``, the fewest GPUs that hold the rows. Limits: more than the given GPUs -> BadInputError"""
        if self.given and least > math.ceil(self.gpus / node) * node:
            more = f"needs {counted(least, 'GPU')} or more, and --gpus {self.gpus} allows no more"
            raise BadInputError(f"{more}.", "give more --gpus, or leave them out.")
        return least


def chosen_below(
    asked: Mapping[str, Any], equal: EqualBatch, tiers: tuple[str, ...], most: MostGpus
) -> list[Chosen]:
    """The variant with the fewest GPU-hours; also the fastest, if it has another number of GPUs.

    asked  options of ``project_one``;  tiers  as typed for ``--tier``
    Limits: none is possible -> the last error
    """
    tried, refused, left_out = list[OnGpus](), list[PerfmodelError](), set[int]()
    asked = loaded(asked)
    for tier, way in itertools.product(tiers, _ways(asked)):
        options = {**asked, "tier": tier, "reduction": way}
        try:
            node = gpus_of_node(options)
            numbers = _numbers(most.check(fewest_gpus(options, equal), node), most.gpus, node)
        except PerfmodelError as error:
            refused.append(error)
            continue
        tried += _tried(options, equal, numbers, refused, left_out)
    if not tried:
        raise refused[-1]
    least, fastest = min(tried, key=lambda each: each.cost), min(tried, key=lambda each: each.time_s)
    numbers = sorted({each.gpus for each in tried})
    found = [_answered(least, why(numbers), left_out)]
    if is_faster(fastest.time_s, least.time_s, equal):
        found.append(_answered(fastest, why(numbers, SHORTEST), left_out, fastest=True))
    return found


def is_faster(fastest_s: float, least_s: float, equal: EqualBatch) -> bool:
    """Whether the fastest variant is listed beside the cheapest. Limits: equal batches per GPU -> no"""
    return equal.total is not None and fastest_s < _FASTER * least_s


def loaded(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the curves of the machine loaded: many questions then build time tables once.

    Limits: tables that no HBM of that machine holds -> without curves
    """
    try:
        forward, _ = prepare(None, **{key: asked[key] for key in asked if key not in ("gpus", "tier")})
    except PerfmodelError:
        return dict(asked)
    return {**asked, "setting": forward.setting}


def fewest_gpus(options: Mapping[str, Any], equal: EqualBatch) -> int:
    """The fewest GPUs that hold the rows and the exchange buffers of their batch.

    Buffers shrink with the samples per GPU, so the check uses the batch that the fewest GPUs would have.
    """
    if equal.total is None:
        return _needed(options, equal.of_gpu)
    return _needed(options, equal.on(_needed(options, 1)))


def _needed(options: Mapping[str, Any], batch: int) -> int:
    return int(prepare(None, **{**options, "batch": batch})[1].gpus[0])


def _numbers(least: int, most: int, node: int) -> list[int]:
    """Numbers of GPUs to try: the fewest, and whole nodes up to ``most``, since nodes are paid in full."""
    first = math.ceil(least / node)
    nodes = np.geomspace(first, max(most // node, first), _MANY)
    return sorted({least, *(round(each) * node for each in nodes.tolist())})


def _tried(
    options: Mapping[str, Any],
    equal: EqualBatch,
    numbers: list[int],
    refused: list[PerfmodelError],
    left_out: set[int],
) -> Iterator[OnGpus]:
    """The question on each of these numbers of GPUs; errors of impossible numbers go to ``refused``.

    left_out  collects numbers whose cache would hold all rows
    """
    machine = _machine(options["machine"])
    batches = [equal.on(gpus) for gpus in numbers]
    try:
        forward, work = prepare(None, **{**options, "gpus": numbers, "batch": batches})
        times = project_grid(forward, work).columns["time_s"]
    except PerfmodelError as error:
        if len(numbers) == 1:
            refused.append(error)
        else:
            for gpus in numbers:
                yield from _tried(options, equal, [gpus], refused, left_out)
        return
    shares = np.zeros(len(numbers)) if work.cached is None else work.cached
    for gpus, batch, time_s, share in zip(numbers, batches, times.tolist(), shares, strict=True):
        if share >= ALL_ROWS:
            refused.append(BadInputError("a cache would hold all rows in HBM", ""))
            left_out.add(gpus)
            continue
        paid = math.ceil(gpus / gpus_of_node(options)) * machine.gpus_per_node
        own = {**options, "gpus": gpus, "batch": batch}
        yield OnGpus(own, gpus, time_s, equal.cost(time_s, gpus, paid))


def _answered(each: OnGpus, gpus_why: str, left_out: set[int], *, fastest: bool = False) -> Chosen:
    answer = project_one(**{key: value for key, value in each.options.items() if key != "setting"})
    words = " (a cache of all rows in HBM is left out)" if each.gpus in left_out else ""
    return Chosen(f"{named(answer)}{words}", answer, gpus_why, fastest)


def why(numbers: list[int], least: str = "the fewest GPU-hours") -> str:
    """Why this number of GPUs was chosen."""
    if len(numbers) == 1:
        return FEWEST
    *first, last = (format_count(gpus) for gpus in numbers)
    return f"{least} of {', '.join(first)} and {last} GPUs"


def _machine(machine: str | Machine) -> Machine:
    return load_machine(machine) if isinstance(machine, str) else machine


def gpus_of_node(options: Mapping[str, Any]) -> int:
    """GPUs in use per node."""
    return node_of(_machine(options["machine"]), options.get("gpus_per_node"))


def _ways(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Exchanges of partial bags to try: the given exchange, else all."""
    given = asked.get("reduction") or schemes.AUTO
    return _REDUCTIONS if given == schemes.AUTO else (given,)


def share_in_hbm(answer: Projection) -> float:
    """Share of the rows that is in HBM: 0 if they are read in place."""
    return answer.gpu_count.rows_bytes / answer.gpu_count.shard_bytes


def named(answer: Projection) -> str:
    """Words for where the rows are: ``uvm-caching, 27.2 % of the rows in HBM``"""
    count, tier = answer.gpu_count, answer.forward.tier
    assert tier is not None
    word = answer.forward.reduction.replace("_", "-")
    way = f", {word}" if word in schemes.BY_ROWS and answer.gpus > 1 else ""
    if not count.rows_bytes:
        return f"{tier.kind}, rows read in place{way}"
    return f"{tier.kind}, {100 * share_in_hbm(answer):.3g} % of the rows in HBM{way}"
