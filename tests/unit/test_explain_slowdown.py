"""``explain slowdown``: the numbers of the headline, and the operands that give them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perfmodel.units import format_ratio, format_time

_TABLES = "--table-size 10TB"


@pytest.mark.parametrize("name", ["slowdown", "total", " Slowdown"])
@pytest.mark.parametrize(
    "question",
    [
        f"{_TABLES} --sharding row-wise",
        "--table-size 10GB --gpus 1",
        "--model mlperf-dlrm-dcnv2 --gpus 16 --sharding table-wise",
    ],
)
def test_the_numbers_are_those_of_project(cli: Any, name: str, question: str) -> None:
    answer = json.loads(cli("project", *question.split(), "--json").out)
    found = json.loads(cli("explain", name, *question.split(), "--json").out)
    numbers = {each["key"]: each for each in found["numbers"]}
    assert len(numbers) == len(found["numbers"]) == 8
    for key, each in numbers.items():
        assert each["value"] == pytest.approx(answer[key], rel=1e-12), key
    t, b = (numbers[key]["value"] for key in ("time_s", "baseline_time_s"))
    assert numbers["slowdown"]["value"] == pytest.approx(t / b)
    assert t == pytest.approx(sum(step["time_s"] for step in answer["steps"]))
    assert numbers["throughput_ratio"]["value"] == pytest.approx(answer["gpus"] * b / t)
    parts = numbers["slowdown_floor_part"]["value"] + numbers["slowdown_bytes_part"]["value"]
    assert parts == pytest.approx(t / b)
    assert numbers["slowdown"]["working"] == [
        f"s = {format_time(t)} / {format_time(b)} = {format_ratio(t / b)}"
    ]
    rest = numbers["slowdown_bytes_part"]["value"]
    assert numbers["slowdown_bytes_part"]["working"] == [
        f"{format_time(rest * b)} / {format_time(b)} = {format_ratio(rest)}"
    ]
    assert all(step["label"] in numbers["time_s"]["working"][0] for step in answer["steps"])


def test_files_of_data_are_found_by_who_has_a_wheel(cli: Any) -> None:
    """Sources cite data/…: a line says where that folder is; an answer without such a source has none."""
    for words in (("explain", "gather"), ("machines", "h100-sxm-ib")):
        cited, _, folder = cli(*words).out.rstrip().rpartition("\n\nFiles in data/ are in ")
        names = set(re.findall(r"data/((?:[\w-]+/)+[\w.-]+\w)", cited))
        assert names and all((Path(folder) / name).is_file() for name in names), words
    assert "Files in data/" not in cli("explain", "slowdown").out
