"""Ranks that this process or a launcher starts: they measure; who dies or hangs is named; none stays."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from oracles import environment
from oracles.points import make_collective, make_kernel, make_lookup
from recorded import assert_recorded
from waiting import PATIENCE_S, a_moment, alive, gone

from calibrate.operations import Place
from calibrate.planning.measurement_plan import MOST_A_CORE
from calibrate.ranks import team as teams
from calibrate.ranks.team import (
    ONE_A_GPU,
    RankTeam,
    TeamRequest,
    count_gpus,
    name_place,
    open_team,
    place_ranks,
    read_availabilities,
    start_ranks,
)
from perfmodel.errors import BadInputError, NoHardwareError, PerfmodelError, RankLostError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork

HERE = Path(__file__).parent
FAKE = (sys.executable, str(HERE / "team_rank.py"))
CALLER = (sys.executable, str(HERE / "team_caller.py"))


def test_real_ranks_time_checked_collectives(team: RankTeam) -> None:
    assert team.world().providers["gloo"].usable
    point = make_collective("all_to_all", backend="gloo", payload_bytes=4096)
    for clock in (Clock.EAGER, Clock.STREAM):
        for salt in (1, 2):
            timed = point.model_copy(update={"clock": clock})
            times = team.visit(timed, [0, 1], 10, salt, PATIENCE_S)
            assert [(rank.wrong, rank.bytes_sent) for rank in times] == [(0, 2048)] * 2
            assert all(rank.checked >= 1024 and len(rank.starts_s) * rank.calls_each >= 10 for rank in times)
            assert all(e > s for rank in times for s, e in zip(rank.starts_s, rank.ends_s, strict=True))
    assert all(rank.starts_s[0] < other.ends_s[-1] for rank in times for other in times)  # one clock
    with pytest.raises(BadInputError):
        team.visit(point.model_copy(update={"payload_bytes": 1}), [0, 1], 5, 1, PATIENCE_S)
    again = team.visit(point, [0, 1], 5, 3, PATIENCE_S)
    assert [rank.wrong for rank in again] == [0, 0]  # a refused point harms no other


def test_ranks_of_one_node_listen_on_loopback_alone(team: RankTeam) -> None:
    """The store of rank 0, and the sockets of gloo: no other machine can connect to them."""
    processes = [os.getpid(), *(hello["pid"] for hello in team.hellos)]
    links = set()
    for path in (path for pid in processes for path in Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the folder that is being read
            links.add(os.readlink(path))
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    heard = {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in links}
    assert heard and {address.partition(":")[0] for address in heard} == {"0100007F"}, heard


@contextlib.contextmanager
def start_fake(ranks: int = 2, names: Sequence[str] = ("library",)) -> Iterator[RankTeam]:
    """Misbehaving ranks (``team_rank.py``): nothing of them may be left."""
    request = TeamRequest(ranks, "cpu", tuple(names), True, providers=names, collectives=names)
    with contextlib.closing(RankTeam(start_ranks(request, program=FAKE), request)) as team:
        yield team
    assert gone([hello["pid"] for hello in team.hellos])


def visit_fake(team: RankTeam, what: str, deadline_s: float = PATIENCE_S, calls: int = 3) -> int:
    return len(team.visit(make_kernel("copy", implementation=what), [0, 1], calls, 1, deadline_s))


def test_what_a_rank_raises_fails_the_point_and_a_rank_that_ends_the_run() -> None:
    """Also: versions that differ between ranks are all kept, and a library that cannot run says why."""
    with start_fake(3, ("library", "absent")) as team:
        world = team.world()
        with pytest.raises(PerfmodelError, match=r"rank 1 \(node 0\): RuntimeError: a library gave up"):
            visit_fake(team, "fail")
        with pytest.raises(BadInputError, match="no room"):
            visit_fake(team, "refuse")
        assert visit_fake(team, "sleep") == 2
        with pytest.raises(RankLostError, match=r"rank 1 \(node 0\) died: it exited with code 3") as caught:
            visit_fake(team, "die")
        assert "  out of luck" in caught.value.next_step
    assert world.versions == {"library": "1.0 | 1.1"}
    assert (world.providers["library"].usable, world.providers["absent"].usable) == (True, False)
    assert world.providers["absent"].why_not == "it is absent"


def test_a_stopped_rank_is_named_after_its_deadline() -> None:
    with start_fake() as team:
        os.kill(team.hellos[1]["pid"], signal.SIGSTOP)
        with pytest.raises(
            RankLostError, match=r"rank 1 \(node 0\) has not answered for 1 s: it was stopped"
        ):
            visit_fake(team, "sleep", 1.0)


def test_no_rank_outlives_its_coordinator() -> None:
    """Killed, while a call keeps the interpreter's lock: no thread of the rank can run."""
    code = (
        "from test_team import *\n"
        "with start_fake() as team:\n"
        "    print(json.dumps([hello['pid'] for hello in team.hellos]), flush=True)\n"
        "    visit_fake(team, 'hold', calls=10**8)\n"
    )
    paths = os.pathsep.join([str(HERE), environment()["PYTHONPATH"]])
    process = start([sys.executable, "-c", code], PYTHONPATH=paths)
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())
    a_moment()
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert gone(pids)


