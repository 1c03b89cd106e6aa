"""Our planner and our times inside TorchRec: real modules, real ranks, its own planner."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked_ranks
import numpy as np
import pytest
from dealt_plan import uniform_plan
from recorded import assert_recorded

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan import torchrec
from perfmodel.plan.choices.constraints import parse_rules
from perfmodel.plan.choices.scheme_options import list_options
from perfmodel.plan.plan_files import read_any_plan
from perfmodel.schema.workload import Table, TableSet

pytestmark = pytest.mark.usefixtures("torchrec_is_imported")

PROGRAM = Path(__file__).with_name("in_torchrec_ranks.py")
PAGE = Path(__file__).parents[2] / "docs" / "torchrec.md"
RULES = ("users.t0=row-wise", "users.t1=table-wise", "items.t0=column-wise", "items.t2=data-parallel")


@pytest.mark.parametrize("rules", [(), RULES])
def test_two_real_ranks_give_the_outputs_of_the_whole_module(rules: tuple[str, ...]) -> None:
    """Two collections with a table of one name each; both ranks run rank 0's plan."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    codes, said, complaints = forked_ranks.started(PROGRAM, 2, str(port), *rules)
    assert codes == [0, 0], [complaint[-3000:] for complaint in complaints]
    first, second = (json.loads(text.strip().splitlines()[-1]) for text in said)
    assert first["types"] == second["types"]
    assert max(first["error"], second["error"]) < 1e-5
    if not rules:
        return
    assert first["types"] == {
        "users": {"t0": "row_wise", "t1": "column_wise"},
        "items": {"t0": "column_wise", "t2": "data_parallel"},
    }
    parts = [each["held"] for each in (first, second)]
    rows = [held["users.embedding_bags.t0.weight"] for held in parts]
    assert rows == [[[0, 0, 100, 16]], [[100, 0, 100, 16]]]
    columns = sorted(held["items.embedding_bags.t0.weight"][0][1] for held in parts)
    assert columns == [0, 16]


@pytest.mark.parametrize(("world", "node"), [(8, 8), (16, 8), (24, 8), (8, 4), (128, 8)])
def test_every_shape_that_torchrec_cuts_is_listed(world: int, node: int) -> None:
    """But for two parts of a table on one rank, and more row parts than rows: those have no scheme."""
    import torch
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

    dims = (4, 20, 36, 64, 96, 100, 128, 160, 192, 256, 384, 768)
    tables = PlanTables.of(TableSet("all", tuple(Table(f"d{dim}", 10**6, dim, 2.0) for dim in dims)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 512, world, gpus_per_node=node)
    options = list_options(evaluator, 80e9)
    kept = torchrec.restrict_to_torchrec(options, evaluator)
    domain, cut = options.domain, set[tuple[int, int, int]]()
    for at, dim in enumerate(dims):
        for kind in (
            "table_wise",
            "row_wise",
            "column_wise",
            "table_row_wise",
            "grid_shard",
            "data_parallel",
        ):
            for least in (None, *range(1, dim + 1)):
                weight = torch.empty(10**6, dim, device="meta")
                sizes, _ = calculate_shard_sizes_and_offsets(weight, world, domain, kind, least)
                widths = {width for _, width in sizes}
                assert len(widths) == 1
                c = 1 if kind == "data_parallel" else dim // widths.pop()
                r = 1 if kind == "data_parallel" else len(sizes) // c
                if r * c > world or (domain == world and r > 1 and c > 1):
                    continue
                exchange = {(1, kind): Exchange.RB, (world, "row_wise"): Exchange.RS}.get((r, kind))
                exchange = exchange or (Exchange.TWO_LEVEL if domain < world else Exchange.RS)
                scheme = Scheme(Exchange.DP if kind == "data_parallel" else exchange, r, c)
                assert kept.find(at, scheme) is not None, (dim, kind, least, scheme)
                cut.add((at, r, c))
    assert len(cut) > 3 * len(dims)


def bags_of(tables: int, rows: int, dim: int, features: int = 1) -> Any:
    """Alike tables on the meta device, each of several features."""
    import torch
    import torchrec

    return torchrec.EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            torchrec.EmbeddingBagConfig(
                name=f"t{i}", embedding_dim=dim, num_embeddings=rows, feature_names=names
            )
            for i, names in enumerate([f"f{i}.{k}" for k in range(features)] for i in range(tables))
        ],
    )


