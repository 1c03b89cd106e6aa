"""Messages between the coordinator and its ranks, with ranks that are threads of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from waiting import PATIENCE_S, until

from calibrate.ranks import control
from calibrate.ranks.control import Coordinator, Desk, LeaderMissingError, join, receive, send
from perfmodel.errors import BadInputError, NoHardwareError, PerfmodelError, RankLostError

KEY = b"the key of this run"


class Ranks:
    """Ranks in threads: each answers a message with what ``act`` makes of it."""

    def __init__(self, count: int, act: Callable[[int, dict[str, Any]], Any]) -> None:
        self.coordinator = Coordinator(KEY)
        self.connections: dict[int, Connection] = {}
        self.desks: dict[int, Desk] = {}
        self.lost = [threading.Event() for _ in range(count)]
        self.over = threading.Event()
        self._act = act
        for rank in range(count):
            threading.Thread(target=self._serve, args=(rank,), daemon=True).start()
        self.coordinator.gather(count, PATIENCE_S)
        until(lambda: len(self.desks) == count, "desks of all ranks")

    def _serve(self, rank: int) -> None:
        connection = join("127.0.0.1", self.coordinator.port, KEY, {"rank": rank}, PATIENCE_S)
        self.connections[rank] = connection
        desk = self.desks[rank] = Desk(connection, self.lost[rank].set)
        while (message := desk.next()) is not None:
            try:
                desk.answer(message, self._act(rank, message))
            except Exception as error:
                desk.refuse(message, error)

    def hang(self, *_: object) -> None:
        """Until the test ends."""
        self.over.wait()


class Clock:
    """A clock that stands still, but for ``tick_s`` a look."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now_s, self.tick_s = 0.0, tick_s

    def monotonic(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ranks]]:
    monkeypatch.setattr(control, "WHERE_S", PATIENCE_S)
    made: list[Ranks] = []

    def make(count: int, act: Callable[[int, dict[str, Any]], Any]) -> Ranks:
        made.append(Ranks(count, act))
        return made[-1]

    yield make
    for one in made:
        one.over.set()
        one.coordinator.close()


def join_soon(coordinator: Coordinator) -> None:
    """Rank 0 joins from a thread of its own."""
    asked = ("127.0.0.1", coordinator.port, KEY, {"rank": 0}, PATIENCE_S)
    threading.Thread(target=lambda: joined.append(join(*asked)), daemon=True).start()


joined: list[Connection] = []
"""Connections of ranks that joined from threads: one that nobody keeps is closed."""


def test_every_rank_answers_its_own_message(ranks: Callable[..., Ranks]) -> None:
    team = ranks(3, lambda rank, message: message["value"] + rank)
    assert team.coordinator.ask({0: {"value": 10}, 2: {"value": 20}}, PATIENCE_S) == {0: 10, 2: 22}


def test_floats_arrive_as_they_were(ranks: Callable[..., Ranks]) -> None:
    values = [0.1, 1 / 3, 12345.678901234567, 1e-9]
    team = ranks(1, lambda rank, message: message["values"])
    assert team.coordinator.ask({0: {"values": values}}, PATIENCE_S)[0] == values


def test_a_refusal_arrives_as_the_error_that_it_was(ranks: Callable[..., Ranks]) -> None:
    def act(rank: int, message: dict[str, Any]) -> None:
        if rank == 1:
            raise BadInputError("8 B a peer is too small.", "the smallest size here is 128 B.")

    team = ranks(2, act)
    with pytest.raises(BadInputError, match=r"8 B a peer") as caught:
        team.coordinator.ask({0: {}, 1: {}}, PATIENCE_S)
    assert caught.value.next_step == "the smallest size here is 128 B."


