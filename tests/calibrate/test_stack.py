"""What makes two runs mixable, and what is kept to oneself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from calibrate.machine.identity import Host
from calibrate.operations import Availability
from calibrate.planning.world import World
from calibrate.running import stack
from perfmodel.errors import NoCalibrationError
from perfmodel.fit.runs import fit_run
from perfmodel.schema.machine import load_machine
from perfmodel.schema.run_files import calibration_in, read_run
from perfmodel.schema.runs import RunHeader

HOST = Host(machine="cpu-x-2", shipped=False, cpu="Some CPU", cores=2, cores_online=4, caches={"L2": 1048576})
GLOO = Availability(True, version="torch 2.13.0")


def test_the_stack_names_versions_and_topology() -> None:
    found = stack.describe(World(8, 2, versions={"gloo": "torch 2.13.0"}), HOST)
    assert found["gloo"] == "torch 2.13.0" and "nccl" not in found
    assert found["cpu"] == "Some CPU" and found["topology"] == "2 nodes, cpu"
    assert found["cores"] == "4"  # of the node: a launcher binds this process to some of them
    assert list(found) == sorted(found)
    assert re.fullmatch(r"\w+ \d+", found["kernel"])


def test_a_fingerprint_changes_with_any_value_and_with_nothing_else() -> None:
    base = stack.fingerprint({"a": "1", "b": "2"}, {"NCCL_ALGO": "Ring"})
    assert re.fullmatch("[0-9a-f]{64}", base)
    assert stack.fingerprint({"b": "2", "a": "1"}, {"NCCL_ALGO": "Ring"}) == base
    assert stack.fingerprint({"a": "1", "b": "3"}, {"NCCL_ALGO": "Ring"}) != base
    assert stack.fingerprint({"a": "1", "b": "2"}, {"NCCL_ALGO": "Tree"}) != base
    assert stack.fingerprint({"a": "1", "b": "2"}, {}) != base


def test_only_settings_that_change_timings_are_kept() -> None:
    kept = {
        "NCCL_ALGO": "Ring",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MALLOC_MMAP_THRESHOLD_": "1",
        "NCCL_SOCKET_IFNAME": "eth0",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
    }
    private = {
        "PATH": "/bin",
        "AWS_SECRET_ACCESS_KEY": "x",
        "NCCL_COMM_ID": "10.0.0.1:99",
        "NCCL_HOSTID": "me",
        "NCCL_SECRET_TOKEN": "x",
        "GLOO_SOCKET_HOST": "me",
        "TORCHELASTIC_RUN_ID": "7",
        "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "GLOO_SOCKET_IFNAME": "lo",  # what this program sets itself, for one machine
        "XNCCL_ALGO": "x",
    }
    assert stack.filter_environment(kept | private) == dict(sorted(kept.items()))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("http://ada:hunter2@proxy:8080/x", "http://***@proxy:8080/x"),
        ("tcp://hunter2@10.0.0.1", "tcp://***@10.0.0.1"),
        ("a=1;HTTPS://ada:p@hunter2@h,b=2", "a=1;HTTPS://***@h,b=2"),
        ("http://proxy:8080/a@b", "http://proxy:8080/a@b"),
        ("self,sm", "self,sm"),
    ],
)
def test_the_password_of_a_url_is_masked(value: str, kept: str) -> None:
    assert stack.filter_environment({"UCX_PROXY": value}) == {"UCX_PROXY": kept}


def test_ranks_that_take_turns_are_a_functional_check_in_a_folder_of_their_own() -> None:
    def header(ranks: int, **more: Any) -> RunHeader:
        return stack.make_header(World(ranks, **more), machine="m", seed=7, values={"a": "1"}, environ={})

    check, measured = header(4, cores_per_node=2), header(2, cores_per_node=2)
    assert check.functional_only and not measured.functional_only
    assert check.stack == {"a": "1", "turns": "4 ranks on 2 cores"} and measured.stack == {"a": "1"}
    assert check.fingerprint != measured.fingerprint == header(1, cores_per_node=2).fingerprint
    assert not header(4, nodes=2, cores_per_node=2).functional_only  # 2 on each node
    assert not header(8, device="cuda", cores_per_node=2).functional_only
    assert header(2, cores_per_node=1).stack["turns"] == "2 ranks on 1 core"


def test_nothing_is_fitted_to_a_rehearsal(tmp_path: Path) -> None:
    """The stand-in for a GPU names itself so; its times are in a folder of their own and never load."""
    smi = Path(__file__).parents[1] / "rehearsal" / "bin" / "nvidia-smi"
    told = subprocess.run([smi, "--query-gpu=name"], capture_output=True, text=True, check=True).stdout
    name, real = told.strip(), "NVIDIA H100 80GB HBM3"

    def header(gpu: str) -> RunHeader:
        values = {"gpu": gpu}
        return stack.make_header(World(1, device="cuda"), machine="h100-sxm-ib", seed=7, values=values)

    made, measured = header(name), header(real)
    assert name == f"{real} (rehearsal)" and not measured.functional_only
    assert made.functional_only and made.fingerprint != measured.fingerprint
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "samples.jsonl").write_text(made.model_dump_json(exclude_none=True) + "\n")
    for load in (
        lambda: fit_run(read_run(folder), load_machine("h100-sxm-ib")),
        lambda: calibration_in(folder),
    ):
        with pytest.raises(NoCalibrationError, match="its times are made up"):
            load()
