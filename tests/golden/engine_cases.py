"""Random cases of the two engines of a pass, and all that they say of each: prices, loads, memory.

What random teams measure, and the numbers behind the verdicts on claims too.
A case is drawn from its number alone. What cannot be answered says its error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from oracles.plan_files import Case, draw_entry

import perfmodel
from calibrate.operations import Availability
from calibrate.planning.durations import estimate_points_s
from calibrate.planning.measurement_plan import Request, make_plan
from calibrate.planning.world import World
from perfmodel.answer import project_one
from perfmodel.collectives.estimate import CollectiveModel, find_gates
from perfmodel.engine.basis import HostRows, PassBasis
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.explained import ExplainedPass, Explanation, explain_collective
from perfmodel.engine.placement import Plan
from perfmodel.engine.schemes import OF_TORCHREC
from perfmodel.engine.settings import BETWEEN, Handover, load_setting
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.training import Dense, GivenTime, WholeStep
from perfmodel.errors import PerfmodelError
from perfmodel.model.recording import to_float
from perfmodel.schema.calibration import KernelConstants, KernelFit
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, Clock
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.schema.priors import load_dense
from perfmodel.schema.workload import Distribution, Table, TableSet, parse_distribution
from perfmodel.validate.questions import find_answer
from perfmodel.validate.verdicts import load_claims

_DISTRIBUTIONS = ("uniform", "uniform", "zipf:1.05", "zipf:0.6", "one-row", "histogram:fbgemm-t856")
_DIMS = (4, 8, 16, 33, 64, 100, 128, 192)

_DRAWN = {
    "machine": ["h100-sxm-ib", "h200-sxm-ib", "gb200-nvl72", "a100-sxm-ib"],
    "table_bytes": [6e10, 1e12, 1e13, None],
    "batch": [64, 1024, 8192],
    "table_count": [1, 8, 100],
    "pooling": [1, 32, 100],
    "dim": [4, 32, 128],
    "dtype": ["fp32", "fp16"],
    "id_bytes": [8, 8, 4],
    "backend": ["nccl", "nvshmem", "best"],
    "payload": [None, "fp16", "fp8"],
    "distribution": ["uniform", "zipf:0.8", "zipf:1.05", "one-row"],
    "gpus_per_node": [None, None, 4],
    "objective": ["latency", "latency", "training"],
    "optimizer": [None, None, "adam"],
    "reserve": [0.15, 0.4],
    "rows": [None, None, "host", "host-cached:10%"],
    "unpooled": [False, False, True],
    "overrides": [
        None,
        None,
        {"gather_bytes_per_s": 1e12},
        {"hbm_bytes_per_s": 3e12},
        {"nic_bytes_per_s": 2e10},
    ],
}
"""Values of the keywords of ``perfmodel.project``, as likely as each other."""


_SIZES = [1024.0, 40_000.0, 2.0**20, 2.0**30, *(1.03 * 4**octaves for octaves in range(5, 19))]
_GPUS = [2, 3, 5, 6, 8, 12, 16, 24, 64, 100, 1024]
_CHANGES: list[dict[str, float | str]] = [
    *({}, {}, {"nic_bytes_per_s": 2e10}, {"nvlink_bytes_per_s": 9e11}, {"nvlink_domain_gpus": 1}),
    *({"gpus_per_node": 2}, {"pcie_bytes_per_s": 2e10}, {"nics_per_node": 4}),
    {"nics_per_node": 4, "gpus_per_node": 4},
]
_STEPS = BETWEEN, "all_to_all_ids", "reduce_scatter_bags", "all_reduce_copies", "all_to_all_splits"
_HANDOVER = Handover({n: Interval(value=2e-6, low=1e-6, high=(4 + k) * 1e-6) for k, n in enumerate(_STEPS)})
_FIT = KernelFit(log_sd=0.1, sample_count=9, loo_median=0.1, loo_p90=0.2, low_bytes=1e6, high_bytes=1e8)
_OWN = {"values": {}, "fits": {"gather_pool": _FIT, "bucketize": _FIT}, "untold": ["row_access_bytes"]}
_FITTED = KernelConstants(**_OWN, implementation="torch", clock=Clock.EAGER)
"""What a calibration of one's own adds to a pass."""


