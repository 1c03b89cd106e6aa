"""Who started this process, where ranks meet, and what their environment holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from calibrate.operations import Place
from calibrate.ranks import process, team
from calibrate.ranks.launch import Launcher, detect_launcher, pick_first_host, rank_environment
from calibrate.ranks.team import (
    ONE_A_GPU,
    TeamRequest,
    name_place,
    place_ranks,
    read_availabilities,
    start_ranks,
)
from perfmodel.errors import BadInputError, NoHardwareError

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "16",
    "MASTER_ADDR": "node07",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job",
}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "1"}
SRUN = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gnode[08-09]",
    "SLURM_NTASKS": "8",
}


def found(environ: dict[str, str]) -> Launcher:
    launcher = detect_launcher(environ)
    assert launcher is not None
    return launcher


def test_torchrun_meets_beside_its_own_port() -> None:
    one = found(TORCHRUN)
    assert (one.name, one.rank, one.ranks, one.host, one.port) == ("torchrun", 3, 16, "node07", 29501)
    assert found({**TORCHRUN, "PERFMODEL_PORT": "31000"}).port == 31000


def test_srun_meets_on_the_first_node_of_the_step_at_a_port_of_the_job() -> None:
    one, other = found(SRUN), found({**SRUN, "SLURM_PROCID": "0"})
    assert (one.name, one.rank, one.ranks, one.host) == ("srun", 5, 8, "gnode08")
    assert (one.port, one.job) == (other.port, other.job)
    assert 20000 <= one.port < 32768
    another = found({**SRUN, "SLURM_JOB_ID": "4712"})
    assert another.port != one.port and another.job != one.job


def test_mpirun_on_one_node_meets_there_at_a_port_of_the_job() -> None:
    job = {**MPIRUN, "PMIX_NAMESPACE": "prterun-a-7@1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    one, other = found(job), found({**job, "OMPI_COMM_WORLD_RANK": "0"})
    assert (one.rank, other.rank, one.host) == (1, 0, "127.0.0.1")
    assert (one.port, one.job) == (other.port, other.job)
    assert 20000 <= one.port < 32768
    another = found({**job, "PMIX_NAMESPACE": "prterun-a-8@1"})
    assert another.port != one.port and another.job != one.job
    assert found({**job, "PERFMODEL_PORT": "31000"}).port == 31000


@pytest.mark.parametrize(
    "environ",
    [
        MPIRUN,
        {**MPIRUN, "PMIX_NAMESPACE": "prterun-a-7@1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        {"PMI_RANK": "2", "PMI_SIZE": "4"},
    ],
)
def test_mpirun_over_nodes_meets_at_the_address_that_it_is_given(environ: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match="does not say where its ranks meet") as caught:
        found(environ)
    assert "MASTER_ADDR" in str(caught.value.next_step)
    launcher = found({**environ, "MASTER_ADDR": "node07"})
    assert (launcher.name, launcher.ranks, launcher.host) == ("mpirun", 4, "node07")
    assert 20000 <= launcher.port < 32768 and launcher.job


def test_the_innermost_launcher_counts() -> None:
    assert found({**SRUN, **TORCHRUN}).name == "torchrun"
    assert found({**SRUN, **MPIRUN, "MASTER_ADDR": "node07"}).name == "mpirun"
    assert found({**SRUN, "PMI_RANK": "5", "PMI_SIZE": "8"}).name == "srun"


def test_a_batch_script_and_a_single_process_are_no_launcher() -> None:
    batch = {name: value for name, value in SRUN.items() if "STEP" not in name}
    assert detect_launcher({**batch, "SLURM_PROCID": "0"}) is None
    assert detect_launcher({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert detect_launcher({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is None


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("gnode[10,20,25,37]", "gnode10"),
        ("node[03-05,9],b1", "node03"),
        ("a[1-2]b[7-8]", "a1b7"),
        ("login-1,login-2", "login-1"),
        ("", ""),
    ],
)
def test_first_name_of_a_node_list(nodes: str, first: str) -> None:
    assert pick_first_host(nodes) == first


def hello(node: str) -> dict[str, object]:
    return {"node": node, "host": f"host-{node}"}


def test_places_follow_from_where_the_ranks_run() -> None:
    places = place_ranks([hello("a"), hello("a"), hello("b"), hello("b")], "cuda")
    assert places[3] == Place(3, 4, node=1, local_rank=1, local_ranks=2, device="cuda")
    assert [name_place(place) for place in places] == [
        "rank 0 (node 0, GPU 0)",
        "rank 1 (node 0, GPU 1)",
        "rank 2 (node 1, GPU 0)",
        "rank 3 (node 1, GPU 1)",
    ]
    assert name_place(place_ranks([hello("a")], "cpu")[0]) == "rank 0 (node 0)"


def test_ranks_that_alternate_between_nodes_are_refused() -> None:
    with pytest.raises(BadInputError, match="one after the other") as caught:
        place_ranks([hello("a"), hello("b"), hello("a"), hello("b")], "cpu")
    assert "--distribution=block" in caught.value.next_step


def test_ranks_on_one_gpu_only_show_that_it_works() -> None:
    fields = {
        "usable": True,
        "why_not": "",
        "install": "",
        "version": "2.29",
        "clocks": ["stream"],
        "operations": ["all_to_all"],
        "functional_only": "",
    }
    assert read_availabilities({"nccl": fields}, ["GPU-1", "GPU-2"])["nccl"].functional_only == ""
    assert read_availabilities({"nccl": fields}, ["", ""])["nccl"].functional_only == ""
    shared = read_availabilities({"nccl": fields}, ["GPU-1", "GPU-1"])["nccl"]
    assert (shared.functional_only, shared.install) == ("2 ranks share 1 GPU", ONE_A_GPU)
    assert (
        read_availabilities({"nccl": fields}, ["a", "b", "b"])["nccl"].functional_only
        == "3 ranks share 2 GPUs"
    )


def test_memory_of_a_rank_is_its_part_of_half_of_what_is_free(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n")
    assert process.estimate_memory_bytes(4, tmp_path) == 8000000 * 1024 / 8
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("3000\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text("1000\n")
    assert process.estimate_memory_bytes(1, tmp_path) == 1000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert process.estimate_memory_bytes(4, tmp_path) == 8000000 * 1024 / 8


def test_ranks_see_no_launcher_and_run_on_one_thread() -> None:
    environ = {
        **TORCHRUN,
        **MPIRUN,
        **SRUN,
        "HOME": "/home/a",
        "OMP_NUM_THREADS": "8",
    }
    kept = rank_environment(environ, "cpu")
    assert detect_launcher(kept) is None
    assert (kept["HOME"], kept["OMP_NUM_THREADS"]) == ("/home/a", "1")
    assert rank_environment(environ, "cuda")["OMP_NUM_THREADS"] == "8"


def test_a_rank_that_does_not_start_says_its_last_words() -> None:
    program = [sys.executable, "-c", "import sys; print('no such library'); sys.exit(7)"]
    request = TeamRequest(ranks=2, device="cpu", backends=("gloo",))
    with pytest.raises(NoHardwareError, match=r"it exited with code 7\n  no such library"):
        team.RankTeam(start_ranks(request, program=program), request)
    with pytest.raises(NoHardwareError, match="cannot be started"):
        start_ranks(request, program=["/nowhere/python"])


def test_more_ranks_than_cores_are_refused_before_any_is_started() -> None:
    """A thousand ranks: no machine of the tests has the cores."""
    with pytest.raises(BadInputError, match=r"1.000 ranks on [0-9]+ cores would take turns"):
        team.open_team(TeamRequest(1000, "cpu"), {})


def test_without_a_gpu_no_rank_of_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "find_gpus", tuple)
    with pytest.raises(NoHardwareError, match="there is no GPU here"):
        team.open_team(TeamRequest(None, "cuda"), {})
