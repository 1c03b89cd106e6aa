"""workload: shipped table sets, users' files in three formats, and the uniform workload."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.answer import project_one
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.table_files import list_models, load_tables
from perfmodel.schema.torchrec_tables import FIELDS, table_entry
from perfmodel.schema.workload import Table, Workload

SHIPPED = {
    "mlperf-dlrm-dcnv2": (26, 104_542_509_056),
    "criteo-1tb": (26, None),
    "criteo-kaggle": (26, None),
    "embark-t180": (177, None),
    "embark-t200": (200, None),
    "embark-t510": (510, None),
    "embark-t7": (7, 1_784_320_000_000),
    "embark-dcnv2": (26, 104_542_509_056),
    "distemb-tiny": (55, None),
    "distemb-small": (107, None),
    "distemb-medium": (311, None),
    "distemb-large": (612, None),
    "distemb-jumbo": (1022, None),
    "distemb-colossal": (2002, None),
    "distemb-criteo": (26, 26 * 100_000 * 128 * 4),
    "torchrec-production": (1933, 610_668_488_688),  # rows of 4 fp16 take 16 bytes
}


def test_the_shipped_table_sets() -> None:
    assert set(list_models()) == set(SHIPPED)
    for name, (count, total_bytes) in SHIPPED.items():
        tables = load_tables(name)
        assert tables.name == name and len(tables.tables) == count and tables.source
        assert total_bytes is None or PlanTables.of(tables).total_bytes == total_bytes


def test_dcnv2_by_hand() -> None:
    tables = load_tables("mlperf-dlrm-dcnv2")
    assert tables.tables[0] == Table("t0", 40_000_000, 128, 3, "fp32")
    assert PlanTables.of(tables).count_bytes(training=True)[0] == 20_480_000_000  # rows of 512 bytes
    hot = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]
    assert [table.pooling for table in tables.tables] == hot
    assert sum(hot) == 214


def test_unknown_table_set_names_the_closest() -> None:
    with pytest.raises(BadInputError) as caught:
        load_tables("mlperf-dlrm-dcnv")
    assert "did you mean mlperf-dlrm-dcnv2?" in caught.value.next_step


CSV = "name,rows,dim,pooling,dtype\nusers,1000,64,2.5,fp16\nitems,2000,32,,\n"
TOML = """
name = "mine"
note = "two tables"
tables = [
  { name = "users", rows = 1000, dim = 64, pooling = 2.5, dtype = "fp16" },
  { name = "items", rows = 2000, dim = 32 },
]
"""
YAML = """
name: mine
tables:
- {name: users, rows: 1000, dim: 64, pooling: 2.5, dtype: fp16}
- {name: items, rows: 2000, dim: 32}
"""


@pytest.mark.parametrize(("name", "text"), [("mine.csv", CSV), ("mine.toml", TOML), ("mine.yaml", YAML)])
def test_the_three_formats_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    tables = load_tables(tmp_path / name)
    assert tables.name == "mine"
    assert tables.tables == (Table("users", 1000, 64, 2.5, "fp16"), Table("items", 2000, 32, 1.0, "fp32"))
    assert PlanTables.of(tables).total_bytes == 1000 * 128 + 2000 * 128
    assert load_tables(str(tmp_path / name)).tables == tables.tables


TORCHREC = [
    {
        "num_embeddings": 1000,
        "embedding_dim": 64,
        "name": "users",
        "data_type": "DataType.FP16",
        "feature_names": ["user"],
        "pooling": "SUM",
        "pooling_factor": 2.5,
    },
    {"num_embeddings": 2000, "embedding_dim": 32, "name": "items", "feature_names": ["item"]},
]


@pytest.mark.parametrize(("pooling", "rows"), [(20, 20), ("20", 20), (2.5, 2.5)])
def test_a_pooling_that_is_a_number_is_a_factor(pooling: object, rows: float) -> None:
    config = {"name": "a", "num_embeddings": 10, "embedding_dim": 4, "pooling": pooling}
    assert float(table_entry(config, "a file")["pooling"]) == rows
    assert float(table_entry({**config, "pooling_factor": 7}, "a file")["pooling"]) == 7


TORCHREC_CSV = """num_embeddings,embedding_dim,name,data_type,feature_names,pooling,pooling_factor
1000,64,users,FP16,user,SUM,2.5
2000,32,items,,item,SUM,
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.json", json.dumps(TORCHREC)),
        ("mine.yaml", json.dumps({"tables": TORCHREC})),
        ("mine.csv", TORCHREC_CSV),
    ],
)
def test_torchrec_configs_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    tables = load_tables(str(tmp_path / name)).tables
    assert tables == (Table("users", 1000, 64, 2.5, "fp16"), Table("items", 2000, 32, 1.0, "fp32"))


