"""NCCL's own estimates in benchmarks/nccl_table.py, against numbers that a reader of tuning.cc can add up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from perfmodel.model.unknowns import Group
from perfmodel.schema.machine import load_machine

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "nccl_table.py"
SPEC = importlib.util.spec_from_file_location("nccl_table", PATH)
assert SPEC and SPEC.loader
nccl_table = importlib.util.module_from_spec(SPEC)
sys.modules["nccl_table"] = nccl_table
SPEC.loader.exec_module(nccl_table)
US = 1e-6


def expected(collective: str, group: Group, host: str = "x86_intel", ll128: bool = True) -> np.ndarray:
    selector = nccl_table.Selector(load_machine("h100-sxm-ib"), host, ll128)
    return selector.expected_s(collective, group, np.array([1.0]))[:, 0]


def test_rings_of_two_nodes() -> None:
    """14 steps inside, at least the overhead (1 us, AMD 2, Simple three times that), and one across."""
    intel, amd = expected("all_gather", Group.of(16, 8)), expected("all_gather", Group.of(16, 8), "x86_amd")
    assert intel == pytest.approx(
        np.array([6.6 + 14 + 2.7, 14 + 14 * 1.9 + 4, 8.4 + 14 * 3.4 + 14]) * US, rel=1e-3
    )
    assert amd == pytest.approx(np.array([6.6 + 28 + 2.7, 14 + 28 + 4, 8.4 + 14 * 6 + 14]) * US, rel=1e-3)
    assert np.isinf(expected("all_gather", Group.of(16, 8), ll128=False)[1])


def test_trees_switches_and_pat() -> None:
    times = expected("all_reduce", Group.of(32, 8))
    assert times.size == 7
    assert times[3] == pytest.approx((6.8 + 2 * (7 * 0.6 + 2 * 5)) * US, rel=1e-3)
    assert times[6] == pytest.approx((25 + 2 * 2 * 20.9) * US, rel=1e-3)
    assert expected("all_reduce", Group.of(8, 8))[6] == pytest.approx(25 * US, rel=1e-3)
    alone = expected("all_gather", Group.of(16, 1))
    assert alone[0] == pytest.approx((6.6 + 15 * 5) * US, rel=1e-3)
    assert alone[3] == pytest.approx((8 + 4 * 14 / 3.5 + 16 * 2.8) * US, rel=1e-3)
