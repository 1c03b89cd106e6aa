"""Plans shard real TorchRec modules over gloo ranks, and TorchRec's planner takes their topology."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import forked_ranks
import numpy as np
import pytest

import perfmodel
from calibrate import torchrec_plan
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme, uniform_plan
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan import torchrec
from perfmodel.schema.torchrec_plan import TorchRecPlan
from perfmodel.schema.workload import Table, TableSet

pytestmark = pytest.mark.usefixtures("torchrec_is_imported")

PROGRAM = Path(__file__).with_name("torchrec_plan_ranks.py")


def plan_of(gpus: int, per_node: int, **placed: Placement) -> TorchRecPlan:
    """A plan for TorchRec of tables of 101 rows and 16 columns, placed so."""
    tables = PlanTables.of(TableSet("mine", tuple(Table(name, 101, 16, 4.0) for name in placed)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 5, gpus, gpus_per_node=per_node)
    plan = Plan(tables, tuple(placed.values()), gpus, evaluator.domain)
    return torchrec.build_torchrec_plan(evaluator, plan)


def on_eight() -> TorchRecPlan:
    """Two nodes of four ranks: everything that TorchRec has."""
    return plan_of(
        gpus=8,
        per_node=4,
        copied=Placement.of(Scheme(Exchange.DP)),
        whole=Placement.of(Scheme(Exchange.RB), [7]),
        columns=Placement.of(Scheme(Exchange.RB, 1, 4), [2, 0, 7, 1]),
        inside=Placement.of(Scheme(Exchange.RB, 1, 2), [7, 6]),
        rows=Placement.of(Scheme(Exchange.RS, 8), range(8)),
        node=Placement.of(Scheme(Exchange.TWO_LEVEL, 4), range(4, 8)),
        grid=Placement.of(Scheme(Exchange.TWO_LEVEL, 4, 2), [4, 0, 5, 1, 6, 2, 7, 3]),
    )


HELD: dict[int, dict[str, list[int]]] = {
    0: {"copied": [0, 0, 101, 16], "columns": [0, 4, 101, 4], "rows": [0, 0, 13, 16], "grid": [0, 8, 26, 8]},
    7: {
        **{"copied": [0, 0, 101, 16], "whole": [0, 0, 101, 16], "columns": [0, 8, 101, 4]},
        **{"inside": [0, 0, 101, 8], "rows": [91, 0, 10, 16], "node": [78, 0, 23, 16]},
        "grid": [78, 0, 23, 8],
    },
}
"""[first row, first column, rows, columns] of what some ranks hold of each table."""


def ranks_run(plan: TorchRecPlan, folder: Path) -> list[dict[str, Any]]:
    """What each rank says."""
    path = folder / "plan.json"
    torchrec.write_torchrec_plan(plan, path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    codes, said, complaints = forked_ranks.started(PROGRAM, plan.gpus, str(port), str(path))
    assert codes == [0] * plan.gpus, [complaint[-3000:] for complaint in complaints]
    return [json.loads(text.strip().splitlines()[-1]) for text in said]


def test_a_sharded_module_gives_the_bags_of_the_whole(tmp_path: Path) -> None:
    """Every table is where the plan has it, and its bags are the unsharded module's."""
    plan = on_eight()
    said = ranks_run(plan, tmp_path)
    for rank, held in HELD.items():
        assert said[rank]["held"] == {name: [part] for name, part in held.items()}
    for one in said:
        assert one["largest"] > 0.05  # rows are up to 0.1: bags are not empty
        assert set(one["errors"]) == {entry.table for entry in plan.tables}
        assert max(one["errors"].values()) < 1, one["errors"]


@pytest.mark.parametrize("seed", range(2))
def test_torchrec_makes_the_kernels_of_every_plan_that_is_written(seed: int, tmp_path: Path) -> None:
    """Tables of any width and type: a plan is refused, or FBGEMM and TorchRec take all of its shards."""
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    random = np.random.default_rng(seed)
    shapes = [
        Table(
            f"t{at}",
            int(10 ** random.uniform(2, 6)),
            int(random.choice([4, 16, 96, 100] if seed % 2 else [1, 4, 10, 16, 50, 96, 100])),
            float(random.choice([1, 20])),
            str(random.choice(["fp32", "fp16"])),
        )
        for at in range(8)
    ]
    path, options = tmp_path / "plan.json", {"max_hbm_bytes": 4e8, "effort": "quick", "batch": 64}
    if seed % 2:
        options["only"] = "table-wise,column-wise,row-wise,table-row-wise,grid"  # no copies
    try:
        found = perfmodel.plan_tables(
            TableSet("drawn", tuple(shapes)), 8, gpus_per_node=4, for_torchrec=True, **options
        )
        torchrec.write_for_torchrec(found.answer.evaluator, found.plan, path)
    except BadInputError as error:
        assert seed % 2 == 0
        assert any(word in error.message for word in ("multiple of 4 columns", "elements of 8 bytes"))
        return
    plan = torchrec_plan.load(path)
    module = torchrec_plan.module_plan(plan, device="cpu")
    assert set(module) == {table.name for table in shapes}
    for entry in plan.tables:
        for rows, columns in entry.shard_sizes if entry.compute_kernel == "fused" else ():
            specs = [(max(rows, 1), columns, EmbeddingLocation.HOST, ComputeDevice.CPU)]
            SplitTableBatchedEmbeddingBagsCodegen(specs)


