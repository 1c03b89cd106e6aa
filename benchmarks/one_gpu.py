"""A session on one GPU in sittings of under ten minutes, each of which leaves one archive and nothing else.

    python benchmarks/one_gpu.py --pack                            # before: the wheels to carry, build/wheels
    python benchmarks/one_gpu.py --out results                     # there: tests, then the first timings
    python benchmarks/one_gpu.py --out results --sitting timings   # there: the calibration of kernels, stages
    python benchmarks/one_gpu.py --out results --sitting sanitizer # there: compute-sanitizer's four tools
    python benchmarks/one_gpu.py --out results --rehearse          # anywhere: a stand-in for the GPU
    python benchmarks/one_gpu.py --list                            # parts, their order and their time

Every sitting begins with a smoke test of one kernel, and ends there where it fails; then kernels are compiled
on all cores. Tests run side by side, one process a file; what is timed runs alone.
The archive, <sitting>.tar.gz, is written anew after each part: a cut loses the part under way; parts.txt in
it says how each part ended. A part that fails, or outlasts its time, ends alone. Compiled kernels and
installed wheels stay outside it, in build/one_gpu. Works from a checkout that is not installed.
Times of a rehearsal are made up: its archive is called rehearsal-<sitting>.tar.gz.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK, WHEELS = ROOT / "build" / "one_gpu", ROOT / "build" / "wheels"
CARRIED = ROOT / "requirements" / "gpu-carry.txt"
"""Exact versions of the wheels that a GPU machine without a network lacks."""
PYTHON, CASES = sys.executable, str(ROOT / "tests" / "gpu" / "small_cases.py")
PERFMODEL = (PYTHON, "-c", "from perfmodel.cli import main; main()")
LIMIT_S, ENDING_S = 540.0, 5.0
"""Seconds of a sitting; how long a part that outlasted its time may take to end by itself."""

SMOKE_S, COMPILE_S, TESTS_S, TIMED_TESTS_S, TEST_LIMIT_S = 30.0, 50.0, 130.0, 25.0, 60
CALIBRATE_S, STARTING_S = 200.0, 20.0
FLOORS_S, GATHER_S, STAGES_S, DENSE_S, SORT_S = 30.0, 140.0, 15.0, 15.0, 30.0
SANITIZER_S = 100.0
TESTS = ("exchange", "gather_pool", "kernels", "collectives")
"""Files of tests, tests/gpu/test_gpu_*.py; those that time something (``alone``) run afterwards."""

MAY_SKIP = ("it needs two GPUs", "cannot share the one that is here")
"""Why tests may be skipped on one GPU; any other skip is an error."""

MAY_SKIP_REHEARSED = (*MAY_SKIP, "in a rehearsal", "is built without CUDA")
SANITIZERS, FAMILIES = ("memcheck", "racecheck", "initcheck", "synccheck"), ("gather_pool",)
"""All kernels but the exchange: its ranks wait for each other, and a tool runs one kernel at a time."""

OUT_OF_TIME, CUT = 124, 143


@dataclass(frozen=True)
class Part:
    """One command. name  of the file of its answer;  most_s  its time;  must  the session ends if it fails"""

    name: str
    command: tuple[str, ...]
    most_s: float
    must: bool = False


Groups = Iterator[tuple[Part, ...]]
"""Parts that run side by side, one group after the other."""


@dataclass
class Session:
    """Runs parts until ``ends_s`` on the monotonic clock.

    results  folder of what parts answer, all of which goes into ``archive``
    more     variables of the environment of every part;  codes  exit code of each part
    """

    results: Path
    archive: Path
    ends_s: float
    more: Mapping[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)

    def run(self, parts: Sequence[Part]) -> bool:
        """Run parts side by side; each that ends is archived. Returns whether the session goes on."""
        self.results.mkdir(parents=True, exist_ok=True)
        running: dict[Part, tuple[subprocess.Popen[bytes], float]] = {}
        try:
            for part in parts:
                self._start(part, running)
            while running:
                for part, (child, ends_s) in list(running.items()):
                    late = time.monotonic() > ends_s
                    if child.poll() is not None or late:
                        end_group(child)
                        del running[part]
                        self._note(part, OUT_OF_TIME if late else child.returncode)
                time.sleep(0.02)
        except BaseException:
            for part, (child, _) in running.items():
                end_group(child)
                self._note(part, CUT)
            raise
        return not any(part.must and self.codes[part.name] for part in parts)

    def _start(self, part: Part, running: dict[Part, tuple[subprocess.Popen[bytes], float]]) -> None:
        most_s = min(part.most_s, self.ends_s - time.monotonic() - ENDING_S)
        if most_s <= 0:
            self._note(part, OUT_OF_TIME)
            return
        with (self.results / part.name).open("wb") as answer, self.write_log(part).open("wb") as log:
            try:
                child = subprocess.Popen(
                    part.command,
                    stdin=subprocess.DEVNULL,
                    stdout=answer,
                    stderr=log,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **self.more},
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
                self._note(part, 127)
                return
        running[part] = child, time.monotonic() + most_s

    def write_log(self, part: Part) -> Path:
        return self.results / f"{part.name}.log"

    def _note(self, part: Part, code: int) -> None:
        """Note how a part ended, show the last lines of one that failed, and write the archive."""
        self.codes[part.name] = code
        lines = [f"{name}: exit code {code}" for name, code in self.codes.items()]
        (self.results / "parts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(lines[-1], flush=True)
        for path in (self.results / part.name, self.write_log(part)):
            if code and path.is_file():
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]:
                    print(f"  {line}", flush=True)
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        draft = self.archive.with_name(f"{self.archive.name}.part")
        with tarfile.open(draft, "w:gz") as tar:
            tar.add(self.results, self.results.name)
        os.replace(draft, self.archive)


def _end_with_parent() -> None:
    """Let Linux end this process when the one that started it dies: nothing disturbs the next session."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(ENDING_S)


