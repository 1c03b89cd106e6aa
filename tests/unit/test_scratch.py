"""The folder of Open MPI's files: it goes with its run, or with the next one where its run was killed."""

from __future__ import annotations

import os
from pathlib import Path

from calibrate.ranks.scratch import PREFIX, Scratch, remove_abandoned


def test_a_folder_goes_with_its_run(tmp_path: Path) -> None:
    one = Scratch(tmp_path)
    (one.path / "ompi.17").mkdir()
    (one.path / "ompi.17/segment").write_text("x")
    assert set(one.environment().values()) == {str(one.path)}
    assert one.path.stat().st_mode & 0o077 == 0  # nobody else's business
    one.close()
    one.close()
    assert list(tmp_path.iterdir()) == []


def test_only_what_a_killed_run_of_this_user_left_is_removed(tmp_path: Path) -> None:
    living = Scratch(tmp_path)
    for name in (f"{PREFIX}dead", "ompi.1234", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sm_segment.0").write_text("x")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "elsewhere")
    remove_abandoned(tmp_path)
    left = {living.path.name, "ompi.1234", "elsewhere", f"{PREFIX}link"}
    assert {path.name for path in tmp_path.iterdir()} == left
    assert (tmp_path / "elsewhere/sm_segment.0").exists()
    os.close(living._lock)  # as the kernel does when its process is killed
    following = Scratch(tmp_path)
    assert not living.path.exists()
    assert following.path.exists()
    following.close()
