"""Sets of tables: shipped ones, users' files in four formats and frames, and TorchRec's fields."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_calls import called, is_an_error

from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.table_files import FIELDS, list_models, load_tables, read_config, tables_from_frame
from perfmodel.schema.workload import UNIFORM, Table, TableSet, zipf

FOREIGN = Path(__file__).parent / "foreign_tables"
BYTES = {
    "mlperf-dlrm-dcnv2": 104_542_509_056,
    "embark-t7": 1_784_320_000_000,
    "distemb-criteo": 26 * 100_000 * 128 * 4,
    "torchrec-production": 610_668_488_688,  # rows of 4 fp16 take 16 bytes
}
CSV = (
    "name,rows,dim,pooling,dtype,weighted,distribution,count\n"
    "users,1e6,64,2.5,fp16,true,zipf:1.05,1\n"
    "items,2_000,032,,,,,2\n"
)
TOML = """name = "t"
[[tables]]
name = "users"
rows = 1000000
dim = 64
pooling = 2.5
dtype = "fp16"
weighted = true
distribution = "zipf:1.05"
[[tables]]
name = "items"
rows = 2000
dim = 32
count = 2
"""
YAML = """name: t
tables:
- {name: users, rows: 1e6, dim: 64, pooling: 25e-1, dtype: fp16, weighted: true,
   distribution: "zipf:1.05"}
