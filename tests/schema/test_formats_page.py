"""docs/formats.md: its examples are read by the program, and its lists are the program's."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from perfmodel.engine.schemes import SHARDINGS, Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.plan_files import plan_from
from perfmodel.schema import machine
from perfmodel.schema.evidence import SAMPLE_OPERATIONS
from perfmodel.schema.fields import Quantity
from perfmodel.schema.machine import KEYS
from perfmodel.schema.priors import load_dense
from perfmodel.schema.samples import COLUMNS, SAMPLE_BACKENDS, parse_samples
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import DTYPE_BYTES, Table, TableSet

PAGE = Path(machine.__file__).parents[2] / "docs" / "formats.md"


def examples() -> list[tuple[str, str]]:
    return re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)


def test_table_examples_are_read(tmp_path: Path) -> None:
    tables = [(kind, text) for kind, text in examples() if "rows" in text and "dim" in text]
    assert [kind for kind, _ in tables] == ["csv", "yaml", "toml"]
    for kind, text in tables:
        path = tmp_path / f"mine.{kind}"
        path.write_text(text, encoding="utf-8")
        assert load_tables(path).tables[0].rows == 50_000_000


def test_plan_example_is_read_and_every_exchange_is_listed() -> None:
    """Two tables whose names, rows, dims and bytes have the fingerprint of the page."""
    mine = TableSet("mine", (Table("users", 50_000_000, 64, 10), Table("days", 366, 16, 1)))
    text = next(text for kind, text in examples() if kind == "json" and "placements" in text)
    plan = plan_from(json.loads(text), PlanTables.of(mine))
    assert (plan.gpus, plan.domain) == (16, 8)
    assert plan.placements[0].ranks.tolist() == [3, 9] and plan.placements[1].ranks.size == 0
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{kind.key}` |" in page for kind in Exchange)
    assert all(f"`{name}`" in page for name in SHARDINGS)


def test_sample_example_is_read() -> None:
    text = next(text for _, text in examples() if "payload_bytes" in text)
    assert parse_samples(text, "mine.csv")["time_s"].to_list() == [1.39e-5]


def test_machine_example_is_a_value() -> None:
    document = tomllib.loads(next(text for _, text in examples() if "[values." in text))
    assert Quantity.model_validate(document["values"]["nic_bytes_per_s"]).value == 50e9


def test_dense_example_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(next(text for _, text in examples() if "bottom = " in text), encoding="utf-8")
    assert load_dense(str(path)).top == (1024, 512, 1)


@pytest.mark.parametrize("names", [KEYS, COLUMNS, SAMPLE_BACKENDS, SAMPLE_OPERATIONS, DTYPE_BYTES])
def test_the_page_names_everything(names: list[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in page] == []


def test_key_table_has_the_programs_units() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for key, meaning in KEYS.items():
        assert f"| `{key}` | {meaning.unit} | {meaning.meaning} |" in page
