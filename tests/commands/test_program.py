"""The program as a shell starts it: streams, pipes, memory, signals; exit codes, help, what is loaded."""

from __future__ import annotations

import errno
import json
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called, is_an_error
from oracles import environment
from waiting import PATIENCE_S

import perfmodel
from calibrate.ranks import process
from calibrate.running import stack
from perfmodel import __version__
from perfmodel.cli import show
from perfmodel.cli.app import COMMANDS
from perfmodel.errors import NoCalibrationError
from perfmodel.resources import out_of_memory

MAIN = f"{sys.executable} -m perfmodel"


def shell(line: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one line of bash."""
    done = subprocess.run(
        line, shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=PATIENCE_S
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
    assert "error: memory ran out" in said and "of addresses (ulimit -v)" in said
    assert "bug" not in said


@pytest.mark.parametrize("gib", [4, 0])
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 4.00 MiB for an array"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 13440 bytes."),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_memory_that_ran_out_names_the_limit(
    monkeypatch: pytest.MonkeyPatch, error: Exception, gib: int
) -> None:
    """As after ``ulimit -v 4194304``, and without a limit."""
    limits = {resource.RLIMIT_AS: gib * 2**30 or resource.RLIM_INFINITY}
    most = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits.get(kind, most), most))
    refused = out_of_memory(error)
    assert refused is not None and refused.exit_code == 4 and " ".join(str(error).split()) in refused.message
    assert ("limited to 4 GiB of addresses (ulimit -v)." in refused.message) == bool(gib)
    for other in (OSError(errno.ENOSPC, "No space left"), RuntimeError("CUDA out of memory."), KeyError("a")):
        assert out_of_memory(other) is None


def test_a_rank_plans_with_the_addresses_that_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    free = process.estimate_memory_bytes(1)
    monkeypatch.setattr(process, "address_space_bytes", lambda: 2.0**40)
    assert process.estimate_memory_bytes(1) == pytest.approx(free, rel=0.2)
    monkeypatch.setattr(process, "address_space_bytes", lambda: 1.0)
    assert process.estimate_memory_bytes(1) == 0


PROGRAM = """
import os, sys
from perfmodel.cli import main

folder, turned, *signals = sys.argv[1:]

def at_the_place(event, words):
    here = words[:1] if event == "import" else words[1] if event == "subprocess.Popen" else ()
    if signals and signals[0] in here:
        print(signals.pop(0), flush=True)
        try:
            os.kill(os.getpid(), int(signals.pop(0)))
        except KeyboardInterrupt:
            if turned:
                raise RuntimeError("a library cannot be imported") from None
            raise

sys.addaudithook(at_the_place)
main(["calibrate", "--device", "cpu", "--ranks", "2", "--only", "gloo:all_reduce", "--out", folder])
"""


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("place", "number", "turned"),
    [
        ("perfmodel.cli.app", signal.SIGINT, ""),
        ("calibrate.running.session", signal.SIGTERM, ""),
        ("calibrate.ranks.rank", signal.SIGHUP, ""),  # the ranks are started
        ("pydantic", signal.SIGTERM, "turned"),  # into an error of a library's own
    ],
)
def test_ended_early(tmp_path: Path, place: str, number: signal.Signals, turned: str) -> None:
    assert ended(tmp_path, turned, place, str(int(number))) == [place]


@pytest.mark.usefixtures("signals")
def test_what_is_ignored_from_the_start_stays_ignored(tmp_path: Path) -> None:
    """As ``nohup`` and ``&`` of a script leave Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first, second = "perfmodel.cli.app", "calibrate.running.session"
    assert ended(tmp_path, "", first, "2", second, "15") == [first, second]


def ended(folder: Path, *words: str) -> list[str]:
    """The places that the command reached, which was ended there."""
    pytest.importorskip("torch")
    command = [sys.executable, "-c", PROGRAM, str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S)
    assert done.returncode == 130, done.stderr
    assert "stopped." in done.stderr and "Traceback" not in done.stderr and "bug" not in done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(("revision", "shown"), [("4f1c2ab", " (git 4f1c2ab)"), ("", "")])
def test_version_has_the_commit_of_a_checkout(
    cli: Any, monkeypatch: pytest.MonkeyPatch, revision: str, shown: str
) -> None:
    root = Path(perfmodel.__file__).parents[1]
    monkeypatch.setattr(stack, "read_revision", {root: revision}.__getitem__)
    assert cli("--version").out == f"perfmodel {__version__}{shown}\n"


def test_unknown_commands_and_options_are_bad_input(cli: Any) -> None:
    is_an_error(cli("projekt"), 2, "projekt")
    is_an_error(cli("show", "machines", "--nope"), 2, "--nope", "perfmodel show --help")
    is_an_error(cli("collective", "--op", "all_gather"), 2, "--size")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NoCalibrationError("no curve", "measure it"), 3, "error: no curve\n       measure it\n"),
        (KeyboardInterrupt(), 130, "stopped"),
        (ZeroDivisionError("oops"), 1, "this is a bug in perfmodel"),
    ],
)
def test_exit_codes_follow_the_exception(
    cli: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(show, "show", broken)
    outcome = cli("show", "machines")
    assert (outcome.code, outcome.out) == (code, "")
    assert text in outcome.err and "Traceback" not in outcome.err
    assert ("Traceback" in cli("show", "machines", "-v").err) == (code != 130)


HEAVY = {"numpy", "scipy", "pandas", "plotly", "perfmodel.answer", "perfmodel.plan", "perfmodel.model"}


@pytest.mark.parametrize(
    "line",
    [
        "project --table-size 10Tb",
        "sweep --table-size 10Tb",
        "project --table-size 10TB --batch many",
        "plan --model criteo-kaggle --gpus x",
        "collective --op all_to_all --size 10Tb --gpus 8",
    ],
)
def test_a_bad_value_loads_nothing_that_computes(line: str) -> None:
    err, modules = modules_after("from perfmodel.cli import main; main()", *line.split())
    assert "10Tb is ambiguous" in err or "is not a whole number" in err
    assert not modules & HEAVY


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_a_command_has_examples_in_its_help(command: str) -> None:
    shown = called(*command.split(), "--help").out
    assert f"perfmodel {command}".rstrip() in shown.partition("Examples")[2]
    assert command or all(f"\n  {name.split()[0]} " in shown for name in COMMANDS)


def test_help_of_no_command_waits_for_numbers() -> None:
    program = "from perfmodel.cli import run\nfor line in sys.argv[1:]: run([*line.split(), '--help'])"
    assert not {"numpy", "pandas"} & modules_after(program, *COMMANDS)[1]


def modules_after(program: str, *words: str) -> tuple[str, set[str]]:
    """(stderr, the modules that are loaded) after a program with these words."""
    program = (
        f"import sys\ntry:\n {program.replace(chr(10), chr(10) + ' ')}\nfinally: print('|', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    return done.stderr, set(done.stdout.rpartition("|")[2].split())
