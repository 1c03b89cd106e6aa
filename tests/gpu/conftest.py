"""What is not tested on a GPU is no success there, unless it was asked for.

    pytest tests/gpu --skips-fail --may-skip "it needs two GPUs"

--skips-fail  a test, or a file of tests, that is skipped fails
--may-skip    but not where its reason holds these words; may be given several times
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skips-fail", action="store_true", help="a skipped test fails")
    parser.addoption(
        "--may-skip", action="append", default=[], metavar="WORDS", help="unless for this reason"
    )


def _judged(config: pytest.Config, report: Any) -> None:
    """Turn a skip that nobody asked for into a failure."""
    if not config.getoption("--skips-fail") or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if any(words in reason for words in config.getoption("--may-skip")):
        return
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} was skipped, and nobody asked for that: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    _judged(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    _judged(collector.config, report)
    return report
