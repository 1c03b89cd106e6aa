"""The doctor's page: what a projection would rest on follows from the hardware and the libraries."""

from __future__ import annotations

from dataclasses import replace

from calibrate.machine.doctor import MachineDoubt
from calibrate.machine.identity import Host
from calibrate.machine.local_gpus import LocalGpu
from calibrate.operations import Availability
from perfmodel.report.doctor_text import doctor_record, doctor_text, prospects
from perfmodel.schema.evidence import COLLECTIVES, Clock

CPU = Host("cpu-acme-9000-4", False, "ACME 9000", 4, 8, {"L2": 2**20})
GPU = Host("h200-sxm-ib", True, "ACME 9000", 16, 16, {}, (LocalGpu(0, "NVIDIA H200", driver="580.1"),))
ALL = (*COLLECTIVES, "sendrecv")
MPI = Availability(True, version="5.0.11", clocks=(Clock.EAGER, Clock.STREAM), operations=ALL)
NONE = Availability(False, "no GPU here", "pip install x==1")
TORCH = Availability(True, version="2.13.0", clocks=(Clock.EAGER,), operations=("gather_pool", "copy"))


def evidence(host: Host, **libraries: Availability) -> dict[str, str]:
    return {row.part: str(row.evidence) for row in prospects(host, libraries)}


def test_a_laptop_measures_itself_and_no_gpu() -> None:
    assert evidence(CPU, mpi=MPI, torch=TORCH, exchange=TORCH) == {
        "kernels": "measured",
        "collectives of 2 – 4 ranks": "measured",
        "collectives of more nodes": "nothing known",
        "any GPU": "transferred",
        "whole passes": "measured",
    }


def test_without_libraries_nothing_is_known() -> None:
    found = evidence(CPU, mpi=NONE, torch=NONE)
    assert found["collectives"] == "nothing known" and found["kernels"] == "assumed"
    assert found["whole passes"] == "not checked"


def test_one_core_has_no_collectives() -> None:
    assert evidence(replace(CPU, cores=1), mpi=MPI)["collectives"] == "nothing known"


def test_one_gpu_measures_kernels_and_borrows_collectives() -> None:
    found = evidence(GPU, torch=TORCH, nccl=MPI)
    assert found["kernels"] == "measured"
    assert found["collectives of 2 – 8 GPUs"] == "transferred"
    assert found["collectives of more nodes"] == "extrapolated"


def test_a_whole_node_measures_its_collectives() -> None:
    host = replace(GPU, gpus=tuple(LocalGpu(i, "NVIDIA H200") for i in range(8)))
    assert evidence(host, nccl=MPI)["collectives of 2 – 8 GPUs"] == "measured"
    assert (
        evidence(host, nccl=replace(MPI, functional_only="one GPU"))["collectives of 2 – 8 GPUs"]
        == "transferred"
    )


def test_half_a_node_extrapolates_the_other_half() -> None:
    host = replace(GPU, gpus=tuple(LocalGpu(i, "NVIDIA H200") for i in range(4)))
    found = evidence(host, nccl=MPI)
    assert found["collectives of 2 – 4 GPUs"] == "measured"
    assert found["collectives of 5 – 8 GPUs"] == "extrapolated"


def test_a_gpu_that_nothing_shipped_describes() -> None:
    host = replace(GPU, machine="gpu-acme", shipped=False)
    found = evidence(host, torch=NONE, nccl=NONE)
    assert found["kernels"] == "assumed" and found["collectives of more nodes"] == "nothing known"


def test_the_page() -> None:
    libraries = {"mpi": MPI, "gloo": NONE, "nccl": replace(NONE, install="drivers"), "torch": TORCH}
    findings = [MachineDoubt("noise", "others took 9 % of a core", "stop them")]
    text = doctor_text(CPU, libraries, prospects(CPU, libraries), findings)
    assert "cpu-acme-9000-4: ACME 9000 · 4 cores (of 8) · L2 1 MiB" in text
    assert "all collectives, sendrecv" in text
    assert "pip install x==1" in text and "drivers" not in text
    assert "1  noise: others took 9 % of a core. Try: stop them" in text
    assert "perfmodel calibrate --quick" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_lines_that_install_are_whole_and_said_once() -> None:
    """A line that a table wraps cannot be pasted: the shell takes its second half for a command."""
    long = Availability(False, "not here", "pip install torch==2.13.0 && pip install " + "x" * 120)
    libraries = {"torchrec": long, "fbgemm": long, "mpi": NONE, "nccl": replace(NONE, install="drivers")}
    text = doctor_text(CPU, libraries, [], [])
    assert (
        "To install torchrec, fbgemm\n pip install torch==2.13.0 && \\\n   pip install " + "x" * 120
    ) in text
    assert "To install mpi\n pip install x==1" in text and "drivers" not in text


def test_nothing_to_measure_advises_nothing() -> None:
    text = doctor_text(CPU, {"mpi": NONE}, [], [])
    assert "Nothing can be timed here" in text and "calibrate" not in text


def test_the_document_names_every_library() -> None:
    record = doctor_record(CPU, {"mpi": MPI, "nccl": NONE}, [], [])
    assert [(item["name"], item["usable"]) for item in record["libraries"]] == [
        ("mpi", True),
        ("nccl", False),
    ]
