"""The file in which the ranks of an mpirun on one node find each other."""

from __future__ import annotations

from pathlib import Path

from waiting import PATIENCE_S

from calibrate.ranks.meeting import hear, job_folder, tell, untell

MEETING = {"host": "a", "port": 31000, "key": "00ff", "node": "boot"}


def environ(folder: Path, ranks: int = 4, here: int = 4) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_SIZE": str(ranks),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(here),
        "PMIX_SERVER_TMPDIR": str(folder),
    }


def test_a_file_only_on_one_node_and_where_nobody_else_reads(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert job_folder(environ(tmp_path)) == tmp_path
    assert job_folder(environ(tmp_path, 8)) is None
    assert job_folder(environ(tmp_path / "none")) is None
    assert job_folder({"PMI_SIZE": "4"}) is None
    assert job_folder({**environ(tmp_path), "PMIX_SERVER_TMPDIR": ""}) is None
    tmp_path.chmod(0o755)
    assert job_folder(environ(tmp_path)) is None


def test_what_is_told_is_heard_until_all_have_met(tmp_path: Path) -> None:
    late: list[str] = []

    def told_late() -> None:
        late.append("late")
        tell(tmp_path, MEETING)

    assert hear(tmp_path, PATIENCE_S, 0.0, told_late) == MEETING
    assert late == ["late"]
    untell(tmp_path)
    untell(tmp_path)
    untell(None)  # several nodes: there is no file
    assert list(tmp_path.iterdir()) == []
    assert hear(tmp_path, 0.2, PATIENCE_S, lambda: late.append("again")) is None
    assert late == ["late"]
