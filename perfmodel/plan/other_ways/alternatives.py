"""Alternatives to sharding (host memory, C2C, SSDs, one large memory) side by side with sharded tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.model import serving_cost
from perfmodel.passes import schemes
from perfmodel.plan.as_projection import compared, undecided, winner
from perfmodel.plan.leading import on_fewest
from perfmodel.plan.other_ways.below_hbm import (
    CACHED,
    FROM_SSD,
    IN_PLACE,
    SHORTEST,
    Chosen,
    MostGpus,
    chosen_below,
    fewest_gpus,
    gpus_of_node,
    is_faster,
    why,
)
from perfmodel.plan.other_ways.conditions import least_rate
from perfmodel.plan.other_ways.criteria import COST, GPU_HOURS, TIME, Criterion
from perfmodel.plan.other_ways.one_alternative import Alternative, EqualBatch, copies_of
from perfmodel.projections import Projection, project_one
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.question.passes import GLOBAL, PER_GPU
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.prices import MEMORY, SSD, Prices
from perfmodel.schema.table_files import load_tables
from perfmodel.units import counted, format_bytes, format_count, format_rate, format_time

ROW_WISE, BEST, HOST, BEST_HOST, GH200, GH200_SLINGSHOT, GB200, ON_SSD, ONE_MEMORY, REMOTE = (
    *(schemes.ROW_WISE, "best-plan", "host", "best-plan-host", "gh200", "gh200-slingshot", "gb200", "ssd"),
    *("one-memory", "remote-memory"),
)
_LABELS = {
    ROW_WISE: f"{ROW_WISE} in HBM",
    BEST: "best plan in HBM",
    HOST: "host memory",
    BEST_HOST: "plan, HBM and host",
    GH200: "GH200 (IB)",
    GH200_SLINGSHOT: "GH200 (Slingshot)",
    GB200: "GB200 (NVL72)",
    ON_SSD: "SSDs",
    ONE_MEMORY: "one memory",
    REMOTE: "remote memory",
}
_C2C = {GH200: "gh200-slingshot", GH200_SLINGSHOT: "gh200-slingshot", GB200: "gb200-nvl72"}
_OF_MACHINE = ("machine", "clock", "calibration", "overrides", "gpus_per_node", "kernels", "scenario")
IN_HBM = (ROW_WISE, BEST)
MEMORY_OF = {ONE_MEMORY: MEMORY, REMOTE: MEMORY, ON_SSD: SSD}
"""For alternatives whose memory is rented per TB: the name of its price in ``schema.prices``."""
FAST = "-fast"
"""Ends the name of an alternative on the number of GPUs where it is fastest, not cheapest."""
Planner = Callable[[Projection, tuple[str, ...], float], tuple[str, Projection]]
"""Searches a plan on an answer's GPUs; returns its words and its answer.

Arguments: the answer, tiers that tables may be in besides HBM, share of a search's effort."""


def alternatives(
    options: Mapping[str, Any],
    prices: Prices | None = None,
    best_plan: Planner | None = None,
    memory: tuple[float, ...] | None = None,
    remote: tuple[float, ...] | None = None,
    equal_batch: str = GLOBAL,
) -> list[Alternative]:
    """Every alternative for one question; an impossible alternative says why.

    options    of ``project_one``, with its machine
    best_plan  searches a plan; None: the fastest uniform sharding instead, and no row for a plan with tables
               in HBM and in host memory
    memory     (bytes, bytes/s) of the one large memory; None: it holds the tables, at the shipped rate
    remote     (bytes, bytes/s, latency [s], GPUs that share it) of one memory over the network; None: no row
    equal_batch  which batch is equal for all, one of ``EQUAL_BATCHES``
    Limits: the row-wise pass refuses the question for another reason than memory -> its error
    """
    asked = read_once({**options, "machine": options.get("machine", DEFAULT_MACHINE)})
    row_wise, refused = _base(asked)
    base = row_wise if refused else on_fewest(asked)
    equal = EqualBatch.of(equal_batch, base)
    if row_wise.gpus != base.gpus:
        row_wise = _shared(asked, equal)
    size, rate = float(base.work.table_bytes[0]), base.forward.constant("appliance_bytes_per_s")
    stated = {ONE_MEMORY: memory or (size, rate), **({REMOTE: remote} if remote else {})}
    alone = _as_needed(asked)
    most = MostGpus(int(asked.get("gpus") or row_wise.gpus), bool(asked.get("gpus")))
    reasons = "as asked" if asked.get("gpus") else "as many as hold the tables in HBM"
    tried = partial(_tried, base.setting.machine, equal)

    def in_hbm(find: Callable[[], tuple[str, Projection]]) -> list[Chosen]:
        if refused is not None:
            raise BadInputError(f"does not fit: {refused.message}", refused.next_step)
        return [Chosen(*find(), reasons)]

    found = [
        *tried(ROW_WISE, lambda: in_hbm(lambda: (_row_wise(row_wise), row_wise))),
        *tried(BEST, lambda: in_hbm(lambda: _planned(base, best_plan))),
        *tried(HOST, lambda: chosen_below(alone, equal, (IN_PLACE, CACHED), most)),
        *(tried(BEST_HOST, lambda: _in_both(alone, equal, best_plan, base, most)) if best_plan else []),
        *(each for name in _C2C for each in _on(name, asked, equal, most)),
        *tried(ON_SSD, lambda: chosen_below(alone, equal, (FROM_SSD,), most)),
        *(
            each
            for name in stated
            for each in tried(name, partial(_stated, name, alone, equal, stated[name]))
        ),
    ]
    found = [each for each in found if not _worse(each, found)]
    best = best_of(found)
    for at, each in enumerate(found):
        if each.answer and each.stated:
            options = {**alone, "batch": int(each.batch)}
            enough = least_rate(options, stated[each.name], GPU_HOURS.target_s(each, best))
            found[at] = replace(each, least_bytes_per_s=enough)
    return [priced(each, prices) for each in found]