def draw_tables(random: np.random.Generator, ids: Distribution | None = None) -> TableSet:
    """3 to 6 tables, with ids of their own popularity, or all with these."""
    drawn = [
        Table(
            f"t{place}",
            int(random.choice([8, 16, *10 ** random.uniform(1, 7, 5)])),
            int(random.choice(_DIMS)),
            float(random.choice([1, 2, 4, 30, 100])),
            str(random.choice(["fp32", "fp16", "int8", "fp8"])),
            weighted=bool(random.integers(2)),
            distribution=ids or parse_distribution(str(random.choice(_DISTRIBUTIONS))),
            features=int(random.choice([1, 1, 3])),
            buckets=int(random.choice([0, 0, 0, 7])),
        )
        for place in range(int(random.integers(3, 7)))
    ]
    return TableSet("random", tuple(drawn))


def draw_evaluator(random: np.random.Generator) -> Evaluator:
    """3 to 6 tables on 1 to 8 GPUs."""
    gpus, node = int(random.integers(1, 9)), int(random.choice([2, 4, 8]))
    ids = [None, parse_distribution(str(random.choice(_DISTRIBUTIONS)))][int(random.integers(2))]
    training = bool(random.integers(2))
    tables = PlanTables.of(draw_tables(random, ids))
    types = tuple(str(random.choice([*OF_TORCHREC])) for _ in tables.names)
    changes = [{}, {}, {"row_access_bytes": 96.0}, {"hbm_bytes_per_s": 2e12}][int(random.integers(4))]
    box = load_machine(str(random.choice(_DRAWN["machine"]))).with_overrides(changes)
    setting = load_setting(box, "nccl")
    if random.integers(2):
        setting = replace(setting, handover=_HANDOVER, kernels=_FITTED)
    basis = PassBasis(
        setting,
        node if node < gpus and gpus % node == 0 else None,
        [None, "fp16"][int(random.integers(2))],
        training,
        str(random.choice(["none", "rowwise-adagrad", "adam"])) if training else "none",
        rows=None if training else [None, HostRows(), HostRows(0.2)][int(random.integers(3))],
        unpooled=not training and not random.integers(4),
    )
    sets = [None, ExchangeSets(), ExchangeSets(types)][int(random.integers(3))]
    batch, id_dtype = int(random.choice([64, 1024, 8192])), str(random.choice(["int64", "int64", "int32"]))
    return Evaluator(basis, tables, batch, gpus, id_dtype=id_dtype, sets=sets)


def write_case(name: str, case: int) -> str:
    """What is said of a case, as a line of JSON."""
    try:
        answer = CASES[name][1](case)
    except PerfmodelError as error:
        answer = str(error)
    return json.dumps([case, answer], default=_make_plain)


def _make_plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _ask_uniform(case: int) -> Any:
    """A projection of one configuration."""
    keywords = _draw(_DRAWN, np.random.default_rng(case))
    keywords["gpus"] = None if keywords["table_bytes"] else 16
    if keywords["objective"] == "training":
        keywords |= {"rows": None, "unpooled": False}
    return project_one(**keywords).to_dict()


def _draw(lists: dict[str, list[Any]], random: np.random.Generator) -> dict[str, Any]:
    return {name: values[int(random.integers(len(values)))] for name, values in lists.items()}


