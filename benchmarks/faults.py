"""What a fault costs: kills, full folders, damaged journals, damaged files.

Run:    python benchmarks/faults.py [--kills 40] [--inputs 20000] [--seed 1]
Goal:   no failure at all, and no point lost: a kill costs at most the visit under way.
About ten minutes on 2 cores; over night: --kills 400 --inputs 200000. Kills are of real calibrations over
gloo, in a folder that is removed afterwards. Exit code 1 when anything failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fault_files import all_readers, damaged, failures, run_lines

from calibrate.running.journal import Journal
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.schema.files import SAMPLES_NAME, write_whole
from perfmodel.schema.runs import PointLine, RunLines, Visit, header_of, read_lines

PROGRAM = (sys.executable, "-c", "from perfmodel.cli import main; main()")
RUN = ("calibrate", "--device", "cpu", "--ranks", "2", "--only", "gloo:all_to_all,gloo:all_reduce")
AIM = ("--sizes", "1KiB..4KiB")
VISIT, MOST_VISITS = b'"type":"visit"', 30
"""What each line of a visit has; a run is killed after fewer than so many visits more, where it has them."""


@dataclass
class Row:
    """Tries of one kind of fault: what failed, and the points whose visits no longer count."""

    name: str
    tries: int = 0
    failed: list[str] = field(default_factory=list)
    lost: int = 0

    def text(self) -> str:
        return f" {self.name:<42}{self.tries:>9}{len(self.failed):>10}{self.lost:>13}"


def count_visits(found: RunLines) -> Counter[str]:
    """Visits that count, by point: a second line of a point voids those before."""
    held: Counter[str] = Counter()
    for _, line in found.good:
        if isinstance(line, PointLine):
            held[line.key] = 0
        elif isinstance(line, Visit):
            held[line.key] += 1
    return held


def kept(folder: Path, row: Row) -> Counter[str]:
    """Visits of the run below a folder; what is wrong with its file is a failure."""
    held: Counter[str] = Counter()
    for path in folder.glob(f"*/{SAMPLES_NAME}"):
        raw = path.read_bytes()
        if b"\n" in raw:
            lines = read_lines(raw, path)
            row.failed += [f"line {damage.number}: {damage.why}" for damage in lines.damage]
            held += count_visits(lines)
    return held


def lost(before: Counter[str], after: Counter[str]) -> int:
    """Points with fewer visits than they had."""
    return sum(after[key] < count for key, count in before.items())


def list_descendants(process: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    children, wanted = [], [process]
    while wanted:
        mine = [child for child, parent in parents.items() if parent == wanted[0]]
        children += mine
        wanted = [*wanted[1:], *mine]
    return children


def wait_far_enough(process: subprocess.Popen[str], folder: Path, visits: int) -> None:
    """Waits until so many visits of the run are kept, or it has ended; a run without ranks has none yet."""
    while process.poll() is None:
        written = sum(path.read_bytes().count(VISIT) for path in folder.glob(f"*/{SAMPLES_NAME}"))
        if written >= visits:
            return
        time.sleep(0.01)


def begun(folder: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    words = [*PROGRAM, *RUN, *AIM, "--noise", "2%", "--out", str(folder)]
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def gone(processes: list[int], timeout_s: float = 20.0) -> bool:
    """Whether they end by themselves; those that do not are ended."""
    until = time.monotonic() + timeout_s
    while left := [process for process in processes if alive(process)]:
        if time.monotonic() > until:
            for process in left:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def killed(one: bool, tries: int, dice: random.Random, base: Path) -> Row:
    """Calibrations of which all processes, or one rank, are killed; each start goes on, the last one ends."""
    row, number = Row("one rank killed" if one else "all processes killed"), 0
    if not tries:
        return row
    folder = base / "0"
    while row.tries < tries:
        before, process = kept(folder, row), begun(folder)
        wait_far_enough(process, folder, before.total() + dice.randrange(MOST_VISITS))
        if process.poll() is not None:  # it was faster
            _, said = process.communicate()
            row.failed += [] if process.returncode == 0 else [said[-300:]]
            number += 1
            folder = base / str(number)
            continue
        ranks = list_descendants(process.pid)
        if one and not ranks:
            process.kill()
            process.communicate()
            continue
        victims = [dice.choice(ranks)] if one else [process.pid, *ranks]
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        row.tries += 1
        try:
            _, said = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            row.failed.append("it did not end")
            continue
        if one and process.returncode not in (0, 4):
            row.failed.append(f"exit code {process.returncode}: {said[-300:]}")
        if not gone(ranks):
            row.failed.append("a rank outlived the run")
        row.lost += lost(before, kept(folder, row))
    before, process = kept(folder, row), begun(folder)
    _, said = process.communicate(timeout=300)
    row.failed += [f"the last start: {said[-300:]}"] if process.returncode else []
    row.lost += lost(before, kept(folder, row))
    return row


@contextlib.contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond so much: what a full disk is, for one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def full(tries: int, dice: random.Random, base: Path) -> Row:
    """Journals and files on a disk that is full after so many bytes, and then has room again."""
    row, raw = Row("full folder"), run_lines(points=3, visits=4)
    header, lines = header_of(raw.split(b"\n")[0], base), read_lines(raw, base).good
    for number in range(tries):
        folder = base / f"full{number}"
        keys: list[str] = []
        limit = largest_file(dice.randrange(1, 2 * len(raw)))
        with contextlib.suppress(BadInputError), limit, Journal.open(folder, header) as journal:
            for _, line in lines:
                journal.begin(line.point) if isinstance(line, PointLine) else journal.add(line)
                keys += [line.key] if isinstance(line, Visit) else []
        row.tries += 1
        try:
            with Journal.open(folder, header) as journal:
                held = Counter({key: state.visits for key, state in journal.states.items()})
                row.failed += ["a note about a cut line"] if journal.notes else []
        except PerfmodelError as error:
            row.failed.append(str(error)[:300])
            continue
        row.lost += lost(Counter(keys), held)
        row.failed += check_when_full(folder / "machine.toml", dice)
    return row


def check_when_full(path: Path, dice: random.Random) -> list[str]:
    write_whole(path, "old")
    try:
        with largest_file(dice.randrange(1, 500)):
            write_whole(path, "new" * 200)
    except BadInputError:
        left = [file.name for file in path.parent.iterdir() if file.name.startswith(".")]
        return [] if path.read_text() == "old" and not left else [f"{path.name} changed, or left {left}"]
    return ["a file that did not fit was written"]


def journals(tries: int, dice: random.Random, base: Path) -> Row:
    """Damaged journals: they go on without what is damaged, lose no more, and stay beside as they were."""
    row, raw = Row("damaged journals"), run_lines(points=5, visits=4)
    lines_before, header = set(raw.split(b"\n")), header_of(raw.split(b"\n")[0], base)
    for number in range(tries):
        content, folder = damaged(raw, dice), base / f"journal{number}"
        folder.mkdir()
        path = folder / SAMPLES_NAME
        path.write_bytes(content)
        row.tries += 1
        if content.split(b"\n")[0] != raw.split(b"\n")[0]:
            continue  # without its header nothing can be used: it is refused, and stays as it is
        lines = [
            line for line in content.split(b"\n")[:-1] if line in lines_before
        ]  # none where the header is cut
        expected = count_visits(read_lines(b"\n".join(lines) + b"\n", path)) if lines else Counter()
        try:
            with Journal.open(folder, header) as journal:  # type: ignore[arg-type]
                held = Counter({key: state.visits for key, state in journal.states.items()})
            row.lost += lost(expected, held)
            aside = folder / "samples.damaged1.jsonl"
            if aside.exists() and aside.read_bytes() != content:
                row.failed.append("the file as it was is not beside")
        except BadInputError as error:
            row.failed.append(str(error)[:200])
    return row


def files(tries: int, seed: int, base: Path) -> Row:
    """Damaged files for every reader."""
    row = Row("damaged files of every reader", tries)
    row.failed += [f"{name}: {wrong}" for name, wrong, _ in failures(all_readers(), tries, seed, base)]
    return row


def imports(tries: int, dice: random.Random, base: Path) -> Row:
    """Damaged logs from the command line to the fitted calibration."""
    from perfmodel.cli import run

    row = Row("damaged logs, import to the end")
    logs = [r for r in all_readers() if r.name.startswith("log")]
    accept = ("--set", "accepted=time_s,rate_bytes_per_s,gpus,payload_bytes")
    for number in range(tries):
        reader = logs[number % len(logs)]
        path = reader.written(damaged(dice.choice(reader.whole), dice), base, "all_gather_rank0")
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = run(["import", str(path), "--machine", "h200-sxm-ib", "--set", "gpus_per_node=8", *accept])
        row.tries += 1
        row.failed += [] if code in (0, 2, 3) else [said.getvalue()[:300]]
    return row


def main() -> int:
    """The table; 1 when anything failed or a point was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=40, help="half of all processes, half of one rank")
    parser.add_argument("--inputs", type=int, default=20_000, help="damaged files for the readers")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice, few = random.Random(options.seed), max(options.inputs // 20, 20)
    print(f" {'fault':<42}{'tries':>9}{'failures':>10}{'points lost':>13}")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        base = Path(name)
        parts: list[Callable[[Path], Row]] = [
            lambda folder: files(options.inputs, options.seed, folder),
            lambda folder: imports(few // 2, dice, folder),
            lambda folder: journals(few, dice, folder),
            lambda folder: full(few // 4, dice, folder),
            lambda folder: killed(False, (options.kills + 1) // 2, dice, folder),
            lambda folder: killed(True, options.kills // 2, dice, folder),
        ]
        for number, run_part in enumerate(parts):
            (folder := base / str(number)).mkdir()
            row = run_part(folder)
            print(row.text(), flush=True)
            wrong += [f"{row.name}: {failure}" for failure in row.failed] + ["points lost"] * bool(row.lost)
    for failure in wrong[:20]:
        print(f"   {failure}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
