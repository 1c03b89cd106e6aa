"""Ctrl-C while a plan is searched for, or what would change it: told of at once, and no plan is lost."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_calls import planned as asked

import perfmodel
from perfmodel.cli.stopping import ctrl_c
from perfmodel.plan import outcome, scaling, what_ifs
from perfmodel.plan.searching.search import Search

pytestmark = pytest.mark.usefixtures("signals")

TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000000,64,5,other\n"
RECORDS = [
    {"name": "big", "rows": 1_000_000, "dim": 64, "pooling": 10.0},
    {"name": "small", "rows": 1000, "dim": 64, "pooling": 2.0},
    {"name": "other", "rows": 1_000_000, "dim": 64, "pooling": 5.0},
]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    path = tmp_path / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return ["--model", str(path), "--gpus", "16", "--set", "max_hbm=300MB", "--effort", "quick"]


def press(*_: object, **__: object) -> Any:
    signal.raise_signal(signal.SIGINT)


def test_the_first_press_is_told_of_and_the_plan_is_printed(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Search, "_anneal", press)
    code, out, err = asked(*words)
    assert code == 130 and "stopped by Ctrl-C after" in " ".join(out.split())
    assert err.split() == ["stopping…", "stopped."]
    assert "What would change the plan" not in out
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_press_prints_the_plan_too(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_anneal", press)
    monkeypatch.setattr(outcome, "find_next_best", press)
    code, out, err = asked(*words)
    assert code == 130 and "per forward pass of" in out and err.split() == ["stopping…", "stopped."]


def test_a_press_in_the_last_pricing_does_not_say_that_there_was_no_plan(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "_answer", press)
    code, out, err = asked(*words)
    assert (code, out) == (130, "") and "stopped while the answer was being written." in err
    assert "before there was a plan" not in err


def test_a_press_while_changes_are_searched_for_keeps_the_plan(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def again(*_: object) -> None:
        tried.append(1)
        press()

    monkeypatch.setattr(what_ifs, "_time_change", again)
    code, out, err = asked(*words)
    assert code == 130 and len(tried) == 1
    assert "per forward pass of" in out and err.split() == ["stopping…", "stopped."]


def test_several_numbers_of_gpus_are_stopped_as_one_is(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    several = [*words[:2], "--gpus", "8,16,64", *words[4:]]
    monkeypatch.setattr(Search, "_anneal", press)
    code, out, err = asked(*several)
    assert code == 130 and "64 GPUs: stopped before there was a plan" in out
    assert err.split() == ["stopping…", "stopped."]
    monkeypatch.setattr(Search, "_begin", press)
    code, out, err = asked(*several)
    assert (code, out) == (130, "") and err.strip().startswith("stopping…\n\nstopped before there was a plan")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_press_between_two_searches_is_not_lost(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def caught(*_: object) -> None:
        with suppress(KeyboardInterrupt):  # as a library may
            press()

    monkeypatch.setattr(scaling, "knee_of", caught)
    code, out, err = asked(*words[:2], "--gpus", "8,16", *words[4:])
    assert code == 130 and "16" in out and err.split() == ["stopping…", "stopped."]


def test_stopped_after_one_number_of_gpus_does_not_say_that_tables_do_not_fit(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "_anneal", press)
    _, out, _ = asked(*words[:2], "--gpus", "8,16,64", *words[4:])
    said = " ".join(out.split())
    assert "Knee: not known, because the search was stopped" in said and "tables fit" not in said


def test_ctrl_c_that_is_ignored_from_the_start_stays_ignored() -> None:
    """As ``nohup`` and ``&`` of a script leave it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ctrl_c(lambda presses: pytest.fail("it was heard")) as pressed:
        press()
    assert not pressed() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def interrupt(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", [(Search, "_anneal"), (outcome, "find_next_best")])
def test_a_stopped_plan_in_python_says_so(where: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the search, and while its answer is made."""
    whole = perfmodel.plan_tables(RECORDS, 16, max_hbm_bytes=300e6, effort="quick")
    assert not whole.stopped and "Ctrl-C" not in repr(whole)
    monkeypatch.setattr(*where, interrupt)
    with pytest.warns(
        UserWarning, match="stopped by Ctrl-C: the best plan so far takes .* on 16 GPUs"
    ) as warned:
        found = perfmodel.plan_tables(RECORDS, 16, max_hbm_bytes=300e6, effort="quick")
    assert found.stopped and repr(found).endswith(", stopped by Ctrl-C>") and found.time_s > 0
    assert warned[0].filename == __file__
    for function in (perfmodel.plan_tables, perfmodel.scale_tables):
        assert "Ctrl-C" in (function.__doc__ or "")


def test_several_numbers_of_gpus_in_python_end_at_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    begin = Search._begin
    monkeypatch.setattr(Search, "_begin", lambda self: (begun.append(self.options.gpus), begin(self))[1])
    monkeypatch.setattr(Search, "_anneal", interrupt)
    with pytest.warns(UserWarning, match="stopped by Ctrl-C"):
        found = perfmodel.scale_tables(RECORDS, [8, 16, 64], max_hbm_bytes=300e6)
    assert begun == [8] and found.stopped
    assert repr(found).endswith("16 GPUs no plan, 64 GPUs no plan, stopped by Ctrl-C>")


def test_before_there_is_a_plan_ctrl_c_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_begin", interrupt)
    for function, gpus in ((perfmodel.plan_tables, 8), (perfmodel.scale_tables, [8, 16])):
        with pytest.raises(KeyboardInterrupt):
            function(RECORDS, gpus)  # type: ignore[operator]
