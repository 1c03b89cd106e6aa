"""``perfmodel chip plan``: what it prints, at any width, and what it refuses."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from cli_calls import mapped as asked

from perfmodel.onechip.packing import MappingState

TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000,64,2,twin\n300000,128,5,other\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return str(path)


def test_the_document_is_the_page(model: str) -> None:
    words = ("--chip", "ascend-910", "--model", model, "--batch", "2048", "--seed", "3", "--json")
    code, out, _ = asked(*words, "--effort", "quick", "--set", "cores=4")
    document = json.loads(out)
    assert code == 0
    assert (document["schema_version"], document["command"]) == (3, "plan")
    assert (document["chip"], document["cores"], document["batch"]) == ("ascend-910", 4, 2048)
    assert document["overrides"] == ["cores"]
    assert document["bound_s"] <= document["time_s"] <= document["best_symmetric_s"]
    assert document["best_symmetric_s"] <= document["global_memory_s"] * (1 + 1e-9)
    assert len(document["after"]) == 4
    assert (document["effort"], "search_s" in document) == ("quick", False)


def test_a_chip_of_ones_own(model: str, tmp_path: Path) -> None:
    from perfmodel.resources import data_path

    mine = tmp_path / "mine.toml"
    text = data_path("chips", "ascend-910.toml").read_text(encoding="utf-8")
    mine.write_text(text.replace('name = "ascend-910"', 'name = "mine"'), encoding="utf-8")
    code, out, _ = asked("--chip", str(mine), "--model", model, "--effort", "quick")
    assert code == 0
    assert "cores of mine." in out
    mine.write_text(text.split("[values.channels]")[0], encoding="utf-8")
    code, _, err = asked("--chip", str(mine), "--model", model)
    assert code == 2
    assert "missing channels" in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "criteo-kaggle", "--chip", "ascend-91"), "did you mean ascend-910 or ascend-910b?"),
        (("--chip", "ascend-910"), "which tables?"),
        (("--chip", "ascend-910", "--model", "criteo-kaggle", "--batch", "0"), "--batch 0 is zero"),
        (("--chip", "ascend-910", "--model", "criteo-kaggle", "--batch", "9e12"), "--batch 9"),
        (("--chip", "ascend-910", "--model", "criteo-kaggle", "--set", "cores"), "local_bytes=1MiB"),
        (("--chip", "ascend-910", "--model", "criteo-kaggle", "--time-limit", "0s"), "--time-limit"),
        (("--chip", "ascend-910", "--model", "criteo-kaggle", "--effort", "slow"), "effort 'slow' is not"),
    ],
)
def test_bad_input_is_refused_in_words(words: tuple[str, ...], message: str) -> None:
    code, out, err = asked(*words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


@pytest.mark.usefixtures("signals")
def test_ctrl_c_ends_the_search_and_prints_the_best_so_far(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes in the middle of a search."""
    from perfmodel.onechip.mapper import Mapper

    begin = Mapper.run

    def pressed(self: Mapper) -> MappingState:
        if not self.budget.cut_short():
            signal.raise_signal(signal.SIGINT)
        return begin(self)

    monkeypatch.setattr(Mapper, "run", pressed)
    handler = signal.getsignal(signal.SIGINT)
    words = ("--chip", "ascend-910", "--model", model, "--effort", "thorough")
    code, out, err = asked(*words, "--json")
    document = json.loads(out)
    assert (code, document["stopped"]) == (130, "interrupt")
    assert document["time_s"] > 0
    assert err.rstrip().endswith("stopped.")
    code, out, _ = asked(*words)
    assert (code, "tried with --effort thorough: Ctrl-C came" in " ".join(out.split())) == (130, True)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.usefixtures("signals")
def test_a_second_ctrl_c_aborts(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfmodel.onechip.mapper import Mapper

    def pressed(self: Mapper) -> MappingState:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it goes on")

    monkeypatch.setattr(Mapper, "run", pressed)
    code, out, err = asked("--chip", "ascend-910", "--model", model)
    assert (code, out, err.strip()) == (130, "", "stopped.")


def test_more_effort_is_more_work(model: str) -> None:
    words = ("--chip", "ascend-910", "--model", model, "--distribution", "zipf:1.1", "--json", "--effort")
    quick, normal = (json.loads(asked(*words, effort)[1]) for effort in ("quick", "normal"))
    assert (quick["effort"], quick["stopped"]) == ("quick", "effort")
    assert quick["mappings_tried"] < normal["mappings_tried"]
    assert quick["time_s"] >= normal["time_s"]


def test_a_core_without_tables_is_counted(tmp_path: Path) -> None:
    one = tmp_path / "one.csv"
    one.write_text("rows,dim,pooling,name\n10,8,1,only\n", encoding="utf-8")
    words = ("--chip", "ascend-910", "--model", str(one), "--batch", "1", "--effort", "quick")
    out = " ".join(asked(*words)[1].split())
    assert "30 cores have no table" in out
    assert "least 0 s" not in out
