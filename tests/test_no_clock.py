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
    "integration/fake_gpu.py": "its events are a GPU's clock, which the product reads",
    "rehearsal/site/stand_in_torch.py": "its events are a GPU's clock, which the product reads",
    "integration/team_rank.py": "a call that takes a millisecond at least",
    "integration/test_next_lines.py": "the limit is of a simulated clock",
    "integration/test_simulated_calibrate.py": "the limit is of a simulated clock",
    "unit/test_calibrate_session.py": "the limit is of a simulated clock",
    "integration/test_one_gpu.py": "the limit is a word of a command that a shell stands in for",
    "gpu/test_gpu_kernels.py": "the limit ends a calibration, of which nothing but its success is asserted",
}
_BEING_MENDED = {
    "browser/test_plan_browser.py", "golden/same_answers.py", "golden/test_layout.py",
    "integration/test_chip_search.py",
    "integration/test_one_chip_speedups.py", "integration/test_plan_families.py",
    "integration/test_plans_with_tiers.py",
    "oracles/mappings.py", "unit/test_bound_of_all_plans.py",
    "unit/test_bound_share.py", "unit/test_chip_commands.py", "unit/test_chip_files.py",
    "unit/test_chip_mapper.py", "unit/test_chip_plan.py", "unit/test_chip_plan_command.py",
    "unit/test_chip_searched.py", "unit/test_cli_compare.py", "unit/test_cli_plan.py",
    "unit/test_cli_plan_page.py", "unit/test_exchange_sets.py", "unit/test_explain_chip.py",
    "unit/test_figure_plan_scaling.py", "unit/test_fresh_eyes.py", "unit/test_mean_loads.py",
    "unit/test_plan_answers_said.py", "unit/test_plan_bound.py", "unit/test_plan_constraints.py",
    "unit/test_plan_dense.py", "unit/test_plan_hot.py", "unit/test_plan_made_for.py",
    "unit/test_plan_many_tables.py", "unit/test_plan_processes.py", "unit/test_plan_progress.py",
    "unit/test_plan_quick.py", "unit/test_plan_read_back.py", "unit/test_plan_scaling.py",
    "unit/test_plan_search.py", "unit/test_plan_stopped.py", "unit/test_plan_tables.py",
    "unit/test_plan_tiers.py", "unit/test_plans_on_ssd.py", "unit/test_report_chip.py", "unit/test_screen.py",
    "unit/test_spellings.py", "unit/test_work_of_many_tables.py",
}  # fmt: skip
"""Searches in them end by a clock. None is to be left."""


def texts() -> dict[str, str]:
    """Of every file of tests but this one, by its place."""
    found = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    return {
        name: path.read_text(encoding="utf-8") for name, path in found.items() if name != Path(__file__).name
    }


def test_no_test_reads_a_clock_nor_ends_a_search_by_one() -> None:
    found = {name for name, text in texts().items() if _CLOCK.search(text)}
    assert found - _MAY.keys() - _BEING_MENDED == set()
    assert _MAY.keys() - found == set(), "these need not be named"


def test_no_bound_on_another_process_is_short() -> None:
    found = [(name, float(s)) for name, text in texts().items() for s in _BOUND.findall(text)]
    assert [one for one in found if one[1] < _SHORTEST_BOUND_S] == []
