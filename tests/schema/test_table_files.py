"""Table sets as gzip, Parquet and frames, and what a table says of its own ids: popularity and weights."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfmodel.engine.schemes import Exchange, exchange_named
from perfmodel.engine.steps import Resource
from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.schema import table_files
from perfmodel.schema.distributions import UNIFORM, zipf
from perfmodel.schema.table_files import load_tables, tables_from_frame
from perfmodel.schema.workload import Table, TableSet

CSV = (
    "name,rows,dim,pooling,dtype,weighted,distribution,count\n"
    "users,1e6,64,2.5,fp16,true,zipf:1.05,1\n"
    "items,2000,32,,,,,2\n"
)
TABLES = (
    Table("users", 1_000_000, 64, 2.5, "fp16", True, zipf(1.05)),
    Table("items_0", 2000, 32, 1.0),
    Table("items_1", 2000, 32, 1.0),
)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": ["users", "items"],
            "rows": [1e6, 2000],
            "dim": [64, 32],
            "pooling": [2.5, np.nan],
            "dtype": ["fp16", None],
            "weighted": [True, None],
            "distribution": ["zipf:1.05", None],
            "count": [1, 2],
        }
    )


def test_one_set_in_four_spellings(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    frame().to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.csv.gz", "t.parquet"):
        found = load_tables(str(tmp_path / name))
        assert found.tables == TABLES and found.name == "t", name
    assert tables_from_frame(frame(), "mine").tables == TABLES


def capitals(names: list[str]) -> list[str]:
    return [name.upper() if at % 2 else name.title() for at, name in enumerate(names)]


def test_capitals_in_the_names_of_columns(tmp_path: Path) -> None:
    header, rest = CSV.split("\n", 1)
    (tmp_path / "t.csv").write_text("\n".join([",".join(capitals(header.split(","))), rest]))
    written = frame().set_axis(capitals(list(frame().columns)), axis=1)
    written.to_parquet(tmp_path / "t.parquet")
    entries = [{"NAME": t.name, "Rows": t.rows, "DIM": t.dim, "Pooling": t.pooling} for t in TABLES]
    (tmp_path / "t.json").write_text(json.dumps(entries))
    for name in ("t.csv", "t.parquet"):
        assert load_tables(str(tmp_path / name)).tables == TABLES, name
    assert tables_from_frame(written).tables == TABLES
    assert [t.rows for t in load_tables(str(tmp_path / "t.json")).tables] == [t.rows for t in TABLES]
    upper = pd.DataFrame({"NUM_EMBEDDINGS": [10], "Embedding_Dim": [8], "NAME": ["x"], "Pooling": [1]})
    assert tables_from_frame(upper).tables == (Table("x", 10, 8, 1.0),)


def test_columns_that_differ_only_in_capitals_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("rows,dim,ROWS\n10,8,20\n")
    both = pd.DataFrame({"num_embeddings": [10], "embedding_dim": [8], "Num_Embeddings": [20]})
    (tmp_path / "t.json").write_text('[{"rows": 10, "dim": 8, "Rows": 20}]')
    for ask in (
        lambda: load_tables(str(tmp_path / "t.csv")),
        lambda: load_tables(str(tmp_path / "t.json")),
        lambda: tables_from_frame(both),
    ):
        with pytest.raises(BadInputError, match=r"(rows and ROWS|rows and Rows|num_embeddings and Num_Emb)"):
            ask()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": [0, 1]}, "tables.0.rows"),
        ({"rows": [1.5, 1]}, "tables.0.rows"),
        ({"dim": ["64", 32]}, "tables.0.dim"),
        ({"distribution": ["zipf", None]}, "tables.0.distribution.*not known"),
        ({"weighted": ["yes", None]}, "tables.0.weighted.*true or false"),
        ({"width": [1, 2]}, "unknown column 'width'"),
    ],
)
def test_wrong_frames_say_where(change: dict[str, list[object]], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        tables_from_frame(frame().assign(**change))


def test_files_that_are_not_what_their_name_says(tmp_path: Path) -> None:
    for name, raw in (
        ("a.csv.gz", b"rows,dim\n1,2\n"),
        ("b.csv.gz", gzip.compress(b"rows,dim\n1,2\n" * 99)[:-9]),
        ("c.parquet", b"PAR1"),
        ("d.parquet", b""),
    ):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(BadInputError, match=name):
            load_tables(str(tmp_path / name))
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"rows,dim\n" + b"1,1\n" * 2**25, 1))
    with pytest.raises(BadInputError, match="64 MiB unpacked"):
        load_tables(str(bomb))


def test_a_table_s_own_distribution_goes_before_that_of_all() -> None:
    tables = TableSet("two", TABLES[:2])
    assert PlanTables.of(tables).ids == (zipf(1.05), UNIFORM)
    assert PlanTables.of(tables, zipf(2)).ids == (zipf(1.05), zipf(2))
    assert PlanTables.of(tables, [UNIFORM, UNIFORM]).ids == (UNIFORM, UNIFORM)


def test_project_counts_what_tables_say_of_their_own_ids(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    made = cli("project", "--model", str(path), "--gpus", "8")
    assert made.code == 0 and "1 table with weights" not in made.err
    assert "ids with weights in 1 table, uniform, zipf:1.05 ids" in " ".join(made.out.split())


@pytest.mark.parametrize("exchange", [kind.key for kind in Exchange])
def test_weights_are_four_bytes_beside_each_id_that_travels(exchange: str) -> None:
    """A recount: ids that a rank sends are c B L; the holder of a row part gets G B L / r of them."""
    rows, dim, pooling, batch, gpus = 10_000, 64, 8.0, 512, 8
    loads = []
    for weighted in (False, True):
        tables = PlanTables.of(TableSet("one", (Table("a", rows, dim, pooling, "fp32", weighted),)))
        e = Evaluator.on("h100-sxm-ib", tables, batch, gpus)
        parts = {"dp": (1, 1), "rs": (8, 1), "two_level": (8, 1)}.get(exchange, (2, 2))
        found = e.count_shards([0], [exchange_named(exchange)], [parts[0]], [parts[1]])
        loads.append((found.everywhere[0], found.own[0]))
    more = loads[1][0] - loads[0][0], loads[1][1] - loads[0][1]
    r, c = parts
    travels = exchange not in ("dp", "ub")
    sent, received = 4 * c * batch * pooling, 4 * gpus * batch * pooling / r
    assert more[0][Resource.IDS_SENT] == pytest.approx(sent * travels)
    assert more[0][Resource.BUCKETIZE] == pytest.approx(sent * travels)
    assert more[1][Resource.IDS_RECEIVED] == pytest.approx(received * travels)
    assert more[1][Resource.GATHER_DRAM] == pytest.approx(received * travels)
    assert more[0][Resource.GATHER_DRAM] == pytest.approx(4 * batch * pooling * (exchange == "dp"))
    assert more[0][Resource.POOL_DRAM] == pytest.approx(4 * batch * pooling * (exchange == "ub"))
    same = [x for x in Resource if x.name.startswith(("REQUESTS", "DEDUP", "LENGTHS", "BAGS", "ROWS"))]
    assert not any(more[i][x] for i in (0, 1) for x in same)


@pytest.mark.parametrize(
    "text", ["1", "64", "007", "0", "999999999999999", "1234567890123456", "٣", "1e6", "1.5", "-3"]
)
def test_plain_digits_are_read_as_any_other_spelling_of_a_number(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most numbers of a file need no look at their spelling."""
    quick = table_files._digits(text)
    monkeypatch.setattr(table_files, "_PLAIN", 0)
    assert quick == table_files._digits(text)


def test_a_file_is_shown_with_its_weights_and_distributions(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(
        "rows,dim,pooling,weighted,distribution\n9000,64,2,true,zipf:1.05\n80,8,1,false,\n", encoding="utf-8"
    )
    head, first, second = cli("show", "models", str(file)).out.splitlines()[-3:]
    assert head.split()[-2:] == ["weights", "ids"]
    assert first.split()[-2:] == ["yes", "zipf:1.05"] and second.split()[-1] == "fp32"
    assert "weights" not in cli("show", "models", "criteo-kaggle").out
