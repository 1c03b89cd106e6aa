"""Messages between the coordinator and its ranks: JSON objects over sockets, received whole or not at all.

Nothing is unpickled: a stranger who reached the port could send numbers, never code. Both sides first prove
that they know the key of the run. A rank is *dead* when its socket closes, and *hung* when it misses a
deadline. Nothing is sent while a rank measures, so that no thread of it wakes during the timed calls.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from typing import Any

from perfmodel import errors
from perfmodel.errors import NoHardwareError, PerfmodelError, RankLostError
from perfmodel.resources import out_of_memory

Message = Mapping[str, Any]

GRACE_S = 10.0
"""Seconds for other ranks to answer after a rank failed: they may be waiting for it in a collective."""

WHERE_S = 2.0
"""Seconds for a rank that missed its deadline to say where it is."""

LATE_S = 5.0
"""Seconds after which missing ranks are named."""

_HELLO_S = 5
_MOST_NAMED = 16
_LONGEST_HELLO = 1 << 16
_CONNECT_PAUSE_S = 0.1

STAGES = ("idle", "open", "group", "build", "warm-up", "timed calls", "check", "close")
"""Stages of a rank, in the order of a visit; the rank at the earliest stage is taken to hang."""


class LeaderMissingError(NoHardwareError):
    """Raised by a rank that waited for rank 0 in vain."""


def say_nothing(text: str) -> None:
    """Do nothing: used where the caller wants no messages for the user."""


def send(connection: Connection, message: Message) -> None:
    """Send a JSON object. Raises OSError if the other side is gone."""
    connection.send_bytes(json.dumps(message, separators=(",", ":")).encode())


def receive(connection: Connection, longest: int | None = None) -> dict[str, Any]:
    """Receive a JSON object. Raises EOFError or OSError if the other side is gone or sends something else."""
    data = connection.recv_bytes() if longest is None else connection.recv_bytes(longest)
    try:
        message = json.loads(data)
    except ValueError as error:
        raise OSError("not a JSON message") from error
    if not isinstance(message, dict):
        raise OSError("not a JSON object")
    return message


@dataclass
class Peer:
    """A rank as the coordinator sees it.

    hello  its first message;  name  words for messages to the user: ``rank 3 (node 0, GPU 3)``
    """

    rank: int
    connection: Connection
    hello: Message
    name: str


class Coordinator:
    """The side that sends requests, with a socket to each rank.

    key         secret that every rank must know to join
    why_dead    function of a rank whose socket closed: its exit code or last lines, or ""
    """

    def __init__(
        self,
        key: bytes,
        host: str = "127.0.0.1",
        port: int = 0,
        why_dead: Callable[[int], str] = lambda rank: "",
    ) -> None:
        self._key = key
        self._why_dead = why_dead
        self._count = 0
        self.peers: dict[int, Peer] = {}
        try:
            self._server = _listen(host, port)
        except OSError as error:
            raise NoHardwareError(
                f"the ranks cannot meet on port {port} of {host or 'this node'}: {error.strerror or error}.",
                "choose a free one: PERFMODEL_PORT=29655 (the same on every rank).",
            ) from error
        self.port: int = self._server.getsockname()[1]

    def gather(
        self,
        ranks: int,
        timeout_s: float,
        failed: Callable[[], str] = lambda: "",
        say: Callable[[str], None] = say_nothing,
    ) -> list[Message]:
        """Wait for ``ranks`` ranks to join; returns their first messages in the order of ranks.

        failed   returns the reason once it is known that a rank will never come, else ""
        say      called once with a text about the missing ranks, after LATE_S
        Raises NoHardwareError if a rank is missing at the deadline, or if ``failed`` returns a reason.
        """
        began = time.monotonic()
        ends, late = began + timeout_s, began + LATE_S
        while len(self.peers) < ranks:
            if time.monotonic() > late:
                say(f"waiting for {self._missing(ranks)}; they have {timeout_s:.0f} s to start")
                late = math.inf
            readable, _, _ = select.select([self._server], [], [], 0.2)
            if readable:
                self._admit(ranks)
                continue
            reason = failed()
            if not reason and time.monotonic() < ends:
                continue
            why = f": {reason}" if reason else f" within {timeout_s:.0f} s"
            raise NoHardwareError(f"{self._missing(ranks)} did not start{why}.")
        return [self.peers[rank].hello for rank in range(ranks)]

    def _missing(self, ranks: int) -> str:
        """The missing ranks in words: ``2 of 8 ranks (missing: 3, 5)``."""
        missing = [str(rank) for rank in range(ranks) if rank not in self.peers]
        more = ", …" if len(missing) > _MOST_NAMED else ""
        return f"{len(missing)} of {ranks} ranks (missing: {', '.join(missing[:_MOST_NAMED])}{more})"

    def _admit(self, ranks: int) -> None:
        """Accept a connection; close it if the other side does not know the key, or is not a missing rank."""
        sock, _ = self._server.accept()
        with sock:
            sock.setblocking(True)
            _tune(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _HELLO_S, 0))
            connection = Connection(os.dup(sock.fileno()))
            try:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                hello = receive(connection, _LONGEST_HELLO)
                rank = hello["rank"]
                if not isinstance(rank, int) or not 0 <= rank < ranks or rank in self.peers:
                    raise OSError("no rank that is missing")
            except (AuthenticationError, OSError, EOFError, KeyError):
                connection.close()
                return
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
        self.peers[rank] = Peer(rank, connection, hello, f"rank {rank}")

    def ask(self, messages: Mapping[int, Message], deadline_s: float) -> dict[int, Any]:
        """Send ``messages`` (by rank) and wait for all answers; returns them by rank.

        Rank 0 gets its message last: it may be a thread of this process, and then keep Python from running
        the coordinator until other ranks join it. Raises RankLostError for a rank that died or did not answer
        in ``deadline_s``. If ranks refused, raises the error of the first of them (BadInputError and its
        like) once all have answered.
        """
        self._count += 1
        for rank in sorted(messages, reverse=True):
            self._send(self.peers[rank], {**messages[rank], "id": self._count})
        answers: dict[int, dict[str, Any]] = {}
        ends = time.monotonic() + deadline_s
        while len(answers) < len(messages):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                raise self._hung(messages, answers, deadline_s)
            for peer, answer in self._arrived(left_s):
                if answer.get("id") == self._count:
                    answers[peer.rank] = answer
                    if "error" in answer:
                        ends = min(ends, time.monotonic() + GRACE_S)
        for rank in sorted(answers):
            if "error" in answers[rank]:
                raise _error_of(self.peers[rank].name, answers[rank]["error"])
        return {rank: answers[rank]["ok"] for rank in sorted(answers)}

    def close(self) -> None:
        """Close the sockets; every remaining rank then exits by itself."""
        for peer in self.peers.values():
            peer.connection.close()
        self.peers.clear()
        self._server.close()

    def _send(self, peer: Peer, message: Message) -> None:
        try:
            send(peer.connection, message)
        except OSError as error:
            raise self._dead(peer) from error

    def _arrived(self, left_s: float) -> Iterable[tuple[Peer, dict[str, Any]]]:
        """(rank, answer) pairs that arrive in time; RankLostError if any rank's socket closed."""
        by_connection = {peer.connection: peer for peer in self.peers.values()}
        for connection in wait(list(by_connection), left_s):
            peer = by_connection[connection]  # type: ignore[index]
            try:
                yield peer, receive(peer.connection)
            except (EOFError, OSError) as error:
                raise self._dead(peer) from error

    def _dead(self, peer: Peer) -> RankLostError:
        why = self._why_dead(peer.rank)
        return RankLostError(peer.name, f"died{': ' + why if why else ''}")

    def _hung(
        self, asked: Mapping[int, Message], answers: Mapping[int, Mapping[str, Any]], deadline_s: float
    ) -> RankLostError:
        """Name the cause: a rank that failed, else a silent rank, else the ranks at the earliest stage."""
        for rank, answer in sorted(answers.items()):
            if "error" in answer:
                error = answer["error"]
                what = f"failed and the others wait for it: {error['message'].removesuffix('.')}"
                return RankLostError(self.peers[rank].name, what, error["next_step"])
        waiting = [self.peers[rank] for rank in sorted(asked) if rank not in answers]
        stages = self._where(waiting)
        late = f"has not answered for {deadline_s:.0f} s"
        for peer in waiting:
            if peer.rank not in stages:
                return RankLostError(
                    peer.name, f"{late}: it was stopped, or is stuck in a call that never returns"
                )
        least = min(stages.values())
        behind = [peer for peer in waiting if stages[peer.rank] == least]
        place = f"{STAGES[least[0]]}{f', after {least[1]} calls' if least[1] else ''}"
        alone = len(behind) == 1
        return RankLostError(
            behind[0].name if alone else ", ".join(peer.name for peer in behind),
            f"{late}: it hangs ({place})"
            if alone
            else f"wait for each other for {deadline_s:.0f} s ({place})",
        )

    def _where(self, waiting: Iterable[Peer]) -> dict[int, tuple[int, int]]:
        """Ask ``waiting`` ranks where they are: by rank, (index in STAGES, timed calls done there)."""
        missing = {peer.rank for peer in waiting}
        stages: dict[int, tuple[int, int]] = {}
        for rank in missing:
            self._send(self.peers[rank], {"do": "where"})
        ends = time.monotonic() + WHERE_S
        while missing - stages.keys() and (left_s := ends - time.monotonic()) > 0:
            for peer, answer in self._arrived(left_s):
                if "where" in answer:
                    stages[peer.rank] = (STAGES.index(answer["where"]), int(answer["done"]))
        return stages