def read_once(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with their set of tables read: a file is then read once for all alternatives."""
    tables = options.get("tables")
    return {**options, **({"tables": load_tables(tables)} if isinstance(tables, str) else {})}


def question_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The question as plain values for JSON; ``gpus`` is None if the user did not give it."""
    asked = read_once({**options, "machine": options.get("machine", DEFAULT_MACHINE)})
    question = _base(asked)[0].question
    assert question is not None
    return {**question.to_dict(), "gpus": asked.get("gpus")}


def _base(asked: Mapping[str, Any]) -> tuple[Projection, PerfmodelError | None]:
    """(row-wise pass, its error or None).

    If the tables do not fit the given GPUs, the pass is on the fewest that they fit, with the error."""
    try:
        return project_one(**asked), None
    except BadInputError as error:
        if asked.get("gpus") is None:
            raise
        return project_one(**_as_needed(asked)), error


def _shared(asked: Mapping[str, Any], equal: EqualBatch) -> Projection:
    """Row-wise with its share of the equal batch, on the number of GPUs that it then needs."""
    gpus = fewest_gpus(asked, equal)
    return project_one(**{**asked, "gpus": gpus, "batch": equal.on(gpus)})


def _row_wise(base: Projection) -> str:
    """The exchange of bags in the usual row-wise baseline, in words."""
    ways = " or ".join(map(_exchange_words, base.forward.exchanges))
    return f"every table over all GPUs, {ways}" if base.gpus > 1 else "every table on one GPU"


def machines_of(name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options for the machine of an alternative, without options that suit only the original machine."""
    if name not in _C2C:
        return dict(asked)
    machine = load_machine(_C2C[name])
    kept = {key: value for key, value in asked.items() if key not in (*_OF_MACHINE, "gpus")}
    return {**kept, "machine": _on_infiniband(machine) if name == GH200 else machine}


def _on_infiniband(machine: Machine) -> Machine:
    """The same nodes and network cards on the network of the machine whose curves are borrowed (``like``)."""
    like = load_machine(machine.links.like)
    links = machine.links.model_copy(update={"network": like.links.network})
    return machine.model_copy(update={"name": f"{machine.name}-{like.links.network}", "links": links})


def _on(name: str, asked: Mapping[str, Any], equal: EqualBatch, most: MostGpus) -> list[Alternative]:
    """Rows in host memory over C2C; exchanges take the times of the network that was measured."""
    own = machines_of(name, asked)
    found = _tried(
        load_machine(_C2C[name]), equal, name, lambda: chosen_below(own, equal, (IN_PLACE, CACHED), most)
    )
    return [replace(each, network=_network(each.answer) if each.answer else "") for each in found]


def _network(answer: Projection) -> str:
    """The network whose times the exchanges take, and what was measured on it, in words."""
    machine, (curves, *_) = answer.setting.machine, answer.setting.links.calibrations
    domain, links = counted(machine.count("nvlink_domain_gpus"), "GPU"), f"{machine.links.scale_up} domains"
    beyond = answer.gpus > machine.count("nvlink_domain_gpus")
    between = f", {_SPELLED[machine.links.network]} between them" if beyond else ""
    return f"exchanges as measured for {curves}: {links} of {domain}{between}; C2C by its datasheet"


_SPELLED = {"infiniband": "InfiniBand", "slingshot": "Slingshot"}


def _tried(
    machine: Machine, equal: EqualBatch, name: str, find: Callable[[], list[Chosen]]
) -> list[Alternative]:
    """An alternative as a list of one or two: on the cheapest number of GPUs, and on the fastest.

    Limits: impossible -> one entry, which says why"""
    label, stated = _LABELS[name], name in (ONE_MEMORY, REMOTE)
    try:
        found = find()
    except PerfmodelError as error:
        return [Alternative(name, label, machine.name, why=error.message.rstrip("."), stated=stated)]
    return [
        Alternative(
            name + FAST if each.fastest else name,
            _fast(label) if each.fastest else label,
            machine.name,
            each.what,
            each.answer,
            each.gpus_why,
            equal=equal,
            copies=copies_of(each.answer) if name in IN_HBM else 1,
            stated=stated,
        )
        for each in found
    ]


def _fast(label: str) -> str:
    """Label of an alternative on its fastest number of GPUs: ``host memory (fast)``, ``GH200 (IB, fast)``"""
    return f"{label[:-1]}, fast)" if label.endswith(")") else f"{label} (fast)"


def _worse(each: Alternative, found: list[Alternative]) -> bool:
    """Whether the fastest variant is not worth listing: an alternative on its machine is as fast for less."""
    return each.name.endswith(FAST) and any(
        other.machine == each.machine
        and not other.stated
        and other.time_s <= each.time_s
        and other.gpu_hours < each.gpu_hours
        for other in found
        if other.answer
    )


def _in_both(
    alone: Mapping[str, Any], equal: EqualBatch, best_plan: Planner, base: Projection, most: MostGpus
) -> list[Chosen]:
    """The plan in HBM and host memory with the fewest GPU-hours, of three numbers of GPUs.

    These are the fewest that hold all rows, the most on which HBM alone does not hold them, and the number in
    between."""
    below, node = {**alone, "tier": IN_PLACE}, gpus_of_node(alone)
    least, enough = most.check(fewest_gpus(below, equal), node), int(base.gpu_count.needed)
    last = max(_whole(min(most.gpus, enough - 1), node), least)
    numbers = sorted({least, max(_whole(round((least * last) ** 0.5), node), least), last})
    bases = [project_one(**{**below, "gpus": gpus, "batch": equal.on(gpus)}) for gpus in numbers]
    found = [best_plan(each, (IN_PLACE, CACHED), 1 / len(bases)) for each in bases]

    def cost(pair: tuple[str, Projection]) -> float:
        gpus = pair[1].gpus
        paid = serving_cost.machines_in_use(1, gpus, node, whole=True) * base.setting.machine.gpus_per_node
        return equal.cost(pair[1].time_s, gpus, int(paid))

    more = f"; {format_count(enough)} hold them in HBM" if enough > least and len(numbers) == 1 else ""
    cheap, fast = min(found, key=cost), min(found, key=lambda pair: pair[1].time_s)
    chosen = [Chosen(*cheap, why(numbers) + more)]
    if is_faster(fast[1].time_s, cheap[1].time_s, equal):
        chosen.append(Chosen(*fast, why(numbers, SHORTEST), fastest=True))
    return chosen


def _whole(gpus: int, node: int) -> int:
    """At most ``gpus`` GPUs, as whole nodes. Limits: a node or less -> unchanged, at least one"""
    return max(gpus // node * node if gpus > node else gpus, 1)


def _planned(base: Projection, best_plan: Planner | None) -> tuple[str, Projection]:
    if best_plan is not None:
        return best_plan(base, (), 1.0)
    found = list(compared(base))
    best, near = winner(found), [each.way for each in undecided(found)]
    assert best.answer is not None  # row-wise always has an answer
    return f"{best.way} (cannot be told from {', '.join(near)})" if near else best.way, best.answer


def _as_needed(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The question on the number of GPUs that its tier needs, which may be fewer than the given number."""
    return {name: value for name, value in asked.items() if name != "gpus"}


def _exchange_words(kind: schemes.Exchange) -> str:
    word = kind.facts.reduction
    if word in schemes.BY_ROWS:
        return f"{word} exchange"
    return f"flat exchange ({word})" + (" as in TorchRec" if schemes.over_all(kind) else "")


def _stated(
    name: str, alone: Mapping[str, Any], equal: EqualBatch, values: tuple[float, ...]
) -> list[Chosen]:
    """An alternative with one memory that holds all rows, beside a GPU or over the network."""
    sharers = int(values[3]) if len(values) > 3 else 1
    answer = project_one(**{**alone, "local_memory": values, "batch": equal.on(sharers)})
    memory = answer.forward.memory
    assert memory is not None
    text = f"{format_bytes(memory.capacity_bytes, binary=False)} at {format_rate(memory.bytes_per_s)}"
    if name == ONE_MEMORY:
        return [Chosen(f"beside one GPU, {text}", answer, "")]
    shared = f"shared by {counted(memory.sharers, 'GPU')}, " if memory.sharers > 1 else ""
    return [Chosen(f"over the network, {text}, {shared}{format_time(memory.latency_s)} away", answer, "")]


def priced(each: Alternative, prices: Prices | None) -> Alternative:
    """The alternative with the cost of ``SAMPLES`` samples, or with the name of a price that is missing."""
    if prices is None or each.answer is None:
        return each
    if each.machine not in prices.machine_hour:
        return replace(each, unpriced=f"machine_hour.{each.machine}")
    rented = MEMORY_OF.get(each.name.removesuffix(FAST), "")
    if rented and rented not in prices.tb_month:
        return replace(each, unpriced=f"tb_month.{rented}")
    hour = prices.machine_hour[each.machine]
    found = replace(each, hour=hour)
    return replace(found, cost=found.priced_hours * hour.money + rent_of(each, prices))


def rent_of(each: Alternative, prices: Prices) -> float:
    """Rent of the memory or the SSDs that hold the rows, while ``SAMPLES`` samples are processed."""
    rented = MEMORY_OF.get(each.name.removesuffix(FAST))
    if rented is None or each.answer is None:
        return 0.0
    size = float(each.answer.work.table_bytes[0])
    return float(serving_cost.storage_cost(size, each.hours(1), prices.tb_month[rented]))


def held_otherwise(found: list[Alternative]) -> list[Alternative]:
    """All alternatives on the same GPUs with the other kind of batch equal: per GPU, or global.

    Plans with rows below the HBM are left out, because another batch would change the plan.
    Limits: several machines, each with its own plan, or no answer in HBM -> empty
    """
    in_hbm = [each for each in found if each.name in IN_HBM and each.answer]
    base = next((each for each in in_hbm if each.name == BEST), in_hbm[0] if in_hbm else None)
    if base is None or base.answer is None or base.equal is None:
        return []
    other = EqualBatch.of(GLOBAL if base.equal.total is None else PER_GPU, base.answer)
    return [each.with_batch(other) for each in found if each.name.removesuffix(FAST) != BEST_HOST]


def _sold(found: list[Alternative], sold: bool = True) -> Iterator[Alternative]:
    return (each for each in found if each.answer and not (sold and each.stated))


def best_of(found: list[Alternative], by: Criterion = GPU_HOURS, *, sold: bool = True) -> Alternative:
    """The best alternative by a criterion.

    sold  whether to leave out a memory that the user only described
    Limits: none is possible -> BadInputError
    """
    best = min(_sold(found, sold), key=by.measure, default=None)
    if best is None:
        whys = "; ".join(f"{each.label}: {each.why}" for each in found if each.why)
        raise BadInputError(f"nothing that is sold holds the tables: {whys}.", "give more --gpus.")
    return best


def fastest_of(found: list[Alternative]) -> Alternative:
    """The alternative with the least time per batch, of hardware that is sold."""
    return best_of(found, TIME)


def cheapest_of(found: list[Alternative]) -> Alternative | None:
    """The alternative with the least cost, of hardware that is sold. Limits: no prices -> None"""
    best = best_of(found, COST)
    return best if best.cost is not None else None


def rivals_of(found: list[Alternative], best: Alternative) -> list[Alternative]:
    """Alternatives to compare the best with: all in HBM, or if the best is in HBM, all outside HBM.

    Each has the exchange that is fastest for it. Limits: none is possible there -> all others
    """
    inside, sold = best.name in IN_HBM, list(_sold(found))
    others = [each for each in sold if (each.name in IN_HBM) != inside]
    return others or [each for each in sold if each is not best]
