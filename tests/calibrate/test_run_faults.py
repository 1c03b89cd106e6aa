"""The folder of a run in the hands of others: links, damage, a dead rank, a folder taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from oracles.simulated_team import Recorder, SimulatedTeam
from test_journal import POINT, finish, header, visit
from test_session import CURVE, recorded, run, team

from calibrate.operations import RankTimes
from calibrate.running.journal import Journal
from perfmodel.errors import BadInputError, RankLostError
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import Point, Status

NAMES = ("lock", "samples.jsonl")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", ["one line", "one line\n", "", "123\n", '{"type":"run",'])
def test_no_link_is_followed(tmp_path: Path, name: str, content: str) -> None:
    folder, mine = tmp_path / "run", tmp_path / "mine"
    folder.mkdir()
    mine.write_text(content)
    (folder / name).symlink_to(mine)
    with pytest.raises(BadInputError, match=f"{name} is a link"):
        Journal.open(folder, header())
    assert mine.read_text() == content
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "nothing")
    with pytest.raises(BadInputError, match=f"{name} is a link"):
        Journal.open(folder, header())
    assert not (tmp_path / "nothing").exists()


def damage(folder: Path, line: int) -> bytes:
    """The run of ``start`` with three visits, one line of which cannot be read; the file as it is then."""
    with Journal.open(folder, header()) as journal:
        journal.begin(POINT)
        for number in (1, 2, 3):
            journal.add(visit(number))
        journal.add(finish().model_copy(update={"visits": 3}))
    path = folder / "samples.jsonl"
    lines = path.read_bytes().splitlines()
    lines[line - 1] = b'{"type":"vis\xff\x00'
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path.read_bytes()


@pytest.mark.parametrize(
    ("line", "said", "left"),
    [
        (2, "5 lines (2, 3, 4, 5, 6)", 0),  # the point itself
        (4, "2 lines (4, 6)", 2),  # a visit, and so the end of the point
        (6, "1 line (6)", 3),  # its end
    ],
)
def test_what_is_damaged_is_said_once_and_dropped(tmp_path: Path, line: int, said: str, left: int) -> None:
    before = damage(tmp_path, line)
    with Journal.open(tmp_path, header()) as journal:
        assert said in journal.notes[0] and "samples.damaged1.jsonl" in journal.notes[0]
        held = journal.states.get(POINT.key)
        assert (held.visits if held else 0) == left
        assert held is None or held.finish is None  # it is measured on
        if held is None:
            journal.begin(POINT)
        journal.add(visit(9))
    assert (tmp_path / "samples.damaged1.jsonl").read_bytes() == before
    assert len(read_run(tmp_path).visits[POINT.key]) == left + 1
    with Journal.open(tmp_path, header()) as journal:
        assert journal.notes == []


class Unlucky(SimulatedTeam):
    """Loses a rank in one visit."""

    def __init__(self, number: int) -> None:
        super().__init__({"": CURVE}, faults={number: "dead"})


def visits_of(folder: Path) -> dict[str, int]:
    (samples,) = folder.glob("*/samples.jsonl")
    return {key: len(found) for key, found in read_run(samples).visits.items()}


@pytest.mark.parametrize("number", [2, 5, 8, 12])
def test_a_killed_rank_costs_at_most_the_visit_under_way(tmp_path: Path, number: int) -> None:
    ranks, recorder = Unlucky(number), Recorder()
    with contextlib.suppress(RankLostError):
        run(tmp_path, ranks, recorder)
    before = visits_of(tmp_path)
    again = team()
    outcome = run(tmp_path, again)
    assert len(outcome.with_status(Status.OK)) == 3 and outcome.complete
    assert sum(visits_of(tmp_path).values()) == 9, "no visit was measured twice"
    assert len(recorded(again)) <= 9 - sum(before.values())


def _move(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _replace(folder: Path) -> None:
    _move(folder)
    folder.mkdir()
    (folder / "samples.jsonl").write_text("")


@pytest.mark.parametrize("take", [_move, _remove, _replace])
def test_a_folder_that_is_taken_away_ends_the_run_within_a_point(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    class Taken(SimulatedTeam):
        def visit(self, point: Point, ranks: Sequence[int], **more: Any) -> list[RankTimes]:
            if len(self.visits) == 4:
                (folder,) = tmp_path.iterdir()
                take(folder)
            return super().visit(point, ranks, **more)

    ranks = Taken({"": CURVE})
    with pytest.raises(BadInputError, match="was removed or replaced"):
        run(tmp_path, ranks)
    assert len(ranks.visits) <= 6  # a pilot and its visit
