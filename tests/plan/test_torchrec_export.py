"""Plans for TorchRec: what it can run, how it is cut, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from dealt_plan import uniform_plan
from searches import ask_plan

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan import torchrec
from perfmodel.plan.choices.scheme_options import list_options
from perfmodel.plan.plan_files import read_any_plan
from perfmodel.schema.workload import Table, TableSet

TABLES = PlanTables.of(TableSet("mine", (Table("users", 10, 16, 4.0), Table("items", 100, 24, 1.0))))
EVALUATOR = Evaluator.on("h100-sxm-ib", TABLES, 5, 4, gpus_per_node=2)


def placed(users: Placement) -> Plan:
    """Users so, items on rank 2."""
    return Plan(TABLES, (users, Placement.of(Scheme(Exchange.RB), [2])), 4, 2)


@pytest.mark.parametrize(
    ("scheme", "ranks", "reason"),
    [
        (Scheme(Exchange.SPARSE, 2), [0, 1], r"non-empty"),
        (Scheme(Exchange.UB), [0], r"of pooled tables TorchRec exchanges bags, not unique rows; of unpooled"),
        (Scheme(Exchange.RB, 2), [0, 1], r"no 2 row parts on any ranks"),
        (Scheme(Exchange.TWO_LEVEL, 4), [0, 1, 2, 3], r"inside one domain of 2 GPUs, not over 4"),
        (Scheme(Exchange.RB, 1, 3), [0, 1, 2], r"a multiple of 4 columns, not 16 / 3"),
    ],
)
def test_what_torchrec_does_not_have_is_refused_by_name(
    scheme: Scheme, ranks: list[int], reason: str
) -> None:
    with pytest.raises(BadInputError, match=r"table 'users' is .*" + reason) as error:
        torchrec.build_torchrec_plan(EVALUATOR, placed(Placement.of(scheme, ranks)))
    assert "--format torchrec" in error.value.next_step


Shape = tuple[str, list[int], list[list[int]], list[list[int]]]


@pytest.mark.parametrize(
    ("scheme", "ranks", "shape"),
    [
        (  # 10 rows over 4 ranks: 3, 3, 3 and 1, on ranks in order whatever order the plan has
            Scheme(Exchange.RS, 4),
            [3, 1, 0, 2],
            ("row_wise", [0, 1, 2, 3], [[3, 16]] * 3 + [[1, 16]], [[0, 0], [3, 0], [6, 0], [9, 0]]),
        ),
        (  # ranks[i c + j] holds row part i of column part j: columns 0 to 7 in node 1, 8 to 15 in node 0
            Scheme(Exchange.TWO_LEVEL, 2, 2),
            [3, 0, 2, 1],
            ("grid_shard", [2, 3, 0, 1], [[5, 8]] * 4, [[0, 0], [5, 0], [0, 8], [5, 8]]),
        ),
        (Scheme(Exchange.DP), [], ("data_parallel", [0, 1, 2, 3], [], [])),
    ],
)
def test_shards_are_torchrecs(scheme: Scheme, ranks: list[int], shape: Shape) -> None:
    users, items = torchrec.build_torchrec_plan(EVALUATOR, placed(Placement.of(scheme, ranks))).tables
    assert (users.sharding_type, users.ranks, users.shard_sizes, users.shard_offsets) == shape
    assert users.compute_kernel == ("dense" if scheme.copied else "fused")
    assert (items.sharding_type, items.ranks) == ("table_wise", [2])


def test_in_one_domain_all_is_row_wise_and_ranks_without_rows_are_empty() -> None:
    """5 rows over 4 ranks: 2, 2, 1 and none."""
    tables = PlanTables.of(TableSet("mine", (Table("users", 5, 16, 4.0),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 5, 4)
    for name in ("row-wise", "table-row-wise"):
        users = torchrec.build_torchrec_plan(evaluator, uniform_plan(tables, name, 4, 4)).tables[0]
        assert users.sharding_type == "row_wise"
        assert [size[0] for size in users.shard_sizes] == [2, 2, 1, 0]
        assert [offset[0] for offset in users.shard_offsets] == [0, 2, 4, 5]


def test_the_topology_is_si_of_one_gpu() -> None:
    """H100: 84.94 GB, 3.35 TB/s, 450 GB/s NVLink and 50 GB/s network in one direction."""
    plan = placed(Placement.of(Scheme(Exchange.DP)))
    file = torchrec.build_torchrec_plan(EVALUATOR, plan)
    rates = file.topology
    assert (rates.hbm_bytes, rates.hbm_bytes_per_s) == (84_940_000_000, 3.35e12)
    assert (rates.intra_bytes_per_s, rates.inter_bytes_per_s) == (450e9, 50e9)
    assert (file.gpus, file.gpus_per_node, file.domain_gpus, file.batch) == (4, 2, 2, 5)
    assert torchrec.build_torchrec_plan(EVALUATOR, plan, 6e10).topology.hbm_bytes == 60 * 10**9


def test_options_that_torchrec_can_run() -> None:
    """The mask agrees with the export of each scheme by itself, and keeps one for every table."""
    options = torchrec.restrict_to_torchrec(list_options(EVALUATOR, 80e9), EVALUATOR)
    kept = {(int(options.group[at]), options.build_scheme(at)) for at in range(options.group.size)}
    users = int(options.kind_of[0])
    assert {scheme for group, scheme in kept if group == users} == {
        Scheme(Exchange.DP),
        Scheme(Exchange.RB),
        Scheme(Exchange.RB, 1, 2),
        Scheme(Exchange.RB, 1, 4),
        Scheme(Exchange.TWO_LEVEL, 2),
        Scheme(Exchange.TWO_LEVEL, 2, 2),
        Scheme(Exchange.RS, 4),
    }


def test_a_table_that_fits_in_no_sharding_of_torchrec() -> None:
    """3 rows of 24 bytes in rooms of 48 bytes: only two row parts fit, which TorchRec has not."""
    tables = PlanTables.of(TableSet("mine", (Table("users", 3, 6, 1.0),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 5, 4)
    options = list_options(evaluator, 48.0)
    assert {options.build_scheme(at).row_parts for at in range(options.group.size)} == {2}
    assert list_options(Evaluator.on("h100-sxm-ib", tables, 5, 1), 72.0).group.size, "all rows on one GPU"
    with pytest.raises(BadInputError, match=r"'users' fits in no sharding that TorchRec has"):
        torchrec.restrict_to_torchrec(options, evaluator)


def sharding_plan(path: Path, **tables: tuple[str, list[int]]) -> Path:
    """TorchRec's ShardingPlan, its tables in two modules."""
    entries = [
        {name: {"sharding_type": kind, "compute_kernel": "fused", "ranks": ranks, "sharding_spec": None}}
        for name, (kind, ranks) in tables.items()
    ]
    path.write_text(json.dumps({f"sparse.{at}": entry for at, entry in enumerate(entries)}))
    return path


