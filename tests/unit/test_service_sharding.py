"""``load --sharding``: the pass that is served is the named one, and best is the fastest that fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import perfmodel
from perfmodel.effort import EFFORTS
from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import WAYS
from perfmodel.plan.as_projection import compared
from perfmodel.projections import project_one
from perfmodel.service.sharded import sharded_pass

ASKED = (
    "load",
    "--model",
    "criteo-kaggle",
    "--gpus",
    "8",
    "--qps",
    "100k",
    "--p99",
    "3ms",
    "--requests",
    "10000",
)


@pytest.mark.parametrize("way", ["row-wise-ub", "table-wise"])
def test_the_pass_is_that_of_the_projection_of_the_way(way: str) -> None:
    for batch in (256, 4096):
        base = project_one(tables="criteo-kaggle", gpus=8, batch=batch)
        (one,) = compared(base, [way])
        served = sharded_pass(base, way)
        assert served is not None and one.answer is not None
        assert served.total(batch) == pytest.approx(one.answer.time_s)
        assert (served.way, served.gpus) == (way, 8)


def test_best_is_the_fastest_of_all_and_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The opponent: every way, one by one, at the batch that it is chosen for."""
    monkeypatch.setitem(EFFORTS, "normal", 0.3)  # type: ignore[misc]
    base = project_one(tables="criteo-kaggle", gpus=8, batch=1024)
    times = [each.answer.time_s for each in compared(base, WAYS) if each.answer and each.fits]
    best = sharded_pass(base, "best")
    assert best is not None and best.total(1024) == pytest.approx(min(times))
    planned = sharded_pass(base, "best", "criteo-kaggle")
    assert planned is not None and planned.total(1024) <= min(times) * (1 + 1e-9)
    large = project_one(table_bytes=10e12)
    ub = sharded_pass(large, "best")
    assert ub is not None and ub.way == "row-wise-ub" and ub.total(1024) < large.time_s


def test_on_the_screen_in_json_and_in_python(cli: Any, tmp_path: Path) -> None:
    words = (*ASKED, "--sharding", "ub", "--batch", "512")
    document = json.loads(cli(*words, "--json").out)
    assert document["sharding"] == "row-wise-ub, chosen for 512 samples per GPU"
    assert "pass row-wise-ub, chosen for 512 samples" in " ".join(cli(*words).out.split())
    path = tmp_path / "prices.toml"
    path.write_text('[machine_hour]\nh100-sxm-ib = "80 EUR/h"\n')
    asked: dict[str, Any] = {"tables": "criteo-kaggle", "gpus": 8, "batch": 512, "requests": 10000}
    frame = perfmodel.load(qps=100e3, p99_s=3e-3, sharding="ub", prices=path, **asked)
    answer = frame.attrs["answer"]
    assert answer["sharding"] == document["sharding"] and answer["asked"] == document["asked"]
    assert answer["cost"]["per_hour"] == 80.0 and answer["cost"]["currency"] == "EUR"
    assert json.loads(cli(*words, "--json", "--prices", str(path)).out)["cost"] == answer["cost"]
    explained = cli("explain", *words)
    assert "--sharding row-wise-ub" in " ".join(explained.out.replace("\\\n", "").split())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--sharding", "all"), "a service runs one: --sharding best"),
        (
            ("--sharding", "best", "--reduction", "sparse"),
            "best and --reduction cannot be combined",
        ),
        (("--sharding", "ub", "--plan", "plan.json"), "--plan and --sharding cannot be combined"),
        (("--sharding", "rows"), "rows"),
    ],
)
def test_what_cannot_be_asked(cli: Any, more: tuple[str, ...], said: str) -> None:
    outcome = cli(*ASKED, *more)
    assert outcome.code == 2 and said in " ".join(outcome.err.split())


def test_a_way_that_does_not_fit_says_why() -> None:
    with pytest.raises(BadInputError, match="one table is 10 TB, larger than a GPU"):
        sharded_pass(project_one(table_bytes=10e12), "table-wise")
