"""What else one could do than shard: host memory, C2C, SSDs and one large memory, beside the shardings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.model import serving_cost
from perfmodel.passes import schemes
from perfmodel.plan.as_projection import compared, winner
from perfmodel.plan.other_ways.conditions import least_rate
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.projections import Projection, project_one
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.prices import MEMORY, SSD, Prices
from perfmodel.schema.table_files import load_tables
from perfmodel.units import counted, format_bytes, format_count, format_rate, format_time

ROW_WISE, BEST, HOST, BEST_HOST, GH200, GB200, ON_SSD, ONE_MEMORY, REMOTE = (
    *(schemes.ROW_WISE, "best-plan", "host", "best-plan-host", "gh200", "gb200", "ssd", "one-memory"),
    "remote-memory",
)
_LABELS = {
    ROW_WISE: f"{ROW_WISE} in HBM",
    BEST: "best plan in HBM",
    HOST: "host memory",
    BEST_HOST: "plan, HBM and host",
    GH200: "GH200 over C2C",
    GB200: "GB200 over C2C",
    ON_SSD: "SSDs",
    ONE_MEMORY: "one memory",
    REMOTE: "remote memory",
}
_C2C = {GH200: "gh200-slingshot", GB200: "gb200-nvl72"}
_OF_MACHINE = ("machine", "clock", "calibration", "overrides", "gpus_per_node", "kernels", "scenario")
_REDUCTIONS = (schemes.AUTO, *schemes.BY_ROWS)
IN_PLACE, CACHED, FROM_SSD = "uvm", "uvm-caching", "ssd"
_IN_HBM = (ROW_WISE, BEST)
MEMORY_OF = {ONE_MEMORY: MEMORY, REMOTE: MEMORY, ON_SSD: SSD}
"""What is rented by the TB beside GPUs, by the names of ``schema.prices``."""
Planner = Callable[[Projection, tuple[str, ...], float], tuple[str, Projection]]
"""Words and answer of the best plan on the GPUs of an answer, with tables in these tiers too, found in that
share of the time of a search."""
ALL_ROWS = 0.9995
"""Share of the rows in HBM, from which on nothing is left for the memory below: it prints as 100 %."""
_STEPS_OF_GPUS = 6
"""Numbers of GPUs that are tried for host memory, evenly in the logarithm."""


def alternatives(
    options: Mapping[str, Any],
    prices: Prices | None = None,
    best_plan: Planner | None = None,
    memory: tuple[float, ...] | None = None,
    remote: tuple[float, ...] | None = None,
) -> list[Alternative]:
    """Every alternative for one question, those that are not possible with why.

    options    of ``project_one``, its machine too
    best_plan  finds it; None: the fastest of all shardings that cut every table alike, and no row of a plan
               with tables in HBM and others in host memory
    memory     bytes and bytes/s of the one large memory; None: it holds the tables, at the shipped rate
    remote     the same of one over the network, with its latency [s] and the GPUs that share it; None: no row
    Limits: a question that the row-wise pass cannot have, for another reason than room -> its error
    """
    asked = read_once({**options, "machine": options.get("machine", DEFAULT_MACHINE)})
    base, refused = _base(asked)
    size, rate = float(base.work.table_bytes[0]), base.forward.constant("appliance_bytes_per_s")
    stated = {ONE_MEMORY: memory or (size, rate), **({REMOTE: remote} if remote else {})}
    machine, most = base.setting.machine, int(asked.get("gpus") or base.gpus)
    whole = "as asked" if asked.get("gpus") else "as many as hold the tables in HBM"
    found = [
        _tried(ROW_WISE, machine, lambda: (*_possible(refused, lambda: (_row_wise(base), base)), whole)),
        _tried(BEST, machine, lambda: (*_possible(refused, lambda: _planned(base, best_plan)), whole)),
        _tried(HOST, machine, lambda: _in_host(asked, most)),
        *([_tried(BEST_HOST, machine, lambda: _in_both(asked, best_plan, base, most))] if best_plan else []),
        *(_on(name, machines_of(name, asked)) for name in _C2C),
        _tried(ON_SSD, machine, lambda: (*_best_of(_as_needed(asked), [None], (FROM_SSD,)), FEWEST)),
        *(_stated(name, asked, machine, values) for name, values in stated.items()),
    ]
    best_s, alone = best_of(found).time_s, _as_needed(asked)
    for at, each in enumerate(found):
        if each.answer and each.name in stated:
            found[at] = replace(each, least_bytes_per_s=least_rate(alone, stated[each.name], best_s))
    return [_priced(each, prices) for each in found]


def read_once(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with their set of tables read: a file is read once, not again for each alternative."""
    tables = options.get("tables")
    return {**options, **({"tables": load_tables(tables)} if isinstance(tables, str) else {})}


Answer = tuple[str, Projection]
Counted = tuple[str, Projection, str]
"""The same with why it has its number of GPUs."""
FEWEST = "the fewest that hold the rows"