def test_a_module_that_cannot_be_planned_is_refused() -> None:
    import torch
    import torchrec

    from perfmodel.in_torchrec import plan_module

    with pytest.raises(BadInputError, match="Linear has no EmbeddingBagCollection"):
        plan_module(torch.nn.Linear(2, 2), batch=8, gpus=8)
    with pytest.raises(BadInputError, match=r"argument 'max_hbm' is not known"):
        plan_module(bags_of(1, 100, 16), batch=8, gpus=8, max_hbm=60e9)
    with pytest.raises(BadInputError, match=r"how many GPUs is not known"):
        plan_module(bags_of(1, 100, 16), batch=8)
    with pytest.raises(BadInputError, match=r"pooling is given for 't7', which is not a table"):
        plan_module(bags_of(2, 100, 16), batch=8, gpus=8, pooling={"t7": 3.0})
    shape, meta = {"name": "t", "embedding_dim": 16, "num_embeddings": 100}, torch.device("meta")
    virtual = torchrec.EmbeddingBagConfig(**shape, feature_names=["a"], use_virtual_table=True)
    bags = torchrec.EmbeddingBagCollection(device=meta, tables=[virtual])
    with pytest.raises(BadInputError, match=r"'t': use_virtual_table True is not modelled"):
        plan_module(bags, batch=8, gpus=8)
    rows = torchrec.EmbeddingConfig(**shape, feature_names=["a"])
    both = torch.nn.ModuleDict(
        {"bags": bags_of(1, 100, 16), "rows": torchrec.EmbeddingCollection(device=meta, tables=[rows])}
    )
    with pytest.raises(BadInputError, match=r"rows is an EmbeddingCollection: its rows are not pooled"):
        plan_module(both, batch=8, gpus=8)


def test_features_that_share_a_table_have_a_bag_each() -> None:
    """The same table planned for two features is costed as two bags of each sample, in half of the memory."""
    import torch
    import torchrec

    from perfmodel.in_torchrec.modules import list_tables

    config = torchrec.EmbeddingBagConfig(
        name="t", embedding_dim=16, num_embeddings=100, feature_names=["a", "b"], total_num_buckets=10
    )
    bags = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=[config])
    (table,) = list_tables({"": bags}, 3.0)
    assert table == Table("t", 100, 16, 3.0, features=2, buckets=10)


def topology_of(gpus: int) -> Any:
    """H100s in nodes of 8, as TorchRec's planner knows them."""
    from torchrec.distributed.planner.types import Topology

    return Topology(world_size=gpus, compute_device="cuda", local_world_size=8, hbm_cap=80 * 10**9)


def enumerated(module: Any, gpus: int, batch: int, constraints: Any, estimator: Any = None) -> Any:
    """TorchRec's enumerator with our times."""
    from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
    from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator

    from perfmodel.in_torchrec import PerfmodelEstimator

    topology = topology_of(gpus)
    ours = estimator or PerfmodelEstimator(topology, constraints, machine="h100-sxm-ib")
    storage = EmbeddingStorageEstimator(topology, constraints)
    return topology, EmbeddingEnumerator(topology, batch, constraints, [ours, storage])


@pytest.mark.parametrize(
    ("kind", "name"),
    [("row_wise", "row-wise"), ("table_wise", "table-wise"), ("table_row_wise", "table-row-wise")],
)
def test_shards_of_alike_tables_add_up_to_the_pass(kind: str, name: str) -> None:
    """16 alike tables on 16 GPUs, all cut alike: what TorchRec adds up on a rank is our time of the pass less
    its latency; and the rating of the whole plan has that too."""
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.types import ParameterConstraints

    from perfmodel.in_torchrec import PerfmodelEstimator, PerfmodelRating

    rows, dim, pooling, batch, gpus = 500_000, 64, 8.0, 512, 16
    module = bags_of(16, rows, dim)
    limits = {
        f"t{i}": ParameterConstraints(
            sharding_types=[kind], compute_kernels=["fused"], pooling_factors=[pooling]
        )
        for i in range(16)
    }
    topology = topology_of(gpus)
    ours = PerfmodelEstimator(topology, limits, machine="h100-sxm-ib")
    _, enumerator = enumerated(module, gpus, batch, limits, ours)
    options = enumerator.enumerate(module, [EmbeddingBagCollectionSharder()])
    assert {option.sharding_type for option in options} == {kind}
    total = sum(shard.perf.total for option in options for shard in option.shards)
    tables = PlanTables.of(TableSet("x", tuple(Table(f"t{i}", rows, dim, pooling) for i in range(16))))
    evaluator = Evaluator.on(
        *("h100-sxm-ib", tables, batch, gpus),
        **{"training": True, "optimizer": "rowwise-adagrad", "sets": ExchangeSets()},
    )
    plan = uniform_plan(tables, name, gpus, 8)
    most = evaluator.loads(plan).max(axis=1)
    want, latency = (float(evaluator.estimate_times(factor * most)) * 1e3 for factor in (1, 1e-9))
    assert total / gpus == pytest.approx(want - latency, rel=1e-3)
    for option, placement in zip(options, plan.placements, strict=True):
        for shard, rank in zip(option.shards, np.sort(placement.ranks), strict=True):
            shard.rank = int(rank)
    assert PerfmodelRating(ours).rate(options) == pytest.approx(want, rel=1e-3)