def _ask_set(case: int) -> Any:
    """Every sharding of a set of tables, some of them equal, forward or training."""
    random = np.random.default_rng(case)
    drawn = draw_tables(random).tables
    equal = (replace(drawn[0], name=f"u{n}") for n in range(int(random.integers(8))))
    tables = TableSet("random", (*drawn, *equal))
    training = bool(random.integers(2))
    frame = perfmodel.project(
        tables=tables,
        gpus=int(random.choice([2, 4, 8, 16, 24])),
        batch=int(random.choice([64, 1024])),
        sharding="all",
        machine=str(random.choice(_DRAWN["machine"])),
        backend=str(random.choice(["nccl", "nccl", "best"])),
        payload=[None, "fp16"][int(random.integers(2))],
        objective="training" if training else "latency",
        optimizer=[None, "adam"][int(random.integers(2))],
        rows=None if training else [None, "host", "host-cached:10%"][int(random.integers(3))],
        unpooled=not training and bool(random.integers(2)),
    )
    return frame.to_dict(orient="records")


def _ask_collective(case: int) -> Any:
    """Times of one collective over sizes and numbers of GPUs; one of them explained, two as gates."""
    random = np.random.default_rng(case)
    machine = load_machine(str(random.choice(list_machines())))
    machine = machine.with_overrides(_CHANGES[case % len(_CHANGES)])
    name = COLLECTIVES[case % len(COLLECTIVES)]
    one_sided = name == "all_to_all" and "sxm" in machine.name and random.integers(2)
    known = CollectiveModel.load(machine, "nvshmem" if one_sided else None).calibration
    model = CollectiveModel(machine, known.model_copy(update={"this_cluster": bool(random.integers(2))}))
    node, ranks = int(random.choice([1, 2, 4, 8, 8, 72])), sorted(random.choice(_GPUS, 6, replace=False))
    timing = model.estimate(name, _SIZES, np.array([1, *ranks])[:, np.newaxis], node)
    sizes = [size for size in (float(ranks[0]), *_SIZES) if size >= ranks[0] or name not in PER_PEER]
    frame = model.predict({"collective": name, "payload_bytes": sizes, "gpus": int(ranks[0])})
    parts = ("time_s", "low_s", "high_s", "floor_s")
    return {
        **{part: np.log(np.maximum(getattr(timing, part), 1e-9)) for part in parts},
        "evidence": timing.evidence,
        "limit": timing.limit,
        "explained": [
            _list_numbers(explain_collective(model, name, size, int(count), node))
            for size, count in product(_SIZES[:4], ranks[::2])
        ],
        "gates": [gate[3:7] for gate in find_gates((model, name, n, node, _SIZES[:2]) for n in (1, 2))],
        "predicted": frame.to_dict(orient="records"),
    }


def _ask_evaluator(evaluator: Evaluator, plan: Plan) -> Any:
    costed = evaluator.cost(plan)
    cost = costed.cost
    layers = load_dense("dlrm-dcnv2") if evaluator.gpus % 2 else GivenTime(1e-3, 0.1)
    dense = Dense.compute(layers, evaluator)
    explained = ExplainedPass.from_plan(costed)
    keys = "payload_bytes time_s low_s high_s floor_s evidence limit library mean_bytes rank imbalance"
    return {
        "pass": [cost.time_s, cost.low_s, cost.high_s],
        "steps": " ".join(row.name for row in cost.rows),
        "rows": [{key: getattr(row, key) for key in keys.split()} for row in cost.rows],
        "loads": {place: size for place, size in enumerate(costed.loads.max(axis=1).tolist()) if size},
        "memory": vars(costed.memory),
        "estimate": evaluator.estimate_times(costed.loads.max(axis=1)),
        "copied": costed.copied_shares,
        "fullest": [evaluator.fullest_part(t, placed.scheme) for t, placed in enumerate(plan.placements)],
        "dense": dense.times,
        "step": WholeStep.compute(costed, dense).to_dict(1.0),
        "explained": [_list_numbers(explained.explain(row.name)) for row in cost.rows],
        "words": explained.explain(cost.rows[evaluator.batch % len(cost.rows)].name).to_dict(),
    }


def _list_numbers(explained: Explanation) -> dict[str, Any]:
    """The numbers of an explanation: logarithms, so that small ones count."""
    values = [to_float(part.value) for part in (*explained.time, *explained.load)]
    values += [number for row in (*explained.stages, *explained.tables) for number in row[1:]]
    logs = np.log(np.maximum(values, 1e-12))
    return {"logs": logs, "band": explained.band, "factor": explained.factor, "rank": explained.rank}


