"""Tables, schemes and placements: what is understood, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from dealt_plan import uniform_plan
from searches import tables_of

from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import SHARDINGS, Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.workload import Table, TableSet

TABLES = tables_of((1000, 32, 4.0), (2000, 64, 1.0))


def test_tables_of_one_name_are_refused() -> None:
    with pytest.raises(BadInputError, match="two tables of the name 'a'"):
        PlanTables.of(TableSet("x", (Table("b", 5, 4, 1.0), Table("a", 10, 4, 1.0), Table("a", 20, 4, 1.0))))


def test_fingerprint_is_of_the_tables_alone() -> None:
    same = tables_of((1000, 32, 9.0), (2000, 64, 1.0))
    assert same.fingerprint == TABLES.fingerprint
    assert tables_of((1000, 32, 4.0), (2001, 64, 1.0)).fingerprint != TABLES.fingerprint


def test_named_schemes() -> None:
    G, g = 128, 8
    assert Scheme.from_name("row-wise", G, g) == Scheme(Exchange.RS, 128, 1)
    assert Scheme.from_name("table-wise", G, g) == Scheme(Exchange.RB, 1, 1)
    assert Scheme.from_name("column-wise", G, g, col_parts=4) == Scheme(Exchange.RB, 1, 4)
    assert Scheme.from_name("table-row-wise", G, g) == Scheme(Exchange.TWO_LEVEL, 8, 1)
    assert Scheme.from_name("grid", G, g, col_parts=4) == Scheme(Exchange.TWO_LEVEL, 8, 4)
    assert Scheme.from_name("3d", G, g, 3, 4) == Scheme(Exchange.RB, 3, 4)
    assert Scheme.from_name("data-parallel", G, g).parts == 0
    with pytest.raises(BadInputError) as caught:
        Scheme.from_name("row-wse", G, g)
    assert "did you mean row-wise?" in caught.value.next_step


@pytest.mark.parametrize("name", sorted(set(SHARDINGS) - {"3d"}))
def test_a_uniform_plan_has_the_name_it_was_made_by(name: str) -> None:
    tables = tables_of(*[(1000 + i, 32, 2.0) for i in range(5)])
    plan = uniform_plan(tables, name, 32, 8, col_parts=4)
    found = {placement.sharding(32, 8) for placement in plan.placements}
    if name == "column-wise":  # four GPUs in turn are in one node
        assert found == {"table-column-wise"}
    else:
        assert found == {name}


def test_small_tables_of_a_row_wise_plan_are_copied() -> None:
    plan = uniform_plan(tables_of((7, 4, 1.0), (8, 4, 1.0)), "row-wise", 8, 8)
    assert [p.scheme.kind for p in plan.placements] == [Exchange.DP, Exchange.RS]


def place(scheme: Scheme, ranks: Any, gpus: int = 16, domain: int = 8) -> Plan:
    return Plan(tables_of((100, 8, 1.0)), (Placement.of(scheme, ranks),), gpus, domain)


@pytest.mark.parametrize(
    ("scheme", "ranks", "named"),
    [
        (Scheme(Exchange.RB, 1, 9), range(9), "9 column parts of 8 columns"),
        (Scheme(Exchange.RB, 101, 1), range(101), "101 row parts of 100 rows"),
        (Scheme(Exchange.RB, 0, 1), (), "0 row parts"),
        (Scheme(Exchange.RB, 4, 5), range(20), "4 x 5 shards on 16 GPUs"),
        (Scheme(Exchange.RS, 8), range(8), "rs with 8 x 1 parts"),
        (Scheme(Exchange.DP, 2), (), "dp in 2 x 1"),
        (Scheme(Exchange.TWO_LEVEL, 4), range(4), "two_level with 4 row parts"),
        (Scheme(Exchange.TWO_LEVEL, 8), range(4, 12), "4 of the 8 ranks of a domain"),
        (Scheme(Exchange.RB, 2), (0,), "1 rank for 2 shards"),
        (Scheme(Exchange.DP), (0,), "1 rank for 0 shards"),
        (Scheme(Exchange.RB, 2), (1, 1), "one rank holds two"),
        (Scheme(Exchange.RB, 2), (0, 16), "rank 16 does not exist"),
        (Scheme(Exchange.RB, 2), (0, -1), "rank -1 does not exist"),
    ],
)
def test_what_cannot_be_placed_says_why(scheme: Scheme, ranks: Any, named: str) -> None:
    with pytest.raises(BadInputError) as caught:
        place(scheme, ranks)
    assert named in caught.value.message and "'t0'" in caught.value.message and caught.value.next_step


@pytest.mark.parametrize(
    ("row_parts", "col_parts", "hot"), [(100, 1, 0), (1, 8, 0), (2, 1, 98), (1, 1, 99), (16, 8, 0)]
)
def test_a_scheme_at_its_limits_is_placed(row_parts: int, col_parts: int, hot: int) -> None:
    """All rows, all columns, parts of all rows that are not hot, a shard on every GPU."""
    scheme = Scheme(Exchange.RB, row_parts, col_parts, hot)
    assert place(scheme, range(scheme.parts), gpus=128).placements[0].scheme == scheme


def test_two_level_needs_whole_domains() -> None:
    with pytest.raises(BadInputError, match="12 GPUs in domains of 8"):
        place(Scheme(Exchange.TWO_LEVEL, 8), range(8), gpus=12)


def test_column_parts_inside_a_node_go_to_neighbours_in_turn() -> None:
    """Four tables of two column parts on two nodes of four GPUs: nodes in turn, then the next two GPUs."""
    tables = PlanTables.of(TableSet("mine", tuple(Table(f"t{i}", 100, 8, 1) for i in range(4))))
    plan = uniform_plan(tables, "table-column-wise", 8, 4, col_parts=2)
    assert [p.ranks.tolist() for p in plan.placements] == [[0, 1], [4, 5], [2, 3], [6, 7]]
