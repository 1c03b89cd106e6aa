"""Starts the ranks of this machine, or joins the ranks that a launcher has started."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from calibrate.machine.identity import usable_cores
from calibrate.machine.local_gpus import find_gpus
from calibrate.planning.measurement_plan import refuse_crowd, refuse_turns
from calibrate.planning.presets import find_preset
from calibrate.ranks.control import Coordinator, say_nothing
from calibrate.ranks.external import ExternalTeam, detect_launcher, follow
from calibrate.ranks.scratch import Scratch
from calibrate.ranks.team import RankTeam, TeamRequest, name_of
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
    """Ranks that this process starts on this machine: with mpirun if MPI is to be measured, else one by one.

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
        self._scratch: Scratch | None = None
        key = secrets.token_bytes(32)
        coordinator = Coordinator(key, why_dead=self._why_dead)
        try:
            self._start(ranks, device, request.backends, program, key, coordinator.port)
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

    def _start(
        self, ranks: int, device: str, backends: Sequence[str], program: Sequence[str], key: bytes, port: int
    ) -> None:
        shared = rank_environment(os.environ, device)
        shared |= {"PERFMODEL_TEAM_ADDRESS": f"127.0.0.1:{port}", "PERFMODEL_TEAM_KEY": key.hex()}
        mpirun = find_mpirun() if ranks > 1 and wants_mpi(backends, device) else None
        if mpirun:
            self._scratch = Scratch()
            own = {**self._scratch.environment(), **shared}  # the user's own settings take precedence
            self._spawn(mpirun_command(mpirun, ranks, program), own)
            return
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
        """How a rank ended, in words; "" under mpirun, which prints it itself."""
        alone = len(self._processes) == len(self.places)
        code = _code(self._processes[rank if alone else 0], _DYING_S)
        return how_ended(code) if alone else ""

    def _explain(self, error: RankLostError) -> RankLostError:
        limits, lines = memory_limits(), self.last_lines()
        blamed = rank_that_ended(lines) if len(self._processes) < len(self.places) else None
        if blamed is not None and blamed[0] < len(self.places):
            rank, how = blamed  # mpirun ends the other ranks, whose ends may be seen first
            error = RankLostError(name_of(self.places[rank]), f"died: {how}", error.next_step)
        if limits and limits not in str(error):
            error.next_step += f"\nit may have run out of memory: a rank is limited to {limits}."
        if lines:
            error.next_step += f"\nlast lines of the ranks:\n{lines}"
        return error

    def last_lines(self) -> str:
        """The last lines that the ranks and their launcher printed, indented."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 8192))
        lines = self._log.read().decode(errors="replace").splitlines()
        kept = [line.rstrip() for line in lines if line.strip(" -=*")]
        return "\n".join(f"  {line}" for line in kept[-_LAST_LINES:])

    def _end(self) -> None:
        """End every process that was started here, and the processes that mpirun started."""
        if not self.lost:
            for process in self._processes:
                _code(process, _LEAVE_S)
        for process in self._processes:
            if process.poll() is None:
                self._signal(process, signal.SIGTERM)
        for process in self._processes:
            if _code(process, _LEAVE_S if len(self._processes) == 1 else 0.2) is None:
                self._signal(process, signal.SIGKILL)
                process.wait()
        self._log.close()
        self._processes.clear()
        if self._scratch is not None:
            self._scratch.close()

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def find_mpirun() -> str | None:
    """Path of mpirun: from the environment of this Python if it has one, else the first on PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun")


def wants_mpi(backends: Sequence[str], device: str) -> bool:
    """Whether MPI is to be measured: it was named, or no library was named and mpi4py is installed.

    Limits: on CPUs, only libraries of GPUs were named -> as if none was named: the ranks then say which
    libraries run here
    """
    if device != "cpu" or any(name in find_preset("rigorous").backends["cpu"] for name in backends):
        return "mpi" in backends
    return importlib.util.find_spec("mpi4py") is not None


def mpirun_command(mpirun: str, ranks: int, program: Sequence[str]) -> list[str]:
    """An mpirun that ends with this process; each rank binds itself (calibrate.ranks.process.bind)."""
    watched = [sys.executable, "-P", "-m", "calibrate.ranks.process", str(os.getpid())]
    layout = ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
    return [*watched, mpirun, "-n", str(ranks), *layout, *program]


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
    if hasattr(os, "getuid") and os.getuid() == 0:
        kept |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
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


def rank_that_ended(lines: str) -> tuple[int, str] | None:
    """(rank that ended first, how it ended), from the output of mpirun (Open MPI 4 or 5); None if unknown."""
    by_signal = re.search(r"process rank (\d+) with PID .*?exited on\s+signal (\d+)", lines, re.DOTALL)
    if by_signal:
        return int(by_signal[1]), how_ended(-int(by_signal[2]))
    by_code = re.search(r"Process name: \[.*,\s*(\d+)\]\s+Exit code:\s+(\d+)", lines)
    return (int(by_code[1]), how_ended(int(by_code[2]))) if by_code else None


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
