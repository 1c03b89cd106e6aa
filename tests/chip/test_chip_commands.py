"""perfmodel chip plan and chips: what they print, their documents, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TABLES = "name,rows,dim,pooling\nsmall,100,16,1\nmiddle,3000,16,1\nlarge,20000,16,2\n"


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "tables.csv"
    path.write_text(TABLES)
    return str(path)


def test_the_plan_as_data_is_that_of_the_screen(cli: Any, own: str) -> None:
    words = ("chip", "plan", "--chip", "ascend-910", "--model", own, "--batch", "256")
    found = json.loads(cli(*words, "--json").out)
    (first,) = found["chips"]
    assert first["chip"] == "ascend-910" and len(first["core_s"]) == first["cores"] == 32
    assert first["speedup"] == pytest.approx(first["baseline_s"] / first["time_s"])
    assert max(*first["core_s"], first["memory_s"], first["cache_s"]) == pytest.approx(first["time_s"])
    assert len(first["tables"]) == 3
