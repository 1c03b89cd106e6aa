"""A session on one GPU in sittings of under ten minutes, each of which leaves one archive and nothing else.

    python benchmarks/one_gpu.py --pack                            # before: the wheels to carry, build/wheels
    python benchmarks/one_gpu.py --check                           # there: what is missing, in 5 s
    python benchmarks/one_gpu.py --out results                     # there: tests, then the first timings
    python benchmarks/one_gpu.py --out results --sitting timings   # there: all variants, the whole grid
    python benchmarks/one_gpu.py --out results --sitting sanitizer # there: compute-sanitizer's four tools
    python benchmarks/one_gpu.py --out results --rehearse          # anywhere: a stand-in for the GPU
    python benchmarks/one_gpu.py --list                            # parts, their order and their time

Every sitting begins with the check and a smoke test of one kernel, and ends there where one of them fails.
Sitting "first": functional tests, one process a file, side by side; then one part after the other, for
timings alone: copies, the L2 cache and launches; gather and pool beside torch; tests that time something.
Sitting "timings": the calibration of kernels, its projection, summary and kernel model; ids, conversions and
the exchange; CUB's sort; products of dense layers; every variant of gather and pool over the whole grid.
Sitting "sanitizer": each family of kernels on small cases under each tool.
The archive, <sitting>.tar.gz, is written anew after each part: a cut loses the part under way; parts.txt in
it says how each part ended. Compiled kernels and installed wheels stay outside it, in build/one_gpu, for the
next sitting. A part that fails, or outlasts its time, ends alone; the times of all parts add up to less than
a sitting has. Works from a checkout that is not installed.
Times of a rehearsal are made up: its archive is called rehearsal-<sitting>.tar.gz, and nothing loads it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gpu_needs
from gpu_session import ROOT, Part, Session

WORK = ROOT / "build" / "one_gpu"
PYTHON = sys.executable
PERFMODEL = (PYTHON, "-c", "from perfmodel.cli import main; main()")
LIMIT_S = 600.0
MARGIN_S = 60.0
"""What a sitting leaves of the time that a command has."""

CHECK_S, SMOKE_S, COMPILE_S, TESTS_S, TIMED_TESTS_S = 10.0, 30.0, 50.0, 130.0, 25.0
CALIBRATE_S, STARTING_S, AFTER_S = 165.0, 20.0, 15.0
"""Of the calibration of kernels: its limit; its start and fit; what reads it.

