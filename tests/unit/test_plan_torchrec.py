"""Plans for TorchRec: what it can run, how it is cut, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fault_inputs import all_readers

from perfmodel.engine.schemes import Exchange
from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, uniform_plan
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.schema.torchrec_plan import read_torchrec_plan, write_torchrec_plan
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
        (
            Scheme(Exchange.UB),
            [0],
            r"of pooled tables TorchRec exchanges bags, not unique rows; of unpooled ones",
        ),
        (Scheme(Exchange.RB, 2), [0, 1], r"no 2 row parts on any ranks"),
        (Scheme(Exchange.TWO_LEVEL, 4), [0, 1, 2, 3], r"inside one domain of 2 GPUs, not over 4"),
        (Scheme(Exchange.RB, 1, 3), [0, 1, 2], r"a multiple of 4 columns, not 16 / 3"),
    ],
)
def test_what_torchrec_does_not_have_is_refused_by_name(
    scheme: Scheme, ranks: list[int], reason: str
) -> None:
    with pytest.raises(BadInputError, match=r"table 'users' is .*" + reason) as error:
        torchrec.torchrec_plan(EVALUATOR, placed(Placement.of(scheme, ranks)))
    assert "--format torchrec" in error.value.next_step


def test_row_parts_are_torchrecs() -> None:
    """10 rows over 4 ranks: 3, 3, 3 and 1, on ranks in order whatever order the plan has."""
    found = torchrec.torchrec_plan(EVALUATOR, placed(Placement.of(Scheme(Exchange.RS, 4), [3, 1, 0, 2])))
    users = found.tables[0]
    assert (users.sharding_type, users.compute_kernel, users.ranks) == ("row_wise", "fused", [0, 1, 2, 3])
    assert users.shard_sizes == [[3, 16], [3, 16], [3, 16], [1, 16]]
    assert users.shard_offsets == [[0, 0], [3, 0], [6, 0], [9, 0]]
    assert found.tables[1].sharding_type == "table_wise" and found.tables[1].ranks == [2]


def test_a_grid_is_column_by_column() -> None:
    """ranks[i c + j] holds row part i of column part j: columns 0 to 7 in node 1, 8 to 15 in node 0."""
    found = torchrec.torchrec_plan(
        EVALUATOR, placed(Placement.of(Scheme(Exchange.TWO_LEVEL, 2, 2), [3, 0, 2, 1]))
    )
    users = found.tables[0]
    assert (users.sharding_type, users.ranks) == ("grid_shard", [2, 3, 0, 1])
    assert users.shard_sizes == [[5, 8]] * 4
    assert users.shard_offsets == [[0, 0], [5, 0], [0, 8], [5, 8]]


def test_more_parts_than_rows_leave_ranks_empty() -> None:
    """5 rows over 4 ranks: 2, 2, 1 and none."""
    tables = PlanTables.of(TableSet("mine", (Table("users", 5, 16, 4.0),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 5, 4)
    users = torchrec.torchrec_plan(evaluator, uniform_plan(tables, "row-wise", 4, 4)).tables[0]
    assert [size[0] for size in users.shard_sizes] == [2, 2, 1, 0]
    assert [offset[0] for offset in users.shard_offsets] == [0, 2, 4, 5]


def test_two_levels_in_one_domain_are_row_wise() -> None:
    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 5, 4)
    found = torchrec.torchrec_plan(evaluator, uniform_plan(TABLES, "table-row-wise", 4, 4))
    assert {entry.sharding_type for entry in found.tables} == {"row_wise"}


def test_copies_have_no_shards() -> None:
    users = torchrec.torchrec_plan(EVALUATOR, placed(Placement.of(Scheme(Exchange.DP)))).tables[0]
    assert (users.sharding_type, users.compute_kernel) == ("data_parallel", "dense")
    assert (users.ranks, users.shard_sizes) == ([0, 1, 2, 3], [])


def test_a_domain_that_is_no_whole_node_holds_no_row_parts() -> None:
    """GPUs that NVLink joins in sixes, in nodes of four: TorchRec knows no group of six."""
    plan = Plan(TABLES, (Placement.of(Scheme(Exchange.TWO_LEVEL, 6), range(6)), _copy()), 12, 6)
    with pytest.raises(BadInputError, match=r"whole nodes of 4 GPUs, not in domains of 6"):
        torchrec._kind(plan, 0, 4)


def _copy() -> Placement:
    return Placement.of(Scheme(Exchange.DP))


def test_topology_is_si_and_of_one_gpu() -> None:
    """H100: 84.94 GB, 3.35 TB/s, 450 GB/s NVLink and 50 GB/s network in one direction."""
    found = torchrec.torchrec_plan(EVALUATOR, placed(_copy()))
    rates = found.topology
    assert (rates.hbm_bytes, rates.hbm_bytes_per_s) == (84_940_000_000, 3.35e12)
    assert (rates.intra_bytes_per_s, rates.inter_bytes_per_s) == (450e9, 50e9)
    assert (found.gpus, found.gpus_per_node, found.domain_gpus, found.batch) == (4, 2, 2, 5)
    assert torchrec.torchrec_plan(EVALUATOR, placed(_copy()), 6e10).topology.hbm_bytes == 60 * 10**9


def test_files_come_back(tmp_path: Path) -> None:
    plan = torchrec.torchrec_plan(EVALUATOR, placed(Placement.of(Scheme(Exchange.TWO_LEVEL, 2), [1, 0])))
    path = tmp_path / "plan.json"
    write_torchrec_plan(plan, path)
    assert read_torchrec_plan(path) == plan


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpus": 2}, r"table 'items' has a rank above 1"),
        ({"kind": "plan"}, r"kind: must be one of 'torchrec-plan'"),
        ({"tables.0.shard_sizes": [[10, 15]]}, r"150 elements do not make up a table of 10 x 16"),
        ({"tables.0.ranks": [0, 1]}, r"1 shard_sizes and 1 shard_offsets for 2 shards"),
        ({"tables.0.table": "items"}, r"two tables have one name"),
        ({"tables.0.sharding_type": "sparse"}, r"sharding_type: must be one of"),
    ],
)
def test_broken_files_are_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    torchrec.write(EVALUATOR, placed(Placement.of(Scheme(Exchange.RB), [0])), path)
    document = json.loads(path.read_text())
    for where, value in change.items():
        *outer, last = [int(step) if step.isdigit() else step for step in where.split(".")]
        inner = document
        for step in outer:
            inner = inner[step]
        inner[last] = value
    path.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=reason):
        read_torchrec_plan(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(BadInputError, match=r"not valid JSON"):
        read_torchrec_plan(path)


def test_options_that_torchrec_can_run() -> None:
    """The mask agrees with the export of each scheme by itself, and keeps one for every table."""
    options = options_of(EVALUATOR, 80e9)
    mask = torchrec.runnable(options, EVALUATOR)
    kept = {(int(options.group[at]), options.scheme(at)) for at in range(mask.size) if mask[at]}
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
    """3 rows of 24 bytes in rooms of 60 bytes: only two row parts fit, which TorchRec has not."""
    tables = PlanTables.of(TableSet("mine", (Table("users", 3, 6, 1.0),)))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 5, 4)
    options = options_of(evaluator, 60.0)
    assert {options.scheme(at).row_parts for at in range(options.group.size)} == {2}
    with pytest.raises(BadInputError, match=r"'users' fits in no sharding that TorchRec has"):
        torchrec.runnable(options, evaluator)


def test_no_option_has_rows_in_a_domain_that_is_no_whole_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Domains of two GPUs in nodes of four: copies, whole tables, columns and rows over all are left."""
    options = options_of(EVALUATOR, 80e9)
    monkeypatch.setattr(torchrec, "_node", lambda evaluator: 4)
    mask = torchrec.runnable(options, EVALUATOR)
    kept = {options.scheme(at).kind for at in range(mask.size) if mask[at]}
    assert kept == {Exchange.DP, Exchange.RB, Exchange.RS}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"table": "t"', b'"table": "u"', "does not place table 't'"),
        (b'"gpus": 2', b'"gpus": 262145', "gpus: must be at most 262 144"),
    ],
)
def test_a_plan_of_torchrec_that_lacks_a_table_is_refused(
    tmp_path: Path, old: bytes, new: bytes, words: str
) -> None:
    reader = next(each for each in all_readers() if each.name == "plan of any kind")
    with pytest.raises(BadInputError, match=words):
        reader.read(reader.written(reader.whole[0].replace(old, new, 1), tmp_path))
