"""The program as a shell starts it: streams that cannot be written, pipes, little memory, Ctrl-C early."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import called, is_an_error
from waiting import PATIENCE_S

from perfmodel.cli.output import check_target
from perfmodel.errors import BadInputError

MAIN = f"{sys.executable} -m perfmodel"


def shell(line: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one line of bash."""
    done = subprocess.run(
        line,
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words", ["show machines", "show machines --json", "--help", "show --help", "--version"]
)
@pytest.mark.parametrize("where", ["> /dev/full", ">&-"])
def test_an_answer_that_cannot_be_written_is_one_line(words: str, where: str) -> None:
    code, _, err = shell(f"{MAIN} {words} {where}")
    assert code == 2
    line = json.loads(err)["error"]["what"] + "\n" if "--json" in words else err.removeprefix("error: ")
    assert re.fullmatch(r"cannot write the answer: .*\.\n", line) and err.count("\n") == 1, err


def test_help_for_a_reader_that_leaves_is_no_error() -> None:
    assert shell(f"{MAIN} --help | true; echo ${{PIPESTATUS[0]}}") == (0, "0\n", "")


def test_a_reader_that_leaves_is_no_error() -> None:
    code, out, err = shell(f"{MAIN} show machines | head -1; echo ${{PIPESTATUS[0]}}")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "0"


def test_output_is_plain_and_survives_an_ascii_terminal() -> None:
    settings = "PYTHONIOENCODING=ascii PYTHONUTF8=0 FORCE_COLOR=1"
    code, out, err = shell(f"{settings} {MAIN} show machines h100-sxm-ib")
    assert (code, err) == (0, "") and out
    assert "\x1b" not in out


def test_no_arguments_show_the_help_and_are_no_answer() -> None:
    code, out, err = shell(MAIN)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: perfmodel") and "error:" not in err


def test_logs_come_from_pipes_too() -> None:
    log = Path(__file__).resolve().parents[2] / "docs" / "examples" / "alltoall.log"
    options = "--machine h200-sxm-ib"
    plain = called("import", str(log), *options.split())
    assert plain.code == 0, plain
    code, out, err = shell(f"{MAIN} import <(cat {log}) {options}")
    assert code == 0, err
    assert out.splitlines()[0] == plain.out.splitlines()[0]
    is_an_error(called("import", "/dev/null"), 2, "is empty")


def test_a_folder_to_make_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        check_target(tmp_path / "my results" / "x.csv", force=False)
    command = refused.value.next_step.splitlines()[1]
    assert shell(command)[0] == 0 and (tmp_path / "my results").is_dir()


@pytest.mark.parametrize(
    "module", ["perfmodel.cli.running", "perfmodel.errors", "typer", "perfmodel.cli.app"]
)
def test_ctrl_c_while_the_program_is_loaded_is_one_line(module: str) -> None:
    program = f"""
import sys

class Impatient:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Impatient())
from perfmodel.cli import main
main(["show", "machines"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "stopped.")


def test_a_command_without_memory_is_no_bug() -> None:
    """Really: 30 MiB of addresses more than a Python with numpy takes are not enough."""
    program = (
        "import resource, sys, numpy\n"
        "from perfmodel.cli import run\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 30 * 2**20,) * 2)\n"
        "sys.exit(run(['project', '--table-size', '10TB']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 4, done.stderr
    said = " ".join(done.stderr.split())
    assert "error: memory ran out" in said and "limited to address space" in said and "(ulimit -v)" in said
    assert "bug" not in said