On an H200 the kernels take 150 s: 516 points of seven visits each, so a third of the time ends no point.
"""

FLOORS_S, GATHER_S, STAGES_S, VARIANTS_S = 30.0, 80.0, 15.0, 80.0
NVCC_S, SORT_S, DENSE_S = 20.0, 10.0, 15.0
TEST_LIMIT_S = 60
"""Of one test."""

TESTS = ("exchange", "gather_pool", "id_kernels", "kernels", "collectives")
"""Files of tests, all at once: tests/gpu/test_gpu_*.py."""

TIMED_TESTS = "kernels"
"""The file with tests that time something (marked ``alone``): they run after the others, by themselves."""

MAY_SKIP = ("it needs two GPUs", "cannot share the one that is here")
"""Why tests may be skipped on one GPU; any other skip is an error."""

MAY_SKIP_REHEARSED = (*MAY_SKIP, "in a rehearsal", "is built without CUDA")
"""Beside it, in a rehearsal: NVSHMEM does not start, and torch may be built without CUDA."""

SHOWN_CHARACTERS = 2500
"""Of the summary, and of the benchmark, at the end of the output."""

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
FAMILIES = ("gather_pool", "ids")
"""All but the exchange: its ranks wait for each other on one GPU, and the tools run one kernel at a time."""

SANITIZER_S = 100.0
"""Of one tool: all families side by side."""

Groups = Iterator[tuple[Part, ...]]
"""Parts that run side by side, one group after the other."""


@dataclass(frozen=True)
class Asked:
    """What a sitting is about.

    results  folder of what its parts answer;  machine  option for perfmodel
    rehearse whether the GPU is a stand-in: the same parts, of small sizes
    """

    results: Path
    machine: tuple[str, ...] = ()
    rehearse: bool = False

    def sized(self, real: str, rehearsed: str) -> tuple[str, ...]:
        """Options, by whether this is a rehearsal."""
        return tuple((rehearsed if self.rehearse else real).split())

    def benchmark(self, name: str, most_s: float, *words: str) -> tuple[Part]:
        """One script of this folder."""
        return (Part(f"{name}.txt", (PYTHON, str(ROOT / "benchmarks" / f"{name}.py"), *words), most_s),)


def first(asked: Asked) -> Groups:
    """Is everything right, and a first timing of everything."""
    results = asked.results
    yield from opening(asked)
    yield tuple(tests(asked, name) for name in TESTS)
    yield asked.benchmark(
        "gpu_floors", FLOORS_S, "--out", f"{results}/floors.csv", *asked.sized("", "--scale 20000")
    )
    minutes = f"--minutes {GATHER_S / 60 - 0.3:.2f} --report"
    more = asked.sized(minutes, "--scale 20000 --minutes 0.1 --report")
    yield asked.benchmark("gather", GATHER_S, "--out", f"{results}/gather.csv", *more)
    line = (*pytest_line(asked), "-m", "alone", test_file(TIMED_TESTS))
    yield (Part("tests_timed.txt", line, TIMED_TESTS_S),)


def timings(asked: Asked) -> Groups:
    """All variants of gather and pool over the whole grid, and what the calibration does not time."""
    results, machine = asked.results, asked.machine
    yield from opening(asked)
    own = (PYTHON, str(Path(__file__).resolve()))
    yield (
        Part("environment.json", (*own, "--only", "environment"), AFTER_S),
        Part("nvidia-smi.txt", ("nvidia-smi", "-q"), AFTER_S),
    )
    yield calibration(asked)
    question = (*PERFMODEL, "project", "--table-size", "10TB", *machine)
    for path in sorted((results / "runs").glob("*/*.json"))[:1]:
        yield (Part("project.txt", (*question, "--calibration", str(path)), AFTER_S),)
    yield (Part("summary.txt", (*own, "--only", "summary", "--out", str(results)), AFTER_S),)
    for folder in sorted(path.parent for path in (results / "runs").glob("*/samples.jsonl")):
        if not asked.rehearse:  # nothing is judged by made-up times
            yield asked.benchmark("kernel_model", AFTER_S, str(folder))
    more = asked.sized("", "--scale 1000")
    yield asked.benchmark("gpu_stages", STAGES_S, "--out", f"{results}/stages.csv", *more)
    if not asked.rehearse:  # it needs nvcc
        yield from sorting()
    more = asked.sized("", "--scale 64")
    yield asked.benchmark("gpu_dense", DENSE_S, "--out", f"{results}/dense.csv", *more)
    table = (
        "--out",
        f"{results}/gather.csv",
        "--variants",
        f"{results}/gather_variants.csv",
        "--more",
        "--report",
    )
    more = asked.sized(f"--minutes {VARIANTS_S / 60 - 0.3:.2f}", "--scale 20000 --minutes 0.1")
    yield asked.benchmark("gather", VARIANTS_S, *table, *more)


def sorting() -> Groups:
    """CUB's radix sort, built and timed."""
    program, source = str(WORK / "cub_sort"), str(ROOT / "benchmarks" / "cub_sort.cu")
    yield (Part("cub_sort.txt", ("nvcc", "-O3", "-arch=native", "-o", program, source), NVCC_S),)
    yield (Part("sort.csv", (program,), SORT_S),)


def calibration(asked: Asked) -> tuple[Part]:
    """Kernels at every clock."""
    words = (
        "--device",
        "cuda",
        "--ranks",
        "1",
        "--only",
        "kernels",
        "--out",
        str(asked.results / "runs"),
        *asked.machine,
        "--json",
    )
    limit = f"--time-limit={CALIBRATE_S:.0f}s"
    small = (PYTHON, str(ROOT / "tests" / "rehearsal" / "small_calibration.py"))
    line = (*(small if asked.rehearse else PERFMODEL), "calibrate", *words, limit)
    return (Part("calibrate.json", line, CALIBRATE_S + STARTING_S),)


def sanitizer(asked: Asked) -> Groups:
    """Each family of kernels on small cases, under each tool."""
    yield from opening(asked)
    cases = str(ROOT / "tests" / "gpu" / "small_cases.py")
    whole = (*FAMILIES, "exchange")
    yield tuple(Part(f"cases_{family}.txt", (PYTHON, cases, family), SMOKE_S) for family in whole)
    for tool in SANITIZERS:
        line = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", PYTHON, cases)
        yield tuple(Part(f"{tool}_{family}.txt", (*line, family), SANITIZER_S) for family in FAMILIES)


SITTINGS: dict[str, Callable[[Asked], Groups]] = {"first": first, "timings": timings, "sanitizer": sanitizer}


def opening(asked: Asked) -> Groups:
    """What must be right before anything else is tried, and the kernels, compiled on all cores."""
    yield (Part("check.txt", (PYTHON, str(Path(__file__).resolve()), "--check"), CHECK_S, must=True),)
    smoke = str(ROOT / "tests" / "gpu" / "smoke.py")
    yield (Part("smoke.txt", (PYTHON, smoke), SMOKE_S, must=True),)
    yield asked.benchmark("gpu_compile", COMPILE_S, *asked.sized("", "--every 40"))


