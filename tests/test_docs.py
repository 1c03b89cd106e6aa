"""Every ``perfmodel`` command in README.md and docs/ runs and succeeds; the README's set-up commands exist.

Commands are lines that start with ``$ perfmodel`` in console blocks and with ``perfmodel`` in sh blocks.
A block after ``<!-- not-run: reason -->`` is left out (it needs a GPU, or the reader's own logs).
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from perfmodel.cli import run

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"(?P<before>[^\n]*)\n```(?P<kind>console|sh)\n(?P<body>.*?)\n```", re.DOTALL)


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        if not page.exists():
            continue
        for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block["before"].startswith("<!-- not-run"):
                continue
            body = block["body"].replace("\\\n", " ")
            for line in body.splitlines():
                text = line.removeprefix("$ ").strip() if block["kind"] == "console" else line.strip()
                if text.startswith("perfmodel ") and (block["kind"] == "sh" or line.startswith("$ ")):
                    found.append((page.name, text.split("  #")[0].strip()))
    return found


def marked(name: str) -> str:
    """The code block of README.md after ``<!-- name -->``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(rf"^<!-- {name} -->\n```\w*\n(.*?)\n```", text, re.DOTALL | re.MULTILINE)
    assert match, f"README.md has no code block after <!-- {name} -->"
    return match[1]


@pytest.mark.parametrize(("page", "command"), commands() or [pytest.param("", "", marks=pytest.mark.skip)])
def test_command_succeeds(
    page: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if (ROOT / "docs" / "examples").is_dir():
        shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    words = shlex.split(command.split(" | ")[0].split(" > ")[0])
    code = run(words[1:])
    captured = capsys.readouterr()
    assert code == 0, f"{page}: {command}\n{captured.err}"
    assert captured.out or "--out" in words


def test_readme_has_commands() -> None:
    assert commands(), "README.md shows no perfmodel command"


def test_main_command_is_one_line_and_ends_in_the_main_job() -> None:
    command = marked("main-command")
    assert len(command.splitlines()) == 1
    assert command.endswith("perfmodel project --table-size 10TB")


def test_test_command_is_one_line_and_pinned() -> None:
    command = marked("test-command")
    assert len(command.splitlines()) == 1
    assert "requirements/test.lock" in command and "--no-deps" in command
    lock = (ROOT / "requirements" / "test.lock").read_text(encoding="utf-8").splitlines()
    names = [line for line in lock if line and not line.startswith("#") and line != "-e ."]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", name) for name in names), names


def test_ci_extracts_the_same_command() -> None:
    import subprocess

    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    start, end = script.index("awk '"), script.index("README.md)")
    shown = subprocess.run(
        ["bash", "-c", script[start:end] + "README.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == marked("test-command")


if __name__ == "__main__":
    for page, command in commands():
        sys.stdout.write(f"{page}: {command}\n")
