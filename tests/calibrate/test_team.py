"""Real ranks: they measure, they are named when they die or hang, and none outlives its coordinator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from oracles import environment
from team_processes import FAKE, HERE, pids_of, usable
from waiting import PATIENCE_S, a_moment, alive, gone

from calibrate.ranks.team import RankTeam, TeamRequest, open_team, start_ranks
from perfmodel.errors import BadInputError, PerfmodelError, RankLostError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind


def collective(**more: object) -> Point:
    fields = {
        "operation": "all_to_all",
        "clock": Clock.EAGER,
        "payload_bytes": 4096,
        "gpus": 2,
        "gpus_per_node": 2,
    }
    return Point(kind=PointKind.COLLECTIVE, backend="gloo", **{**fields, **more})  # type: ignore[arg-type]


def kernel(what: str, ranks: int = 2) -> Point:
    return Point(
        kind=PointKind.KERNEL,
        operation="copy",
        implementation=what,
        clock=Clock.EAGER,
        gpus=ranks,
        gpus_per_node=ranks,
    )


def start_fake(ranks: int = 2, names: Sequence[str] = ("library",)) -> RankTeam:
    request = TeamRequest(ranks, "cpu", tuple(names), providers=names, collectives=names)
    return RankTeam(start_ranks(request, program=FAKE), request)


@pytest.fixture
def fake() -> Iterator[RankTeam]:
    """Misbehaving ranks: nothing of them may be left."""
    team = start_fake()
    pids = pids_of(team)
    yield team
    team.close()
    assert gone(pids)


@pytest.fixture(scope="module")
def three() -> Iterator[RankTeam]:
    """Three ranks for all who time: to import torch takes each seconds."""
    usable("gloo")
    with start_or_fail(TeamRequest(ranks=3, device="cpu", backends=("gloo",), oversubscribe=True)) as team:
        pids = pids_of(team)
        yield team
    assert gone(pids)


def start_or_fail(request: TeamRequest) -> RankTeam:
    team = open_team(request, {})
    assert team is not None
    return team


def test_real_ranks_time_checked_collectives(three: RankTeam) -> None:
    assert three.world().providers["gloo"].usable
    for clock in (Clock.EAGER, Clock.STREAM):
        for salt in (1, 2):
            seen = three.visit(collective(clock=clock), [0, 1], 10, 0, salt, PATIENCE_S)
            assert [one.wrong for one in seen] == [0, 0]
            assert all(one.checked >= 1024 for one in seen)
            assert [one.bytes_sent for one in seen] == [2048, 2048]
            assert all(len(one.starts_s) * one.calls_each >= 10 for one in seen)
            assert all(e > s for one in seen for s, e in zip(one.starts_s, one.ends_s, strict=True))
    assert all(one.starts_s[0] < other.ends_s[-1] for one in seen for other in seen)  # one clock
    with pytest.raises(BadInputError):
        three.visit(collective(payload_bytes=1), [0, 1], 5, 0, 1, PATIENCE_S)
    again = three.visit(collective(), [0, 1], 5, 1, 3, PATIENCE_S)
    assert [one.wrong for one in again] == [0, 0]  # a refused point harms no other


def test_groups_of_ranks_and_a_kernel_on_all_of_them_and_on_one(three: RankTeam) -> None:
    work = LookupWork(batch=8, pooling=4, dim=32, rows=1000)
    for group in ([0, 1], [1, 2], [0, 1, 2]):
        many = len(group)
        point = collective(gpus=many, gpus_per_node=many, payload_bytes=4 * 3 * 2 * 128)
        assert [one.wrong for one in three.visit(point, group, 5, 0, 1, PATIENCE_S)] == [0] * many
        cell = Point(
            kind=PointKind.KERNEL,
            operation="gather_pool",
            implementation="torch",
            clock=Clock.EAGER,
            gpus=many,
            gpus_per_node=many,
            work=work,
        )
        assert all(one.wrong == 0 < one.checked for one in three.visit(cell, group, 5, 0, 1, PATIENCE_S))


def test_what_a_rank_raises_fails_the_point_and_the_ranks_go_on() -> None:
    """Also: versions that differ between ranks are all kept, and a library that cannot run says why."""
    with start_fake(3, ("library", "absent")) as team:
        world = team.world()
        with pytest.raises(PerfmodelError, match=r"rank 1 \(node 0\): RuntimeError: a library gave up"):
            team.visit(kernel("fail"), [0, 1], 3, 0, 1, PATIENCE_S)
        with pytest.raises(BadInputError, match="no room"):
            team.visit(kernel("refuse"), [0, 1], 3, 0, 1, PATIENCE_S)
        assert len(team.visit(kernel("sleep"), [0, 1], 3, 0, 1, PATIENCE_S)) == 2
    assert world.versions == {"library": "1.0 | 1.1"}
    assert (world.providers["library"].usable, world.providers["absent"].usable) == (True, False)
    assert world.providers["absent"].why_not == "it is absent"


def test_a_rank_that_ends_is_named_with_its_exit_code_and_last_words(fake: RankTeam) -> None:
    with pytest.raises(RankLostError, match=r"rank 1 \(node 0\) died: it exited with code 3") as caught:
        fake.visit(kernel("die"), [0, 1], 3, 0, 1, PATIENCE_S)
    assert "  out of luck" in caught.value.next_step


def test_a_stopped_rank_is_named_after_its_deadline(fake: RankTeam) -> None:
    stopped = pids_of(fake)[1]
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(RankLostError, match=r"rank 1 \(node 0\) has not answered for 1 s: it was stopped"):
        fake.visit(kernel("sleep"), [0, 1], 3, 0, 1, 1.0)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("what", "number"), [("hold", signal.SIGKILL), ("sleep", signal.SIGINT)])
def test_no_rank_outlives_its_coordinator(what: str, number: signal.Signals) -> None:
    """Killed, while a call keeps the interpreter's lock: no thread of the rank can run. And by Ctrl-C."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_team import *\n"
        "from calibrate.ranks import leader\n"
        "leader.LEAVE_S = 0.5\n"
        "team = start_fake()\n"
        "print(json.dumps(pids_of(team)), flush=True)\n"
        "with team:\n"
        "    team.visit(kernel(sys.argv[2]), [0, 1], 10**8, 0, 1, PATIENCE_S)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(HERE), what],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=environment(),
    )
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())
    a_moment()
    assert all(alive(pid) for pid in pids)
    os.killpg(process.pid, number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert gone(pids)
