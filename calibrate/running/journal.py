"""The file of a run: lines are appended and synchronised one by one, and never rewritten.

``kill -9``, a full disk or a lost machine costs at most the line being written. The next start reads all
lines, drops an incomplete last line, and continues after it. If lines in between are damaged, it rewrites the
file without them, atomically, and keeps a copy of the old one. Links are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from calibrate.running.fold import compute_median_s, find_problem
from perfmodel.errors import BadInputError
from perfmodel.schema.files import SAMPLES_NAME, write_whole
from perfmodel.schema.gate import MOST_RUN_BYTES, over
from perfmodel.schema.runs import (
    RUN_FILE,
    Finish,
    Point,
    PointLine,
    RunHeader,
    RunLines,
    Status,
    Visit,
    put_away,
    read_lines,
)
from perfmodel.units import counted

LOCK = "lock"
_START = b'{"type":"run",'
"""Beginning of a run's header: a file with another beginning is no run."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class PointState:
    """The state of one point since its measurement (last) began; single times stay in the file.

    medians_s  median time of a call [s] in each visit with a credible clock, in order
    calls      timed calls;  checked, wrong  elements of results that were compared, and that differed
    problem    why a visit failed the point; "" if none did
    throttled  number of visits in which a device was throttled;  reasons  why it was
    finish     how the point ended; None if it has not
    """

    point: Point
    medians_s: list[float] = field(default_factory=list)
    visits: int = 0
    calls: int = 0
    checked: int = 0
    wrong: int = 0
    problem: str = ""
    throttled: int = 0
    reasons: set[str] = field(default_factory=set)
    finish: Finish | None = None

    @property
    def failed(self) -> bool:
        """Whether the point failed, perhaps in a run killed before it wrote that: it is measured afresh."""
        return bool(self.problem) or (self.finish is not None and self.finish.status is Status.FAILED)

    @property
    def lost_a_rank(self) -> bool:
        """Whether the point failed only because a rank died: its visits count, and it is resumed."""
        return not self.problem and self.finish is not None and self.finish.rank_lost

    def add(self, visit: Visit) -> None:
        """Count one visit: its median, calls, checked and wrong elements, slowdowns."""
        if self.lost_a_rank:
            self.finish = None  # the point is resumed
        median_s = compute_median_s(visit)
        if median_s is not None:
            self.medians_s.append(median_s)
        self.visits += 1
        self.calls += len(visit.times_s) * visit.calls_each
        self.checked += visit.checked
        self.wrong += visit.wrong
        self.problem = self.problem or find_problem(self.point, visit)
        if visit.slowdowns:
            self.throttled += 1
            self.reasons.update(visit.slowdowns)


