"""``perfmodel import``: whose logs, how sure, which files; what it doubts and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracles.made_logs import line, new_log, write

from calibrate.machine.identity import gpu_class
from perfmodel.cli.imports import doubt_gpu
from perfmodel.errors import BadInputError
from perfmodel.report.calibration_text import calibration_text
from perfmodel.resources import data_path
from perfmodel.schema.calibration import load_calibration, read_calibration
from perfmodel.schema.machine import list_machines, load_machine

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


def test_a_calibration_that_is_there_brings_a_name_that_is_free(cli: Any, tmp_path: Path) -> None:
    """c.json is there, and of c-2 the samples: c-3 is free for both files."""
    words = ("import", csv_log(tmp_path / "ag.csv"), "--machine", "h200-sxm-ib", "--out")
    for name in ("c.json", "c-2.samples.csv"):
        (tmp_path / name).write_text("mine")
    refused, free = cli(*words, str(tmp_path / "c.json")), str(tmp_path / "c-3.json")
    assert refused.code == 2 and f"--out {free} is free; or remove" in " ".join(refused.err.split())
    assert cli(*words, free).code == 0


def test_both_files_or_none(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, out, samples = csv_log(tmp_path / "ag.csv"), tmp_path / "c.json", tmp_path / "c.samples.csv"
    words = ("import", log, "--machine", "h200-sxm-ib", "--out", str(out))
    samples.write_text("mine")
    refused = cli(*words)
    assert refused.code == 2 and "c.samples.csv exists already" in " ".join(refused.err.split())
    assert samples.read_text() == "mine" and not out.exists()
    samples.unlink()
    import perfmodel.cli.imports as imports

    real = imports.os.replace

    def broken(source: Any, target: Any) -> None:
        if str(target).endswith(".json"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(imports.os, "replace", broken)
    assert "no space left" in " ".join(cli(*words).err.split())
    assert [p.name for p in tmp_path.iterdir()] == ["ag.csv"]
    out.write_text("old"), samples.write_text("old samples")
    assert cli(*words, "--force").code == 2
    assert (out.read_text(), samples.read_text()) == ("old", "old samples"), "as they were, also with --force"


def test_logs_of_another_gpu(cli: Any, tmp_path: Path) -> None:
    log = csv_log(tmp_path / "ag.csv")
    refused = cli("import", log, "--machine", "h100-sxm-ib")
    assert refused.code == 2
    assert (
        "NVIDIA H200" in refused.err and "--machine h200-sxm-ib" in refused.err and "--force" in refused.err
    )
    forced = cli("import", log, "--machine", "h100-sxm-ib", "--force")
    assert forced.code == 0 and "warning: the logs are of NVIDIA H200" in forced.err
    odd = cli("import", csv_log(tmp_path / "x.csv", gpu="NVIDIA X900"), "--machine", "h100-sxm-ib")
    assert odd.code == 2 and "the logs are of NVIDIA X900" in odd.err and "--force" in odd.err


def test_every_shipped_machine_knows_its_own_gpu() -> None:
    names = {"h100": "NVIDIA H100 80GB HBM3", "gb200": "NVIDIA GB200", "b200": "NVIDIA B200",
             "a100": "A100-SXM4-80GB", "h200": "NVIDIA H200", "gh200": "NVIDIA GH200 480GB",
             "l40s": "NVIDIA L40S", "mi355x": "AMD Instinct MI355X",
             "rtx": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}  # fmt: skip
    for name in [name for name in list_machines() if not load_machine(name).hypothetical]:
        gpu = names[name.split("-")[0]]
        assert doubt_gpu(gpu, load_machine(name), force=False) == []
        assert [n for n in list_machines() if gpu_class(n) == gpu_class(name)] == [
            n for n in list_machines() if n.split("-")[0] == name.split("-")[0]
        ]
    assert doubt_gpu("", load_machine("h100-sxm-ib"), force=False) != []


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


def test_a_law_without_samples_says_so() -> None:
    item = load_calibration(SHIPPED)
    bare = item.model_copy(update={"laws": [law.model_copy(update={"sources": []}) for law in item.laws]})
    assert "not fitted here: values of" in calibration_text(bare)
    assert "not fitted here" not in calibration_text(item)


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


def test_samples_say_how_many_floors_and_rates_they_tell(cli: Any, tmp_path: Path) -> None:
    log = Path(csv_log(tmp_path / "ag.csv"))
    log.write_text("\n".join(log.read_text(encoding="utf-8").splitlines()[:2]) + "\n", encoding="utf-8")
    shown = cli("import", str(log), "--machine", "h200-sxm-ib").out
    assert "0 of 2 floors and rates are known" in shown and "one size" in shown


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


def test_warnings_stay_on_one_screen_and_are_said_once(cli: Any, tmp_path: Path) -> None:
    def bumpy(size: int) -> float:
        return simple(size) * (5 if size == 2**20 else 1)

    path = tmp_path / "a.csv"
    text = []
    for gpus in (2, 4, 8):
        csv_log(path, bumpy, gpus=gpus)
        text += path.read_text().splitlines()[(0 if gpus == 2 else 1) :]
    path.write_text(
        "\n".join(text) + "\n" + "\n".join(f"nccl,2,NVIDIA H200,all_gather,{i}x,8,8,1" for i in range(99))
    )
    outcome = cli("import", str(path), "--machine", "h200-sxm-ib")
    assert outcome.code == 0, outcome.err
    assert len(outcome.err.splitlines()) <= 24


def test_a_calibration_with_two_curves_of_one_cell_is_refused(tmp_path: Path) -> None:
    document = json.loads(data_path("calibrations", SHIPPED + ".json").read_text(encoding="utf-8"))
    document["curves"].append(document["curves"][0])
    path = tmp_path / "c.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match="2 curves of"):
        read_calibration(path)


def test_a_machine_like_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    text = data_path("machines", "h100-sxm-efa.toml").read_text(encoding="utf-8")
    path = tmp_path / "m.toml"
    path.write_text(text.replace('like = "h100-sxm-ib"', 'like = "nope"'))
    with pytest.raises(BadInputError, match=r"links\.like"):
        load_machine(path)
