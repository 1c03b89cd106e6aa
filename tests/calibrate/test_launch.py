"""Who started this process, where ranks meet, what their environment holds, and their memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from calibrate.ranks import process
from calibrate.ranks.launch import LOCALHOST, Launcher, detect_launcher, listen, rank_environment
from perfmodel.errors import BadInputError, NoHardwareError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "16", "MASTER_ADDR": "node07", "MASTER_PORT": "29500"}
TORCHRUN["TORCHELASTIC_RUN_ID"] = "job"
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "1"}
ONE_NODE = {**MPIRUN, "PMIX_NAMESPACE": "prterun-a-7@1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
BATCH = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}
SRUN = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "gnode[08-09]"}


def detect(environ: dict[str, str], **more: str) -> Launcher:
    launcher = detect_launcher({**environ, **more})
    assert launcher is not None
    return launcher


def test_torchrun_meets_beside_its_own_port() -> None:
    launcher = detect(TORCHRUN)
    assert (launcher.name, launcher.rank, launcher.ranks) == ("torchrun", 3, 16)
    assert (launcher.host, launcher.port) == ("node07", 29501)
    assert detect(TORCHRUN, PERFMODEL_PORT="31000").port == 31000


@pytest.mark.parametrize(
    ("environ", "job", "rank", "facts"),
    [
        (SRUN, "SLURM_JOB_ID", "SLURM_PROCID", ("srun", 8, "gnode08")),  # the first node of the step
        (ONE_NODE, "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", ("mpirun", 4, "127.0.0.1")),
    ],
)
def test_srun_and_mpirun_meet_at_a_port_of_the_job(
    environ: dict[str, str], job: str, rank: str, facts: tuple[str, int, str]
) -> None:
    launcher, first, another = detect(environ), detect(environ, **{rank: "0"}), detect(environ, **{job: "8"})
    assert (launcher.name, launcher.ranks, launcher.host) == facts
    assert (launcher.rank, first.rank) == (int(environ[rank]), 0)
    assert (launcher.port, launcher.job) == (first.port, first.job)
    assert 20000 <= launcher.port < 32768
    assert another.port != launcher.port and another.job != launcher.job
    assert detect(environ, PERFMODEL_PORT="31000").port == 31000


@pytest.mark.parametrize(
    "environ", [MPIRUN, {**ONE_NODE, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, {"PMI_RANK": "2", "PMI_SIZE": "4"}]
)
def test_mpirun_over_nodes_meets_at_the_address_that_it_is_given(environ: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match="does not say where its ranks meet") as caught:
        detect_launcher(environ)
    assert "MASTER_ADDR" in str(caught.value.next_step)
    launcher = detect(environ, MASTER_ADDR="node07")
    assert (launcher.name, launcher.ranks, launcher.host) == ("mpirun", 4, "node07")
    assert 20000 <= launcher.port < 32768 and launcher.job


def test_the_innermost_launcher_counts_and_its_variables_must_be_numbers() -> None:
    assert detect(SRUN, **TORCHRUN).name == "torchrun"
    assert detect(SRUN, **MPIRUN, MASTER_ADDR="node07").name == "mpirun"
    assert detect(SRUN, PMI_RANK="5", PMI_SIZE="8").name == "srun"
    with pytest.raises(BadInputError, match="WORLD_SIZE='x' in the environment is not a number"):
        detect(TORCHRUN, WORLD_SIZE="x")


def test_a_batch_script_and_a_single_process_are_no_launcher() -> None:
    assert detect_launcher({**BATCH, "SLURM_PROCID": "0"}) is None
    assert detect_launcher({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert detect_launcher({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is None
    assert detect_launcher({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}) is None  # not torchrun's


@pytest.mark.parametrize(
    ("nodes", "first"), [("login-1,login-2", "login-1"), ("a[1-2]b[7-8]", "a1b7"), ("n[03-05,9],b1", "n03")]
)
def test_the_first_node_of_a_step_is_the_host(nodes: str, first: str) -> None:
    assert detect(SRUN, SLURM_STEP_NODELIST=nodes).host == first


def test_ranks_see_no_launcher_and_run_on_one_thread() -> None:
    environ = {**TORCHRUN, **MPIRUN, **SRUN, "HOME": "/home/a", "OMP_NUM_THREADS": "8"}
    of_rank = rank_environment(environ, "cpu")
    assert detect_launcher(of_rank) is None
    assert (of_rank["HOME"], of_rank["OMP_NUM_THREADS"]) == ("/home/a", "1")
    assert of_rank["GLOO_SOCKET_IFNAME"] == "lo"
    on_gpus = rank_environment(environ, "cuda", alone=False)
    assert on_gpus["OMP_NUM_THREADS"] == "8" and "GLOO_SOCKET_IFNAME" not in on_gpus


def test_a_port_in_use_is_said_with_what_to_do() -> None:
    """Ranks of other nodes come by any address of this one, of IPv4 too."""
    with listen("node07", 0) as taken:
        _, port, *_ = taken.getsockname()
        socket.create_connection((LOCALHOST, port)).close()
        with pytest.raises(NoHardwareError, match=rf"port {port}") as caught:
            listen(LOCALHOST, port)
    assert "PERFMODEL_PORT" in caught.value.next_step


def test_memory_of_a_rank_is_its_part_of_half_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = tmp_path / "sys/fs/cgroup"
    for folder in (tmp_path / "proc/self", limits):
        folder.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n")
    assert process.estimate_memory_bytes(4, tmp_path) == 8000000 * 1024 / 8
    (limits / "memory.max").write_text("3000\n")
    (limits / "memory.current").write_text("1000\n")
    assert process.estimate_memory_bytes(1, tmp_path) == 1000
    (limits / "memory.max").write_text("max\n")
    assert process.estimate_memory_bytes(4, tmp_path) == 8000000 * 1024 / 8
    (tmp_path / "proc/self/statm").write_text("4 3 2 1 0 0 0\n")
    monkeypatch.setattr(process, "address_space_bytes", lambda: 6 * os.sysconf("SC_PAGE_SIZE"))
    assert process.estimate_memory_bytes(4, tmp_path) == os.sysconf("SC_PAGE_SIZE")
    assert process.count_held_bytes(tmp_path) == 3 * os.sysconf("SC_PAGE_SIZE")