- {name: items, rows: 2000, dim: 32, count: 2}
"""
TABLES = (
    Table("users", 1_000_000, 64, 2.5, "fp16", True, zipf(1.05)),
    Table("items_0", 2000, 32, 1.0),
    Table("items_1", 2000, 32, 1.0),
)
CONFIG = {"name": "users", "num_embeddings": 1000, "embedding_dim": 64, "pooling_factor": 2.5}


def frame() -> pd.DataFrame:
    rows = {"name": ["users", "items"], "rows": [1e6, 2000], "dim": [64, 32], "pooling": [2.5, np.nan]}
    more = {"dtype": ["fp16", None], "weighted": [True, None], "distribution": ["zipf:1.05", None]}
    return pd.DataFrame({**rows, **more, "count": [1, 2]})


def test_the_shipped_table_sets() -> None:
    models = {name: load_tables(name) for name in list_models()}
    assert len(models) == 16 and all(tables.name == name for name, tables in models.items())
    assert all(tables.source for tables in models.values())
    assert {name: PlanTables.of(models[name]).total_bytes for name in BYTES} == BYTES
    with pytest.raises(BadInputError) as unknown:
        load_tables("mlperf-dlrm-dcnv")
    assert "did you mean mlperf-dlrm-dcnv2?" in unknown.value.next_step


@pytest.mark.parametrize(("name", "text"), [("t.csv", CSV), ("t.toml", TOML), ("t.yaml", YAML)])
def test_formats_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    tables = load_tables(tmp_path / name)
    assert tables.name == "t" and tables.tables == TABLES
    assert load_tables(str(tmp_path / name)).tables == tables_from_frame(frame(), "mine").tables == TABLES


def test_capitals_in_the_names_of_columns(tmp_path: Path) -> None:
    header, rows = CSV.split("\n", 1)
    (tmp_path / "t.csv").write_text(f"{header.upper()}\n{rows}")
    (tmp_path / "t.json").write_text('[{"NAME": "a", "Rows": 10, "dim": 8, "Pooling": 1}]')
    assert load_tables(str(tmp_path / "t.csv")).tables == TABLES
    assert tables_from_frame(frame().rename(columns=str.title)).tables == TABLES
    assert load_tables(str(tmp_path / "t.json")).tables == (Table("a", 10, 8, 1.0),)
    configs = pd.DataFrame({"NUM_EMBEDDINGS": [10], "Embedding_Dim": [8], "NAME": ["x"], "Pooling": [1]})
    assert tables_from_frame(configs).tables == (Table("x", 10, 8, 1.0),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": [0, 1]}, "tables.0.rows"),
        ({"rows": [1.5, 1]}, "tables.0.rows"),
        ({"dim": ["64", 32]}, "tables.0.dim"),
        ({"distribution": ["zipf", None]}, "tables.0.distribution.*not known"),
        ({"distribution": [3, None]}, "tables.0.distribution.*not known"),
        ({"weighted": ["yes", None]}, "tables.0.weighted.*valid boolean"),
        ({"width": [1, 2]}, "column 'width' is not known"),
        ({"Rows": [1, 2]}, "rows stands twice"),
    ],
)
def test_wrong_frames_say_where(change: dict[str, list[object]], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        tables_from_frame(frame().assign(**change))


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a.csv", "rows,dim\n\n10,4\n10,-4\n", "line 4, dim"),
        ("a.csv", "rows,dim\n10.5,4\n", "line 2, rows: must be a valid integer"),
        ("a.csv", "rows,dim,pooling\n10,4,nan\n", "line 2, pooling"),
        ("a.csv", "rows,dim\n10,4\n10\n", "line 3: 1 fields instead of 2"),
        ("a.csv", "rows,pooling\n10,4\n", "missing column dim"),
        ("a.csv", "rowz,dim\n10,4\n", "column 'rowz' is not known"),
        ("a.csv", "rows,dim,ROWS\n10,4,4\n", "rows stands twice"),
        ("a.csv", "rows,dim\n", "no table below"),
        ("a.csv", 'rows,dim\n"10,4\n', "not valid CSV (unexpected end"),
        ("a.csv", "rows,dim,count\n10,4,60000\n10,4,60000\n", "more than 100 000 tables"),
        ("a.csv", "rows;dim;pooling\n1000;64;2,5\n", "semicolons between its fields"),
        ("a.csv", "rows,dim,name\n1,4,a\x1b[31m", r"(found 'a\x1b[31m')"),
        ("a.toml", "tables = [{ rows = -1, dim = 4 }]", "tables.0.rows"),
        ("a.toml", 'tables = [{ rows = "10", dim = 4 }]', "tables.0.rows"),
        ("a.toml", "tables = [{ rows = 1, dim = 4 }", "TOML"),
        ("a.yaml", "tables:\n- {rows: true, dim: 4}", "tables.0.rows"),
        ("a.yaml", "tables:\n- {rows: 1, dim: 4, colour: 2}", "tables.0: field 'colour' is not known"),
        ("a.yaml", "- rows: 1", "tables.0.dim"),
        ("a.yaml", "1: 2", "must be strings"),
        ("a.yaml", "tables: &x [1]\nname: *x", "aliases"),
        ("a.yaml", "tables: !!python/object:os.system x", "YAML"),
        ("a.yaml", "- rows: 1000\n  dim: 4\n  rows: 20", "line 1: key 'rows' stands twice"),
        ("a.yaml", "- {rows: 010, dim: 64}\n", "must be a valid integer (found '010')"),
        ("a.yaml", "- {rows: 1:30:00, dim: 64}\n", "must be a valid integer (found '1:30:00')"),
        ("a.json", '{"tables": [', "not valid JSON"),
        ("a.json", '[{"rows": 1000, "dim": 4, "rows": 20}]', "key 'rows' stands twice"),
        ("a.json", '[{"rows": 1, "dim": 4, "name": "a\\u001b[31m"}]', r"(found 'a\x1b[31m')"),
        ("a.json", "[]", "tables: must have at least 1 item"),
        ("a.txt", "{}", "suffix"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, name: str, text: str, named: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_tables(path)
    assert named in caught.value.message and str(path) in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("a.csv", "rowz,dim\n9,4\n", "rows"),
        ("a.json", '[{"rowz": 9, "dim": 4}]', "rows"),
        ("a.json", '[{"num_embedings": 9, "embedding_dim": 4}]', "num_embeddings"),
    ],
)
def test_a_name_with_a_typing_error_has_its_nearest(tmp_path: Path, name: str, text: str, meant: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInputError) as caught:
        load_tables(tmp_path / name)
    assert caught.value.next_step.startswith(f"did you mean {meant}?")


def test_tables_without_their_ids_per_bag_are_asked_about(tmp_path: Path) -> None:
    """1 would be an answer to a question that nobody asked; TorchRec's pooling is no number."""
    config = {"num_embeddings": 10, "embedding_dim": 4}
    path = tmp_path / "t.json"
    for entry in ({"rows": 10, "dim": 4}, config | {"pooling": "SUM"}, config | {"pooling_type": "MEAN"}):
        path.write_text(json.dumps([entry, entry]))
        with pytest.raises(BadInputError, match="do not say how many ids a bag has") as asked:
            load_tables(path)
        assert "pooling_factor" in asked.value.next_step
    path.write_text(json.dumps([config | {"avg_pooling_factor": 3}, config | {"pooling": 20}, config]))
    assert [table.pooling for table in load_tables(path).tables] == [3, 20, 1]


