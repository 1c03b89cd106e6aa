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
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from calibrate.running.fold import problem_of, visit_median_s
from perfmodel.errors import BadInputError
from perfmodel.schema.files import SAMPLES_NAME, write_whole_bytes
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

LOCK = "lock"
_OF_A_LOCK = re.compile(rb"\d{0,20}\n?")
_OWN_START = b'{"type":"run",'
"""Beginning of a run's header: a file with another beginning is no run."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)


@dataclass
class PointState:
    """The state of one point since its measurement (last) began; single times stay in the file.

    medians_s  median of each visit with a credible clock, in order
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
        """Add one visit."""
        if self.lost_a_rank:
            self.finish = None  # the point is resumed
        median_s = visit_median_s(visit)
        if median_s is not None:
            self.medians_s.append(median_s)
        self.visits += 1
        self.calls += len(visit.times_s) * visit.calls_each
        self.checked += visit.checked
        self.wrong += visit.wrong
        self.problem = self.problem or problem_of(self.point, visit)
        if visit.conditions is not None and visit.conditions.throttle_reasons:
            self.throttled += 1
            self.reasons.update(visit.conditions.throttle_reasons)


class Journal:
    """An open run folder. Use with ``with``: leaving it lets another run open the folder.

    header   first line of the file; it is written by the first start and never changed
    states   by key: the points that were begun so far
    notes    texts about damage that was repaired while opening
    """

    def __init__(self, folder: Path, header: RunHeader, lock: int, file: int) -> None:
        self.folder = folder
        self.path = folder / SAMPLES_NAME
        self.header = header
        self.states: dict[str, PointState] = {}
        self.notes: list[str] = []
        self.last_round = 0
        self._lock, self._file = lock, file
        self._good_bytes = 0

    @classmethod
    def open(cls, folder: Path, header: RunHeader) -> Journal:
        """Open the run of ``header`` in ``folder``: a new run, or an existing run to resume.

        Limits: another run has it open -> BadInputError with its process; the run of another machine or
        stack, a file that is no run, a link, a folder or file that cannot be written -> BadInputError
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise _cannot_write(folder, error) from None
        if folder.is_symlink():
            raise _is_a_link(folder)
        lock = _open_own(folder / LOCK, os.O_RDWR | os.O_CREAT)
        journal = cls(folder, header, lock, -1)
        try:
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
        journal = cls(folder, header, -1, -1)
        if not os.path.lexists(journal.path):
            return journal
        file = _open_own(journal.path, os.O_RDONLY)
        try:
            raw = _content(file, journal.path)
        finally:
            os.close(file)
        if b"\n" in raw:
            journal._replay(read_lines(raw, journal.path))
        return journal

    def _start(self) -> None:
        self._file = _open_own(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            raw = _content(self._file, self.path)
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        if b"\n" not in raw:
            self._begin(raw)
            return
        lines = read_lines(raw, self.path)
        self._replay(lines)
        if lines.damage:
            self._drop(lines, raw)
        elif lines.whole_bytes < len(raw):
            self._cut(lines.whole_bytes)
        self._good_bytes = os.fstat(self._file).st_size

    def _begin(self, raw: bytes) -> None:
        """Write the header of a new run, into a new file or over a header that was cut short."""
        if not _OWN_START.startswith(raw[: len(_OWN_START)].rstrip(b"\0")):
            raise BadInputError(f"{self.path} is not the file of a run.", put_away(self.path))
        if raw:
            self._cut(0)
        self._append(self.header)
        _sync_folder(self.folder)

    def _drop(self, found: RunLines, raw: bytes) -> None:
        """Rewrite the file without unusable lines, atomically; a copy of the old file stays beside it."""
        names = (self.path.with_suffix(f".damaged{count}.jsonl") for count in itertools.count(1))
        aside = next(path for path in names if not os.path.lexists(path))
        lines = raw.split(b"\n")
        kept = [lines[0], *(lines[number - 1] for number, _ in found.good)]
        write_whole_bytes(aside, raw, RUN_FILE)
        write_whole_bytes(self.path, b"".join(line.strip(b"\0") + b"\n" for line in kept), RUN_FILE)
        os.close(self._file)
        self._file = _open_own(self.path, os.O_RDWR | os.O_APPEND)
        first = found.damage[0]
        self.notes.append(
            f"{found.damage_text} of the run cannot be used (line {first.number}: {first.why}): what they "
            f"held is measured again; the file as it was is kept: {aside.name}."
        )

    def _replay(self, found: RunLines) -> None:
        """Apply all lines of the file. Limits: the run of another machine or stack -> BadInputError"""
        there, wanted = found.header, self.header
        if (there.fingerprint, there.machine) != (wanted.fingerprint, wanted.machine):
            raise BadInputError(
                f"{self.path} is the run of {there.machine}, stack {there.fingerprint[:8]}; "
                f"this is {wanted.machine}, stack {wanted.fingerprint[:8]}: they are never mixed.",
                "give another folder with --out.",
            )
        self.header = there
        for _, line in found.good:
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
        data = line.model_dump_json(exclude_none=True).encode() + b"\n"
        self._require_in_place()
        try:
            _write(self._file, data)
            _sync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._good_bytes)
            raise _cannot_write(self.path, error) from None
        self._good_bytes += len(data)

    def _cut(self, length: int) -> None:
        try:
            os.ftruncate(self._file, length)
            _sync(self._file)
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        self.notes.append(f"the last line of {self.path} was cut short: its visit is measured again.")

    def _require_in_place(self) -> None:
        """Raise an error if the file was removed, moved or replaced, because further lines would be lost."""
        own = os.fstat(self._file)
        try:
            seen = os.lstat(self.path)
        except OSError:
            seen = None
        if seen is None or (own.st_dev, own.st_ino) != (seen.st_dev, seen.st_ino):
            raise BadInputError(
                f"{self.path} was removed or replaced while the run was going on.",
                "nothing more is measured for it; run the same command again.",
            )

    def _take_lock(self) -> None:
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
                raise _cannot_write(self.folder / LOCK, error) from None
            self.notes.append(
                f"{self.folder} is on a file system without locks: run one calibration at a time."
            )
        if not _OF_A_LOCK.fullmatch(os.pread(self._lock, 64, 0)):
            raise BadInputError(
                f"{self.folder / LOCK} is not the lock of a run.", "give another folder with --out."
            )
        with contextlib.suppress(OSError):  # only for the message to a second run
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Release the folder. May be called twice."""
        for number in (self._file, self._lock):
            if number >= 0:
                os.close(number)
        self._file = self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_own(path: Path, how: int) -> int:
    """Open a file of the run, which is created if missing; ``how`` are the flags of ``os.open``.

    Limits: a link, a pipe, a device, a folder, no permission -> BadInputError
    """
    try:
        number = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ELOOP:
            raise _is_a_link(path) from None
        raise _cannot_write(path, error) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise BadInputError(f"{path} is a device, a pipe or a folder.", "give another folder with --out.")
    return number


def _is_a_link(path: Path) -> BadInputError:
    return BadInputError(
        f"{path} is a link: the files of a run are not written through links.",
        "remove it, or give another folder with --out.",
    )


def _content(file: int, path: Path) -> bytes:
    with os.fdopen(os.dup(file), "rb") as stream:
        stream.seek(0)
        raw = stream.read(MOST_RUN_BYTES + 1)
    if len(raw) > MOST_RUN_BYTES:
        raise over(f"run {path}", "bytes", MOST_RUN_BYTES)
    return raw


def _write(file: int, data: bytes) -> None:
    """Write all of ``data``; the system may accept it in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_SYNC:  # pipes and some network file systems
            raise


def _sync_folder(folder: Path) -> None:
    """Make the new file's name as durable as its lines, if the file system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _cannot_write(path: Path, error: OSError | ValueError) -> BadInputError:
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        step = "free some space, then rerun the command to resume; what was written stays."
    else:
        step = "check the folder and its permissions, or give another one with --out."
    return BadInputError(f"{path} cannot be written: {reason}.", step)
