"""The whole question is in the answer; what cannot be asked is refused with advice that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfmodel.resources import data_path

SHIPPED = "h200-sxm-ib/nccl-2.29.2-stream"


def own(path: Path, **changes: Any) -> str:
    """A calibration file with some fields changed."""
    document = json.loads(data_path("calibrations", SHIPPED + ".json").read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | changes))
    return str(path)


def test_project_json_carries_the_whole_question(cli: Any) -> None:
    words = ("--batch", "2048", "--tables", "4", "--pooling", "8", "--dim", "64", "--set", "dtype=fp16")
    more = ("--set", "id_dtype=int32", "--sharding", "row-wise", "--set", "nic_bytes_per_s=100GB/s")
    answer = json.loads(cli("project", "--table-size", "10TB", *words, *more, "--json").out)
    expected = {
        "table_bytes": 1e13, "batch": 2048, "tables": 4, "pooling": 8, "dim": 64, "dtype": "fp16",
        "id_dtype": "int32", "overrides": {"nic_bytes_per_s": 1e11}, "model": None,
        "backend": "nccl", "machine": "h100-sxm-ib",
    }  # fmt: skip
    assert {name: answer[name] for name in expected} == expected
    model = json.loads(cli("project", "--model", "mlperf-dlrm-dcnv2", "--gpus", "16", "--json").out)
    assert (model["model"], model["tables"], model["dim"]) == ("mlperf-dlrm-dcnv2", 26, None)


@pytest.mark.parametrize("kind", ["csv", "parquet", "CSV"])
def test_sweeps_carry_what_is_constant_and_count_in_whole_numbers(
    cli: Any, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / f"s.{kind}"
    words = (
        "--machine",
        "h100-sxm-ib,gb200-nvl72",
        "--set",
        "nic_bytes_per_s=100GB/s",
        "--set",
        "dtype=fp32,fp16",
    )
    assert cli("sweep", "--gpus", "8,16", "--batch", "128,1024", *words, "--out", str(out)).code == 0
    frame = pd.read_parquet(out) if kind == "parquet" else pd.read_csv(out)
    assert len(frame) == 16
    assert set(frame["machine"]) == {"h100-sxm-ib", "gb200-nvl72"} and set(frame["dtype"]) == {"fp32", "fp16"}
    for name, value in (("backend", "nccl"),
                        ("clock", "stream"), ("overrides", "nic_bytes_per_s=100000000000")):  # fmt: skip
        assert set(frame[name]) == {value}
    assert frame["calibration"].str.startswith("h100-sxm-ib/").sum() == 8
    assert all(
        frame[name].dtype.kind == "i" for name in ("gpus", "gpus_needed", "batch", "table_count", "dim")
    )
    if kind == "csv":
        assert '"' not in out.read_text()


def test_words_with_commas_are_quoted(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "s.csv"
    words = ("sweep", "--gpus", "16", "--machine", "h200-sxm-ib", "--backend", "best", "--out", str(out))
    assert cli(*words).code == 0
    assert "," in pd.read_csv(out)["calibration"][0]
    rows = json.loads(cli("sweep", "--gpus", "16", "--json").out)["rows"]
    assert rows[0]["gpus"] == 16 and isinstance(rows[0]["gpus"], int) and rows[0]["overrides"] == ""


def test_a_calibration_of_ones_own_is_named_and_brings_its_machine(cli: Any, tmp_path: Path) -> None:
    path = own(tmp_path / "mine.json")
    words = ("project", "--table-size", "10TB", "--calibration", path)
    answer = json.loads(cli(*words, "--json").out)
    assert (answer["machine"], answer["calibration_file"]) == ("h200-sxm-ib", path)
    text = " ".join(cli(*words).out.split())
    assert f"times calibration {path}, clock stream" in text
    asked = ("collective", "--op", "all_gather", "--size", "1MiB", "--gpus", "8", "--calibration", path)
    assert f"{path} ({SHIPPED})" in " ".join(cli(*asked).out.split())
    assert json.loads(cli(*asked, "--json").out)["machine"] == "h200-sxm-ib"
    unknown = cli("project", "--table-size", "1TB", "--calibration", own(tmp_path / "x.json", machine="mine"))
    assert unknown.code == 2 and "--machine PATH" in unknown.err
    partial = cli("project", "--table-size", "1TB", "--calibration", own(tmp_path / "p.json", complete=False))
    assert partial.code == 0 and " ".join(partial.err.split()).count("is partial") == 1


def test_one_gpu_sends_nothing(cli: Any) -> None:
    words = ("collective", "--op", "all_gather", "--size", "1MiB", "--gpus", "1")
    outcome = cli(*words)
    assert outcome.code == 0 and "0 s" in outcome.out and "∞" not in outcome.out + outcome.err
    assert "one GPU sends nothing" in outcome.err
    assert json.loads(cli(*words, "--json").out)["algbw_bytes_per_s"] is None


@pytest.mark.parametrize(
    ("size", "gpus", "backend", "least"),
    [
        ("64", "8", "nccl", "128 B"),
        ("127", "8", "nccl", "128 B"),
        ("128", "8", "nccl", ""),
        ("64", "8", "nvshmem", ""),
    ],
)
def test_calls_that_nccl_would_round_to_nothing(
    cli: Any, size: str, gpus: str, backend: str, least: str
) -> None:
    for op in ("all_to_all", "all_gather", "reduce_scatter"):
        words = ("--size", size, "--gpus", gpus, "--backend", backend, "--machine", "h200-sxm-ib")
        outcome = cli("collective", "--op", op, *words)
        assert outcome.code == (2 if least else 0), outcome.err
        if least:
            assert "below NCCL's 16 B alignment: it would time an empty" in outcome.err
            assert f"the smallest size here is {least}." in outcome.err
    assert cli("collective", "--op", "all_reduce", "--size", size, "--gpus", gpus).code == 0


def test_all_collectives_but_those_that_a_library_lacks(cli: Any) -> None:
    words = ("--size", "1MiB", "--gpus", "8", "--backend", "nvshmem", "--machine", "h200-sxm-ib")
    every = cli("collective", "--op", "all", *words)
    assert every.code == 0 and "warning: nvshmem has no all_reduce, broadcast" in every.err
    assert "all_gather" in every.out
    assert cli("collective", "--op", "all_reduce", *words).code == 3


@pytest.mark.parametrize(
    ("words", "code", "part", "absent"),
    [
        (("--set", "clock=device"), 3, "nccl on l40s-pcie has --set clock=stream", "--backend nccl"),
        (("--backend", "nvshmem"), 3, "use --backend nccl", "--backend nvshmem"),
        (("--backend", "NCCL"), 2, "did you mean nccl?", "best?"),
    ],
)
def test_advice_is_never_what_was_just_used(
    cli: Any, words: tuple[str, ...], code: int, part: str, absent: str
) -> None:
    outcome = cli("project", "--table-size", "100GB", "--machine", "l40s-pcie", *words)
    assert outcome.code == code
    assert part in outcome.err and absent not in outcome.err


def test_limits_are_said_in_words(cli: Any) -> None:
    for words in ((), ("--explain", "gather")):
        outcome = cli("project", *words, "--table-size", "1000PB", "--set", "reserve=0")
        assert outcome.code == 2 and "11 773 016 GPUs" in outcome.err and "at most 1 048 576" in outcome.err
    for count in ("9", "64"):
        words = ("--op", "all_gather", "--size", "1MiB", "--gpus", "8", "--set", f"gpus_per_node={count}")
        assert "1 to 8 in a node" in cli("collective", *words).err


def test_help_names_every_dtype(cli: Any) -> None:
    from perfmodel.schema.workload import DTYPE_BYTES

    text = " ".join(cli("project", "--help").out.split()).replace("- ", "-")
    assert [name for name in DTYPE_BYTES if name not in text] == []
    assert [name for name in DTYPE_BYTES if name not in cli("sweep", "--help").out] == []
