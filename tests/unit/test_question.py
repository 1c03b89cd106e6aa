"""The question in the answer: everything that was asked, and the options that ask it again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cli import run
from perfmodel.project import LocalMemory, project_one
from perfmodel.project.understood import exact_text, memory_text
from perfmodel.schema.machine import load_machine
from perfmodel.units import parse_quantity

ASKED: list[tuple[dict[str, Any], str]] = [
    ({"table_bytes": 10e12}, "--table-size 10TB"),
    ({"gpus": 16, "batch": 1024}, "--gpus 16"),
    ({"table_bytes": 10 * 2**40, "batch": 4096, "table_count": 8},
     "--table-size 10TiB --batch 4096 --tables 8"),
    ({"gpus": 8, "pooling": 2.5, "dim": 64, "dtype": "bf16", "id_bytes": 4},
     "--gpus 8 --pooling 2.5 --dim 64 --dtype bf16 --id-dtype int32"),
    ({"tables": "mlperf-dlrm-dcnv2", "gpus": 16, "clock": "stream"},
     "--model mlperf-dlrm-dcnv2 --gpus 16 --clock stream"),
    ({"gpus": 16, "machine": "h200-sxm-ib", "backend": "best", "gpus_per_node": 4, "reduction": "two_level"},
     "--gpus 16 --machine h200-sxm-ib --backend best --gpus-per-node 4 --reduction two-level"),
    ({"table_bytes": 4e12, "reserve": 0.2, "scenario": "nvlink-everywhere",
      "overrides": {"nvlink_bytes_per_s": "50GB/s", "launch_floor_s": 7.5e-6, "nics_per_node": 4}},
     "--table-size 4TB --set launch_floor_s=7.5us --set nics_per_node=4 --set nvlink_bytes_per_s=50GB/s "
     "--reserve 0.2 --scenario nvlink-everywhere"),
    ({"table_bytes": 4e12, "local_memory": (5e12, 3e12)}, "--table-size 4TB --local-memory 5TB@3TB/s"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "text"), ASKED)
def test_the_options_ask_the_same_again(
    options: dict[str, Any], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = project_one(**options)
    assert answer.question is not None
    assert " ".join(answer.question.arguments()) == text
    assert run(["project", *text.split(), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [again["time_s"], again["slowdown"]] == pytest.approx([answer.time_s, answer.slowdown], rel=1e-12)
    for name, value in answer.to_dict().items():
        if name in answer.question.to_dict() and name != "overrides":  # 7.5us is not the very float 7.5e-6
            assert again[name] == value, name


def test_the_answer_carries_the_question_with_whole_counts() -> None:
    answer = project_one(gpus=16, dim=64, overrides={"nic_bytes_per_s": 1e11}).to_dict()
    assert {name: answer[name] for name in ("batch", "tables", "dim", "pooling", "dtype", "id_bytes")} == {
        "batch": 1024, "tables": 1, "dim": 64, "pooling": 32.0, "dtype": "fp32", "id_bytes": 8,
    }  # fmt: skip
    assert answer["overrides"] == {"nic_bytes_per_s": 1e11}
    assert [type(answer[name]) for name in ("gpus", "gpus_needed", "batch", "tables", "dim")] == [int] * 5


@settings(max_examples=100)
@given(st.sampled_from(["byte", "byte/s", "s"]), st.floats(1e-9, 1e18))
def test_texts_are_read_as_the_very_value(unit: str, value: float) -> None:
    value = value if unit != "s" else value * 1e-18
    value = max(value, 1.0) if unit != "s" else max(value, 1e-15)
    text = exact_text(value, unit)
    if not text[-1].isalpha():
        return  # no unit fits it in twelve digits: the plain number in full
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-12)


def test_short_texts() -> None:
    assert [exact_text(v, "byte") for v in (1e13, 2.0**40, 7.8125e10)] == ["10TB", "1TiB", "78.125GB"]
    assert (exact_text(1e11, "byte/s"), exact_text(132, "count")) == ("100GB/s", "132")
    assert memory_text(LocalMemory(1e13, 3.35e12)) == "10TB@3.35TB/s"


def test_a_machine_file_is_named_as_it_was_given() -> None:
    answer = project_one(gpus=8, machine=load_machine("b200-sxm-ib"))
    assert answer.question is not None
    assert answer.question.arguments("my/machine.toml") == ["--gpus", "8", "--machine", "my/machine.toml"]