def test_its_planner_plans_with_our_times() -> None:
    """Its plan, rated by us, is what it says: our cost of the plan with its sharding types."""
    from planner import Loose, find_placement
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner
    from torchrec.distributed.planner.types import ParameterConstraints

    from perfmodel.in_torchrec import PerfmodelEstimator, PerfmodelRating

    batch, gpus, names = 512, 16, [f"t{i}" for i in range(12)]
    module = bags_of(12, 200_000, 64, 2)
    limits = {
        n: ParameterConstraints(compute_kernels=["fused", "dense"], pooling_factors=[4.0] * 2) for n in names
    }
    topology = topology_of(gpus)
    ours = PerfmodelEstimator(topology, limits, machine="h100-sxm-ib")
    rating = PerfmodelRating(ours)
    planner = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=batch,
        constraints=limits,
        enumerator=enumerated(module, gpus, batch, limits, ours)[1],
        performance_model=rating,
        stats=[],
        timeout_seconds=15,
    )
    found = planner.plan(module, [EmbeddingBagCollectionSharder()]).plan[""]
    rated = enumerated(module, gpus, batch, limits)[1].enumerate(module, [EmbeddingBagCollectionSharder()])
    parts = {tuple(vars(option.shards[0].perf).values()) for option in rated}
    assert_recorded("times of shards in TorchRec", *np.ravel(sorted(parts)))
    tables = PlanTables.of(TableSet("x", tuple(Table(n, 200_000, 64, 4.0, features=2) for n in names)))
    chosen = [found[name] for name in names]
    placements = [find_placement({"type": e.sharding_type, "ranks": e.ranks}, gpus, 8) for e in chosen]
    evaluator = Evaluator.on(
        *("h100-sxm-ib", tables, batch, gpus),
        **{"training": True, "optimizer": "rowwise-adagrad"},
        sets=ExchangeSets(tuple(each.sharding_type for each in chosen)),
    )
    cost = evaluator.cost(Loose(tables, tuple(placements), gpus, 8)).time_s
    assert rating.rate(planner._best_plan) == pytest.approx(cost * 1e3, rel=2e-3)


def test_kernels_outside_gpu_memory_are_not_timed() -> None:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.types import ParameterConstraints

    limits = {"t0": ParameterConstraints(compute_kernels=["fused", "fused_uvm"], sharding_types=["row_wise"])}
    module = bags_of(1, 1000, 16)
    _, enumerator = enumerated(module, 16, 64, limits)
    options = enumerator.enumerate(module, [EmbeddingBagCollectionSharder()])
    totals = {option.compute_kernel: option.shards[0].perf.total for option in options}
    assert np.isinf(totals["fused_uvm"]) and 0 < totals["fused"] < 100


def test_a_machine_of_other_domains_is_refused() -> None:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.types import Topology

    from perfmodel.in_torchrec import PerfmodelEstimator

    pods = Topology(world_size=64, compute_device="cuda", local_world_size=8, pod_size=2)
    estimator = PerfmodelEstimator(pods, machine="h100-sxm-ib")
    module = bags_of(1, 1000, 16)
    _, enumerator = enumerated(module, 64, 64, None, estimator)
    with pytest.raises(BadInputError, match=r"domains of 16 GPUs, and h100-sxm-ib of 8"):
        enumerator.enumerate(module, [EmbeddingBagCollectionSharder()])


def test_rows_over_the_only_node_are_row_wise() -> None:
    from perfmodel.in_torchrec.estimator import find_scheme

    option, node = SimpleNamespace(sharding_type="table_row_wise", shards=[0] * 8), SimpleNamespace()
    node.gpus = node.domain = 8
    assert find_scheme(option, node) == Scheme(Exchange.RS, 8)  # type: ignore[arg-type]


def test_lines_of_the_page_run(tmp_path: Path) -> None:
    """Every Python block of docs/torchrec.md, in order, in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    types = {each.sharding_type for part in names["plan"].plan.values() for each in part.values()}
    assert types and names["theirs"].plan
    constraints, theirs = tmp_path / "constraints.json", tmp_path / "theirs.json"
    constraints.write_text(names["constraints_json"])
    theirs.write_text(names["theirs_json"])
    (rule,) = parse_rules([str(constraints)])
    assert (rule.pattern, rule.names) == ("users", ("row-wise",))
    rows = {"users": 40_000_000, "products": 2_000_000}
    tables = PlanTables.of(TableSet("two", tuple(Table(name, rows[name], 64, 1.0) for name in rows)))
    plan, _ = read_any_plan(theirs, tables, 16, lambda gpus: 8)
    assert plan.gpus == 16 and len(plan.placements) == 2
