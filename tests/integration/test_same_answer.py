"""The same command gives the same answer: on another CPU, with other threads, beside other work."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

WORDS = ["plan", "--model", "mlperf-dlrm-dcnv2", "--gpus", "16", "--batch", "512", "--max-hbm", "40GB"]
SCRIPT = f"""
import sys
from perfmodel.effort import EFFORTS
EFFORTS["quick"] = 0.8  # plans are changed at random too
from perfmodel.cli import run
sys.exit(run({[*WORDS, "--effort", "quick"]!r} + sys.argv[1:]))
"""
OTHER_CPUS = [
    {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"},
]
"""Other kernels of OpenBLAS, and numpy without the instructions of newer CPUs."""


def answer(environment: dict[str, str], *more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, *more],
        env={**os.environ, **environment, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def here() -> str:
    return answer({})


@pytest.mark.parametrize("environment", OTHER_CPUS)
def test_another_cpu_prints_the_same_text(here: str, environment: dict[str, str]) -> None:
    assert answer(environment) == here


def test_one_kind_of_cpu_prints_the_same_json_with_any_number_of_threads() -> None:
    one, many = (answer({"OPENBLAS_NUM_THREADS": count}, "--json") for count in ("1", "8"))
    assert one == many
    assert json.loads(one)["stopped"] == "effort"
