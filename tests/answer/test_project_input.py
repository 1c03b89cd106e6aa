"""What a projection is asked: limits of the values, what cannot be, and what is assumed and said."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

from perfmodel.answer import project_one, project_row_wise, sweep
from perfmodel.cli import run
from perfmodel.errors import BadInputError
from perfmodel.schema.machine import load_machine


@pytest.mark.parametrize(
    "values", [{"pooling": 1e300}, {"pooling": 2e9}, {"batch": 2e9}, {"table_count": 2e5}, {"dim": 2e6}]
)
def test_values_have_sensible_limits(values: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="at most"):
        sweep.find_feasible(
            {k: np.array([v]) for k, v in {"gpus": 8.0, **values}.items()}, load_machine("l40s-pcie")
        )
    with pytest.raises(BadInputError, match="at most"):
        project_row_wise(gpus=8, **values)


@pytest.mark.parametrize("key", ["hbm_bytes", "hbm_bytes_per_s", "l2_bytes_per_s", "gather_bytes_per_s"])
@pytest.mark.parametrize("extreme", [1e-300, 1e300])
def test_absurd_machines_are_refused_or_answered_without_a_warning(key: str, extreme: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            p = project_one(
                table_bytes=10e12, machine=load_machine("h100-sxm-ib").with_overrides({key: extreme})
            )
        except BadInputError:
            return
        assert np.isfinite(p.slowdown)


def test_which_points_of_a_grid_are_possible() -> None:
    machine = load_machine("h100-sxm-ib")
    columns = sweep.combine_axes(table_bytes=(1e12, 10e12), gpus=(8, 64, 128))
    assert sweep.find_feasible(columns, machine).tolist() == [False, True, True, False, False, True]
    # what leaves no room for the reserve is answered, and marked
    assert sweep.find_feasible(columns, machine, reserve=0.5).tolist() == [
        False,
        True,
        True,
        False,
        False,
        True,
    ]
    marked = project_row_wise({"table_bytes": [1e12, 10e12], "gpus": [64, 128]}, reserve=0.5)
    assert marked["fits"].tolist() == [True, False]
    # 1000 rows of 128 bytes cannot be cut into 1024 shards
    rows = sweep.combine_axes(table_bytes=(128_000,), gpus=(512, 1024))
    assert sweep.find_feasible(rows, machine).tolist() == [True, False]


def test_tables_that_fill_the_memory_are_said() -> None:
    p = project_one(gpus=8, reserve=0)
    assert any("assumed to fill the memory, 680 GB" in note for note in p.notes)
    assert p.gpu_count.fits and p.gpu_count.memory_bytes == pytest.approx(84.94e9)  # with the buffers
    assert not any("fill" in note for note in project_one(gpus=8, table_bytes=640e9).notes)


def test_a_sweep_leaves_out_what_is_impossible_and_counts_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--table-size", "1TB,10TB", "--gpus", "8,64,128", "--json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["rows"]) == 3
    assert "3 of 6 configurations left out" in captured.err
    assert run(["sweep", "--table-size", "10TB", "--gpus", "8"]) == 2
    assert "none of 1" in capsys.readouterr().err
