"""TorchRec's groups of tables, counted by its own ``group_tables``: one kernel launch each."""

from __future__ import annotations

import pytest
from perfmodel.passes.allowed_tiers import Below
from perfmodel.schema.tiers import IN_HBM, parse_tier

from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme
from perfmodel.schema.workload import Table, TableSet

pytest.importorskip("torchrec")

TIERS = ("hbm", "uvm", "uvm-caching:10%", "ssd:10%")


def groups_of_torchrec(*kernels: str) -> int:
    from torchrec.distributed.embedding_sharding import group_tables
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel, ShardedEmbeddingTable

    tables = [
        ShardedEmbeddingTable(
            num_embeddings=100_000,
            embedding_dim=32,
            local_rows=100_000,
            local_cols=32,
            name=f"t{at}",
            embedding_names=[f"t{at}"],
            feature_names=[f"f{at}"],
            compute_kernel=EmbeddingComputeKernel(kernel),
        )
        for at, kernel in enumerate(kernels)
    ]
    return len(group_tables([tables])[0])


@pytest.mark.parametrize("tiers", [TIERS[:1], TIERS[:3], TIERS, TIERS[3:], (TIERS[0], TIERS[3])])
def test_tables_on_ssds_are_a_group_of_their_own(tiers: tuple[str, ...]) -> None:
    parsed = [IN_HBM if tier == "hbm" else parse_tier(tier) for tier in tiers]
    tables = PlanTables.of(
        TableSet("some", tuple(Table(f"t{i}", 100_000, 32, 4.0) for i in range(len(tiers))))
    )
    schemes = [Scheme(Exchange.RB, tier=tier) for tier in parsed]
    plan = Plan(tables, tuple(Placement.of(scheme, [0]) for scheme in schemes), 2, 2)
    below = Below.of([*parsed, parse_tier("ssd:10%")])
    evaluator = Evaluator.on("h100-sxm-ib", tables, 64, 2, below=below, sets=ExchangeSets())
    found = evaluator.times.launches(evaluator.loads(plan).most)
    assert int(found) == groups_of_torchrec(*(tier.kernel for tier in parsed))