def two_tables() -> PlanTables:
    return PlanTables.of(TableSet("two", tuple(Table(name, 10_000, 16, 4.0) for name in ("a", "b"))))


def test_a_plan_of_torchrec_is_costed_as_it_runs_it(tmp_path: Path) -> None:
    """Against the same placements made by hand, with an exchange for each of its types."""
    tables, file = two_tables(), tmp_path / "theirs.json"
    sharding_plan(file, a=("row_wise", list(range(8))), b=("grid_shard", [4, 5, 6, 7, 0, 1, 2, 3]))
    plan, sets = read_any_plan(file, tables, 8, lambda gpus: 4)
    assert sets == ExchangeSets(("row_wise", "grid_shard"))
    by_hand = (
        Placement.of(Scheme(Exchange.RS, 8), range(8)),
        Placement(Scheme(Exchange.TWO_LEVEL, 4, 2), np.array([4, 0, 5, 1, 6, 2, 7, 3])),
    )
    for placement, want in zip(plan.placements, by_hand, strict=True):
        assert (placement.scheme, placement.ranks.tolist()) == (want.scheme, want.ranks.tolist())


@pytest.mark.parametrize(
    ("tables", "gpus", "words"),
    [
        ({"a": ("row_wise", [0, 1])}, 2, "'b' is not both"),
        ({"a": ("row_wise", [0, 1]), "b": ("row", [0])}, 2, "theirs.json: b"),
        ({"a": ("table_wise", [0]), "b": ("table_wise", [5])}, 2, "rank 5"),
        ({"a": ("table_wise", [0]), "b": ("table_wise", [1])}, None, "does not say on how many GPUs"),
        ({"a": ("table_wise", [0]), "b": ("table_row_wise", [0, 1, 2])}, 4, "on 3 ranks, in domains of 2"),
    ],
)
def test_a_plan_of_torchrec_that_cannot_be_costed_says_why(
    tables: dict[str, tuple[str, list[int]]], gpus: int | None, words: str, tmp_path: Path
) -> None:
    file = sharding_plan(tmp_path / "theirs.json", **tables)
    with pytest.raises(BadInputError, match=words):
        read_any_plan(file, two_tables(), gpus, lambda gpus: 2)


@pytest.mark.parametrize(
    ("table", "words", "step"),
    [
        (Table("odd", 40_000_000, 50, 20.0), "a multiple of 4 columns, not 50", "pad it to 52 columns"),
        (Table("double", 400_000, 64, 20.0, "fp64"), "elements of 8 bytes", "store it as fp32"),
    ],
)
def test_what_torchrec_cannot_hold_is_said_of_the_table(
    table: Table, words: str, step: str, tmp_path: Path
) -> None:
    """Sharded, rows of 50 columns are refused; 40 M of them are no copies on 1 GB."""
    tables, options = TableSet("mine", (table, Table("even", 1000, 64, 1.0))), {"batch": 512, "effort_s": 0.0}
    asked = ask_plan(tables, 8, "a100-sxm-ib", for_torchrec=True, most_bytes=2e9, **options)
    with pytest.raises(BadInputError, match=words) as refused:
        answer = asked.plan()
        torchrec.write_for_torchrec(answer.evaluator, answer.plan, tmp_path / "plan.json")
    assert step in refused.value.next_step and table.name in refused.value.message


def test_rows_of_any_width_may_be_copied() -> None:
    """TorchRec's dense kernel takes them; shards of others have whole vectors."""
    shapes = [Table("odd", 400, 50, 2.0), Table("even", 9_000_000, 96, 20.0), Table("wide", 10**6, 100, 9.0)]
    asked = ask_plan(TableSet("mine", tuple(shapes)), 16, batch=512, most_bytes=1e9, for_torchrec=True)
    answer = asked.plan()
    odd, *others = torchrec.build_torchrec_plan(answer.evaluator, answer.plan).tables
    assert odd.sharding_type == "data_parallel"
    assert all(columns % 4 == 0 for entry in others for _, columns in entry.shard_sizes)