def test_torchrecs_name_of_8_bit_floats(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps([{**TORCHREC[0], "data_type": "DataType.NFP8"}]))
    assert load_tables(tmp_path / "mine.json").tables[0].dtype == "fp8"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("feature_names", ["a", "b"], "2 features (a, b), which share its rows"),
        ("pooling", "PoolingType.NONE", "pooling 'PoolingType.NONE': its rows are not pooled"),
        ("pooling", "PoolingType.MAX", "pooling 'PoolingType.MAX' is not known"),
        ("config_class", "EmbeddingConfig", "its rows are not pooled"),
        ("total_num_buckets", 10, "total_num_buckets 10 is not modelled"),
        ("use_virtual_table", True, "use_virtual_table True is not modelled"),
        ("stash_weights", True, "stash_weights True is not modelled"),
        ("num_embeddings_post_pruning", 500, "num_embeddings_post_pruning 500 is not modelled"),
        ("data_type", "FP64", "data_type 'FP64' is not known"),
        ("data_type", "INT64", "data_type 'INT64' is not known"),
        ("data_type", "INT4", "data_type 'INT4' is not modelled: FBGEMM packs several elements into a byte"),
        ("data_type", "FP8", "data_type 'FP8' is not known"),
        ("poolingfactor", 3, "'poolingfactor'"),
        ("pooling_factors", [1, 2], "2 pooling factors"),
        ("pooling_factor", -1, "tables.0.pooling: must not be negative"),
        ("num_embeddings", 0, "tables.0.rows"),
    ],
)
def test_what_is_wrong_in_a_torchrec_config_is_named(
    tmp_path: Path, field: str, value: object, named: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([{**TORCHREC[0], field: value}]), encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_tables(path)
    assert named in caught.value.message and str(path) in caught.value.message


def test_every_field_of_todays_configs_is_used_irrelevant_or_refused() -> None:
    """With the value that it has where nobody sets it, each is accepted, and changes nothing."""
    configs = pytest.importorskip("torchrec.modules.embedding_configs")
    plain = {"num_embeddings": 10, "embedding_dim": 4, "name": "a", "pooling_factor": 3}
    expected = table_entry(plain, "a file")
    for config in (configs.EmbeddingBagConfig, configs.EmbeddingConfig):
        for field in dataclasses.fields(config):
            assert field.name in FIELDS
            default = field.default if isinstance(field.default, bool) else None
            if field.name not in plain and field.name != "data_type":
                weighted = {"weighted": False} if field.name == "need_pos" else {}
                assert table_entry({**plain, field.name: default}, "a file") == expected | weighted
    for name in configs.DataType.__members__:
        if name not in ("INT64", "INT32", "INT4", "INT2"):
            assert table_entry({**plain, "data_type": f"DataType.{name}"}, "a file")["dtype"]


def test_a_position_weighted_table_has_a_weight_for_each_id() -> None:
    config = {"num_embeddings": 10, "embedding_dim": 4, "name": "a", "pooling_factor": 3, "need_pos": True}
    assert table_entry(config, "a file")["weighted"] is True


def test_a_table_that_nobody_looks_up_takes_memory_and_hardly_time(tmp_path: Path) -> None:
    rows = "name,rows,dim,pooling\na,100000000,64,20\n"
    answers = []
    for name, text in (("one", rows), ("two", rows + "b,100000000,64,0\n")):
        (tmp_path / f"{name}.csv").write_text(text)
        answers.append(project_one(tables=load_tables(str(tmp_path / f"{name}.csv")), gpus=1))
    one, two = (answer.gpu_count.table_bytes for answer in answers)
    assert two == 2 * one and answers[1].time_s < 1.2 * answers[0].time_s


@pytest.mark.parametrize("more", [{}, {"pooling": "SUM"}, {"pooling_type": "MEAN"}])
def test_tables_without_their_ids_per_bag_are_asked_about(tmp_path: Path, more: dict[str, str]) -> None:
    """1 would be an answer to a question that nobody asked; TorchRec's pooling is no number."""
    config = {"num_embeddings": 10, "embedding_dim": 4, **more}
    for at, entry in enumerate([{"rows": 10, "dim": 4} if not more else config, config]):
        path = tmp_path / f"{at}.json"
        path.write_text(json.dumps([entry, entry]))
        with pytest.raises(BadInputError, match="do not say how many ids a bag has") as asked:
            load_tables(path)
        assert "pooling_factor" in asked.value.next_step
    path.write_text(json.dumps([config | {"avg_pooling_factor": 3}, config]))
    assert [table.pooling for table in load_tables(path).tables] == [3, 1]


def test_count_repeats_a_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("rows,dim,pooling,count\n10,4,1,3\n20,8,1,1\n", encoding="utf-8")
    assert [(t.name, t.rows) for t in load_tables(path).tables] == [
        ("t0", 10),
        ("t1", 10),
        ("t2", 10),
        ("t3", 20),
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rows,dim\n0,4\n", "line 2, rows"),
        ("rows,dim\n\n10,4\n10,-4\n", "line 4, dim"),
        ("rows,dim\n10.5,4\n", "line 2, rows"),
        ("rows,dim,pooling\n10,4,nan\n", "line 2, pooling"),
        ("rows,dim,pooling\n10,4,-1\n", "line 2, pooling"),
        ("rows,dim,dtype\n10,4,fp33\n", "line 2, dtype"),
        ("rows,dim\n10,4\n10\n", "line 3: 1 fields instead of 2"),
        ("rows,dim\n10,\n", "line 2, dim"),
        ("rows,dimension\n10,4\n", "missing column dim"),
        ("rows,dim,colour\n10,4,red\n", "unknown column 'colour'"),
        ("rows,dim,dim\n10,4,4\n", "twice"),
        ("rows,dim\n", "no table below"),
        ('rows,dim\n"10,4\n', "line 2"),
        ("rows,dim,count\n10,4,60000\n10,4,60000\n", "more than 100000"),
    ],
)
def test_what_is_wrong_in_a_csv_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_tables(path)
    assert named in caught.value.message and str(path) in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a.toml", "tables = [{ rows = -1, dim = 4 }]", "tables.0.rows"),
        ("a.toml", 'tables = [{ rows = "10", dim = 4 }]', "tables.0.rows"),
        ("a.toml", "tables = []", "tables"),
        ("a.toml", "[tables]\nrows = 1", "tables"),
        ("a.toml", "tables = [{ rows = 1, dim = 4 }", "TOML"),
        ("a.yaml", "tables:\n- {rows: true, dim: 4}", "tables.0.rows"),
        ("a.yaml", "tables:\n- {rows: 1, dim: 4, colour: 2}", "tables.0.colour"),
        ("a.yaml", "- rows: 1", "tables.0.dim"),
        ("a.yaml", "{}", "tables: is missing"),
        ("a.json", "3", "not a mapping"),
        ("a.json", '{"tables": [', "not valid JSON"),
        ("a.yaml", "1: 2", "not a mapping"),
        ("a.yaml", "tables: [", "YAML"),
        ("a.yaml", "tables: &x [1]\nname: *x", "aliases"),
        ("a.yaml", "d: 2001-99-99", "d: is not a field"),
        ("a.yaml", "tables: !!python/object:os.system x", "YAML"),
        ("a.txt", "{}", "suffix"),
        ("a.json", '[{"rows": 1000, "dim": 4, "rows": 20}]', "key 'rows' stands twice"),
        ("a.yaml", "- rows: 1000\n  dim: 4\n  rows: 20", "line 3: key 'rows' stands twice"),
        ("a.json", '[{"rows": 1, "dim": 4, "name": "a\\u001b[31m"}]', r"'a\x1b[31m' holds what cannot"),
        ("a.csv", "rows,dim,name\n1,4,a\x1b[31m", r"'a\x1b[31m' holds what cannot"),
        ("a.json", "[]", "tables: must not be empty"),
        ("a.csv", "rows,dim\n1.5e0,4", "line 2, rows: must be a whole number"),
        ("a.csv", "\n\n", "empty"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, name: str, text: str, named: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_tables(path)
    assert named in caught.value.message and "\n" not in caught.value.message


def test_whole_numbers_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("rows,dim,count,pooling\n1e6,4,2,1\n1_000,8,1,1\n", encoding="utf-8")
    assert [(t.rows, t.dim) for t in load_tables(path).tables] == [(10**6, 4)] * 2 + [(1000, 8)]


def test_deep_nesting_is_bad_input(tmp_path: Path) -> None:
    for name in ("deep.yaml", "deep.toml"):
        (tmp_path / name).write_text("tables: " + "[" * 5000, encoding="utf-8")
        with pytest.raises(BadInputError):
            load_tables(tmp_path / name)


@settings(max_examples=100)
@given(
    st.sampled_from(["f.csv", "f.yaml", "f.toml"]), st.one_of(st.binary(max_size=200), st.text(max_size=200))
)
def test_any_bytes_are_bad_input_or_tables(tmp_path: Path, name: str, raw: bytes | str) -> None:
    path = tmp_path / name
    path.write_bytes(raw if isinstance(raw, bytes) else raw.encode(errors="replace"))
    with contextlib.suppress(BadInputError):
        assert PlanTables.load(path).total_bytes > 0


@settings(max_examples=100)
@given(st.data())
def test_damaged_files_are_bad_input_or_tables(tmp_path: Path, data: st.DataObject) -> None:
    name, text = data.draw(st.sampled_from([("f.csv", CSV), ("f.yaml", YAML), ("f.toml", TOML)]))
    start = data.draw(st.integers(0, len(text) - 1))
    patches = [
        "",
        "9" * 5000,
        "nan",
        "-",
        "[",
        "{",
        ":",
        "'",
        "\t",
        "1e999",
        "0x",
        "2001-13-01",
        "? ",
        "!!set",
        "<<",
    ]
    patch = data.draw(st.sampled_from(patches))
    path = tmp_path / name
    path.write_text(text[:start] + patch + text[start + data.draw(st.integers(0, 20)) :], encoding="utf-8")
    with contextlib.suppress(BadInputError):
        assert PlanTables.load(path).total_bytes > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"batch": -1},
        {"tables": float("nan")},
        {"pooling": float("inf")},
        {"dim": "wide"},
        {"dtype": "fp31"},
        {"table_bytes": np.array([1e12, 0.0])},
        {"batch": np.array([])},
    ],
)
def test_impossible_workloads(wrong: dict[str, object]) -> None:
    values: dict[str, object] = {"batch": 1, "tables": 1, "pooling": 1, "dim": 32, "table_bytes": 1e12}
    with pytest.raises(BadInputError):
        Workload(**{**values, **wrong})  # type: ignore[arg-type]
