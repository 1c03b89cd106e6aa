"""What makes two runs mixable, and what is kept to oneself."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from calibrate.machine.identity import Host
from calibrate.machine.local_gpus import LocalGpu
from calibrate.operations import Availability, Place
from calibrate.planning.world import World
from calibrate.running import stack, versions
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


def test_what_is_measured_and_on_how_many_ranks_changes_nothing() -> None:
    """``--only``, ``--backend`` and ``--ranks`` decide what can be used, never what is installed."""
    known = {"gloo": "torch 2.13.0", "torch": "2.13.0"}
    whole = World(4, providers={"torch": GLOO, "gloo": GLOO}, versions=known)
    part = World(2, providers={"torch": Availability(False, "no torch"), "gloo": GLOO}, versions=known)
    assert stack.describe(whole, HOST) == stack.describe(part, HOST)
    for other in (
        World(4, 2, versions=known),
        World(4, device="cuda", versions=known),
        World(4, versions={**known, "torch": "2.14.0"}),
    ):
        assert stack.describe(other, HOST) != stack.describe(whole, HOST)


def test_versions_are_told_without_opening_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torch": "2.13.0", "numpy": "2.4.6", "fbgemm-gpu": "1.8.0", "nvidia-nvshmem-cu12": "3.4.5"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: installed[name])
    monkeypatch.setattr(importlib.metadata, "PackageNotFoundError", KeyError)
    monkeypatch.setattr(versions, "nccl_version", lambda: "2.29.7")
    common = {"torch": "2.13.0", "fbgemm": "1.8.0"}
    host = common | {"numpy": "2.4.6", "gloo": "torch 2.13.0"}
    assert versions.library_versions(Place(0, 2)) == host
    assert versions.library_versions(Place(1, 2, local_rank=1)) == host
    assert versions.library_versions(Place(0, 1, device="cuda")) == common | {
        "nccl": "2.29.7",
        "nvshmem": "3.4.5",
    }


def test_gpus_and_their_driver_are_part_of_it() -> None:
    gpus = tuple(LocalGpu(index, "NVIDIA H100", driver="550.54") for index in range(2))
    host = Host(machine="h100", shipped=True, cpu="c", cores=2, cores_online=2, gpus=gpus)
    found = stack.describe(World(2, device="cuda"), host)
    assert (found["gpu"], found["gpus"], found["driver"]) == ("NVIDIA H100", "2", "550.54")


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
    assert stack.allowed_environment(kept | private) == dict(sorted(kept.items()))


def test_a_home_folder_is_written_as_a_tilde() -> None:
    environ = {"HOME": "/home/ada", "NCCL_TOPO_FILE": "/home/ada/topo.xml"}
    assert stack.allowed_environment(environ) == {"NCCL_TOPO_FILE": "~/topo.xml"}


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
    assert stack.allowed_environment({"UCX_PROXY": value}) == {"UCX_PROXY": kept}


def test_host_names_are_hashed_unless_kept() -> None:
    world = World(2, 2, hosts=("alpha", "beta"))
    hashed = stack.host_names(world, keep_hostnames=False)
    assert re.fullmatch("[0-9a-f]{8},[0-9a-f]{8}", hashed) and "alpha" not in hashed
    assert stack.host_names(world, keep_hostnames=True) == "alpha,beta"
    again = stack.host_names(world, keep_hostnames=False)
    assert not {*hashed.split(",")} & {*again.split(",")}, "a hash that can be made again can be tried"
    same = stack.host_names(World(2, 2, hosts=("alpha", "alpha")), keep_hostnames=False).split(",")
    assert same[0] == same[1], "but it tells nodes of one run apart"


def test_the_header_has_all_of_it() -> None:
    header = stack.make_header(
        World(4, 2), machine="m", seed=7, values={"gloo": "5"}, environ={"NCCL_ALGO": "Ring", "PATH": "/"}
    )
    assert (header.machine, header.seed, header.ranks, header.nodes) == ("m", 7, 4, 2)
    assert header.stack == {"gloo": "5"} and header.environment == {"NCCL_ALGO": "Ring"}
    assert header.fingerprint == stack.fingerprint(header.stack, header.environment)


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


def git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *name, "-C", str(folder), *words], check=True, capture_output=True)


def test_a_changed_checkout_is_another_revision(tmp_path: Path) -> None:
    code = tmp_path / "calibrate"
    code.mkdir()
    (code / "a.py").write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    clean = stack.git_revision(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", clean)
    (tmp_path / "notes.txt").write_text("not code\n")
    assert stack.git_revision(tmp_path) == clean
    (code / "a.py").write_text("2\n")
    dirty = stack.git_revision(tmp_path)
    assert dirty.startswith(f"{clean}-dirty-")
    (code / "a.py").write_text("3\n")
    assert stack.git_revision(tmp_path) not in (clean, dirty)


def test_git_never_fails_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stack.git_revision(tmp_path) == ""
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert stack.git_revision(tmp_path) == ""
    monkeypatch.setenv("PATH", "")
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").mkdir()
    assert stack.git_revision(tmp_path) == ""
