"""Every command in README.md, CONTRIBUTING.md and docs/ runs once and succeeds.

Commands are lines that start with ``$ perfmodel`` in console blocks and with ``perfmodel`` in sh blocks. A
block after ``<!-- not-run: reason -->`` is left out. The output shown after ``<!-- checked-output -->`` is
compared; ``python tests/test_docs.py`` writes it anew.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from oracles.simulated_team import SimulatedTeam, TrueCurve

import perfmodel
from perfmodel.cli import calibrate, run, waiting_line
from perfmodel.plan.frames import TablePlan

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [ROOT / "README.md", CONTRIBUTING, *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"(?P<before>[^\n]*)\n```(?P<kind>console|sh)\n(?P<body>.*?)\n```", re.DOTALL)


def run_blocks(page: Path) -> list[re.Match[str]]:
    """The code blocks of a page without a mark that they are not run."""
    blocks = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [block for block in blocks if not block["before"].startswith("<!-- not-run")]


def list_commands() -> list[tuple[str, str]]:
    """Each command once, with the first page that shows it."""
    pages: dict[str, str] = {}
    for page in PAGES:
        for block in run_blocks(page):
            for line in block["body"].replace("\\\n", " ").splitlines():
                text = line if block["kind"] == "sh" else line.removeprefix("$ ") if line[:1] == "$" else ""
                if text.strip().startswith("perfmodel "):
                    pages.setdefault(text.split("  #")[0].strip(), page.name)
    return [(page, command) for command, page in pages.items()]


def find_marked(name: str) -> str:
    """The code block of README.md after ``<!-- name -->``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(rf"^<!-- {name} -->\n```\w*\n(.*?)\n```", text, re.DOTALL | re.MULTILINE)
    assert match, f"README.md has no code block after <!-- {name} -->"
    return match[1]


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(("page", "command"), list_commands())
def test_command_succeeds(
    page: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not how good a plan is, nor what imports, measures and fits here: the tests of each room try that.

    Its screen has 80 columns or 100: no line is wider.
    """
    monkeypatch.chdir(tmp_path)
    columns = 80 + 20 * (len(command) % 2)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(waiting_line, "_FIRST_S", 1e6)  # a slow machine says that it works
    monkeypatch.setattr(calibrate, "open_team", lambda *_: SimulatedTeam({"": TrueCurve(4e-6, 2e9)}))
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    words = shlex.split(command)
    code = run(words[1:])
    captured = capsys.readouterr()
    assert code == 0, f"{page}: {command}\n{captured.err}"
    assert captured.out or "--out" in words
    if "--json" in words:
        document = json.loads(captured.out)
        assert list(document)[:2] == ["schema_version", "command"]
        described = (
            (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").partition("## JSON documents")[2]
        )
        assert [key for key in document if f"`{key}`" not in described] == []
    text = captured.err if {"--json", "--toml"} & set(words) else captured.out + captured.err
    assert not [line for line in text.splitlines() if is_too_wide(line, columns)]


def is_too_wide(line: str, columns: int) -> bool:
    """Whether a line is wider than the screen, and neither part of a command nor wide by a path alone.

    Where a checkout lies is the reader's choice: its path counts nothing, however long it is.
    """
    words = line.removesuffix(" \\").split()
    paths = [w for w in words if w.startswith("/") or ("/" in w and len(w) > columns // 2)]
    command = line.startswith("  ") and (words[0] == "perfmodel" or len(words) == 1)
    return len(line) - sum(map(len, paths)) > columns and not command


def find_outputs(text: str) -> list[tuple[str, str, str, int | None]]:
    """(whole block, command, shown output, lines) of every console block after ``<!-- checked-output -->``.

    After ``<!-- checked-output, first 20 lines -->`` only the beginning is shown; else lines is None.
    """
    mark = r"<!-- checked-output(?:, first (\d+) lines)? -->"
    pattern = mark + r"\n(```console\n\$ (perfmodel [^\n]*)\n(.*?)```)"
    blocks = re.finditer(pattern, text, re.DOTALL)
    return [(m[2], m[3], m[4], int(m[1]) if m[1] else None) for m in blocks]


@cache
def print_command(command: str) -> str:
    """What a command prints on stdout."""
    os.environ.pop("COLUMNS", None)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(shlex.split(command)[1:])
    assert code == 0, command
    return out.getvalue()


def test_shown_output_is_what_the_command_prints() -> None:
    shown = [
        (page.name, *blocks) for page in PAGES for blocks in find_outputs(page.read_text(encoding="utf-8"))
    ]
    assert {name for name, *_ in shown} >= {"README.md", "tutorial.md"}
    for name, _, command, text, lines in shown:
        assert text == cut_output(command, lines), f"{name}: run python tests/test_docs.py: {command}"


def cut_output(command: str, lines: int | None) -> str:
    """The first lines of what a command prints, or all of them."""
    return "".join(print_command(command).splitlines(keepends=True)[:lines])


def test_one_example_everywhere() -> None:
    """Whoever reads two pages meets one answer, that of the main job."""
    job = find_marked("main-command").rpartition("/")[2]
    answer = print_command(job).splitlines()[0]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert all(command.startswith(job) for _, command, *_ in find_outputs(text) if " project " in command)
        assert set(re.findall(r"^10 TB on .*$", text, re.MULTILINE)) <= {answer}, page.name


def test_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)", text))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked
    (picture,) = (ROOT / name for name in linked if name.endswith(".png"))
    assert picture.stat().st_size <= 150_000 and len(text.splitlines()) <= 120
    assert text.index("× one GPU (") < text.index("## ")
    assert len(text.partition("× one GPU (")[0].splitlines()) < 25, "the answer is on the first screen"


def write_outputs() -> None:
    """Write the outputs of the checked blocks of all pages anew."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block, command, _, lines in find_outputs(text):
            text = text.replace(block, f"```console\n$ {command}\n{cut_output(command, lines)}```")
        page.write_text(text, encoding="utf-8")


def test_commands_that_set_up_are_one_line_and_pinned() -> None:
    main, tests = find_marked("main-command"), find_marked("test-command")
    assert len(main.splitlines()) == len(tests.splitlines()) == 1
    assert main.endswith("perfmodel project --table-size 10TB")
    assert "requirements/test.lock" in tests and "--no-deps" in tests
    lock = (ROOT / "requirements" / "test.lock").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    lines = [line for line in lock if line and not line.startswith("#")]
    pinned = r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+( +--hash=sha256:[0-9a-f]{64})+"
    assert lines and all(re.fullmatch(pinned, line) for line in lines), lines


def list_anchors(page: Path) -> set[str]:
    """What a link to a section of a page may name: its headings as GitHub writes them, and its own marks."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([\w-]+)">', text))


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]:
        links = re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8"))
        local = [link for link in links if "://" not in link[0]]
        for name, section in local:
            to = page.parent / name if name else page
            assert to.exists(), f"{page.name}: {name}"
            assert not section or section in list_anchors(to), f"{page.name}: {name}#{section}"


def test_sections_and_pages_that_code_and_data_name_are_there() -> None:
    sections = list_anchors(ROOT / "docs" / "model.md")
    rooms = [ROOT / room for room in ("perfmodel", "calibrate", "benchmarks", "data")]
    files = [path for room in rooms for path in room.rglob("*") if path.suffix in (".py", ".toml")]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"model\.md#([\w-]+)", text)) <= sections, path
        assert all((ROOT / page).exists() for page in re.findall(r"(?<![\w/])docs/[\w-]+\.md", text)), path


def test_the_page_of_python_has_the_functions_and_their_arguments() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    (\w+)\((.*?)\) -> ", page, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in shown} == set(perfmodel.__all__) - {"__version__"}
    for name, words in shown:
        arguments = re.findall(r"(\w+): ", words)
        assert set(arguments) <= set(inspect.signature(getattr(perfmodel, name)).parameters), name
    rows = re.findall(r"^\| (`[^|]+) \|", page.partition("| of a `TablePlan`")[2], re.MULTILINE)
    members = [name for row in rows for name in re.findall(r"`(\w+)", row)]
    assert len(members) > 8 and all(hasattr(TablePlan, name) for name in members), members


def test_what_was_tried_has_a_date() -> None:
    history = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    tried = re.findall(r"^- (.*)$", history, re.MULTILINE)
    assert len(tried) > 8 and all(re.match(r"\*\*2\d{3}-\d\d-\d\d, ", entry) for entry in tried)


def test_files_that_the_model_names_are_there() -> None:
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", text))
    assert len(named) > 10
    assert not [
        name for name in named if not ((ROOT / name).exists() or (ROOT / "perfmodel" / name).exists())
    ]


def test_a_line_of_the_changelog_is_a_change() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    entries = [entry for entry in re.split(r"\n(?! )", "\n".join(lines)) if entry.startswith("- ")]
    assert len(entries) == len(set(entries)) and all(entry.endswith(".") for entry in entries)
    versions = [line for line in lines if line.startswith("## ")]
    release = r"## (Unreleased|\d+\.\d+\.\d+ - (unreleased|\d{4}-\d\d-\d\d))"
    assert versions and all(re.fullmatch(release, line) for line in versions), versions
    heads = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert heads <= {"Added", "Changed", "Fixed", "Removed"}


LONG = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]


@pytest.mark.parametrize("page", LONG, ids=lambda page: page.name)
def test_no_line_is_over_120_columns(page: Path) -> None:
    """But rows of tables, what a program printed, and the set-up in one line: those cannot be wrapped."""
    long, kind = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            kind = "" if kind else line.strip().removeprefix("```") or "text"
        wrappable = kind in ("", "sh", "python", "math") and not line.lstrip().startswith("|")
        if len(line) > 120 and wrappable and not line.startswith("python3 -m venv"):
            long.append(line)
    assert not long


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.search(r"^## (\d+\.\d+\.\d+) ", changes, re.MULTILINE)
    assert released is not None
    assert project["version"] == perfmodel.__version__ == cited["version"] == released[1]
    assert f"## {released[1]} - {cited.get('date-released', 'unreleased')}\n" in changes


def test_every_extra_is_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(project["optional-dependencies"])


def test_contributing_sets_up_as_the_tests_do() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    setup, suite = find_marked("test-command").split(" && .venv/bin/python -m ")
    assert f"\n{setup}\n" in text and f"\npython -m {suite}\n" in text
    assert setup.endswith(" -e .")  # the checkout itself, editable


@pytest.mark.parametrize(
    ("page", "mark"),
    [("README.md", "test-command"), ("CONTRIBUTING.md", "not-run: .ci/run runs them")],
)
def test_ci_runs_what_the_pages_say(page: str, mark: str) -> None:
    """The test command of README, and the linters of CONTRIBUTING, as its own function finds them."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    function = script[script.index("block() {") : script.index("\n}\n") + 3]
    shown = subprocess.run(
        ["bash", "-c", f"{function}\nblock {page} '{mark}'"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"<!-- {mark} -->\n```sh\n{shown}```" in text


if __name__ == "__main__":
    write_outputs()