def test_a_table_s_own_distribution_goes_before_that_of_all() -> None:
    tables = TableSet("two", TABLES[:2])
    assert PlanTables.of(tables).ids == (zipf(1.05), UNIFORM)
    assert PlanTables.of(tables, zipf(2)).ids == (zipf(1.05), zipf(2))
    assert PlanTables.of(tables, [UNIFORM, UNIFORM]).ids == (UNIFORM, UNIFORM)


def test_commands_show_weights_and_distributions(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    words = " ".join(cli("project", "--model", str(path), "--gpus", "8").out.split())
    assert "ids with weights in 1 table, uniform, zipf:1.05 ids" in words
    lines = cli("show", "models", str(path)).out.splitlines()
    head, first, second = lines[-4:-1]
    assert head.split()[-2:] == ["weights", "ids"]
    assert first.split()[-2:] == ["yes", "zipf:1.05"] and second.split()[-1] == "fp32"
    assert "weights" not in cli("show", "models", "criteo-kaggle").out


# --- TorchRec's EmbeddingBagConfig ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mine.json", "mine.yaml", "mine.csv"])
def test_torchrec_configs_say_the_same(tmp_path: Path, name: str) -> None:
    users = {**CONFIG, "data_type": "DataType.FP16", "feature_names": ["user"], "pooling": "SUM"}
    items = {"num_embeddings": 2000, "embedding_dim": 32, "name": "items", "feature_names": ["item"]}
    texts = {
        "mine.json": json.dumps([users, items]),
        "mine.yaml": json.dumps({"tables": [users, items]}),
        "mine.csv": "num_embeddings,embedding_dim,name,data_type,feature_names,pooling,pooling_factor\n"
        "1000,64,users,FP16,user,SUM,2.5\n2000,32,items,,item,SUM,\n",
    }
    (tmp_path / name).write_text(texts[name])
    tables = load_tables(str(tmp_path / name)).tables
    assert tables == (Table("users", 1000, 64, 2.5, "fp16"), Table("items", 2000, 32, 1.0, "fp32"))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("pooling", "PoolingType.NONE", "pooling 'PoolingType.NONE': its rows are not pooled"),
        ("pooling", "PoolingType.MAX", "pooling 'PoolingType.MAX' is not known"),
        ("config_class", "EmbeddingConfig", "its rows are not pooled"),
        ("total_num_buckets", 7, "tables.0: 1000 rows are not 7 buckets of one size"),
        ("use_virtual_table", True, "use_virtual_table True is not modelled"),
        ("stash_weights", True, "stash_weights True is not modelled"),
        ("num_embeddings_post_pruning", 500, "num_embeddings_post_pruning 500 is not modelled"),
        ("data_type", "FP64", "data_type 'FP64' is not known"),
        ("data_type", "INT64", "data_type 'INT64' is not known"),
        ("data_type", "INT4", "data_type 'INT4' is not modelled: FBGEMM packs several elements into a byte"),
        ("data_type", "int2", "data_type 'int2' is not modelled"),
        ("data_type", "FP8", "data_type 'FP8' is not known"),
        ("poolingfactor", 3, "'poolingfactor'"),
        ("pooling_factors", [1, 2, 3], "pooling_factors [1, 2, 3] for 2 features"),
        ("pooling_factors", [1, "x"], "pooling_factors [1, 'x'] for 2 features"),
        ("pooling_factor", -1, "tables.0.pooling: must be greater than or equal to 0"),
        ("num_embeddings", 0, "tables.0.rows"),
    ],
)
def test_what_is_wrong_in_a_torchrec_config_is_named(
    tmp_path: Path, field: str, value: object, named: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([{**CONFIG, "feature_names": ["a", "b"], field: value}]), encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load_tables(path)
    assert named in caught.value.message and str(path) in caught.value.message


@pytest.mark.parametrize(
    ("field", "value", "entry"),
    [
        ("pooling", 20, {"pooling": 2.5}),  # pooling_factor goes before it
        ("pooling_factors", [7], {"pooling": 7}),
        ("pooling_factors", "20", {"pooling": "20"}),
        ("data_type", "DataType.NFP8", {"dtype": "fp8"}),
        ("data_type", "torch.bfloat16", {"dtype": "bf16"}),
        ("data_type", None, {"dtype": "fp32"}),
        ("need_pos", True, {"weighted": True}),
        ("total_num_buckets", None, {"pooling": 2.5}),
        ("total_num_buckets", 10, {"buckets": 10}),
        ("feature_names", ["a", "b"], {"features": 2, "pooling": 2.5}),
        ("feature_names", "a|b; c", {"features": 3}),
        ("pooling_factors", [30, 2], {"features": 2, "pooling": 16}),
    ],
)
def test_what_a_field_of_torchrec_gives(field: str, value: object, entry: dict[str, object]) -> None:
    translated = read_config({**CONFIG, field: value}, "a file")
    assert {name: translated[name] for name in entry} == entry


def test_features_bring_their_own_ids_and_share_the_rows(cli: Any) -> None:
    """Two features of 30 and 2 ids: two bags a sample, 32 ids, one table in memory."""
    line = ("project", "--model", str(FOREIGN / "twofeat.yaml"), "--gpus", "8", "--sharding", "row-wise")
    answer = json.loads(cli(*line, "--json").out)
    steps = {step["name"]: step["payload_bytes"] for step in answer["steps"]}
    assert steps["all_to_all_lengths"] == 8 * 1024 * 2 * 8
    assert steps["all_to_all_ids"] == 1024 * 32 * 8
    assert steps["reduce_scatter_bags"] == 8 * 1024 * 2 * 64 * 4
    assert answer["gpu_count"]["table_bytes"] == 256e6
    assert "16 ids a bag on average, looked up by 2 features" in " ".join(cli(*line).out.split())


def test_row_parts_are_whole_buckets(cli: Any) -> None:
    """10 buckets on 4 GPUs: the fullest holds and looks up 3 tenths."""
    line = ("project", "--model", str(FOREIGN / "zch.yaml"), "--gpus", "4", "--sharding", "row-wise")
    answer = json.loads(cli(*line, "--json").out)
    steps = {step["name"]: step["payload_bytes"] for step in answer["steps"]}
    assert steps["all_to_all_ids"] == pytest.approx(4 * 1024 * 30 * 8 * 3 / 10)
    assert answer["gpu_count"]["rows_bytes"] == pytest.approx(12_000_000 * 64 * 4)


def test_the_page_has_every_field_with_its_use() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*`) \| (used|irrelevant|refused) \|", page, re.MULTILINE)
    uses = {name: use for names, use in rows for name in re.findall(r"`(\w+)`", names)}
    assert uses == {name: use for name, (use, _) in FIELDS.items()}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.yaml", ("'PoolingType.NONE': its rows are not pooled", "--pooling none:50")),
        ("sequence.yaml", ("'EmbeddingConfig': its rows are not pooled",)),
        ("nosuch.yaml", ("'PoolingType.MAX' is not known", "SUM, MEAN")),
        ("int4.yaml", ("'INT4' is not modelled: FBGEMM packs several elements",)),
        ("virt.yaml", ("use_virtual_table True is not modelled",)),
        ("virt2.yaml", ("use_virtual_table True is not modelled",)),
    ],
)
def test_a_foreign_file_that_is_not_modelled_is_refused(name: str, words: tuple[str, ...]) -> None:
    is_an_error(called("project", "--model", str(FOREIGN / name), "--gpus", "8"), 2, *words)


@pytest.mark.parametrize(
    ("name", "total_bytes"),
    [
        ("dt.yaml", 2_000_000 * 128 * (2 + 2 + 1)),  # two tables of 2 bytes an element, and NFP8 of 1
        ("mean.yaml", 2 * 2_000_000 * 128 * 4),
        ("twofeat.yaml", 1_000_000 * 64 * 4),  # held once
        ("zch.yaml", 40_000_000 * 64 * 4),
        ("underscores.yaml", 100_000 * 512 * 2 + 1e6 * 2048 * 4),
        ("int8.csv", 32 * 4e9),  # FBGEMM's rows: 16 elements, scale and bias, padded to 16 bytes
        ("fp16.csv", 16 * 8e9),  # 4 elements, padded
    ],
)
def test_a_foreign_file_is_as_large_as_fbgemm_stores_it(name: str, total_bytes: float) -> None:
    assert PlanTables.load(FOREIGN / name).total_bytes == total_bytes