@dataclass(frozen=True)
class Sitting:
    """What a sitting is about: the folder of its answers, and whether the GPU is a stand-in."""

    results: Path
    rehearse: bool = False

    def benchmark(self, name: str, most_s: float, words: str = "", rehearsed: str = "") -> tuple[Part]:
        """One script of this folder, with these options, and further options of a rehearsal."""
        line = [PYTHON, str(ROOT / "benchmarks" / f"{name}.py"), *words.split()]
        line += rehearsed.split() if self.rehearse else []
        part = words.split()[0] if name == "gpu_timings" else name
        return (Part(f"{part}.txt", tuple(line), most_s),)

    def tests(self, name: str, marks: str, most_s: float, suffix: str = "") -> Part:
        """A file of tests, in a pytest that ends those that hang and takes no skip for a success."""
        line = [
            PYTHON,
            "-m",
            "pytest",
            *["-vv", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"],
        ]
        limit_s = 2 * TEST_LIMIT_S if self.rehearse else TEST_LIMIT_S
        if importlib.util.find_spec("pytest_timeout"):
            line += [f"--timeout={limit_s}", "--timeout-method=thread"]
        else:
            line += ["-o", f"faulthandler_timeout={limit_s}"]
        reasons = MAY_SKIP_REHEARSED if self.rehearse else MAY_SKIP
        line += ["--skips-fail", *(f"--may-skip={reason}" for reason in reasons)]
        line += ["-m", marks, f"tests/gpu/test_gpu_{name}.py"]
        return Part(f"tests_{name}{suffix}.txt", tuple(line), most_s)

    def opening(self) -> Groups:
        """What must be right before anything else is tried, and the kernels, compiled on all cores."""
        yield (Part("smoke.txt", (PYTHON, CASES, "smoke"), SMOKE_S, must=True),)
        yield self.benchmark("gpu_compile", COMPILE_S, "", "--every 40")


def list_first(sitting: Sitting) -> Groups:
    """Is everything right, and a first timing of everything."""
    out = f"--out {sitting.results}"
    yield from sitting.opening()
    yield tuple(sitting.tests(name, "not alone", TESTS_S) for name in TESTS)
    yield sitting.benchmark("gpu_timings", FLOORS_S, f"floors {out}/floors.csv", "--scale 20000")
    gather = f"{out}/gather.csv --minutes {GATHER_S / 60 - 0.4:.2f}"
    yield sitting.benchmark("gather", GATHER_S, gather, "--scale 20000 --minutes 0.1")
    yield (sitting.tests("kernels", "alone", TIMED_TESTS_S, "_timed"),)


def list_timings(sitting: Sitting) -> Groups:
    """The calibration of kernels at every clock, and what it does not time."""
    out, runs = f"--out {sitting.results}", str(sitting.results / "runs")
    yield from sitting.opening()
    small = (PYTHON, str(ROOT / "tests" / "rehearsal" / "small_calibration.py"))
    words = ("--device", "cuda", "--ranks", "1", "--only", "kernels", "--out", runs)
    program = small if sitting.rehearse else PERFMODEL
    line = (*program, "calibrate", *words, f"--time-limit={CALIBRATE_S:.0f}s")
    yield (Part("calibrate.txt", line, CALIBRATE_S + STARTING_S),)
    yield sitting.benchmark("gpu_timings", STAGES_S, f"stages {out}/stages.csv", "--scale 1000")
    yield sitting.benchmark("gpu_timings", DENSE_S, f"dense {out}/dense.csv", "--scale 64")
    if not sitting.rehearse:  # it needs nvcc
        program, source = str(WORK / "cub_sort"), str(ROOT / "benchmarks" / "cub_sort.cu")
        yield (Part("cub_sort.txt", ("nvcc", "-O3", "-arch=native", "-o", program, source), SORT_S),)
        yield (Part("sort.csv", (program,), SORT_S),)


def list_sanitizer(sitting: Sitting) -> Groups:
    """Each family of kernels on small cases, under each tool."""
    yield from sitting.opening()
    yield tuple(Part(f"cases_{family}.txt", (PYTHON, CASES, family), SMOKE_S) for family in FAMILIES)
    for tool in SANITIZERS:
        line = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", PYTHON, CASES)
        yield tuple(Part(f"{tool}_{family}.txt", (*line, family), SANITIZER_S) for family in FAMILIES)


SITTINGS: dict[str, Callable[[Sitting], Groups]] = {
    "first": list_first,
    "timings": list_timings,
    "sanitizer": list_sanitizer,
}


def pack(folder: Path) -> int:
    """Download the wheels to carry, for CPython 3.12 on Linux, into ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    tags = [f"--platform=manylinux{glibc}_x86_64" for glibc in ("_2_34", "_2_28", "_2_27", "_2_17", "2014")]
    line = [PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *tags]
    line += ["--python-version=3.12", "--implementation=cp", f"--dest={folder}", f"--requirement={CARRIED}"]
    return subprocess.run(line, check=False).returncode


def variables(rehearse: bool) -> dict[str, str]:
    """The environment of all parts: carried wheels, which are installed, and where kernels are kept."""
    site, wheels = WORK / "site", sorted(str(path) for path in WHEELS.glob("*.whl"))
    if wheels and not rehearse:  # wheels are for the GPU machine's Python
        line = [PYTHON, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        line += ["--no-cache-dir", "--upgrade", "--disable-pip-version-check", f"--target={site}"]
        subprocess.run([*line, *wheels], check=True)
    paths = [str(ROOT), str(site), os.environ.get("PYTHONPATH", "")]
    variables = {"PERFMODEL_HOME": str(WORK / "home"), "CUPY_CACHE_DIR": str(WORK / "home" / "cupy")}
    if rehearse:
        stand_in = ROOT / "tests" / "rehearsal"
        paths.insert(0, str(stand_in / "site"))
        variables |= {"PERFMODEL_REHEARSAL": "1", "PERFMODEL_HOME": str(WORK / "rehearsal-home")}
        variables["PATH"] = os.pathsep.join([str(stand_in / "bin"), os.environ.get("PATH", "")])
    return {**variables, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def main(words: Sequence[str] | None = None) -> int:
    """0 where all parts ended well."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--out", type=Path, help="folder for the archive")
    parser.add_argument("--sitting", choices=SITTINGS, default="first")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help="of the sitting")
    parser.add_argument("--rehearse", action="store_true", help="with a stand-in for the GPU")
    parser.add_argument("--pack", action="store_true", help="download the wheels to carry")
    parser.add_argument("--list", action="store_true", help="say what a sitting does")
    options = parser.parse_args(words)
    if options.pack:
        return pack(WHEELS)
    if options.list:
        for name, list_parts in SITTINGS.items():
            print(f"sitting {name}, at most {LIMIT_S:.0f} s")
            for group in list_parts(Sitting(Path("results"))):
                names = ", ".join(part.name for part in group)
                print(f"  {max(part.most_s for part in group):>5.0f} s  {names}")
        return 0
    if options.out is None:
        parser.error("--out is needed: the folder for the archive")
    ends_s = time.monotonic() + options.seconds
    name = f"rehearsal-{options.sitting}" if options.rehearse else options.sitting
    results, archive = WORK / "results" / name, options.out.resolve() / f"{name}.tar.gz"
    shutil.rmtree(results, ignore_errors=True)
    session = Session(results, archive, ends_s, variables(options.rehearse))
    for group in SITTINGS[options.sitting](Sitting(results, options.rehearse)):
        if not session.run(group):
            print("nothing else was tried", flush=True)
            break
    good = sum(not code for code in session.codes.values())
    print(f"{good} of {len(session.codes)} parts ended well; {archive}", flush=True)
    return int(good < len(session.codes))


if __name__ == "__main__":
    sys.exit(main())
