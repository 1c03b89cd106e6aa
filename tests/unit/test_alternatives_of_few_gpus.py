"""Alternatives on fewer GPUs than the tables need in HBM: those rows say so, all others are answered."""

from __future__ import annotations

from perfmodel.plan.other_ways.alternatives import alternatives, best_of
from perfmodel.report.alternatives_text import alternatives_text


def test_tables_that_do_not_fit_the_hbm_leave_all_other_alternatives() -> None:
    found = alternatives({"table_bytes": 10e12, "gpus": 64})
    possible = {each.name: each.answer is not None for each in found}
    assert not possible["row-wise"] and not possible["best-plan"]
    assert possible["host"] and possible["ssd"] and possible["one-memory"]
    assert next(each for each in found if each.name == "host").gpus <= 64
    text = alternatives_text(found, [], [])
    assert best_of(found).label.lower() in text.lower() and "does not fit" in text
