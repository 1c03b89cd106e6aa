"""What nvidia-smi says of the GPUs of a node, with a program in its place."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from calibrate.machine.local_gpus import find_gpus


def line(index: int, uuid: str) -> str:
    return f"{index}, NVIDIA H200, {uuid}, 580.159.03"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nvidia-smi with two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "{line(0, "GPU-aa")}"\necho "{line(1, "GPU-ab")}"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


@pytest.mark.usefixtures("smi")
def test_gpus_are_those_that_the_driver_names() -> None:
    first, second = find_gpus({})
    assert (first.name, first.driver, second.uuid) == ("NVIDIA H200", "580.159.03", "GPU-ab")


def test_a_program_that_fails_names_no_gpu(smi: Path) -> None:
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus({}) == ()
