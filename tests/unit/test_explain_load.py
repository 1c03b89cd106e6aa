"""Every number that ``load`` prints has its equation in ``explain load``, with the same value."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from model_equations import anchors

LINE = ("--table-size", "1TB", "--qps", "500k", "--p99", "10ms", "--requests", "10000", "--batch", "256")
LINE += ("--sharding", "row-wise")
CASES = {
    "in line": ("--wait", "0s", "--no-overlap"),
    "waits": ("--wait", "100us", "--no-overlap"),
    "overlap, rows below": ("--wait", "0s", "--overlap", "--tier", "uvm"),
}


def reached(document: dict[str, Any], key: str) -> Any:
    """What ``asked.p99_s`` means; ``closed_forms.alone`` the closed form of that name."""
    first, _, rest = key.partition(".")
    if first == "closed_forms":
        return next(each["closed_s"] for each in document[first] if each["name"] == rest)
    return document[first][rest] if rest else document[first]


@pytest.mark.parametrize("case", CASES)
def test_each_number_is_the_printed_one_and_has_its_equation(cli: Any, case: str) -> None:
    line = (*LINE, *CASES[case])
    printed = json.loads(cli("load", *line, "--json").out)
    found = json.loads(cli("explain", "load", *line, "--json").out)
    names = [each["name"] for each in found["numbers"]]
    assert {"GPUs", "used", "batch", "p50", "p95", "p99", "inside", "batching", "queue", "pass"} <= set(names)
    for each in found["numbers"]:
        assert each["value"] == pytest.approx(reached(printed, each["key"])), each["name"]
        assert each["equation"] and each["working"]
        module, _, name = each["function"].rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))
        assert each["section"].partition("#")[2] in anchors()
    assert sum(step["full_s"] for step in found["steps"]) == pytest.approx(printed["pass_s"])
    p99 = next(each for each in found["numbers"] if each["name"] == "p99")
    assert p99["function"].endswith("unlimited_batch_quantile" if case == "in line" else "simulate")


def test_the_screen_and_what_cannot_be_asked(cli: Any) -> None:
    outcome = cli("explain", "load", *LINE, *CASES["in line"])
    assert outcome.code == 0 and max(map(len, outcome.out.splitlines())) <= 100
    assert "x_q = t + t max(0, 1 - (1 - q) / (1 - p))" in outcome.out and "explain gather-pool" in outcome.out
    for words, said in (
        (("gather", "--qps", "5k"), "leave it out: it is an option of perfmodel explain load"),
        (("load", "--table-size", "1TB"), "--p99"),
        (("load", "--p99", "1ms"), "--table-size"),
        (("load", "--table-size", "1TB", "--p99", "1us"), "below what the pass itself takes"),
    ):
        outcome = cli("explain", *words)
        assert outcome.code == 2 and said in outcome.err, outcome.err