class Journal:
    """An open run folder. Use with ``with``: leaving it lets another run open the folder.

    header   first line of the file; it is written by the first start and never changed
    states   by key: the points that were begun so far
    notes    texts about damage that was repaired while opening
    """

    def __init__(self, folder: Path, header: RunHeader) -> None:
        self.folder = folder
        self.path = folder / SAMPLES_NAME
        self.header = header
        self.states: dict[str, PointState] = {}
        self.notes: list[str] = []
        self.last_round = 0
        self._lock = self._file = -1  # descriptors of open files, -1: closed
        self._good_bytes = 0  # length of the file up to its last whole line

    @classmethod
    def open(cls, folder: Path, header: RunHeader) -> Journal:
        """Open the run of ``header`` in ``folder``: a new run, or an existing run to resume.

        Limits: another run has it open -> BadInputError with its process; the run of another machine or
        stack, a file that is no run, a link, a folder or file that cannot be written -> BadInputError
        """
        journal = cls(folder, header)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise _refuse(folder, error) from None
        try:
            journal._lock = _open_file(folder / LOCK, os.O_RDWR | os.O_CREAT)
            journal._take_lock()
            journal._start()
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def peek(cls, folder: Path, header: RunHeader) -> Journal:
        """The state of the run of ``header`` in ``folder``, as ``open`` reads it, but no file is changed.

        Limits: no run there -> no points; errors as in ``open``. The result cannot be written to.
        """
        journal = cls(folder, header)
        if os.path.lexists(journal.path):
            with os.fdopen(_open_file(journal.path, os.O_RDONLY), "rb") as file:
                raw = _read_all(file.fileno(), journal.path)
            if b"\n" in raw:
                journal._replay(read_lines(raw, journal.path))
        return journal

    def _start(self) -> None:
        """Open the file of the run: replay it and repair its end, or begin it with the header."""
        self._file = _open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        raw = _read_all(self._file, self.path)
        if b"\n" in raw:
            lines = read_lines(raw, self.path)
            self._replay(lines)
            if lines.damage:
                self._drop(lines, raw)
            elif lines.whole_bytes < len(raw):
                self._cut(lines.whole_bytes)
            self._good_bytes = os.fstat(self._file).st_size
            return
        # no whole line: a header that a crash cut short (some file systems leave zeros), or no run at all
        if not _START.startswith(raw[: len(_START)].rstrip(b"\0")):
            raise BadInputError(f"{self.path} is not the file of a run.", put_away(self.path))
        if raw:
            self._cut(0)
        self._append(self.header)
        with contextlib.suppress(OSError):  # the new file's name is made as durable as its lines
            number = os.open(self.folder, os.O_RDONLY)
            os.fsync(number)
            os.close(number)

    def _drop(self, lines: RunLines, raw: bytes) -> None:
        """Rewrite the file, now ``raw``, without unusable lines, atomically; a copy of it stays beside it."""
        names = (self.path.with_suffix(f".damaged{count}.jsonl") for count in itertools.count(1))
        aside = next(path for path in names if not os.path.lexists(path))
        texts = raw.split(b"\n")
        good = [texts[0], *(texts[number - 1] for number, _ in lines.good)]
        write_whole(aside, raw, RUN_FILE)
        write_whole(self.path, b"".join(text.strip(b"\0") + b"\n" for text in good), RUN_FILE)
        os.close(self._file)
        self._file = _open_file(self.path, os.O_RDWR | os.O_APPEND)
        worst = lines.damage[0]
        self.notes.append(
            f"{counted(len(lines.damage), 'line')} of the run cannot be used (line {worst.number}: "
            f"{worst.why}): what they held is measured again; the old file is {aside.name}."
        )

    def _replay(self, lines: RunLines) -> None:
        """Apply all lines of the file. Limits: the run of another machine or stack -> BadInputError"""
        stored = lines.header
        wanted = self.header
        if (stored.fingerprint, stored.machine) != (wanted.fingerprint, wanted.machine):
            raise BadInputError(
                f"{self.path} is the run of {stored.machine}, stack {stored.fingerprint[:8]}; "
                f"this is {wanted.machine}, stack {wanted.fingerprint[:8]}: they are never mixed.",
                "give another folder with --out.",
            )
        self.header = stored
        for _, line in lines.good:
            self._apply(line)

    def _apply(self, line: PointLine | Visit | Finish) -> None:
        """Update ``states`` with one line. The line of a point begins it, and discards its earlier visits."""
        if isinstance(line, PointLine):
            self.states[line.key] = PointState(line.point)
        elif isinstance(line, Visit):
            self.states[line.key].add(line)
            self.last_round = max(self.last_round, line.round)
        else:
            self.states[line.key].finish = line

    def begin(self, point: Point) -> None:
        """Record that a point is measured for the first time, or again: earlier visits no longer count."""
        self.add(PointLine(key=point.key, point=point))

    def add(self, line: PointLine | Visit | Finish) -> None:
        """Append a line: a visit, or the begin or end of a point. It is on disk when this returns.

        Limits: a full disk, a quota, a failed disk -> BadInputError; the file keeps all lines before this one
        """
        self._append(line)
        self._apply(line)

    def _append(self, line: RunHeader | PointLine | Visit | Finish) -> None:
        """Write a line as JSON and synchronise it; after an error, cut the file back to its whole lines."""
        data = line.model_dump_json(exclude_none=True).encode() + b"\n"
        self._require_in_place()
        try:
            unwritten = memoryview(data)
            while unwritten:  # the system may accept it in parts
                unwritten = unwritten[os.write(self._file, unwritten) :]
            _sync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._good_bytes)
            raise _refuse(self.path, error) from None
        self._good_bytes += len(data)

    def _cut(self, length: int) -> None:
        """Shorten the file to ``length`` bytes, where its last whole line ends, and note that."""
        try:
            os.ftruncate(self._file, length)
            _sync(self._file)
        except OSError as error:
            raise _refuse(self.path, error) from None
        self.notes.append(f"the last line of {self.path} was cut short: its visit is measured again.")

    def _require_in_place(self) -> None:
        """Raise an error if the file was removed, moved or replaced, because further lines would be lost."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._file), os.lstat(self.path)):
                return
        raise BadInputError(
            f"{self.path} was removed or replaced while the run was going on.",
            "nothing more is measured for it; run the same command again.",
        )

    def _take_lock(self) -> None:
        """Lock the folder against other runs, and write this process's number there for their message."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            raise BadInputError(
                f"another calibration is writing to {self.folder}{f' (process {holder})' if holder else ''}.",
                "wait for it, stop it, or give another folder with --out.",
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise _refuse(self.folder / LOCK, error) from None
            self.notes.append(f"{self.folder} has no locks: run one calibration at a time.")
        with contextlib.suppress(OSError):  # only for the message to a second run
            os.pwrite(self._lock, f"{os.getpid():<31}\n".encode(), 0)

    def close(self) -> None:
        """Release the folder. May be called twice."""
        for number in (self._file, self._lock):
            if number != -1:
                os.close(number)
        self._file = self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _open_file(path: Path, how: int) -> int:
    """Open a file of the run, which is created if missing; ``how`` are the flags of ``os.open``.

    Limits: a link (also a folder that is one), a pipe, a device, a folder, no permission -> BadInputError
    """
    try:
        if path.parent.is_symlink():
            raise OSError(errno.ELOOP, "")
        number = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except (OSError, ValueError) as error:
        raise _refuse(path, error) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise BadInputError(f"{path} is a device, a pipe or a folder.", "give another folder with --out.")
    return number


def _read_all(file: int, path: Path) -> bytes:
    """The content of an open file; path  for messages. Limits: more than MOST_RUN_BYTES -> BadInputError"""
    raw = bytearray()
    try:
        while chunk := os.pread(file, 2**20, len(raw)):
            raw += chunk
            if len(raw) > MOST_RUN_BYTES:
                raise over(f"run {path}", "bytes", MOST_RUN_BYTES)
    except OSError as error:
        raise _refuse(path, error) from None
    return bytes(raw)


def _sync(file: int) -> None:
    """Make what was written durable, where the file system can."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_SYNC:  # pipes and some network file systems
            raise


def _refuse(path: Path, error: OSError | ValueError) -> BadInputError:
    """The error for a file of a run that the system could not write or open, in words."""
    number = getattr(error, "errno", None)
    if number == errno.ELOOP:
        return BadInputError(
            f"{path} is a link: the files of a run are not written through links.",
            "remove it, or give another folder with --out.",
        )
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    step = "check the folder and its permissions, or give another one with --out."
    if number in _FULL:
        step = "free some space, then rerun the command to resume; what was written stays."
    return BadInputError(f"{path} cannot be written: {reason}.", step)
