"""The same command gives the same answer: on another CPU, with other threads, beside other work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "docs" / "examples" / "half_the_cards.log"
PLAN = "plan --model criteo-kaggle --gpus 8 --set max_hbm=500MB --effort quick"
COMMANDS = (
    "project --table-size 10TB",
    "project --model criteo-kaggle --gpus 8 --sharding all",
    "collective --op all --size 1MiB --gpus 2..1024",
    PLAN,
    f"check {LOG}",
    "validate",
)
SCRIPT = """
import shlex, sys
from functools import partial
from perfmodel.cli import run
from perfmodel.validate import accuracy
accuracy.IN_NODE_MACHINES = ("h100-sxm-ib",)
accuracy.predict_left_out_sizes = partial(accuracy.predict_left_out_sizes, gpus=(8,))  # a few of the fits
for command in sys.argv[1:]:
    print(f"$ {command}")
    code = run(shlex.split(command))
    print(f"exit code {code}", flush=True)
"""
KERNELS = {
    "Haswell": ("X86_V4 AVX512_ICL AVX512_SPR", ("avx2", "fma")),
    "Zen": ("X86_V4 AVX512_ICL AVX512_SPR", ("avx2", "fma")),
    "SkylakeX": ("", ("avx512f", "avx512bw", "avx512dq", "avx512vl")),
    "Prescott": ("X86_V3 X86_V4 AVX512_ICL AVX512_SPR", ("pni",)),
}
"""OpenBLAS's kernels: instructions that numpy leaves out; flags without which the process dies of SIGILL."""


def answers(environment: dict[str, str], *commands: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, *commands],
        env={**os.environ, **environment, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("exit code 0") + done.stdout.count("exit code 6") == len(commands), done.stderr
    return done.stdout


def missing(kernel: str) -> str:
    """What this machine lacks for a kernel, in words; "" if it runs."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "/proc/cpuinfo, which says what a CPU can do"
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return ", ".join(flag for flag in KERNELS[kernel][1] if flag not in flags)


@pytest.fixture(scope="module")
def here() -> str:
    return answers({"OPENBLAS_NUM_THREADS": "1"}, *COMMANDS, f"{PLAN} --json")


@pytest.mark.parametrize("kernel", KERNELS)
def test_another_cpu_prints_the_same_text(kernel: str, request: pytest.FixtureRequest) -> None:
    """Without the needed instructions the test is skipped, and a warning names the kernel in any summary."""
    if lacking := missing(kernel):
        request.node.warn(
            pytest.PytestWarning(f"OpenBLAS's kernel {kernel} was not tried: it needs {lacking}")
        )
        pytest.skip(f"{kernel} needs {lacking}")
    environment = {"OPENBLAS_CORETYPE": kernel, "NPY_DISABLE_CPU_FEATURES": KERNELS[kernel][0]}
    assert request.getfixturevalue("here").startswith(answers(environment, *COMMANDS))


def test_one_kind_of_cpu_prints_the_same_json_with_any_number_of_threads(here: str) -> None:
    text = answers({"OPENBLAS_NUM_THREADS": "8"}, f"{PLAN} --json")
    assert here.endswith(text)
    assert json.loads(text[text.index("{") : text.rindex("}") + 1])["stopped"] == "effort"