def question_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked, for JSON: plain numbers and words; ``gpus`` None where nobody said how many."""
    asked = read_once({**options, "machine": options.get("machine", DEFAULT_MACHINE)})
    question = _base(asked)[0].question
    assert question is not None
    return {**question.to_dict(), "gpus": asked.get("gpus")}


def _base(asked: Mapping[str, Any]) -> tuple[Projection, PerfmodelError | None]:
    """The row-wise pass; where it does not fit the GPUs asked for, on as many as it needs, and why."""
    try:
        return project_one(**asked), None
    except BadInputError as error:
        if asked.get("gpus") is None:
            raise
        return project_one(**_as_needed(asked)), error


def _possible(refused: PerfmodelError | None, find: Callable[[], Answer]) -> Answer:
    """Limits: tables that do not fit the HBM of these GPUs -> that error"""
    if refused is not None:
        raise BadInputError(f"does not fit: {refused.message}", refused.next_step)
    return find()


def _row_wise(base: Projection) -> str:
    """How the baseline that people have exchanges its bags."""
    way = _exchange_words(base.forward.way)
    return f"every table over all GPUs, {way}" if base.gpus > 1 else "every table on one GPU"


def machines_of(name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The question on the machine of an alternative, without what belongs to the one that was asked for."""
    if name not in _C2C:
        return dict(asked)
    kept = {key: value for key, value in asked.items() if key not in (*_OF_MACHINE, "gpus")}
    return {**kept, "machine": _C2C[name]}


def _on(name: str, asked: dict[str, Any]) -> Alternative:
    machine = load_machine(asked["machine"])
    return _tried(name, machine, lambda: (*_best_of(asked, [None], (IN_PLACE, CACHED)), FEWEST))


def _tried(name: str, machine: Machine, find: Callable[[], Answer | Counted]) -> Alternative:
    """An alternative, or why there is none."""
    label, stated = _LABELS[name], name in (ONE_MEMORY, REMOTE)
    try:
        what, answer, *gpus_why = find()
    except PerfmodelError as error:
        return Alternative(name, label, machine.name, why=error.message.rstrip("."), stated=stated)
    return Alternative(name, label, machine.name, what, answer, "".join(gpus_why), stated=stated)


def _in_both(asked: Mapping[str, Any], best_plan: Planner, base: Projection, most: int) -> Counted:
    """The planner's choice for each table: of the fewest GPUs that hold all rows, the most of which the HBM
    alone does not, and the number between them, those with the fewest GPU-hours."""
    alone, node = _as_needed(asked), base.gpu_count.gpus_per_node
    least, enough = project_one(**_below(alone, IN_PLACE)).gpus, int(base.gpu_count.needed)
    last = max(_whole(min(most, enough - 1), node), least)
    numbers = sorted({least, max(_whole(round((least * last) ** 0.5), node), least), last})
    bases = [project_one(**_below({**alone, "gpus": gpus}, IN_PLACE)) for gpus in numbers]
    found = [best_plan(each, (IN_PLACE, CACHED), 1 / len(bases)) for each in bases]
    words, answer = min(found, key=lambda pair: pair[1].time_s)
    more = f"; {format_count(enough)} hold them in HBM" if enough > least else ""
    return words, answer, _why(numbers) + (more if len(numbers) == 1 else "")