def pytest_line(asked: Asked) -> tuple[str, ...]:
    """pytest that names each test as it goes, ends those that hang, and takes no skip for a success.

    Without pytest-timeout, a test that hangs says where, and the time of its part ends it.
    """
    words = ["-vv", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "--skips-fail"]
    limit_s = 2 * TEST_LIMIT_S if asked.rehearse else TEST_LIMIT_S
    limits = ["-o", f"faulthandler_timeout={limit_s}"]
    if importlib.util.find_spec("pytest_timeout"):
        limits = [f"--timeout={limit_s}", "--timeout-method=thread"]
    reasons = MAY_SKIP_REHEARSED if asked.rehearse else MAY_SKIP
    return (PYTHON, "-m", "pytest", *words, *limits, *(f"--may-skip={reason}" for reason in reasons))


def test_file(name: str) -> str:
    """A file of tests on a GPU."""
    return f"tests/gpu/test_gpu_{name}.py"


def tests(asked: Asked, name: str) -> Part:
    """One file of tests, but for those that time something."""
    line = (*pytest_line(asked), "-m", "not alone", test_file(name))
    return Part(f"tests_{name}.txt", line, TESTS_S)


def sit(sitting: str, out: Path, total_s: float, machine: Sequence[str], *, rehearse: bool) -> int:
    """One sitting; 0 where all its parts ended well."""
    began_s = time.monotonic()
    results = WORK / "results" / (f"rehearsal-{sitting}" if rehearse else sitting)
    shutil.rmtree(results, ignore_errors=True)
    session = Session(results, out / f"{results.name}.tar.gz", began_s + total_s, variables(rehearse))
    for group in SITTINGS[sitting](Asked(results, tuple(machine), rehearse)):
        if not session.together(*group):
            print("nothing else was tried", flush=True)
            break
    for name in ("summary.txt", "gather.txt"):
        if (results / name).is_file():
            print((results / name).read_text(encoding="utf-8")[-SHOWN_CHARACTERS:], flush=True)
    print(session.closing(), flush=True)
    print(f"{session.archive}: {session.archive.stat().st_size / 2**20:.1f} MiB", flush=True)
    return int(any(session.codes.values()))


def variables(rehearse: bool) -> dict[str, str]:
    """The environment of all parts: carried wheels, and where compiled kernels are kept."""
    site = WORK / "site"
    carried = gpu_needs.install(gpu_needs.WHEELS, site)
    paths = [str(ROOT), *([str(site)] if carried else []), os.environ.get("PYTHONPATH", "")]
    made = {"PERFMODEL_HOME": str(WORK / "home"), "CUPY_CACHE_DIR": str(WORK / "home" / "cupy")}
    if rehearse:
        stand_in = ROOT / "tests" / "rehearsal"
        paths.insert(0, str(stand_in / "site"))
        made |= {
            "PERFMODEL_REHEARSAL": "1",
            "PERFMODEL_HOME": str(WORK / "rehearsal-home"),
            "PATH": os.pathsep.join([str(stand_in / "bin"), os.environ.get("PATH", "")]),
        }
    return {**made, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def listed() -> str:
    """The parts of every sitting, and the time of each [s]."""
    lines = []
    for name, groups in SITTINGS.items():
        lines.append(f"sitting {name}, at most {LIMIT_S - MARGIN_S:.0f} s")
        for group in groups(Asked(Path("results"))):
            names = ", ".join(part.name for part in group)
            lines.append(f"  {max(part.most_s for part in group):>5.0f} s  {names}")
    return "\n".join(lines)


def main_of(words: Sequence[str] | None = None) -> int:
    """0 where all went well, 4 where something that is needed is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for the archive")
    parser.add_argument("--sitting", choices=SITTINGS, default="first")
    parser.add_argument("--seconds", type=float, default=LIMIT_S - MARGIN_S, help="of the sitting")
    parser.add_argument("--machine", help="a shipped machine or a file (default: by the GPU's name)")
    parser.add_argument("--rehearse", action="store_true", help="with a stand-in for the GPU")
    parser.add_argument("--pack", action="store_true", help="download the wheels to carry")
    parser.add_argument("--check", action="store_true", help="say what is missing")
    parser.add_argument("--list", action="store_true", help="say what a sitting does")
    parser.add_argument("--only", choices=("environment", "summary"), help="one part, on stdout")
    asked = parser.parse_args(words)
    if asked.pack:
        return gpu_needs.pack()
    if asked.check:
        return gpu_needs.check()
    if asked.list:
        print(listed())
        return 0
    if asked.only == "environment":
        import gpu_summary

        print(json.dumps(gpu_summary.environment(), indent=2))
        return 0
    if asked.out is None:
        parser.error("--out is needed: the folder for the archive")
    out = asked.out.resolve()
    if asked.only == "summary":
        import gpu_summary

        print(gpu_summary.summary(out))
        return 0
    machine = ["--machine", asked.machine] if asked.machine else []
    return sit(asked.sitting, out, asked.seconds, machine, rehearse=asked.rehearse)


def ended_by_signals(words: Sequence[str] | None = None) -> int:
    """``main_of``, which ends its parts and writes the archive where it is told to end."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    return main_of(words)


if __name__ == "__main__":
    sys.exit(ended_by_signals())