def start(command: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    pipe, environ = subprocess.PIPE, environment() | variables
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environ)


def read_lines(rank: subprocess.Popen[str]) -> list[int]:
    """Process ids of the ranks, from rank 0, after which both measured 10 checked calls."""
    assert rank.stdout is not None
    pids, seen = (json.loads(rank.stdout.readline()) for _ in range(2))
    assert seen == {"seen": [[10, 0, seen["seen"][0][2], 32768]] * 2, "hosts": 1}
    assert seen["seen"][0][2] > 0
    return list(pids["pids"])


@pytest.mark.usefixtures("require_gloo")
def test_no_rank_outlives_a_torchrun_that_is_killed() -> None:
    """After some calls, in the middle of many more."""
    beside = Path(sys.executable).parent / "torchrun"
    torchrun = str(beside) if beside.exists() else shutil.which("torchrun")
    if torchrun is None:
        pytest.skip("torchrun is not installed")
    ranks = (*CALLER[1:], "10", str(10**8))
    launcher = start([torchrun, "--standalone", "--nproc-per-node=2", *ranks])
    pids = read_lines(launcher)
    launcher.kill()
    assert gone(pids)
    launcher.communicate()


def start_step(rank: int, *calls: int) -> subprocess.Popen[str]:
    """A rank of two of srun, whose variables are all that they have in common."""
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": str(len(calls)), "SLURM_STEP_NUM_TASKS": "2"}
    more = {"SLURM_STEP_NODELIST": "localhost", "SLURM_PROCID": str(rank), "TEAM_DEADLINE_S": "5"}
    return start([*CALLER, *map(str, calls)], **job, **more)


@pytest.mark.usefixtures("require_gloo")
def test_the_first_rank_of_srun_is_awaited_and_alone_speaks() -> None:
    other = start_step(1, 10)
    a_moment()
    first = start_step(0, 10)
    pids = read_lines(first)
    texts = [rank.communicate(timeout=PATIENCE_S) for rank in (first, other)]
    assert (first.returncode, other.returncode) == (0, 0), texts
    assert [out for out, _ in texts] == ["", ""] and gone(pids)


@pytest.mark.usefixtures("signals", "require_gloo")
@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_of_srun_that_is_killed_ends_the_others(killed: int) -> None:
    """In the middle of many calls. Requests to end are for rank 0 to judge."""
    first, other = ranks = [start_step(rank, 10, 10**8) for rank in range(2)]
    pids = read_lines(first)
    other.send_signal(signal.SIGTERM)
    a_moment()
    assert first.poll() is None and other.poll() is None
    ranks[killed].kill()
    _, errors = first.communicate(timeout=PATIENCE_S)
    other.communicate(timeout=PATIENCE_S)
    assert gone(pids)
    assert killed == 0 or "RankLostError: rank 1 (node 0) has not answered for 5 s: it was stopped" in errors


def place(nodes: str, device: str = "cpu") -> list[Place]:
    return place_ranks([{"node": node} for node in nodes], device)


