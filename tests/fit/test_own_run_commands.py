"""What commands make of a user's own run: the latest one is found, and its passes validate it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracles import own_run

from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.schema.files import HOME_VARIABLE, MACHINE_NAME, SAMPLES_NAME
from perfmodel.schema.run_files import calibration_in, read_run, run_folder
from perfmodel.validate.own import compare_run, compare_steps, judge_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run.write_run(tmp_path_factory.mktemp("home") / "runs" / "four-cores-01234567")


def test_the_nearest_thing_to_latest(folder: Path) -> None:
    assert run_folder(str(folder)) == folder and run_folder(str(folder / SAMPLES_NAME)) == folder
    assert run_folder("mine.json") is None
    with pytest.raises(NoCalibrationError, match="nothing of gloo") as refused:
        calibration_in(folder, "gloo")
    assert "--backend mpi --set clock=eager" in refused.value.next_step
    with pytest.raises(BadInputError, match="not a run"):
        calibration_in(folder.parent)


def test_validation_of_an_exact_run(folder: Path) -> None:
    passes = compare_run(folder)
    assert passes["error"].abs().max() < 1e-3
    assert passes["inside"].all() and passes["held_out"].sum() == 3
    assert [str(v.verdict) for v in judge_run(passes)] == ["holds"] * 3
    steps = compare_steps(passes).set_index("step")
    assert steps.loc["gather_pool", "error"] == pytest.approx(0, abs=1e-3)
    assert steps["share"].sum() == pytest.approx(0.98, abs=0.1)


def test_commands_take_latest(
    folder: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(folder.parents[1]))
    words = ("--table-size", "100MB", "--gpus", "2", "--calibration", "latest")
    document = json.loads(cli("project", *words, "--json").out)
    assert document["calibrations"] == ["four-cores/mpi-5.0.11-eager"]
    assert "handover" in {step["name"] for step in document["steps"]}
    shown = cli("project", *words)
    assert "shorter steps" in shown.out and "--machine" not in shown.out
    assert "= steps + between" in cli("project", *words, "--explain", "handover").out
    assert cli("collective", "--op", "all_to_all", "--size", "1MiB", *words[2:]).code == 0
    assert cli("sweep", "--table-size", "100MB", "--gpus", "2,4", *words[4:]).code == 0
    page = tmp_path / "plan.html"
    cli("plan", "--model", "criteo-kaggle", *words[2:], "--effort", "quick", "--out", str(page))
    assert "another cluster" not in page.read_text(encoding="utf-8")
    assert "four-cores/mpi-5.0.11-eager" in cli("show", "latest").out
    beyond = cli("project", "--table-size", "100MB", "--gpus", "8", "--calibration", "latest")
    assert beyond.code == 3 and "2, 4 GPUs" in beyond.err and "measure on more ranks" in beyond.err
    assert "--backend mpi" in cli("project", *words, "--backend", "gloo").err


def test_validate_takes_a_run(folder: Path, tmp_path: Path, cli: Any) -> None:
    done = cli("validate", "--run", str(folder))
    assert done.code == 0 and "3 bands: 3 hold," in done.out, done.err
    assert len(json.loads(cli("validate", "--run", str(folder), "--json").out)["passes"]) == 6
    odd = own_run.write_run(tmp_path / "odd", held_out_factor=3.0)
    assert cli("validate", "--run", str(odd)).code == 6
    text = calibration_in(odd).read_text(encoding="utf-8").replace("eager", "stream")
    (odd / "first.json").write_text(text, encoding="utf-8")  # of another clock than the passes
    assert set(compare_run(odd)["calibration"]) == {"four-cores/mpi-5.0.11-eager"}
    assert cli("validate", "--run", "nowhere").code == 2
    assert cli("validate", "--run", str(folder), "--paper").code == 2
    bare = tmp_path / "bare"
    bare.mkdir()
    assert cli("validate", "--run", str(bare)).code == 2


def test_a_calibration_without_its_machine_file_asks_for_it(folder: Path, tmp_path: Path, cli: Any) -> None:
    alone = tmp_path / "mine.json"
    alone.write_text(calibration_in(folder).read_text(encoding="utf-8"), encoding="utf-8")
    done = cli("project", "--table-size", "100MB", "--gpus", "2", "--calibration", str(alone))
    assert done.code == 2 and "--machine" in done.err
    assert f"{tmp_path / 'machine.toml'} is not there" in " ".join(done.err.split())
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    (moved / MACHINE_NAME).unlink()
    done = cli("validate", "--run", str(moved))
    assert done.code == 2 and f"{moved / MACHINE_NAME} is not there" in " ".join(done.err.split())
    with pytest.raises(BadInputError):
        read_run(alone)