def test_an_error_nobody_foresaw_names_its_rank(ranks: Callable[..., Ranks]) -> None:
    team = ranks(2, lambda rank, message: 1 // (1 - rank))
    with pytest.raises(PerfmodelError, match=r"rank 1: ZeroDivisionError"):
        team.coordinator.ask({0: {}, 1: {}}, PATIENCE_S)
    assert team.coordinator.ask({0: {}}, PATIENCE_S) == {0: 1}  # the ranks are still there


def test_a_rank_that_hangs_up_is_dead_at_once_and_named(ranks: Callable[..., Ranks]) -> None:
    def act(rank: int, message: dict[str, Any]) -> None:
        if rank == 1:
            handle = socket.socket(fileno=team.connections[1].fileno())
            handle.shutdown(socket.SHUT_RDWR)
            handle.detach()
        team.hang()

    team = ranks(2, act)
    team.coordinator.peers[1].name = "rank 1 (node 0, GPU 1)"
    with pytest.raises(RankLostError, match=r"rank 1 \(node 0, GPU 1\) died"):
        team.coordinator.ask({0: {}, 1: {}}, PATIENCE_S)


def test_a_rank_that_came_least_far_is_the_one_that_hangs(ranks: Callable[..., Ranks]) -> None:
    team = ranks(3, lambda rank, message: team.hang())
    for rank, calls in enumerate((18, 17, 18)):
        team.desks[rank].progress.enter("timed calls", [0.0] * calls)
    with pytest.raises(
        RankLostError, match=r"^rank 1 has not answered for 0 s: it hangs \(timed calls, after 17"
    ):
        team.coordinator.ask({0: {}, 1: {}, 2: {}}, 0.3)


def test_ranks_equally_far_wait_for_each_other(ranks: Callable[..., Ranks]) -> None:
    team = ranks(2, lambda rank, message: team.hang())
    with pytest.raises(RankLostError, match=r"^rank 0, rank 1 wait for each other for 0 s \(idle\)"):
        team.coordinator.ask({0: {}, 1: {}}, 0.2)


def test_a_rank_that_does_not_even_say_where_it_is_is_named(
    ranks: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still until rank 0 has said where it is."""
    clock = Clock()
    team = ranks(1, lambda rank, message: team.hang())

    def stopped() -> None:
        with join("127.0.0.1", team.coordinator.port, KEY, {"rank": 1}, PATIENCE_S):
            team.hang()

    threading.Thread(target=stopped, daemon=True).start()
    team.coordinator.gather(2, PATIENCE_S)
    monkeypatch.setattr(control, "time", clock)

    def heard(connection: Connection, longest: int | None = None) -> dict[str, Any]:
        message = receive(connection, longest)
        clock.now_s += PATIENCE_S * ("where" in message)
        return message

    monkeypatch.setattr(control, "receive", heard)
    with pytest.raises(
        RankLostError, match=r"^rank 1 has not answered .* was stopped, or is stuck in a call"
    ):
        team.coordinator.ask({0: {}, 1: {}}, 0.0)


def test_a_rank_that_fails_while_the_others_wait_for_it_is_named(
    ranks: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "GRACE_S", 0.3)

    def act(rank: int, message: dict[str, Any]) -> None:
        if rank == 1:
            raise MemoryError("no room")
        team.hang()

    team = ranks(2, act)
    with pytest.raises(
        RankLostError, match=r"^rank 1 failed and the others wait for it: memory ran out \(no room\)"
    ):
        team.coordinator.ask({0: {}, 1: {}}, PATIENCE_S)


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(ranks: Callable[..., Ranks]) -> None:
    def act(rank: int, message: dict[str, Any]) -> int:
        assert not message["late"] or late.wait(PATIENCE_S)
        return int(message["value"])

    late, team = threading.Event(), ranks(1, act)
    with pytest.raises(RankLostError):
        team.coordinator.ask({0: {"value": 1, "late": True}}, 0.1)
    late.set()
    assert team.coordinator.ask({0: {"value": 2, "late": False}}, PATIENCE_S) == {0: 2}


def test_ranks_notice_that_the_coordinator_is_gone(ranks: Callable[..., Ranks]) -> None:
    team = ranks(2, lambda rank, message: None)
    team.coordinator.close()
    assert all(event.wait(PATIENCE_S) for event in team.lost)


def test_strangers_are_turned_away_and_do_not_hold_the_ranks_up() -> None:
    coordinator = Coordinator(KEY)
    address = ("127.0.0.1", coordinator.port)
    with socket.create_connection(address) as noise, socket.create_connection(address) as closed:
        noise.sendall(b"GET / HTTP/1.0\r\n\r\n")
        closed.close()
        threading.Thread(target=coordinator.gather, args=(1, PATIENCE_S), daemon=True).start()
        with pytest.raises(NoHardwareError, match="no coordinator"):
            join("127.0.0.1", coordinator.port, b"another key", {"rank": 0}, 0.3)
        connection = join("127.0.0.1", coordinator.port, KEY, {"rank": 0}, PATIENCE_S)
        assert until(lambda: list(coordinator.peers)) == [0]
        connection.close()
    coordinator.close()


def test_ranks_that_do_not_come_are_named() -> None:
    coordinator = Coordinator(KEY)
    join_soon(coordinator)
    assert coordinator.gather(1, PATIENCE_S) == [{"rank": 0}]
    with pytest.raises(NoHardwareError, match=r"2 of 3 ranks \(missing: 1, 2\) did not start within 1 s"):
        coordinator.gather(3, 1.0)
    with pytest.raises(NoHardwareError, match=r"it exited with code 3"):
        coordinator.gather(3, PATIENCE_S, lambda: "it exited with code 3")
    coordinator.close()


def test_ranks_that_are_late_are_named_once_while_they_may_still_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 0 comes when it is said that it is late; the clock stands still until then."""
    monkeypatch.setattr(control, "LATE_S", -1.0)
    coordinator, said, clock = Coordinator(KEY), [], Clock()
    monkeypatch.setattr(control, "time", clock)

    def say(text: str) -> None:
        said.append(text)
        join_soon(coordinator)

    def failed() -> str:
        clock.now_s += 1.0 * (0 in coordinator.peers)
        return ""

    with pytest.raises(NoHardwareError, match=r"2 of 3 ranks \(missing: 1, 2\) did not start within 2 s"):
        coordinator.gather(3, 2.0, failed, say)
    assert said == ["waiting for 3 of 3 ranks (missing: 0, 1, 2); they have 2 s to start"]
    coordinator.close()


def test_a_rank_says_once_that_the_first_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "time", Clock(0.01))
    monkeypatch.setattr(control, "LATE_S", 0.2)
    said: list[str] = []
    with pytest.raises(LeaderMissingError, match=r"rank 0 did not start: no coordinator on 127\.0\.0\.1:1"):
        join("127.0.0.1", 1, KEY, {"rank": 1}, 0.6, lambda: said.append("late"))
    assert said == ["late"]


def test_a_port_in_use_is_said_with_what_to_do() -> None:
    taken = Coordinator(KEY)
    with pytest.raises(NoHardwareError, match=rf"port {taken.port}") as caught:
        Coordinator(KEY, port=taken.port)
    assert "PERFMODEL_PORT" in caught.value.next_step
    taken.close()


def test_what_is_no_json_object_ends_the_connection() -> None:
    left, right = socket.socketpair()
    sender, receiver = Connection(left.detach()), Connection(right.detach())
    for data in (b"\x80\x04pickled", b"[1, 2]"):
        sender.send_bytes(data)
        with pytest.raises(OSError, match="JSON"):
            receive(receiver)
    send(sender, {"do": "close"})
    assert receive(receiver) == {"do": "close"}
    sender.close()
    receiver.close()