@dataclass
class RankProgress:
    """The present activity of a rank: its measuring thread writes it, its answering thread reads it."""

    stage: str = "idle"
    done: list[float] = field(default_factory=list)  # grows by one entry per timed call

    def enter(self, stage: str, done: list[float] | None = None) -> None:
        """Enter ``stage``; ``done`` is a list to which the caller appends one entry per timed call."""
        self.done = [] if done is None else done
        self.stage = stage


class Desk:
    """A rank's side of the connection: receives the coordinator's messages and answers them.

    A thread waits in a blocking read: it wakes when a message comes, and never during a timed call. When the
    coordinator is gone, that thread calls ``lost``, even if the rest of the process is stuck.
    """

    def __init__(self, connection: Connection, lost: Callable[[], None]) -> None:
        self._connection = connection
        self._lost = lost
        self._inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self.progress = RankProgress()
        threading.Thread(target=self._read, name="perfmodel-control", daemon=True).start()

    def next(self) -> dict[str, Any] | None:
        """The next message; None when the coordinator is gone."""
        return self._inbox.get()

    def answer(self, message: Message, result: Any) -> None:
        """Report that ``message`` is done; ``result`` is JSON."""
        self._send({"id": message["id"], "ok": result})

    def refuse(self, message: Message, error: BaseException) -> None:
        """Report why ``message`` cannot be done."""
        kind = type(error).__name__ if isinstance(error, PerfmodelError) else ""
        said = error if isinstance(error, PerfmodelError) else out_of_memory(error)
        text, step = (said.message, said.next_step) if said else (f"{type(error).__name__}: {error}", "")
        self._send({"id": message["id"], "error": {"kind": kind, "message": text, "next_step": step}})

    def _send(self, message: Message) -> None:
        """Send a message. If the coordinator is gone, do nothing: the reading thread handles that."""
        with self._sending, contextlib.suppress(OSError):
            send(self._connection, message)

    def _read(self) -> None:
        while True:
            try:
                message = receive(self._connection)
                if message.get("do") == "where":
                    self._send({"where": self.progress.stage, "done": len(self.progress.done)})
                else:
                    self._inbox.put(message)
            except (EOFError, OSError):
                self._inbox.put(None)
                self._lost()
                return


