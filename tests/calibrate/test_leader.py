"""What rank 0 tells ranks and makes of their answers, with ranks that are threads of this process."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from waiting import PATIENCE_S, a_moment

pytest.importorskip("torch")

from calibrate.ranks import leader
from calibrate.ranks.launch import LOCALHOST, join_store
from calibrate.ranks.leader import Leader
from calibrate.ranks.rank import FOREVER, describe_error
from perfmodel.errors import BadInputError, NoHardwareError, PerfmodelError, RankLostError

SLEEPS = ("sleep", "1000")
Act = Callable[[int, dict[str, Any]], Any]


class Ranks:
    """Ranks whose processes sleep: threads answer with what ``act`` makes of a message.

    where   by rank: number of timed calls that it says when it is late; others say nothing
    """

    def __init__(self, count: int, act: Act, where: dict[int, int]) -> None:
        self.leader = Leader(None, SLEEPS, count, "cpu")
        self.over, self._act = threading.Event(), act
        for task, values in ((self._serve, enumerate([0] * count)), (self._tell, where.items())):
            for words in values:
                threading.Thread(target=task, args=words, daemon=True).start()
        self.leader.gather()

    def _join(self) -> Any:
        return join_store(LOCALHOST, self.leader.port, self.leader.run)

    def _serve(self, rank: int, _: int) -> None:
        store, key = self._join(), f"ask/{rank}"
        store.set(f"0/{rank}", "{}")
        with suppress(RuntimeError):  # the test is over
            while not self.over.is_set():
                store.wait([key], FOREVER)
                message = json.loads(store.get(key))
                store.delete_key(key)
                try:
                    answer = {"ok": self._act(rank, message)}
                except Exception as error:
                    answer = {"error": describe_error(error)}
                if not self.over.is_set():
                    store.set(f"{message['number']}/{rank}", json.dumps(answer))

    def _tell(self, rank: int, calls: int) -> None:
        store = self._join()
        with suppress(RuntimeError):
            store.wait(["where"], FOREVER)
            store.set(f"where/{rank}", str(calls))

    def hang(self, *_: object) -> None:
        """Until the test ends."""
        self.over.wait()


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ranks]]:
    monkeypatch.setattr(leader, "POLL_S", 0.1)
    teams: list[Ranks] = []

    def make(count: int, act: Act, where: dict[int, int] | None = None) -> Ranks:
        teams.append(Ranks(count, act, where or {}))
        return teams[-1]

    yield make
    for team in teams:
        team.over.set()
        team.leader.abandon()


def test_ranks_that_are_told_answer_and_numbers_arrive_as_they_were(ranks: Callable[..., Ranks]) -> None:
    values = [0.1, 1 / 3, 12345.678901234567, 1e-9]

    def act(rank: int, message: dict[str, Any]) -> list[Any]:
        a_moment()  # of several polls
        return [rank, *message["values"]]

    ask = ranks(3, act).leader.ask
    for _ in range(2):
        assert ask("add", PATIENCE_S, [0, 2], values=values) == [[0, *values], [2, *values]]
    assert ask("add", PATIENCE_S, values=[]) == [[0], [1], [2]]


def test_a_refusal_arrives_as_the_error_that_it_was_and_the_ranks_go_on(ranks: Callable[..., Ranks]) -> None:
    def act(rank: int, message: dict[str, Any]) -> int:
        if message["do"] == "refuse" and rank == 1:
            raise BadInputError("8 B a peer is too small.", "the smallest size here is 128 B.")
        return 1 // (1 - rank)

    ask = ranks(2, act).leader.ask
    with pytest.raises(BadInputError, match=r"8 B a peer") as caught:
        ask("refuse", PATIENCE_S)
    assert caught.value.next_step == "the smallest size here is 128 B."
    with pytest.raises(PerfmodelError, match=r"rank 1: ZeroDivisionError"):
        ask("divide", PATIENCE_S)
    assert ask("divide", PATIENCE_S, [0]) == [1]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ([18, 17, 18], r"^rank 1 has not answered for 0 s: it hangs \(after 17 timed calls\)"),
        ([3, 3, 3], r"^rank 0, rank 1, rank 2 wait for each other for 0 s \(after 3 timed calls\)"),
        ([3, None, 3], r"^rank 1 has not answered for 0 s: it was stopped or killed, or is stuck in a call"),
    ],
)
def test_who_hangs_is_named(
    where: list[int | None], words: str, ranks: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "WHERE_S", 0.7 if None in where else PATIENCE_S)
    team = ranks(3, lambda *_: team.hang(), {rank: n for rank, n in enumerate(where) if n is not None})
    with pytest.raises(RankLostError, match=words):
        team.leader.ask("time", 0.2)


def test_a_rank_that_fails_while_the_others_wait_for_it_is_named(
    ranks: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "GRACE_S", 0.3)

    def act(rank: int, message: dict[str, Any]) -> None:
        if rank == 1:
            raise MemoryError("no room")
        team.hang()

    team = ranks(2, act, {0: 3})
    words = r"^rank 1 failed and the others wait for it: memory ran out \(no room\)"
    with pytest.raises(RankLostError, match=words):
        team.leader.ask("time", PATIENCE_S)


def test_ranks_that_do_not_leave_are_ended(
    ranks: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "LEAVE_S", 0.2)
    monkeypatch.setattr(leader, "WHERE_S", 0.1)
    team = ranks(2, lambda *_: team.hang())
    processes = list(team.leader.processes.values())
    team.leader.close()
    assert [process.poll() is None for process in processes] == [False, False]


def test_ranks_are_asked_to_leave(ranks: Callable[..., Ranks]) -> None:
    wishes: list[str] = []
    ranks(2, lambda _, message: wishes.append(message["do"])).leader.close()
    assert wishes == ["close", "close"]


def test_ranks_that_do_not_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 16 by number."""
    monkeypatch.setattr(leader, "JOIN_S", 0.3)
    monkeypatch.setattr(leader, "POLL_S", 0.1)
    waiting, names = Leader(None, SLEEPS, 18, "cpu"), ", ".join(map(str, range(1, 17)))
    for rank, missing in (
        (0, f"17 of 18 ranks (missing: {names}, …)"),
        (17, f"16 of 18 ranks (missing: {names})"),
    ):
        join_store(LOCALHOST, waiting.port, waiting.run).set(f"0/{rank}", "{}")
        with pytest.raises(NoHardwareError, match=re.escape(f"{missing} did not start within 0 s")):
            waiting.gather()
    waiting.abandon()
    exits = [leader.describe_exit(code) for code in (0, -9)]
    assert exits == ["it exited with code 0", "killed by signal 9 (SIGKILL)"]
