"""Parts of a session on a GPU: side by side or alone, each with its own time, all in one archive.

The archive is written anew after every part, also of those that run side by side: a session that is cut off
loses what was under way. Its parts.txt says how every part ended. What parts keep for later parts (compiled
kernels, installed wheels) lies outside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENDING_S = 5.0
"""How long a part that outlasted its time may take to end by itself."""

ARCHIVE_BYTES = 15 * 2**20
"""The largest archive: machines that give files back one by one take 16 MiB of each."""

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""

LEFT_OUT = "LEFT_OUT.txt"
PARTS = "parts.txt"
"""How every part ended, a line each."""

OUT_OF_TIME, CUT = 124, 143
"""Exit codes of a part that outlasted its time, and of one under way when the session was ended."""

SHOWN_LINES, SHOWN_CHARACTERS = 12, 6500


@dataclass(frozen=True)
class Part:
    """One command.

    name    of the file of its answer;  most_s  its time [s]
    must    the session ends where it fails
    """

    name: str
    command: tuple[str, ...]
    most_s: float
    must: bool = False


@dataclass
class _Running:
    """A part that was started."""

    part: Part
    child: subprocess.Popen[bytes]
    began_s: float
    ends_s: float


@dataclass
class Session:
    """Runs parts until ``ends_s`` on the monotonic clock.

    results  folder of what parts answer, all of which goes into ``archive``
    more     variables of the environment of every part
    codes    exit code of each part, 124 out of time
    """

    results: Path
    archive: Path
    ends_s: float
    more: Mapping[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)

    def left_s(self) -> float:
        """Time until the end [s]."""
        return self.ends_s - time.monotonic()

    def together(self, *parts: Part) -> bool:
        """Run parts side by side; write the archive whenever one ends; whether the session goes on.

        An interruption (KeyboardInterrupt, SystemExit) ends what runs, with all that it started.
        """
        self.results.mkdir(parents=True, exist_ok=True)
        running: list[_Running] = []
        try:
            for part in parts:
                if (one := self._start(part)) is not None:
                    running.append(one)
            while running:
                ended = [one for one in running if self._ended(one)]
                running = [one for one in running if one not in ended]
                if ended:
                    write_archive(self.results, self.archive)
                else:
                    time.sleep(0.02)
        except BaseException:
            for one in running:
                end_group(one.child)
                self._end(one.part, CUT, time.monotonic() - one.began_s)
            raise
        finally:
            write_archive(self.results, self.archive)
        return not any(part.must and self.codes[part.name] for part in parts)

    def _start(self, part: Part) -> _Running | None:
        most_s = min(part.most_s, self.left_s() - ENDING_S)
        if most_s <= 0:
            self._log(part).write_text("no time was left\n", encoding="utf-8")
            self._end(part, OUT_OF_TIME, 0.0)
            return None
        began_s = time.monotonic()
        try:
            with (self.results / part.name).open("wb") as answer, self._log(part).open("wb") as said:
                child = subprocess.Popen(
                    part.command,
                    stdin=subprocess.DEVNULL,
                    stdout=answer,
                    stderr=said,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **self.more},
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
        except OSError as error:
            self._log(part).write_text(f"{error}\n", encoding="utf-8")
            self._end(part, 127, 0.0)
            return None
        return _Running(part, child, began_s, began_s + most_s)

    def _ended(self, one: _Running) -> bool:
        code = one.child.poll()
        now = time.monotonic()
        if code is None and now < one.ends_s:
            return False
        if code is None:
            end_group(one.child)
            code = OUT_OF_TIME
        self._end(one.part, code, now - one.began_s)
        return True

    def _end(self, part: Part, code: int, took_s: float) -> None:
        self.codes[part.name] = code
        said = {OUT_OF_TIME: "out of time", CUT: "cut off"}.get(code, f"exit code {code}")
        line = f"{part.name}: {said}, {took_s:.1f} s"
        with (self.results / PARTS).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        print(line, flush=True)
        if code:
            print("\n".join(f"  {line}" for line in self.last_lines(part.name)), flush=True)

    def _log(self, part: Part) -> Path:
        return self.results / f"{part.name}.log"

    def last_lines(self, name: str) -> list[str]:
        """What a part said at its end, on stdout and then on stderr."""
        lines: list[str] = []
        for path in (self.results / name, self.results / f"{name}.log"):
            if path.is_file():
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LINES:]
        return [line[:200] for line in lines]

    def closing(self) -> str:
        """How every part ended, and the last words of those that failed: fits the tail of an output."""
        failed = [name for name, code in self.codes.items() if code]
        lines = [f"{len(self.codes) - len(failed)} of {len(self.codes)} parts ended well"]
        each = max(3, SHOWN_CHARACTERS // (200 * max(1, len(failed))))
        for name in failed:
            lines.append(f"{name}: exit code {self.codes[name]}")
            lines += [f"  {line}" for line in self.last_lines(name)[-each:]]
        return "\n".join(lines)[-SHOWN_CHARACTERS:]


def _end_with_parent() -> None:
    """Let Linux end this process when the one that started it dies: nothing disturbs the next session."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(ENDING_S)


def write_archive(results: Path, archive: Path, most_bytes: int = ARCHIVE_BYTES) -> None:
    """All files of ``results`` in one .tar.gz, which is whole at any time.

    Limits: more than ``most_bytes`` compressed -> without the largest files, which LEFT_OUT.txt in it names
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_name(f"{archive.name}.part")
    note = results / LEFT_OUT
    note.unlink(missing_ok=True)
    files = sorted((path for path in results.rglob("*") if path.is_file()), key=lambda path: str(path))
    left: list[Path] = []
    while True:
        with tarfile.open(draft, "w:gz", compresslevel=6) as made:
            for path in files:
                with contextlib.suppress(FileNotFoundError):  # a part that runs has taken its draft away
                    made.add(path, Path(results.name, path.relative_to(results)))
        if draft.stat().st_size <= most_bytes or not files:
            break
        sizes = {path: path.stat().st_size for path in files if path != note and path.is_file()}
        left.append(max(sizes, key=lambda path: sizes[path]))
        note.write_text("".join(f"{path.relative_to(results)}\n" for path in left), encoding="utf-8")
        files = sorted({*files, note} - {left[-1]})
    os.replace(draft, archive)
