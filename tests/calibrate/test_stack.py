"""What makes two runs mixable, and what is kept to oneself."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibrate.machine.identity import Host
from calibrate.planning.world import World
from calibrate.running import stack
from perfmodel.errors import NoCalibrationError
from perfmodel.fit.run_fits import fit_run
from perfmodel.schema.machine import load_machine
from perfmodel.schema.run_files import calibration_in, read_run
from perfmodel.schema.runs import RunHeader

HOST = Host(machine="cpu-x-2", shipped=False, cpu="Some CPU", cores=2, cores_online=4, caches={"L2": 1048576})
Make = Callable[..., RunHeader]


@pytest.fixture
def make_header(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Headers of worlds whose stack is {"a": "1"}, or that of a GPU of this name."""

    def make(ranks: int, gpu: str = "", **world: Any) -> RunHeader:
        monkeypatch.setattr(stack, "describe", lambda _: {"gpu": gpu} if gpu else {"a": "1"})
        return stack.make_header(World(ranks, **world), machine="h100-sxm-ib", seed=7)

    return make


def test_the_stack_names_versions_and_topology() -> None:
    facts = stack.describe(World(8, 2, versions={"gloo": "torch 2.13.0"}), HOST)
    assert facts["gloo"] == "torch 2.13.0" and "nccl" not in facts
    assert facts["cpu"] == "Some CPU" and facts["topology"] == "2 nodes, cpu"
    assert facts["cores"] == "4"  # of the node: a launcher binds this process to some of them
    assert list(facts) == sorted(facts)
    assert re.fullmatch(r"\w+ \d+", facts["kernel"])


def test_a_fingerprint_changes_with_any_value_and_with_nothing_else() -> None:
    base = stack.fingerprint({"a": "1", "b": "2"}, {"NCCL_ALGO": "Ring"})
    assert re.fullmatch("[0-9a-f]{64}", base)
    assert stack.fingerprint({"b": "2", "a": "1"}, {"NCCL_ALGO": "Ring"}) == base
    others = [({"a": "1", "b": "3"}, {"NCCL_ALGO": "Ring"})]
    others += [({"a": "1", "b": "2"}, settings) for settings in ({"NCCL_ALGO": "Tree"}, {})]
    assert base not in [stack.fingerprint(*other) for other in others]


def test_only_settings_that_change_timings_are_stored() -> None:
    stored = {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0,1", "MALLOC_MMAP_THRESHOLD_": "1"}
    stored |= {"NCCL_SOCKET_IFNAME": "lo", "TORCH_NCCL_BLOCKING_WAIT": "1"}
    private = {"AWS_SECRET_ACCESS_KEY": "x", "NCCL_COMM_ID": "10.0.0.1:99", "NCCL_HOSTID": "me"}
    private |= {"NCCL_SECRET_TOKEN": "x", "GLOO_SOCKET_HOST": "me"}
    useless = {"PATH": "/bin", "TORCHELASTIC_RUN_ID": "7", "XNCCL_ALGO": "x"}
    set_here = {"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "GLOO_SOCKET_IFNAME": "lo"}
    assert stack.filter_environment(stored | private | useless | set_here) == dict(sorted(stored.items()))


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("http://ada:hunter2@proxy:8080/x", "http://***@proxy:8080/x"),
        ("tcp://hunter2@10.0.0.1", "tcp://***@10.0.0.1"),
        ("a=1;HTTPS://ada:p@hunter2@h,b=2", "a=1;HTTPS://***@h,b=2"),
        ("http://proxy:8080/a@b", "http://proxy:8080/a@b"),
        ("/home/ada/hosts", "~/hosts"),
    ],
)
def test_the_password_of_a_url_and_the_home_folder_are_masked(value: str, masked: str) -> None:
    environ = {"UCX_PROXY": value, "HOME": "/home/ada/"}
    assert stack.filter_environment(environ) == {"UCX_PROXY": masked}


def test_ranks_that_take_turns_are_a_functional_check_in_a_folder_of_their_own(make_header: Make) -> None:
    check, measured = make_header(4, cores_per_node=2), make_header(2, cores_per_node=2)
    assert check.functional_only and not measured.functional_only
    assert check.stack == {"a": "1", "turns": "4 ranks on 2 cores"} and measured.stack == {"a": "1"}
    assert check.fingerprint != measured.fingerprint == make_header(1, cores_per_node=2).fingerprint
    assert not make_header(4, nodes=2, cores_per_node=2).functional_only  # 2 on each node
    assert not make_header(8, device="cuda", cores_per_node=2).functional_only
    assert make_header(2, cores_per_node=1).stack["turns"] == "2 ranks on 1 core"


def test_nothing_is_fitted_to_a_rehearsal(tmp_path: Path, make_header: Make) -> None:
    """The stand-in for a GPU names itself so; its times are in a folder of their own and never load."""
    smi, real = Path(__file__).parents[1] / "rehearsal" / "bin" / "nvidia-smi", "NVIDIA H100 80GB HBM3"
    name = subprocess.run(
        [smi, "--query-gpu=name"], capture_output=True, text=True, check=True
    ).stdout.strip()
    rehearsed, measured = (make_header(1, gpu, device="cuda") for gpu in (name, real))
    assert name == f"{real} (rehearsal)" and not measured.functional_only
    assert rehearsed.functional_only and rehearsed.fingerprint != measured.fingerprint
    (tmp_path / "samples.jsonl").write_text(rehearsed.model_dump_json(exclude_none=True) + "\n")
    for load in (
        lambda: fit_run(read_run(tmp_path), load_machine("h100-sxm-ib")),
        lambda: calibration_in(tmp_path),
    ):
        with pytest.raises(NoCalibrationError, match="its times are made up"):
            load()
