"""No test reads a clock: a busy machine is slower, and speed is measured in ``benchmarks/``, side by side.

A test that hangs is ended by its processor time (``conftest.py``); what another process does is waited for
with ``waiting.until``, or ``waiting.PATIENCE_S`` at most.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
_CLOCK = re.compile(
    r"\b(import|from) time\b|perf_counter|(process|thread)_time|ru_utime|\btime_limit|--time-limit"
)
_BOUND = re.compile(r"\b(?:timeout|wait|join|communicate)(?:=|\()(\d[\d.]*)\b")
_SHORTEST_BOUND_S = 60.0
_MAY = {
    "conftest.py": "it ends a test that hangs",
    "waiting.py": "it waits for other processes; nothing that is asserted depends on how long",
    "calibrate/fake_gpu.py": "its events are a GPU's clock, which the product reads",
    "rehearsal/site/stand_in_torch.py": "its events are a GPU's clock, which the product reads",
    "calibrate/team_rank.py": "a call that takes a millisecond at least",
    "calibrate/test_simulated_calibrate.py": "the limit is of a simulated clock",
    "calibrate/test_calibrate_session.py": "the limit is of a simulated clock",
    "plan/test_effort.py": "its clock is a list of numbers",
    "commands/test_cli_plan.py": "the option is refused, or has no effect",
    "answer/test_question.py": "the option is refused",
    "plan/test_plan_tables.py": "the argument is refused, or read",
    "plan/test_plan_answers_said.py": "words of an answer",
    "plan/test_plan_scaling.py": "words of an answer",
    "report/test_report_plan_words.py": "words of an answer",
    "commands/test_waiting_line.py": "its clock of work is a counter",
    "gpu/test_gpu_kernels.py": "the limit ends a calibration, of which nothing but its success is asserted",
}


def read_texts() -> dict[str, str]:
    """Of every file of tests but this one, by its place."""
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    return {
        name: path.read_text(encoding="utf-8") for name, path in files.items() if name != Path(__file__).name
    }


def test_no_test_reads_a_clock_nor_ends_a_search_by_one() -> None:
    assert {name for name, text in read_texts().items() if _CLOCK.search(text)} <= _MAY.keys()


def test_no_bound_on_another_process_is_short() -> None:
    bounds = [(name, float(s)) for name, text in read_texts().items() for s in _BOUND.findall(text)]
    assert [bound for bound in bounds if bound[1] < _SHORTEST_BOUND_S] == []