def join(
    host: str,
    port: int,
    key: bytes,
    hello: Message,
    timeout_s: float,
    late: Callable[[], None] = lambda: None,
) -> Connection:
    """Connect a rank to the coordinator, which may start later than the rank.

    key, hello  the key of the run, and the first message to send
    late        called once if nobody has answered for LATE_S
    Raises LeaderMissingError if nobody who knows the key listens there within ``timeout_s``.
    """
    began = time.monotonic()
    ends, said = began + timeout_s, False
    while True:
        try:
            sock = socket.create_connection(
                (host, port), timeout=max(ends - time.monotonic(), _CONNECT_PAUSE_S)
            )
            sock.settimeout(None)
            _tune(sock)
            connection = Connection(sock.detach())
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            send(connection, hello)
            return connection
        except (OSError, EOFError, AuthenticationError) as error:
            if time.monotonic() + _CONNECT_PAUSE_S > ends:
                raise LeaderMissingError(
                    f"rank 0 did not start: no coordinator on {host}:{port} "
                    f"within {timeout_s:.0f} s: {error}."
                ) from error
            if not said and time.monotonic() > began + LATE_S:
                said = True
                late()
            time.sleep(_CONNECT_PAUSE_S)


def _listen(host: str, port: int) -> socket.socket:
    if host == "" and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server((host, port), backlog=1024)


def _tune(sock: socket.socket) -> None:
    """Make the socket send small messages at once, and notice after some minutes that a node vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _error_of(name: str, error: Mapping[str, str]) -> PerfmodelError:
    kind = getattr(errors, error["kind"], PerfmodelError) if error["kind"] else PerfmodelError
    if error["kind"] and kind is not RankLostError:
        found: PerfmodelError = kind(error["message"], error["next_step"])
        return found
    return PerfmodelError(f"{name}: {error['message'].removesuffix('.')}.", error["next_step"])