def test_places_follow_from_where_the_ranks_run() -> None:
    places = place("aabb", "cuda")
    assert places[3] == Place(3, 4, node=1, local_rank=1, local_ranks=2, device="cuda")
    assert count_gpus(place("aab", "cuda"), ["1", "2", "3"]) == 1
    assert count_gpus(place("aab", "cuda"), ["1", "2", ""]) == 0
    names = ["rank 0 (node 0, GPU 0)", "rank 1 (node 0, GPU 1)", "rank 2 (node 1, GPU 0)"]
    assert [name_place(rank) for rank in places[:3]] == names
    assert name_place(place("a")[0]) == "rank 0 (node 0)"
    with pytest.raises(BadInputError, match="one after the other") as caught:
        place("abab")
    assert "--distribution=block" in caught.value.next_step


def test_what_a_point_needs_is_opened_once() -> None:
    """Libraries: absent, of no use, broken, fine. Points: kernels and look-ups of one rank, and of two."""
    names, pair = ("gone", "broken", "nccl"), [0, 1]
    offered = {name: {"usable": name != "gone", "clocks": []} for name in names}

    def answer(do: str, *_: Any, provider: str = "", **fields: Any) -> list[Any]:
        if provider == "broken":
            raise PerfmodelError("it does not open.", "install it.")
        words = {"uuid": "", "versions": {}, "providers": offered}
        return [words | {"memory_bytes": size} for size in (3.0, 2.0) if do == "welcome"]

    leader = Mock(run="run", ask=Mock(side_effect=answer))
    leader.gather.return_value = [{"node": node, "host": f"host-{node}"} for node in "ab"]
    team = RankTeam(leader, TeamRequest(None, "cuda", ("absent", *names), collectives=names))
    world = team.world()
    assert (world.ranks, world.nodes, world.device, world.memory_bytes) == (2, 2, "cuda", 2.0)
    assert world.hosts == ("host-a", "host-b") and world.providers["nccl"].usable
    assert (world.providers["broken"].usable, world.providers["broken"].why_not) == (
        False,
        "it does not open",
    )
    kernel = make_kernel("copy", implementation="torch")
    lookup = make_lookup(implementation="fused", work=LookupWork(batch=1))
    for point, group in ((kernel, [0]), (kernel, pair), (kernel, pair), (lookup, [0])):
        team.visit(point, group, 1, 1, 9.0)
    team._open.remove("nccl")
    for point, group in ((kernel, [0]), (lookup, pair)):
        team.visit(point, group, 1, 1, 9.0)
    with pytest.raises(BadInputError, match="cannot start a kernel together"):
        team.visit(kernel, pair, 1, 1, 9.0)
    keys = "provider", "barrier", "group"
    asked = [[made.args[0], *map(made.kwargs.get, keys)] for made in leader.ask.call_args_list]
    assert_recorded("what ranks are asked", *[words for words in asked if words[0] != "time"])


def test_ranks_on_one_gpu_only_show_that_it_works() -> None:
    fields = {"usable": True, "clocks": ["stream"], "operations": ["all_to_all"]}
    shared = {"12": "", "": "", "11": "2 ranks share 1 GPU", "122": "3 ranks share 2 GPUs"}
    for uuids, why in shared.items():
        offered = read_availabilities({"nccl": fields}, list(uuids) or ["", ""])["nccl"]
        assert (offered.functional_only, offered.install) == (why, ONE_A_GPU if why else "")


def test_a_rank_that_does_not_start_says_its_last_words() -> None:
    program = [sys.executable, "-c", "import sys; print('no such library'); sys.exit(7)"]
    request = TeamRequest(ranks=2, device="cpu", backends=("gloo",))
    with pytest.raises(NoHardwareError, match=r"it exited with code 7\n  no such library"):
        RankTeam(start_ranks(request, program=program), request)
    with pytest.raises(NoHardwareError, match="cannot be started"):
        start_ranks(request, program=["/nowhere/python"])


def test_ranks_that_this_machine_has_no_place_for_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand ranks: no machine of the tests has the cores."""
    with pytest.raises(BadInputError, match=r"1.000 ranks on [0-9]+ cores would take turns"):
        open_team(TeamRequest(1000, "cpu"), {})
    monkeypatch.setattr(teams, "find_gpus", tuple)
    with pytest.raises(BadInputError, match="on 0 GPUs would take turns") as caught:
        open_team(TeamRequest(1000, "cuda"), {})
    assert caught.value.next_step == f"use at most {MOST_A_CORE} ranks."
    with pytest.raises(NoHardwareError, match="there is no GPU here"):
        open_team(TeamRequest(None, "cuda"), {})
