"""``perfmodel import``: whose logs, how sure, which files; what it doubts and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_calls import is_an_error
from oracles.made_logs import line, new_log, write

from perfmodel.cli import imports
from perfmodel.resources import data_path
from perfmodel.schema.calibration import read_calibration

SHIPPED = "h100-sxm-ib/nccl-2.29.2-stream"


def simple(size: int) -> float:
    """Microseconds: 10 µs and 400 GB/s."""
    return 10.0 + size / 400e3


def csv_log(
    path: Path, time_us: Callable[[int], float] = simple, gpu: str = "NVIDIA H200", op: str = "all_gather",
    sizes: tuple[int, ...] = tuple(2**k for k in range(10, 31)), gpus: int = 8,
) -> str:  # fmt: skip
    head = "backend,library_version,gpu,collective,payload_bytes,gpus,gpus_per_node,time_s\n"
    rows = [f"nccl,2.29.7,{gpu},{op},{s},{gpus},{min(gpus, 8)},{time_us(s) * 1e-6:.9g}\n" for s in sizes]
    path.write_text(head + "".join(rows))
    return str(path)


def test_a_users_calibration_has_a_name_of_its_own(cli: Any, tmp_path: Path) -> None:
    log, out = csv_log(tmp_path / "ag.csv"), tmp_path / "mine.json"
    made = cli("import", log, "--machine", "h200-sxm-ib", "--out", str(out))
    assert made.code == 0, made.err
    assert read_calibration(out).calibration_id == "h200-sxm-ib/nccl-2.29.7-stream+mine"
    alone = json.loads(cli("import", log, "--machine", "h200-sxm-ib", "--json").out)
    assert alone["calibration"]["calibration_id"].endswith("+own")


def test_a_calibration_and_its_samples_replace_no_file(cli: Any, tmp_path: Path) -> None:
    words = ("import", csv_log(tmp_path / "ag.csv"), "--machine", "h200-sxm-ib", "--out")
    for name in ("c.json", "d.samples.csv"):
        (tmp_path / name).write_text("mine")
    refused, free = cli(*words, str(tmp_path / "c.json")), str(tmp_path / "c-2.json")
    assert refused.code == 2 and "name another by --out, or replace it by --force." in refused.err
    refused = cli(*words, str(tmp_path / "d.json"))
    assert refused.code == 2 and "d.samples.csv exists already" in " ".join(refused.err.split())
    assert (tmp_path / "d.samples.csv").read_text() == "mine" and not (tmp_path / "d.json").exists()
    assert cli(*words, str(tmp_path / "d.json"), "--force").code == cli(*words, free).code == 0


def test_logs_of_another_gpu(cli: Any, tmp_path: Path) -> None:
    log = csv_log(tmp_path / "ag.csv")
    refused = cli("import", log, "--machine", "h100-sxm-ib")
    is_an_error(refused, 2, "NVIDIA H200", "--machine h200-sxm-ib", "--force")
    forced = cli("import", log, "--machine", "h100-sxm-ib", "--force")
    assert forced.code == 0 and "warning: the logs are of NVIDIA H200" in forced.err
    odd = csv_log(tmp_path / "x.csv", gpu="NVIDIA X900")
    is_an_error(cli("import", odd), 2, "The logs are of NVIDIA X900", "give --machine")
    known = cli("import", csv_log(tmp_path / "h.csv", gpu="NVIDIA H100 80GB HBM3"))
    assert known.code == 0 and "machine: h100-sxm-ib" in known.err and "or --machine" not in known.out
    shipped = data_path("machines", "h100-sxm-ib.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(shipped.replace('"h100-sxm-ib"', '"mine"'), encoding="utf-8")
    typed = cli("import", log, "--machine", str(tmp_path / "mine.toml"))
    assert typed.code == 0 and "is another machine" not in typed.err


def test_a_log_of_ten_nodes_is_a_cell_of_80_gpus(cli: Any, tmp_path: Path) -> None:
    few = [2**k for k in range(20, 31, 2)]
    rows = [line(size, 300 + size / 300e3, 80, "reduce_scatter") for size in few]
    log = write(tmp_path, "ten.log", new_log(rows, op="reduce_scatter", gpus=80, hosts=10))
    out = tmp_path / "ten.json"
    found = cli("import", str(log), "--machine", "h200-sxm-ib", "--out", str(out))
    assert found.code == 0, found.err
    item = read_calibration(out)
    (curve,) = item.curves
    assert (curve.collective, curve.gpus, curve.domain_gpus) == ("reduce_scatter", 80, 8)
    assert curve.anchor_bytes == few
    (law,) = [law for law in item.laws if "reduce_scatter" in law.collectives]
    assert (law.fitted_gpus, law.fitted_domains) == (80, 10)
    assert item.this_cluster


def test_what_a_log_lacks_is_said_in_the_answer(cli: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "mine.json")
    log = tmp_path / "a2a.csv"
    text = Path(csv_log(tmp_path / "ag.csv")).read_text(encoding="utf-8")
    log.write_text(text.replace("all_gather", "all_to_all"), encoding="utf-8")
    made = cli("import", str(log), "--machine", "h200-sxm-ib", "--out", out)
    assert made.code == 0, made.err
    asked = ("project", "--table-size", "10TB", "--machine", "h200-sxm-ib", "--sharding", "row-wise")
    assert "No sample of reduce_scatter in it" in cli(*asked, "--calibration", out, "-v").out
    assert "No sample of" not in cli(*asked).out


def test_files_in_which_nothing_is_known_are_reported(cli: Any, tmp_path: Path) -> None:
    log, other = csv_log(tmp_path / "ag.csv"), tmp_path / "notes.txt"
    other.write_text("hello\n")
    mixed = cli("import", log, str(other), "--machine", "h200-sxm-ib")
    assert mixed.code == 0 and "warning: not used: notes.txt: nothing in it is a known format" in mixed.err
    alone = cli("import", str(other))
    assert alone.code == 2 and "notes.txt: nothing in it is a known format" in alone.err


@pytest.mark.parametrize("time", ["nan", "inf", "-1", "0"])
def test_logs_with_no_good_time_are_exit_2_with_the_reason(cli: Any, tmp_path: Path, time: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "gpu,collective,payload_bytes,gpus,gpus_per_node,time_s,in_place\n"
        f"NVIDIA H200,all_gather,1024,8,8,{time},false\nNVIDIA H200,all_gather,1024,8,8,1e-5,true\n"
    )
    refused = cli("import", str(path), "--machine", "h200-sxm-ib")
    assert refused.code == 2, refused
    assert "a.csv:2: the time is" in refused.err and "in place" in refused.err


def test_import_refuses_and_writes_nothing(cli: Any, tmp_path: Path) -> None:
    out, rows = tmp_path / "mine.json", [line(2**k, simple(2**k)) for k in range(10, 31)]
    none = write(tmp_path, "none.log", "this is no log\n")
    new, old = (write(tmp_path, f"{code}.log", new_log(rows, code=code)) for code in (22907, 22703))
    is_an_error(cli("import", str(none), "--out", str(out)), 2, "no sample")
    two = cli("import", str(new), str(old), "--out", str(out))
    is_an_error(two, 2, "nccl 2.29.7", "nccl 2.27.3", "one by one")
    is_an_error(cli("import", str(new), "--out", "mine.txt"), 2, ".json")
    is_an_error(cli("import"), 2, "LOGS")
    is_an_error(cli("import", str(new), "--gpus", "0"), 2, "--gpus 0 is zero")
    assert not out.exists()


def test_a_row_that_cannot_be_used_leaves_the_calibration_partial(cli: Any, tmp_path: Path) -> None:
    log = Path(csv_log(tmp_path / "ag.csv"))
    whole = json.loads(cli("import", str(log), "--machine", "h200-sxm-ib", "--json").out)
    log.write_text(log.read_text() + "nccl,2.29.7,NVIDIA H200,all_gather,2048,8,8,nan\n")
    partial = json.loads(cli("import", str(log), "--machine", "h200-sxm-ib", "--json").out)
    assert [x["calibration"]["complete"] for x in (whole, partial)] == [True, False]


def test_each_row_of_a_refused_log_is_counted_once(cli: Any) -> None:
    """Of one process for all GPUs: half of the rows are in place, and all are marked."""
    log = Path(__file__).parents[1] / "calibrate" / "logs" / "one_process_alltoall.log"
    refused = cli("import", str(log), "--machine", "h100-sxm-ib")
    assert refused.code == 2 and "a process for each GPU (mpirun -np 8 … -g 1)" in refused.err
    assert re.findall(r"(\d+) rows [^:]*: not fitted", refused.err) == ["42"]


@pytest.mark.parametrize("name", ["save_calibration", "write_samples"])
def test_a_calibration_and_its_samples_are_replaced_together(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    log, files = csv_log(tmp_path / "ag.csv"), (tmp_path / "c.json", tmp_path / "c.samples.csv")
    for path in files:
        path.write_text("mine")
    monkeypatch.setattr(imports, name, fail)
    words = ("import", log, "--machine", "h200-sxm-ib", "--out", str(files[0]), "--force")
    assert cli(*words).code == 2
    assert [path.read_text() for path in files] == ["mine", "mine"] and len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("command", ["import", "check"])
@pytest.mark.parametrize("text", ["foo=1", "nic_bytes_per_s=1GB/s", "gpus_per_nod=8"])
def test_a_log_is_told_no_value_of_a_machine(cli: Any, tmp_path: Path, command: str, text: str) -> None:
    refused = cli(command, csv_log(tmp_path / "a.csv"), "--set", text)
    assert refused.code == 2 and "is not known" in refused.err and "gpus_per_node" in refused.err
