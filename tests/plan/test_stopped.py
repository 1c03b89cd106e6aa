"""Ctrl-C while a plan is searched for, or what would change it: told of at once, and no plan is lost."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from cli_calls import planned as asked

from perfmodel.cli.signals import ctrl_c
from perfmodel.plan import outcome
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.searching.search import Search

pytestmark = pytest.mark.usefixtures("signals")

TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000000,64,5,other\n"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    path = tmp_path / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return ["--model", str(path), "--gpus", "16", "--set", "max_hbm=300MB", "--effort", "quick"]


def press(*_: object, **__: object) -> Any:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("of", "name", "said"),
    [
        (Search, "_anneal", "stopped by Ctrl-C after"),
        (outcome, "find_next_best", "stopped by Ctrl-C after"),
        (PlanQuestion, "price_again", "per forward pass of"),  # while changes are searched for
    ],
)
def test_a_press_is_told_of_and_the_plan_is_printed(
    of: Any, name: str, said: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(of, name, press)
    code, out, err = asked(*words)
    assert code == 130 and said in " ".join(out.split())
    assert err.split() == ["stopping…", "stopped."] and "What would help" not in out
    assert signal.getsignal(signal.SIGINT) is before


def test_several_numbers_of_gpus_are_stopped_as_one_is(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    several = [*words[:2], "--gpus", "8,16,64", *words[4:]]
    monkeypatch.setattr(Search, "_anneal", press)
    code, out, err = asked(*several)
    assert code == 130 and "64 GPUs: stopped before there was a plan" in out
    assert err.split() == ["stopping…", "stopped."]
    monkeypatch.setattr(Search, "_start", press)
    code, out, err = asked(*several)
    assert (code, out) == (130, "") and err.split("\n\n")[1].startswith("there is no plan to print yet")
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_that_is_ignored_from_the_start_stays_ignored() -> None:
    """As ``nohup`` and ``&`` of a script leave it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ctrl_c() as pressed:
        press()
    assert not pressed() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