def _ask_plan(case: int) -> Any:
    """A plan of a few tables in HBM, a sharding drawn for each."""
    random = np.random.default_rng(case)
    drawn = Case(draw_evaluator(random))
    plan = drawn.plan([draw_entry(drawn, table, random) for table in range(len(drawn.tables))])
    return _ask_evaluator(drawn.evaluator, plan)


_TEAM: dict[str, list[Any]] = {
    "ranks_per_node": [1, 2, 3, 4, 4, 8, 8],
    "nodes": [1, 1, 2, 4],
    "device": ["cpu", "cuda", "cuda"],
    "memory_bytes": [2.0**27, 8e9],
    "cores_per_node": [0, 0, 3],
    "preset": ["quick", "standard", "standard"],
    "only": [[], [], ["passes", "kernels"], ["passes:fused"], ["composed:exchange", "nccl"], ["composed"]],
    "oversubscribe": [False, False, True],
    "ranks": [None, None, None, [1], [2], [1, 4]],
    "sizes": [None, None, None, [64], [1024, 2**24]],
    "clocks": [None, None, [Clock.EAGER]],
    "grid": ["", "", "paper"],
}


def _plan_measurements(case: int) -> Any:
    """The points of a team of which some providers cannot run, and what is left out."""
    random = np.random.default_rng(case)
    drawn = _draw(_TEAM, random)
    names = "torch", "fbgemm", "perfmodel", "torchrec", "exchange", "one_sided", "gloo", "nccl", "rccl"
    can, cannot = (
        Availability(True, "", "", "1", (Clock.EAGER, Clock.STREAM), COLLECTIVES),
        Availability(False),
    )
    offers = {name: can if random.random() < 0.8 else cannot for name in names}
    ranks, nodes, *more = (drawn.pop(name) for name in [*_TEAM][:5])
    world = World(ranks * nodes, nodes, more[0], offers, *more[1:])
    plan = make_plan(Request(**drawn), world)
    points = [{"points": 1, **point.model_dump(exclude_defaults=True)} for point in plan.points]
    return points, estimate_points_s(plan.points, plan), [str(gap) for gap in plan.left_out]


def _ask_search(case: int) -> Any:
    """The plan of a quick search, some under rules or in little memory."""
    random = np.random.default_rng(case)
    tables = draw_tables(random)
    gpus = int(random.choice([1, 2, 4, 8, 12]))
    room = sum(table.rows * table.dim for table in tables.tables) * random.uniform(6, 18) / gpus
    plan = perfmodel.plan_tables(
        tables,
        gpus,
        objective=str(random.choice(["latency", "throughput"])),
        batch=int(random.choice([64, 1024])),
        max_hbm_bytes=[None, room, room][int(random.integers(3))],
        only=[(), "row-wise,table-wise", "t0=row-wise,data-parallel,table-wise"][int(random.integers(3))],
        for_torchrec=not any(table.dim % 4 for table in tables.tables),
        gpus_per_node=[None, 2, 4][int(random.integers(3))],
        effort="quick",
    )
    return {**plan.to_dict(), "priced": plan.question.price(plan.plan).to_dict()["groups"]}


CASES: dict[str, tuple[int, Callable[[int], Any]]] = {
    "projections of random questions": (1500, _ask_uniform),
    "random plans": (1000, _ask_plan),
    "quick searches": (100, _ask_search),
    "all shardings of random sets": (500, _ask_set),
    "times of collectives": (40, _ask_collective),
    "measurements of random teams": (200, _plan_measurements),
    "claims of papers": (len(load_claims()), lambda case: find_answer(load_claims()[case].ask)),
}


def write_cases(name: str) -> str:
    """A line of JSON for each case."""
    return "\n".join(write_case(name, case) for case in range(CASES[name][0]))
