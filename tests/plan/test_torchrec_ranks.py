"""Plans as TorchRec's modules and its planner take them: kernels, shards, topology, other jobs."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from dealt_plan import uniform_plan

from calibrate import torchrec_plan
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan import torchrec
from perfmodel.schema.torchrec_plan import TorchRecPlan
from perfmodel.schema.workload import Table, TableSet

pytestmark = pytest.mark.usefixtures("torchrec_is_imported")


def on_eight() -> TorchRecPlan:
    """Tables of 101 rows and 16 columns on two nodes of four ranks: everything that TorchRec has."""
    placed = {
        "copied": Placement.of(Scheme(Exchange.DP)),
        "whole": Placement.of(Scheme(Exchange.RB), [7]),
        "columns": Placement.of(Scheme(Exchange.RB, 1, 4), [2, 0, 7, 1]),
        "inside": Placement.of(Scheme(Exchange.RB, 1, 2), [7, 6]),
        "rows": Placement.of(Scheme(Exchange.RS, 8), range(8)),
        "node": Placement.of(Scheme(Exchange.TWO_LEVEL, 4), range(4, 8)),
        "grid": Placement.of(Scheme(Exchange.TWO_LEVEL, 4, 2), [4, 0, 5, 1, 6, 2, 7, 3]),
    }
    tables = PlanTables.of(TableSet("mine", tuple(Table(name, 101, 16, 4.0) for name in placed)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 5, 8, gpus_per_node=4)
    return torchrec.build_torchrec_plan(evaluator, Plan(tables, tuple(placed.values()), 8, evaluator.domain))


def test_types_are_torchrecs() -> None:
    from torchrec.distributed.types import ShardingType

    from perfmodel.schema.torchrec_plan import SHARDING_TYPES

    assert set(SHARDING_TYPES) == {kind.value for kind in ShardingType}
    kinds = {entry.table: entry.sharding_type for entry in on_eight().tables}
    merged = dict.fromkeys(("whole", "columns", "inside"), "column_wise")
    merged |= dict.fromkeys(("node", "grid"), "grid_shard")
    assert kinds == {**merged, "copied": "data_parallel", "rows": "row_wise"}
    check_shards(on_eight())


@pytest.mark.parametrize(("rows", "buckets", "gpus"), [(40, 10, 4), (40, 5, 4), (40, 4, 4), (48, 16, 8)])
def test_shards_of_buckets_are_those_that_torchrec_would_make(rows: int, buckets: int, gpus: int) -> None:
    """Whole buckets, the first ranks one more; what the fullest rank holds and looks up is counted."""
    tables = PlanTables.of(TableSet("one", (Table("t", rows, 16, 4.0, buckets=buckets),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 8, gpus)
    plan = uniform_plan(tables, "row-wise", gpus, gpus)
    file = torchrec.build_torchrec_plan(evaluator, plan)
    check_shards(file, buckets)
    fullest = max(size for size, _ in file.tables[0].shard_sizes)
    assert evaluator.cost(plan).memory.rows_bytes.max() == fullest * 16 * 4
    ids = evaluator.loads(plan)[Resource.IDS_RECEIVED].max()
    assert ids == pytest.approx(gpus * 8 * 4 * fullest / rows * 8)


def check_shards(plan: TorchRecPlan, buckets: int | None = None) -> None:
    """TorchRec's own planner, kept to the plan's shardings, cuts the same parts."""
    import torch
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

    for entry in plan.tables:
        if entry.sharding_type != "data_parallel":
            weight = torch.empty(entry.rows, entry.dim, device="meta")
            where = plan.gpus, plan.gpus_per_node, entry.sharding_type, entry.shard_sizes[0][1], None, buckets
            shards = calculate_shard_sizes_and_offsets(weight, *where)
            assert (entry.shard_sizes, entry.shard_offsets) == shards, entry.table


def test_buckets_that_torchrec_cannot_keep_whole_are_refused() -> None:
    tables = PlanTables.of(TableSet("one", (Table("t", 40, 16, 4.0, buckets=5),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 8, 8, gpus_per_node=2)
    for name in ("row-wise", "table-row-wise"):
        with pytest.raises(BadInputError, match="keeps 5 buckets whole where all 8 GPUs have one"):
            torchrec.build_torchrec_plan(evaluator, uniform_plan(tables, name, 8, 2))


def test_its_planner_takes_the_topology() -> None:
    plan = on_eight()
    topology = torchrec_plan.topology(plan)
    assert topology.hbm_mem_bw == pytest.approx(3.35e9)  # bytes/ms: 3.35 TB/s
    assert topology.inter_host_bw == pytest.approx(50e6) and topology.intra_host_bw == pytest.approx(450e6)
    assert (topology.world_size, topology.intra_group_size) == (8, 4)
    assert topology.devices[0].storage.hbm == 84_940_000_000


def test_a_module_of_another_model_is_refused() -> None:
    from planner_torchrec import module_of

    plan = on_eight()
    changed = plan.tables[4].model_copy(update={"rows": 99})
    other = plan.model_copy(update={"tables": [*plan.tables[:4], changed, *plan.tables[5:]]})
    with pytest.raises(BadInputError, match=r"'rows' is 101 x 16 in the plan and 99 x 16 in the module"):
        torchrec_plan.sharding_plan(plan, module_of(other))
    fewer = plan.model_copy(update={"tables": [entry for entry in plan.tables if entry.table != "rows"]})
    with pytest.raises(BadInputError, match=r"'rows' is no such table in the plan"):
        torchrec_plan.module_plan(fewer, module_of(plan))


@pytest.mark.parametrize(
    ("ranks", "node", "pods", "words"),
    [
        (16, 4, 1, "for 8 GPUs, and this job has 16"),
        (8, 8, 1, "for 4 GPUs per node, and this job has 8"),
        (8, 4, 2, "for 4 GPUs per domain, and this job has 8"),
        (8, 4, 1, ""),
    ],
)
def test_a_job_on_other_ranks_is_refused(
    ranks: int, node: int, pods: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TorchRec would cut rows for the ranks that it guesses. A copy and a whole table know no domain."""
    import torch.distributed as dist

    plan = on_eight()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: ranks)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(node))
    monkeypatch.setenv("TORCHREC_RESOLVED_POD_SIZE", str(pods))
    with pytest.raises(BadInputError, match=words) if words else nullcontext():
        torchrec_plan.module_plan(plan)
    if "domain" in words:
        torchrec_plan.module_plan(plan.model_copy(update={"tables": plan.tables[:2]}))


def test_domains_of_several_nodes_are_pods() -> None:
    """NVL72: 18 nodes of 4 GPUs in one domain; TorchRec counts them as a pod of 18."""
    tables = PlanTables.of(TableSet("mine", (Table("t", 1000, 16, 4.0),)))
    evaluator = Evaluator.on("gb200-nvl72", tables, 5, 144)
    plan = Plan(tables, (Placement.of(Scheme(Exchange.TWO_LEVEL, 72), range(72, 144)),), 144, 72)
    file = torchrec.build_torchrec_plan(evaluator, plan)
    topology = torchrec_plan.topology(file)
    assert (topology.local_world_size, topology.intra_group_size) == (4, 72)
    assert file.tables[0].sharding_type == "table_row_wise"
    spec = torchrec_plan.module_plan(file)["t"].sharding_spec
    assert [str(shard.placement) for shard in spec.shards[:2]] == ["rank:72/cuda:0", "rank:73/cuda:1"]
