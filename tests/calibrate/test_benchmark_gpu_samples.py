"""What a GPU session measured, put into the shipped files; a rehearsal's archive is refused."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

import gpu_samples
import pytest
from oracles import own_run

from perfmodel.schema.evidence import Evidence
from perfmodel.schema.home import MACHINE_NAME
from perfmodel.schema.machine import read_machine


def archive(folder: Path, name: str, files: Path) -> Path:
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        made.add(files, name)
    return path


def called(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu_samples.py", *map(str, words)])
    return gpu_samples.main()


@pytest.fixture
def session(tmp_path: Path) -> tuple[Path, Path]:
    """Results with a run whose constants are known, at the clock stream; shipped files with others."""
    run = own_run.write_run(tmp_path / "results" / "runs" / "four-cores-01234567")
    samples = run / "samples.jsonl"
    text = (
        samples.read_text(encoding="utf-8")
        .replace('"torch"', '"fbgemm"')
        .replace('\\"torch\\"', '\\"fbgemm\\"')
    )
    samples.write_text(text.replace('"eager"', '"stream"').replace('\\"eager\\"', '\\"stream\\"'))
    (tmp_path / "results" / "gather_variants.csv").write_text("gpu\n")
    (tmp_path / "results" / "floors.csv").write_text("gpu\n")
    data = tmp_path / "data"
    for name in ("machines", "kernels", "chips"):
        (data / name).mkdir(parents=True)
    machine = read_run_machine(run)
    shutil.copyfile(run / MACHINE_NAME, data / "machines" / f"{machine}.toml")
    return archive(tmp_path, "first", tmp_path / "results"), data


def read_run_machine(run: Path) -> str:
    from perfmodel.schema.run_files import read_header

    return read_header(run / "samples.jsonl").machine


def test_samples_are_kept_and_the_machine_is_measured(
    session: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made, data = session
    (path,) = (data / "machines").iterdir()
    before = read_machine(path)
    assert called(monkeypatch, made, "--data", data) == 0
    kept = {one.name for one in (data / "measurements" / "kernels").iterdir()}
    assert kept == {"first-samples.csv", "first-floors.csv"}
    assert (data / "kernels" / "gather_variants.csv").is_file()
    after = read_machine(path)
    rate = after.values["gather_bytes_per_s"]
    assert rate.value == pytest.approx(8e9, rel=0.2) and rate.evidence is Evidence.MEASURED
    assert "data/measurements/kernels" in rate.source and rate.log_sd is not None
    unchanged = set(before.values) - set(gpu_samples.KERNEL_KEYS)
    assert all(after.values[key] == before.values[key] for key in unchanged)
    assert "gather_bytes_per_s" in capsys.readouterr().out


def test_a_rehearsal_changes_nothing(
    session: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By its name, by the GPU of its tables, by the header of its run."""
    made, data = session
    before = {path: path.read_text() for path in data.rglob("*.toml")}
    results = tmp_path / "results"
    named = archive(tmp_path, "rehearsal-first", results)
    (results / "floors.csv").write_text("gpu\nNVIDIA H100 80GB HBM3 (rehearsal)\n")
    told = archive(tmp_path, "told", results)
    (results / "floors.csv").unlink()
    samples = next(results.rglob("samples.jsonl"))
    first, _, rest = samples.read_text().partition("\n")
    samples.write_text(
        first[:-1].replace(',"functional_only":false', "") + ',"functional_only":true}\n' + rest
    )
    header = archive(tmp_path, "header", results)
    for bad in (named, told, header):
        assert called(monkeypatch, bad, made, "--data", data) == 2, bad
        assert "measure on a GPU" in capsys.readouterr().err
    (tmp_path / "no.tar.gz").write_text("no")
    assert called(monkeypatch, tmp_path / "no.tar.gz", "--data", data) == 2
    assert {path: path.read_text() for path in data.rglob("*.toml")} == before
    assert not (data / "measurements").exists()
