"""Rank 0's side of the store: it tells ranks what to do, waits for their answers, and names who is lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from calibrate.ranks import process
from calibrate.ranks.launch import (
    JOIN_S,
    LOCALHOST,
    Launcher,
    import_store,
    listen,
    rank_environment,
    serve_store,
)
from perfmodel import errors
from perfmodel.errors import NoHardwareError, PerfmodelError, RankLostError

GRACE_S = 10.0
WHERE_S = 2.0
"""Seconds for other ranks to answer after one failed (they may wait for it in a collective), and for a rank
that missed its deadline to say where it is."""

LEAVE_S = 5.0
POLL_S = 1.0
"""Seconds until which ranks must end, and after which a wait for the store looks whether a process ended."""

_LAST_LINES = 12
_MOST_NAMED = 16


class Leader:
    """The store, and the ranks that were started here; under a launcher that is rank 0 alone.

    names     words for each rank in messages to the user;  processes  of ranks started here, by number
    program   command of a rank;  ranks  how many to start here, if no ``launcher`` started them
    """

    def __init__(self, launcher: Launcher | None, program: Sequence[str], ranks: int, device: str) -> None:
        """Listen for ranks, start those that are started here, and serve the store that all of them join."""
        self.run = secrets.token_hex(4)
        if launcher:
            process.end_with_launcher(launcher.name, signal.SIGTERM)
        meeting = launcher or Launcher("", ranks, LOCALHOST, self.run)
        self.host = meeting.host
        self.ranks = meeting.ranks
        self.names = [f"rank {rank}" for rank in range(self.ranks)]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._store: Any = None
        self._numbers = itertools.count()
        self._number = next(self._numbers)  # of the last message
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the ranks
        listening = listen(self.host, meeting.port)
        self.port: int = listening.getsockname()[1]
        environment = rank_environment(os.environ, device, alone=launcher is None)
        environment["PERFMODEL_TEAM"] = f"{self.port} {meeting.job}"
        try:
            for rank in [0] if launcher else range(ranks):
                self.processes[rank] = subprocess.Popen(
                    program,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env={**environment, "PERFMODEL_RANK": str(rank)},
                    start_new_session=True,  # Ctrl-C reaches this process alone
                )
            self._timed_out = import_store().DistStoreError  # torch loads while the ranks load it
            self._store = serve_store(listening, meeting.job)
        except BaseException as error:
            self.abandon()
            if not isinstance(error, OSError):
                raise
            raise NoHardwareError(f"a rank cannot be started: {program[0]}: {error.strerror}.") from error

    def gather(self) -> list[Any]:
        """Wait for all ranks; returns what they say of themselves.

        Raises NoHardwareError if a rank is missing after JOIN_S, or ended before it came.
        """
        ends = time.monotonic() + JOIN_S
        while missing := self._list_missing(range(self.ranks), POLL_S):
            names = ", ".join(map(str, missing[:_MOST_NAMED])) + ", …" * (len(missing) > _MOST_NAMED)
            words = f"{len(missing)} of {self.ranks} ranks (missing: {names}) did not start"
            for child in self.processes.values():
                if child.poll() is not None:
                    why = f"{describe_exit(child.returncode)}\n{self._read_log()}".rstrip()
                    raise NoHardwareError(f"{words}: {why}.")
            if time.monotonic() > ends:
                raise NoHardwareError(f"{words} within {JOIN_S:.0f} s.")
        return self._take(range(self.ranks))

    def ask(
        self, do: str, deadline_s: float, ranks: Sequence[int] | None = None, **fields: object
    ) -> list[Any]:
        """Tell ``ranks`` (None: all) to do something, and wait; returns their answers.

        do      a word that ``RankServer.serve`` knows, as ``prepare``;  fields  what else the message says
        Raises RankLostError for a rank that died or did not answer in ``deadline_s``. If ranks refused,
        raises the error of the first of them (BadInputError and its like) once all have answered.
        """
        ranks = range(self.ranks) if ranks is None else ranks
        self._number = next(self._numbers)
        message = json.dumps({"do": do, "number": self._number, **fields})
        for rank in ranks:  # multi_set reads a message that comes in two pieces again, and sets keys twice
            self._store.set(f"ask/{rank}", message)
        ends = time.monotonic() + deadline_s
        while missing := self._list_missing(ranks, POLL_S):
            answered = {rank: f"{self._number}/{rank}" for rank in sorted(set(ranks) - set(missing))}
            answers = {rank: json.loads(self._store.get(key)) for rank, key in answered.items()}
            errors_seen = {rank: answer["error"] for rank, answer in answers.items() if "error" in answer}
            for rank, child in self.processes.items():
                if child.poll() is not None and rank in missing:
                    raise self._lose(self.names[rank], f"died: {describe_exit(child.returncode)}")
            if errors_seen:
                missing = self._list_missing(missing, GRACE_S)
                ends = time.monotonic()
            if missing and time.monotonic() >= ends:
                raise self._blame(missing, errors_seen, deadline_s)
        taken = self._take(ranks)
        for rank, answer in zip(ranks, taken, strict=True):
            if "error" in answer:
                raise read_error(self.names[rank], answer["error"])
        return [answer["ok"] for answer in taken]

    def close(self) -> None:
        """End the ranks; kill those of this process that do not end. May be called again."""
        if self._store is not None:
            with contextlib.suppress(PerfmodelError, subprocess.TimeoutExpired):
                self.ask("close", LEAVE_S)
                for child in self.processes.values():
                    child.wait(LEAVE_S)
        self.abandon()

    def abandon(self) -> None:
        """End the ranks without a word to them: one is lost, or did not come."""
        self._store = None  # ranks of other processes end when it is gone
        for child in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        self.processes.clear()
        self._log.close()

    def _list_missing(self, ranks: Iterable[int], seconds: float, key: str = "") -> list[int]:
        """Ranks that have not set their key after so many seconds; none, as soon as all have.

        key   ``where``, or "" for the answer to the last message
        """
        keys = {rank: f"{key or self._number}/{rank}" for rank in ranks}
        try:
            self._store.wait(list(keys.values()), timedelta(seconds=seconds))
        except self._timed_out:
            return [rank for rank, name in keys.items() if not self._store.check([name])]
        return []

    def _take(self, ranks: Iterable[int]) -> list[Any]:
        """The answers of ranks that have all answered."""
        keys = [f"{self._number}/{rank}" for rank in ranks]
        answers = [json.loads(answer) for answer in self._store.multi_get(keys)]
        for key in keys:
            self._store.delete_key(key)
        return answers

    def _blame(self, missing: Sequence[int], failed: Mapping[int, Any], deadline_s: float) -> RankLostError:
        """Name the cause: a silent rank, else one that failed, else the ranks with the fewest timed calls.

        missing  ranks that have not answered in ``deadline_s``;  failed  what others answered: their errors
        Libraries fail on other ranks when one is killed, so the silent rank comes first.
        """
        late = f"has not answered for {deadline_s:.0f} s"
        self._store.set("where", "")
        silent = self._list_missing(missing, WHERE_S, "where")
        if silent:
            words = f"{late}: it was stopped or killed, or is stuck in a call that never returns"
            return self._lose(self.names[silent[0]], words)
        for rank, error in failed.items():
            words = f"failed and the others wait for it: {error['message'].removesuffix('.')}"
            return self._lose(self.names[rank], words, error["next_step"])
        calls = {rank: int(self._store.get(f"where/{rank}")) for rank in missing}
        behind = [self.names[rank] for rank in missing if calls[rank] == min(calls.values())]
        place = f"(after {min(calls.values())} timed calls)"
        if len(behind) == 1:
            return self._lose(behind[0], f"{late}: it hangs {place}")
        return self._lose(", ".join(behind), f"wait for each other for {deadline_s:.0f} s {place}")

    def _lose(self, name: str, what: str, next_step: str = "") -> RankLostError:
        """The error for a lost rank, with what its process printed last. what  befell the rank, in words"""
        error = RankLostError(name, what, next_step)
        if lines := self._read_log():
            error.next_step += f"\nlast lines of the ranks:\n{lines}"
        self.abandon()
        return error

    def _read_log(self) -> str:
        """The last lines that the ranks printed, indented."""
        self._log.seek(0)
        lines = (line.decode(errors="replace").rstrip() for line in self._log)
        printed = deque((line for line in lines if line.strip(" -=*")), _LAST_LINES)
        return "\n".join(f"  {line}" for line in printed)


def describe_exit(code: int) -> str:
    """An exit code in words: of a process that a signal ended, the signal."""
    if code < 0:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"it exited with code {code}"


def read_error(name: str, error: Mapping[str, str]) -> PerfmodelError:
    """The error that a rank of this name raised: of its kind, if that is one of this program's."""
    kind = getattr(errors, error["kind"], None) if error["kind"] else None
    if kind is not None and kind is not RankLostError:
        raised: PerfmodelError = kind(error["message"], error["next_step"])
        return raised
    return PerfmodelError(f"{name}: {error['message'].removesuffix('.')}.", error["next_step"])