def _whole(gpus: int, node: int) -> int:
    """Whole nodes of as many GPUs at most. Limits: a node or less -> as many, at least one"""
    return max(gpus // node * node if gpus > node else gpus, 1)


def _why(numbers: list[int]) -> str:
    """Why of these numbers of GPUs one is taken."""
    if len(numbers) == 1:
        return FEWEST
    *first, last = (format_count(gpus) for gpus in numbers)
    return f"the fewest GPU-hours of {', '.join(first)} and {last} GPUs"


def _planned(base: Projection, best_plan: Planner | None) -> tuple[str, Projection]:
    if best_plan is not None:
        return best_plan(base, (), 1.0)
    best = winner(compared(base))
    assert best.answer is not None  # row-wise always has one
    return best.way, best.answer


def _below(asked: Mapping[str, Any], tier: str) -> dict[str, Any]:
    """The question with its rows in a tier; how bags are reduced stays as asked."""
    return {**asked, "tier": tier}


def _as_needed(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The question over as many GPUs as its tier needs: fewer than were asked for is the point of one."""
    return {name: value for name, value in asked.items() if name != "gpus"}


def _in_host(asked: dict[str, Any], most: int) -> Counted:
    """The number of GPUs and the tier of host memory that take the fewest GPU-hours."""
    asked = _as_needed(asked)
    least = project_one(**_below(asked, IN_PLACE)).gpus
    numbers = list(_numbers(asked, least, most))
    return *_best_of(asked, [None, *numbers], (IN_PLACE, CACHED)), _why([least, *numbers])


def _numbers(asked: Mapping[str, Any], least: int, most: int) -> Iterator[int]:
    """Whole nodes from ``least`` to ``most`` GPUs."""
    node = int(asked.get("gpus_per_node") or load_node(asked["machine"]))
    if most <= least:
        return
    ratio = (most / least) ** (1 / (_STEPS_OF_GPUS - 1))
    seen = {least}
    for step in range(1, _STEPS_OF_GPUS):
        gpus = least * ratio**step
        whole = min(max(round(gpus / node) * node, 1), most) if gpus > node else max(round(gpus), 1)
        if whole not in seen:
            seen.add(whole)
            yield whole


def load_node(machine: str | Machine) -> int:
    """GPUs of a node."""
    return (load_machine(machine) if isinstance(machine, str) else machine).gpus_per_node


def _best_of(
    asked: dict[str, Any], numbers: list[int | None], tiers: tuple[str, ...]
) -> tuple[str, Projection]:
    """The fastest of these. Limits: none is possible -> the error of the last"""
    best: Projection | None = None
    last: PerfmodelError | None = None
    left_out = ""
    for gpus in numbers:
        more = {} if gpus is None else {"gpus": gpus}
        for tier, way in itertools.product(tiers, _ways(asked)):
            try:
                answer = project_one(**_below({**asked, **more, "reduction": way}, tier))
            except PerfmodelError as error:
                last = error
                continue
            if _share(answer) >= ALL_ROWS:
                left_out = "a cache would hold all rows in HBM"
                last = last or BadInputError(left_out, "")
                continue
            if best is None or answer.time_s < best.time_s:
                best = answer
    if best is None:
        assert last is not None
        raise last
    what, answer = _named(best)
    return (f"{what} (a cache of all rows in HBM is left out)" if left_out else what), answer


def _share(answer: Projection) -> float:
    """Of the rows, what lies in HBM: 0 where they are read in place."""
    return answer.gpu_count.rows_bytes / answer.gpu_count.shard_bytes


def _ways(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """How partial bags may become bags: as asked, else whichever is the fastest."""
    given = asked.get("reduction") or schemes.AUTO
    return _REDUCTIONS if given == schemes.AUTO else (given,)


def _exchange_words(way: str) -> str:
    kind = schemes.exchange_named(way)
    if kind is None:
        return way
    word = kind.facts.reduction
    if word in schemes.BY_ROWS:
        return f"{word} exchange"
    return f"flat exchange ({word})" + (" as in TorchRec" if schemes.over_all(kind) else "")


def _named(answer: Projection) -> tuple[str, Projection]:
    """``uvm-caching, 27.2 % of the rows in HBM``"""
    count, tier = answer.gpu_count, answer.forward.tier
    assert tier is not None
    word = answer.forward.reduction.replace("_", "-")
    way = f", {word}" if word in schemes.BY_ROWS and answer.gpus > 1 else ""
    if not count.rows_bytes:
        return f"{tier.kind}, rows read in place{way}", answer
    return f"{tier.kind}, {100 * _share(answer):.3g} % of the rows in HBM{way}", answer


def _stated(name: str, asked: Mapping[str, Any], machine: Machine, values: tuple[float, ...]) -> Alternative:
    """One memory that holds all rows, beside a GPU or over the network."""

    def find() -> tuple[str, Projection]:
        answer = project_one(**{**_as_needed(asked), "local_memory": values})
        memory = answer.forward.memory
        assert memory is not None
        text = f"{format_bytes(memory.capacity_bytes, binary=False)} at {format_rate(memory.bytes_per_s)}"
        if name == ONE_MEMORY:
            return f"beside one GPU, {text}", answer
        shared = f"shared by {counted(memory.sharers, 'GPU')}, " if memory.sharers > 1 else ""
        return f"over the network, {text}, {shared}{format_time(memory.latency_s)} away", answer

    return _tried(name, machine, find)


def _priced(each: Alternative, prices: Prices | None) -> Alternative:
    """With the money for ``SAMPLES`` samples on the machines in use, or with the price that is missing."""
    if prices is None or each.answer is None:
        return each
    if each.machine not in prices.machine_hour:
        return replace(each, unpriced=f"machine_hour.{each.machine}")
    rented = MEMORY_OF.get(each.name, "")
    if rented and rented not in prices.tb_month:
        return replace(each, unpriced=f"tb_month.{rented}")
    price = prices.machine_hour[each.machine]
    paid = float(serving_cost.machine_cost(each.gpu_hours, each.gpus, each.machines, price))
    if rented:
        size, hours = float(each.answer.work.table_bytes[0]), each.gpu_hours / each.gpus
        paid += float(serving_cost.storage_cost(size, hours, prices.tb_month[rented]))
    return replace(each, cost=paid)


def best_of(found: list[Alternative], *, sold: bool = True) -> Alternative:
    """The fewest GPU-hours, which at one batch a GPU is the least time. sold  without memory only stated"""
    possible = [each for each in found if each.answer and not (sold and each.stated)]
    return min(possible, key=lambda each: each.time_s)


def rival_of(found: list[Alternative], best: Alternative) -> Alternative | None:
    """What the best is compared with: the fastest in HBM, or outside it if the best is in it.

    Each of the two has the exchange that is the fastest for it. Limits: none is possible there -> None
    """
    inside = best.name in _IN_HBM
    others = [each for each in found if (each.name in _IN_HBM) != inside]
    return best_of(others) if any(each.answer and not each.stated for each in others) else None