def test_types_are_torchrecs() -> None:
    from torchrec.distributed.types import ShardingType

    from perfmodel.schema.torchrec_plan import SHARDING_TYPES

    assert set(SHARDING_TYPES) == {kind.value for kind in ShardingType}
    kinds = {entry.table: entry.sharding_type for entry in on_eight().tables}
    merged = dict.fromkeys(("whole", "columns", "inside"), "column_wise")
    merged |= dict.fromkeys(("node", "grid"), "grid_shard")
    assert kinds == {**merged, "copied": "data_parallel", "rows": "row_wise"}


def test_shards_are_those_that_torchrec_would_make() -> None:
    """Its own planner, kept to the plan's shardings, cuts the same parts."""
    import torch
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

    for entry in on_eight().tables:
        if entry.sharding_type == "data_parallel":
            continue
        sizes, offsets = calculate_shard_sizes_and_offsets(
            torch.empty(entry.rows, entry.dim, device="meta"),
            *(8, 4, entry.sharding_type),
            col_wise_shard_dim=entry.shard_sizes[0][1],
        )
        assert (entry.shard_sizes, entry.shard_offsets) == (sizes, offsets), entry.table


@pytest.mark.parametrize(("rows", "buckets", "gpus"), [(40, 10, 4), (40, 8, 4), (40, 5, 4), (48, 16, 8)])
def test_shards_of_buckets_are_those_that_torchrec_would_make(rows: int, buckets: int, gpus: int) -> None:
    """Whole buckets, the first ranks one more; what the fullest rank holds and looks up is counted."""
    import torch
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

    tables = PlanTables.of(TableSet("one", (Table("t", rows, 16, 4.0, buckets=buckets),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 8, gpus)
    plan = uniform_plan(tables, "row-wise", gpus, gpus)
    entry = torchrec.build_torchrec_plan(evaluator, plan).tables[0]
    weight = torch.empty(rows, 16, device="meta")
    sizes, offsets = calculate_shard_sizes_and_offsets(weight, gpus, gpus, "row_wise", None, None, buckets)
    assert (entry.shard_sizes, entry.shard_offsets) == (sizes, offsets)
    fullest = max(size for size, _ in sizes)
    assert evaluator.memory(plan).rows_bytes.max() == fullest * 16 * 4
    ids = evaluator.loads(plan).of(Resource.IDS_RECEIVED).max()
    assert ids == pytest.approx(gpus * 8 * 4 * fullest / rows * 8)


def test_buckets_that_torchrec_cannot_keep_whole_are_refused() -> None:
    tables = PlanTables.of(TableSet("one", (Table("t", 40, 16, 4.0, buckets=5),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 8, 8, gpus_per_node=4)
    for name in ("row-wise", "table-row-wise"):
        with pytest.raises(BadInputError, match="keeps 5 buckets whole where all 8 GPUs have one"):
            torchrec.build_torchrec_plan(evaluator, uniform_plan(tables, name, 8, 4))


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


def test_a_job_on_other_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchRec would cut rows for the ranks that it guesses."""
    import torch.distributed as dist

    plan = on_eight()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 16)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(BadInputError, match=r"for 8 GPUs, and this job has 16"):
        torchrec_plan.module_plan(plan)
    monkeypatch.setattr(dist, "get_world_size", lambda: 8)
    torchrec_plan.module_plan(plan)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(BadInputError, match=r"for 4 GPUs per node, and this job has 8"):
        torchrec_plan.module_plan(plan)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("TORCHREC_RESOLVED_POD_SIZE", "2")
    with pytest.raises(BadInputError, match=r"for 4 GPUs per domain, and this job has 8"):
        torchrec_plan.module_plan(plan)
    whole = plan.model_copy(update={"tables": plan.tables[:2]})  # a copy and a whole table know no domain
    torchrec_plan.module_plan(whole)


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
