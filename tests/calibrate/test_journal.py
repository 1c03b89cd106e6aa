"""The file of a run under torn lines, full disks, links, foreign hands and second writers."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from pathlib import Path

import pytest

from calibrate.running.journal import LOCK, Journal
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import Finish, Point, PointKind, RunHeader, Status, Visit

POINT = Point(
    kind=PointKind.COLLECTIVE, operation="all_to_all", backend="gloo", clock=Clock.EAGER, payload_bytes=1024,
    gpus=2, gpus_per_node=2,
)  # fmt: skip
FINISH = Finish(key=POINT.key, status=Status.OK, median_s=1e-5, visits=1)


def header(fingerprint: str = "a" * 64, machine: str = "m") -> RunHeader:
    stack = {"gloo": "5"}
    return RunHeader(
        fingerprint=fingerprint, started_at="now", machine=machine, stack=stack, ranks=2, nodes=1, seed=7
    )


def visit(number: int = 1) -> Visit:
    return Visit(key=POINT.key, round=number, at="now", times_s=[1e-5] * 3, bytes_sent=512, checked=8)


def start(folder: Path, visits: int = 1) -> bytes:
    """The file of a run with one finished point."""
    with Journal.open(folder, header()) as journal:
        journal.begin(POINT)
        for number in range(1, visits + 1):
            journal.add(visit(number))
        journal.add(FINISH.model_copy(update={"visits": visits}))
    return journal.path.read_bytes()


def test_what_was_written_is_there_again(tmp_path: Path) -> None:
    start(tmp_path / "deep" / "run")
    with Journal.open(tmp_path / "deep" / "run", header()) as journal:
        state = journal.states[POINT.key]
        assert (state.point, state.finish) == (POINT, FINISH)
        assert (state.medians_s, state.visits, state.calls, state.checked) == ([1e-5], 1, 3, 8)
        assert journal.last_round == 1 and journal.notes == []
        assert len(journal.path.read_bytes().splitlines()) == 4


def test_a_file_cut_at_any_byte_goes_on(tmp_path: Path) -> None:
    """Whatever part of the file reached the disk, the next start reads the whole lines and adds to them."""
    raw = start(tmp_path / "whole")
    ends = [index + 1 for index, byte in enumerate(raw) if byte == ord("\n")]
    cuts = {0, 1, len(raw) - 1, *ends, *(end - 1 for end in ends), *(end + 5 for end in ends[:-1])}
    for cut in sorted(cuts):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "samples.jsonl").write_bytes(raw[:cut])
        lines = sum(end <= cut for end in ends)
        with Journal.open(folder, header()) as journal:
            assert len(journal.path.read_bytes().splitlines()) == max(lines, 1)
            assert bool(journal.notes) == (cut not in (0, *ends)), cut
            if lines < 2:
                journal.begin(POINT)
            journal.add(visit(2))
        assert len(read_run(folder).visits[POINT.key]) == (2 if lines >= 3 else 1)


def write_damaged(folder: Path, line: int, junk: bytes, visits: int = 1) -> bytes:
    """The run of ``start`` with another line in the place of one; returns the content of its file."""
    lines = start(folder, visits).splitlines()
    lines[line - 1] = junk
    (folder / "samples.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return (folder / "samples.jsonl").read_bytes()


VISIT, NO_VISIT = visit().model_dump_json(), "line 4: the end of a point of 1 visit, of which 0 are there"


@pytest.mark.parametrize(
    ("line", "junk", "why"),
    [
        (3, b"{not json", "line 3"),
        (3, b"", NO_VISIT),
        (3, bytes(10), NO_VISIT),
        (3, b"\xff\xfe", "line 3"),
        (2, b'{"type": "other"}', "line 2"),
        (3, header().model_dump_json().encode(), "a second header"),
        (2, VISIT.encode(), "a visit of a point that no line before it names"),
        (4, VISIT.replace("0.00001", "-1.0").encode(), "line 4"),
    ],
)
def test_a_damaged_line_is_named_and_left_out(tmp_path: Path, line: int, junk: bytes, why: str) -> None:
    before = write_damaged(tmp_path, line, junk)
    with pytest.raises(BadInputError, match=re.escape(why)) as caught:
        read_run(tmp_path)
    assert "run perfmodel calibrate again" in caught.value.next_step
    with Journal.open(tmp_path, header()) as journal:
        (note,) = journal.notes
    assert why in note and "samples.damaged1.jsonl" in note
    assert (tmp_path / "samples.damaged1.jsonl").read_bytes() == before
    assert set(read_run(tmp_path).points) <= {POINT.key}


@pytest.mark.parametrize(
    ("line", "dropped", "left"),
    [
        (2, "5 lines of the run", 0),  # the point itself
        (4, "2 lines of the run", 2),  # a visit, and so the end of the point
        (6, "1 line of the run", 3),  # its end
    ],
)
def test_what_hangs_on_a_damaged_line_is_dropped_once(
    tmp_path: Path, line: int, dropped: str, left: int
) -> None:
    write_damaged(tmp_path, line, b'{"type":"vis\xff\x00', visits=3)
    with Journal.open(tmp_path, header()) as journal:
        assert dropped in journal.notes[0]
        state = journal.states.get(POINT.key)
        assert (state.visits if state else 0) == left
        assert state is None or state.finish is None  # it is measured on
        if state is None:
            journal.begin(POINT)
        journal.add(visit(9))
    assert len(read_run(tmp_path).visits[POINT.key]) == left + 1
    with Journal.open(tmp_path, header()) as journal:
        assert journal.notes == []


@pytest.mark.parametrize(
    ("junk", "why"),
    [
        (b'{"type": "visit"}', "line 1"),
        (VISIT.encode(), "not the header of a run"),
        (header().model_dump_json().replace('version":2', 'version":1').encode(), "schema_version"),
    ],
)
def test_without_its_header_a_run_is_refused_and_stays(tmp_path: Path, junk: bytes, why: str) -> None:
    before = write_damaged(tmp_path, 1, junk)
    for read in (lambda: Journal.open(tmp_path, header()), lambda: read_run(tmp_path)):
        with pytest.raises(BadInputError, match=why) as caught:
            read()
        assert "put the folder away" in caught.value.next_step
    assert (tmp_path / "samples.jsonl").read_bytes() == before


@pytest.mark.parametrize("other", [header("b" * 64), header(machine="n")])
def test_runs_of_two_stacks_are_never_mixed(tmp_path: Path, other: RunHeader) -> None:
    start(tmp_path)
    with pytest.raises(BadInputError, match="never mixed"):
        Journal.open(tmp_path, other)


def test_the_second_writer_is_told_who_is_first(tmp_path: Path) -> None:
    with Journal.open(tmp_path, header()) as journal:
        journal.begin(POINT)
        with pytest.raises(BadInputError, match=rf"another calibration .* \(process {os.getpid()}\)"):
            Journal.open(tmp_path, header())
        journal.add(visit())  # the first goes on undisturbed
    Journal.open(tmp_path, header()).close()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EIO])
def test_a_folder_that_has_no_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, "")

    monkeypatch.setattr(fcntl, "flock", fail)
    if code == errno.ENOLCK:
        with Journal.open(tmp_path, header()) as journal:
            assert "has no locks" in journal.notes[0]
        return
    with pytest.raises(BadInputError, match=LOCK):
        Journal.open(tmp_path, header())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("when", ["write", "half", "fsync"])
def test_a_disk_that_fails_keeps_every_line_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, when: str
) -> None:
    before, write = start(tmp_path), os.write

    def fail(number: int, data: bytes = b"") -> int:
        if when == "half" and len(data) > 20:
            return write(number, data[:20])
        raise OSError(code, os.strerror(code))

    with Journal.open(tmp_path, header()) as journal:
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync" if when == "fsync" else "os.write", fail)
            with pytest.raises(BadInputError) as caught:
                journal.add(visit(2))
        assert os.strerror(code).lower() in caught.value.message
        assert ("free some space" in caught.value.next_step) == (code == errno.ENOSPC)
        assert journal.path.read_bytes() == before
        assert journal.states[POINT.key].visits == 1
        journal.add(visit(3))  # there is room again
    assert [line.round for line in read_run(tmp_path).visits[POINT.key]] == [1, 3]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot be written"):
        Journal.open(tmp_path / "file" / "run", header())
    (tmp_path / "run" / "samples.jsonl").mkdir(parents=True)
    for _ in range(2):  # the first refusal left no lock behind
        with pytest.raises(BadInputError, match="is a directory"):
            Journal.open(tmp_path / "run", header())
    assert (tmp_path / "run" / LOCK).exists()


@pytest.mark.parametrize("name", ["lock", "samples.jsonl"])
@pytest.mark.parametrize("content", ["", "one line\n", '{"type":"run",', None])
def test_no_link_is_followed(tmp_path: Path, name: str, content: str | None) -> None:
    """Without content the link leads to nothing."""
    folder, target = tmp_path / "run", tmp_path / "target"
    folder.mkdir()
    (folder / name).symlink_to(target)
    if content is not None:
        target.write_text(content)
    with pytest.raises(BadInputError, match=f"{name} is a link"):
        Journal.open(folder, header())
    assert target.read_text() == content if target.exists() else content is None
