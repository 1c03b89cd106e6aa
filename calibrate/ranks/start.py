"""Starts the ranks of this machine, or joins the ranks that a launcher has started."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from calibrate.machine.identity import usable_cores
from calibrate.machine.local_gpus import find_gpus
from calibrate.planning.measurement_plan import refuse_crowd, refuse_turns
from calibrate.ranks.control import Coordinator, say_nothing
from calibrate.ranks.external import ExternalTeam, detect_launcher, follow
from calibrate.ranks.team import RankTeam, TeamRequest
from perfmodel.errors import NoHardwareError, RankLostError
from perfmodel.resources import memory_limits

RANK_PROGRAM = (sys.executable, "-P", "-m", "calibrate.ranks.rank")

_LAUNCHERS = ("SLURM_", "PMIX_", "PMI_", "PRTE_", "OMPI_COMM_WORLD_", "TORCHELASTIC_")
_LAUNCHED = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_LAST_LINES = 12
_LEAVE_S = 5.0
_DYING_S = 3.0


def open_team(
    request: TeamRequest,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = say_nothing,
) -> RankTeam | None:
    """The ranks that a calibration measures with; None on a process that only served as a rank.

    Under torchrun, srun or mpirun each process calls this: rank 0 gets the team, the others do what it asks
    until it closes, then get None and should end without a message.
    environ  the process's own variables if None;  say  prints which ranks are waited for
    Raises NoHardwareError if the ranks cannot start or meet, BadInputError for more ranks than cores or GPUs.
    """
    environ = os.environ if environ is None else environ
    launcher = detect_launcher(environ)
    if launcher is None:
        if request.ranks and device_of(request) == "cpu":
            if not request.oversubscribe:
                refuse_turns(request.ranks, usable_cores())
            refuse_crowd(request.ranks, usable_cores(), "core")
        elif request.ranks:
            refuse_crowd(request.ranks, len(find_gpus()), "GPU")
        return LocalTeam(request, say=say)
    if launcher.rank == 0:
        return ExternalTeam(launcher, request, device_of(request), say)
    follow(launcher, say)
    return None


def device_of(request: TeamRequest) -> str:
    """``cuda`` or ``cpu``. Limits: auto -> cuda if a driver names a GPU"""
    if request.device != "auto":
        return request.device
    return "cuda" if find_gpus() else "cpu"


class LocalTeam(RankTeam):
    """Ranks that this process starts on this machine, one by one.

    program  command of a rank
    """

    def __init__(
        self,
        request: TeamRequest,
        program: Sequence[str] = RANK_PROGRAM,
        say: Callable[[str], None] = say_nothing,
    ) -> None:
        device = device_of(request)
        ranks = request.ranks or (len(find_gpus()) if device == "cuda" else usable_cores())
        if ranks < 1:
            raise NoHardwareError("there is no GPU here.", "leave --device out to measure the CPUs.")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the ranks
        self._processes: list[subprocess.Popen[bytes]] = []
        key = secrets.token_bytes(32)
        coordinator = Coordinator(key, why_dead=self._why_dead)
        try:
            self._start(ranks, device, program, key, coordinator.port)
            super().__init__(coordinator, ranks, device, request, failed=self._failed, say=say)
        except BaseException:
            self.lost = True
            coordinator.close()
            self._end()
            raise

    def close(self) -> None:
        """End the ranks; kill ranks that do not end within seconds."""
        super().close()
        self._end()

    def _start(self, ranks: int, device: str, program: Sequence[str], key: bytes, port: int) -> None:
        shared = rank_environment(os.environ, device)
        shared |= {"PERFMODEL_TEAM_ADDRESS": f"127.0.0.1:{port}", "PERFMODEL_TEAM_KEY": key.hex()}
        for rank in range(ranks):
            self._spawn(list(program), {**shared, "PERFMODEL_TEAM_RANK": str(rank)})

    def _spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process in its own session: Ctrl-C reaches the coordinator alone."""
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise NoHardwareError(f"a rank cannot be started: {command[0]}: {error.strerror}.") from error
        self._processes.append(process)

    def _failed(self) -> str:
        """The reason if a rank has ended before it joined, so that it will never come; else ""."""
        ended = [process for process in self._processes if process.poll() is not None]
        if not ended:
            return ""
        limits = memory_limits()
        doubt = f" (a rank is limited to {limits})" if limits else ""
        return f"{how_ended(ended[0].returncode)}{doubt}\n{self.last_lines()}".strip()

    def _why_dead(self, rank: int) -> str:
        """How a rank ended, in words."""
        return how_ended(_code(self._processes[rank], _DYING_S))

    def _explain(self, error: RankLostError) -> RankLostError:
        limits, lines = memory_limits(), self.last_lines()
        if limits and limits not in str(error):
            error.next_step += f"\nit may have run out of memory: a rank is limited to {limits}."
        if lines:
            error.next_step += f"\nlast lines of the ranks:\n{lines}"
        return error

    def last_lines(self) -> str:
        """The last lines that the ranks printed, indented."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 8192))
        lines = self._log.read().decode(errors="replace").splitlines()
        kept = [line.rstrip() for line in lines if line.strip(" -=*")]
        return "\n".join(f"  {line}" for line in kept[-_LAST_LINES:])

    def _end(self) -> None:
        """End every process that was started here."""
        if not self.lost:
            for process in self._processes:
                _code(process, _LEAVE_S)
        for process in self._processes:
            if process.poll() is None:
                self._signal(process, signal.SIGTERM)
        for process in self._processes:
            if _code(process, 0.2) is None:
                self._signal(process, signal.SIGKILL)
                process.wait()
        self._log.close()
        self._processes.clear()

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def rank_environment(environ: Mapping[str, str], device: str) -> dict[str, str]:
    """The environment of ranks that are started here: without a launcher's variables; one thread on CPUs."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(_LAUNCHERS) and name not in _LAUNCHED
    }
    kept |= import_path(environ)
    if device == "cpu":
        kept |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    loopback = "lo" if sys.platform.startswith("linux") else "lo0"
    kept.setdefault("GLOO_SOCKET_IFNAME", loopback)
    return kept


def import_path(environ: Mapping[str, str], package: Path | None = None) -> dict[str, str]:
    """PYTHONPATH with which a rank imports this program, even from a checkout that is not installed.

    package   folder of ``calibrate``
    Limits: installed in site-packages -> {}, it is found anyway
    """
    folder = (package or Path(__file__).resolve().parents[1]).parent
    if folder.name in ("site-packages", "dist-packages"):
        return {}
    rest = environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{rest}" if rest else str(folder)}


def how_ended(code: int | None) -> str:
    """An exit code in words. Limits: still running -> no words"""
    if code is None:
        return ""
    if code < 0:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"it exited with code {code}"


def _code(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Exit code of a process, after waiting for at most ``timeout_s``."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
