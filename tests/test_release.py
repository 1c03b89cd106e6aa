"""Wheel and sdist: the same bytes wherever they are built, with what a reader and a test need inside."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import release

import perfmodel

_GIT = ("git", "-c", "user.name=one", "-c", "user.email=one@example.org")
_OURS = ("perfmodel", "calibrate", "data", "kernels", "docs", "pyproject.toml", "MANIFEST.in", "README.md",
         "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE")  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A commit with what is installed: this checkout may be a copy without its history."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in _OURS:
        given = release.ROOT / name
        if given.is_dir():
            shutil.copytree(given, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(given, folder / name)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*_GIT, *words], cwd=folder, check=True)
    return folder


def test_two_builds_are_the_same_bytes_with_what_a_reader_needs(checkout: Path, tmp_path: Path) -> None:
    """In other folders, and with other permissions of new files."""
    (checkout / "perfmodel" / "not_committed.py").write_text("", encoding="utf-8")
    before = os.umask(0o077)
    try:
        again = release.build(tmp_path / "again", checkout)
    finally:
        os.umask(before)
    files = release.build(tmp_path / "first", checkout)
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in again]
    sdist, wheel = sorted(files, key=lambda path: path.suffix)
    name = f"perfmodel-{perfmodel.__version__}"
    assert sdist.name == f"{name}.tar.gz" and wheel.name == f"{name}-py3-none-any.whl"
    installed = set(zipfile.ZipFile(wheel).namelist())
    assert {one.partition("/")[0] for one in installed} == {"perfmodel", "calibrate", f"{name}.dist-info"}
    assert "perfmodel/data/machines/h100-sxm-ib.toml" in installed
    assert "perfmodel/not_committed.py" not in installed
    with tarfile.open(sdist) as archive:
        packed = set(archive.getnames())
        owners = {(one.uid, one.gid, one.uname, one.gname) for one in archive.getmembers()}
    assert {f"{name}/{file}" for file in ("CITATION.cff", "docs/tutorial.md")} <= packed
    assert owners == {(0, 0, "", "")}
