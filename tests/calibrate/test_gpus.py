"""What nvidia-smi says of the GPUs of a node, with a program in its place."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from calibrate.machine.local_gpus import find_gpus, read_listing

LISTING = """GPU 0: NVIDIA H200 (UUID: GPU-aa)
  MIG 3g.71gb     Device  0: (UUID: MIG-c1)
  MIG 1g.18gb     Device  1: (UUID: MIG-c2)
GPU 1: NVIDIA H200 (UUID: GPU-ab)
"""


def line(index: int, uuid: str) -> str:
    return f"{index}, NVIDIA H200, {uuid}, 580.159.03"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nvidia-smi with two GPUs, one of them cut by MIG."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -L ]; then printf "{LISTING}"; exit 0; fi\n'
        f'echo "{line(0, "GPU-aa")}"\n'
        f'echo "{line(1, "GPU-ab")}"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


@pytest.mark.usefixtures("smi")
def test_gpus_are_those_that_the_driver_names() -> None:
    first, second = find_gpus({})
    assert (first.name, first.driver, second.uuid) == ("NVIDIA H200", "580.159.03", "GPU-ab")


@pytest.mark.usefixtures("smi")
@pytest.mark.parametrize(
    ("chosen", "kept"), [("MIG-c2", [0]), ("MIG-c1,1", [0]), ("MIG-zz", []), ("1,0", [1, 0])]
)
def test_a_slice_is_found_on_its_gpu(chosen: str, kept: list[int]) -> None:
    assert [gpu.index for gpu in find_gpus({"CUDA_VISIBLE_DEVICES": chosen})] == kept


def test_a_program_that_fails_names_no_gpu(smi: Path) -> None:
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus({}) == ()


def test_slices_belong_to_the_gpu_above_them() -> None:
    assert read_listing(LISTING) == {"GPU-aa": ("MIG-c1", "MIG-c2")}
    assert read_listing("No devices found.\n") == {}
