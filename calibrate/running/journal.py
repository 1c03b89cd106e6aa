"""The file of a run: lines are appended and synchronised one by one, and never rewritten.

``kill -9``, a full disk or a lost machine costs at most the line being written. The next start reads every
line again, drops one that was cut short at the end, and goes on after it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from calibrate.running.fold import problem_of, visit_median_s
from perfmodel.errors import BadInputError
from perfmodel.schema.home import SAMPLES_NAME
from perfmodel.schema.run_files import damaged, parse_line
from perfmodel.schema.runs import Finish, Point, PointLine, RunHeader, Status, Visit

LOCK = "lock"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)


@dataclass
class PointState:
    """What a run holds of one point since it was (last) begun; the times themselves stay in the file.

    medians_s  median of each visit whose clock could be believed, in order
    problem    why a visit failed the point; "" when none did
    throttled  visits in which a device was held down, and ``reasons`` for it
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
        """Whether it ended so, or would have but for a kill: such a point is measured afresh."""
        return bool(self.problem) or (self.finish is not None and self.finish.status is Status.FAILED)

    def add(self, visit: Visit) -> None:
        """Count one more visit."""
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
    """An open run folder. Use with ``with``: leaving it frees the folder for another run.

    header   first line of the file: of the first start, when there were several
    states   points begun so far, by key
    notes    what was found odd and repaired while opening
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
        """Open the run of ``header`` in ``folder``: a new one, or the one that is there, to go on with it.

        Limits: another run has it open -> BadInputError with its process; a line that cannot be read, other
        than a last one cut short -> BadInputError with its number; the run of another machine or stack ->
        BadInputError; a folder or file that cannot be written -> BadInputError
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except (OSError, ValueError) as error:
            raise _cannot_write(folder, error) from None
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
        """What the run of ``header`` in ``folder`` holds, as ``open`` would find it; changes nothing.

        Limits: no run there -> no points; as ``open`` for what cannot be read. It cannot be written to.
        """
        journal = cls(folder, header, -1, -1)
        try:
            raw = journal.path.read_bytes()
        except FileNotFoundError:
            return journal
        except OSError as error:
            raise _cannot_write(journal.path, error) from None
        journal._replay(raw[: raw.rfind(b"\n") + 1])
        return journal

    def _start(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            raw = self.path.read_bytes()
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            self._cut(len(whole))
            self.notes.append(f"the last line of {self.path} was cut short: its visit is measured again.")
        self._good_bytes = len(whole)
        if not whole:
            self._append(self.header)
            _sync_folder(self.folder)
            return
        self._replay(whole)

    def _replay(self, whole: bytes) -> None:
        """All lines of the file, applied; nothing for none."""
        lines = whole.split(b"\n")[:-1]
        if lines:
            self._read_header(lines[0])
        for number, line in enumerate(lines[1:], start=2):
            self._apply(parse_line(line, number, self.path), number)

    def _read_header(self, raw: bytes) -> None:
        found = parse_line(raw, 1, self.path)
        if not isinstance(found, RunHeader):
            raise damaged(self.path, 1, "not the header of a run")
        wanted = self.header
        if (found.fingerprint, found.machine) != (wanted.fingerprint, wanted.machine):
            raise BadInputError(
                f"{self.path} is the run of {found.machine}, stack {found.fingerprint[:8]}; "
                f"this is {wanted.machine}, stack {wanted.fingerprint[:8]}: they are never mixed.",
                "give another folder with --out.",
            )
        self.header = found

    def _apply(self, line: RunHeader | PointLine | Visit | Finish, number: int) -> None:
        """Bring ``states`` up to date with one line. A point's line begins it, or begins it afresh."""
        if isinstance(line, RunHeader):
            raise damaged(self.path, number, "a second header")
        if isinstance(line, PointLine):
            if line.key != line.point.key:
                raise damaged(self.path, number, "the key is not that of the point")
            self.states[line.key] = PointState(line.point)
            return
        state = self.states.get(line.key)
        if state is None:
            raise damaged(self.path, number, f"a {line.type} of a point that no line before it names")
        if isinstance(line, Visit):
            state.add(line)
            self.last_round = max(self.last_round, line.round)
        else:
            state.finish = line

    def begin(self, point: Point) -> None:
        """A point is about to be measured for the first time, or afresh: earlier visits no longer count."""
        self._add(PointLine(key=point.key, point=point))

    def add(self, line: Visit | Finish) -> None:
        """Append a visit, or the end of a point. It is on the disk when this returns.

        Limits: a full disk, a quota, a dead disk -> BadInputError; the file keeps every line before this one
        """
        self._add(line)

    def _add(self, line: PointLine | Visit | Finish) -> None:
        self._append(line)
        self._apply(line, 0)

    def _append(self, line: RunHeader | PointLine | Visit | Finish) -> None:
        data = line.model_dump_json(exclude_none=True).encode() + b"\n"
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
        with contextlib.suppress(OSError):  # only for the message of who comes second
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Free the folder. May be called twice."""
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


def _write(file: int, data: bytes) -> None:
    """All of ``data``; the system may take it in parts."""
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
    """Make the new file's name as durable as its lines; not every file system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def require_writable(folder: Path) -> None:
    """Refuse a folder in which no run could be kept; one that is not there yet is not made.

    Limits: it, or the nearest folder above it that is there, takes no new folder -> BadInputError
    """
    place = folder
    while True:
        try:
            place.lstat()
            break
        except (FileNotFoundError, NotADirectoryError):
            place = place.parent
        except (OSError, ValueError) as error:
            raise _cannot_write(folder, error) from None
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".perfmodel-", dir=place))
    except OSError as error:
        raise _cannot_write(folder, error) from None


def _cannot_write(path: Path, error: OSError | ValueError) -> BadInputError:
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        step = "make room and run the same command again: it goes on from the last line that was written."
    else:
        step = "check the folder and its permissions, or give another one with --out."
    return BadInputError(f"{path} cannot be written: {reason}.", step)
