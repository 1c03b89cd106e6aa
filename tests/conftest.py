"""What tests of commands share, which tests may run side by side (pytest -n auto), and what one may take.

Property tests draw the same examples each time, so that a change is judged by the same tests as the one
before it; ``pytest -m hypothesis --hypothesis-profile=random`` draws new ones. No test reads a clock: one
that hangs is ended by its processor time, and one that takes too much memory fails by what it added.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: threads of two workers wait for each other

import pytest
from cli_calls import Outcome
from hypothesis import HealthCheck, settings
from searches import searched_once

from perfmodel.cli import run
from perfmodel.effort import EFFORTS

_SLOW_IS_WELL = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=_SLOW_IS_WELL)
settings.register_profile("random", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")

MOST_WORKERS = 8
"""Each imports torch: more take more memory than they save time."""
RANKS = {
    "test_calibrate_command", "test_in_torchrec", "test_leader", "test_one_sided_exchange", "test_passes",
    "test_planner_benchmark", "test_providers", "test_team", "test_torchrec_counts", "test_torchrec_ranks",
}  # fmt: skip
"""Files that start real ranks, each with a core of its own, or import TorchRec, which takes seconds."""
SEARCHED: dict[Any, Any] = {}
CPU_S, MOST_BYTES = 50, 4 * 2**30
"""Of one test: processor time after which it hangs, and the memory that it may add to its process."""
STARTED_CPU_S = 500
"""Of a process that a test starts: a browser serves many tests."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "alone: it times a GPU, and benchmarks/one_gpu.py runs it after the others"
    )
    if hasattr(config, "workerinput"):
        os.environ.pop("COLUMNS", None)  # 80 there, whatever the terminal
    gc.disable()  # what is imported stays: to look for garbage among it takes half of the time of collecting


def pytest_collection_finish() -> None:
    """What was imported stays: no collection of garbage looks at it again (7 % of the time)."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is run by one worker, in the usual order, and so are all files that wait for each other.

    Ranks and the browser are processes that take the cores of other workers: they are never there at once.
    """
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::", 1)[0]
            stem = Path(path).stem
            if stem in RANKS or path.startswith(("tests/browser/", "tests/gpu/")):
                return "processes"
            return path

    config.option.loadscopereorder = False
    return Files(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limit(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limit(item.nodeid))


def _limit(name: str) -> Generator[None, object, object]:
    """A part of a test within its limits."""
    before = resource.getrlimit(resource.RLIMIT_CPU)
    used, resident_kib = resource.getrusage(resource.RUSAGE_SELF), _measure_resident_kib()

    def hangs(*_: object) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, before)
        pytest.fail(f"{name} hangs: it took {CPU_S} s of processor time")

    handler = signal.signal(signal.SIGXCPU, hangs)
    _end_after(int(used.ru_utime + used.ru_stime) + CPU_S)
    try:
        answer = yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)
        signal.signal(signal.SIGXCPU, handler)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if used.ru_maxrss < peak > resident_kib + MOST_BYTES / 1024:
        pytest.fail(f"{name} took {(peak - resident_kib) / 2**20:.1f} GiB of memory")
    return answer


def _measure_resident_kib() -> float:
    """Memory of this process now: the tests before left it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024


def _end_after(cpu_s: int) -> None:
    """So much processor time, or what the shell allows, is all that this process has."""
    most_s = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft_s = cpu_s if most_s == resource.RLIM_INFINITY else min(cpu_s, most_s)
    resource.setrlimit(resource.RLIMIT_CPU, (soft_s, most_s))


@pytest.fixture(scope="session", autouse=True)
def _processes_have_limits_of_their_own() -> Iterator[None]:
    """They would inherit that of the test, which is about what this process has taken so far.

    Theirs is set here for as long as the start takes, so it is above what this process has taken.
    """
    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def started(*words: Any, **more: Any) -> None:
        limits = resource.getrlimit(resource.RLIMIT_CPU)
        used = resource.getrusage(resource.RUSAGE_SELF)
        _end_after(max(STARTED_CPU_S, int(used.ru_utime + used.ru_stime) + CPU_S))
        try:
            start(*words, **more)
        finally:
            resource.setrlimit(resource.RLIMIT_CPU, limits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", started)
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_read_once() -> Iterator[None]:
    """Typer reads the options of every command anew at each call (20 ms); a process of tests does it once."""
    import typer.main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


def make_shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder of this run for all workers."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _claims_are_judged_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the model says to a claim takes searches, and several files ask; so much effort, one answer."""
    questions = sys.modules.get("perfmodel.validate.questions")
    if questions is None:  # no test of this run imports it
        yield
        return
    answer, folder = questions.find_answer, make_shared_folder(tmp_path_factory, "claims")

    def judge_once(ask: Mapping[str, Any]) -> Any:
        path = folder / sha256(json.dumps([ask, EFFORTS]).encode()).hexdigest()
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not path.stat().st_size:
                file.write(pickle.dumps(answer(ask)))
            file.seek(0)
            return pickle.load(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "find_answer", judge_once)
        yield


@pytest.fixture(scope="session")
def kernel_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of perfmodel: what one test compiled, the others find."""
    return make_shared_folder(tmp_path_factory, "kernel_home")


@pytest.fixture(scope="session")
def torchrec_is_imported() -> None:
    """For tests that need TorchRec in this process; what its import warns of is not shown."""
    pytest.importorskip("torchrec")


@pytest.fixture
def once() -> Iterator[None]:
    """Plans need not be the best, and what was searched for in a test before is not searched for again."""
    with searched_once(SEARCHED):
        yield


@pytest.fixture
def signals() -> Iterator[None]:
    """Requests to end reach this test, and what it starts: nohup and ``&`` of a script have them ignored."""
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler)}
    before |= {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command in this process."""

    def call(*words: str) -> Outcome:
        code = run([*words])
        return Outcome(code, *capsys.readouterr())

    return call
