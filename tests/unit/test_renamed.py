"""Names of commands and options that 0.1 had: they still work, and a note has the new name."""

import pytest

from perfmodel.cli import run
from perfmodel.cli.renamed import current_words
from perfmodel.errors import BadInputError


@pytest.mark.parametrize(
    ("typed", "now"),
    [
        ("simulate --chip a --seed 3", "chip simulate --chip a --seed 3"),
        ("plan --model m --on-chip a", "chip plan --model m --chip a"),
        ("plan --on-chip=a --model m", "chip plan --chip=a --model m"),
        ("explain L1 --on-chip a --rows 9", "chip explain L1 --chip a --rows 9"),
        ("chips a --ways --dim 8", "chip ways --chip a --dim 8"),
        ("chips --ways --chip a", "chip ways --chip a"),
    ],
)
def test_a_renamed_line_is_run_with_a_note(typed: str, now: str) -> None:
    words, note = current_words(typed.split())
    assert words == now.split()
    assert note.startswith("note: perfmodel ") and " ".join(now.split()[:2]) in note


@pytest.mark.parametrize("line", ["plan --model m", "chips a", "explain slowdown", "chip ways --chip a", ""])
def test_a_line_of_today_stays(line: str) -> None:
    assert current_words(line.split()) == (line.split(), "")


def test_the_answer_is_that_of_the_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chips", "ascend-910", "--ways", "--dim", "128", "--json"]) == 0
    old = capsys.readouterr()
    assert run(["chip", "ways", "--chip", "ascend-910", "--dim", "128", "--json"]) == 0
    assert old.out == capsys.readouterr().out
    assert "perfmodel chips --ways is perfmodel chip ways since 0.2" in old.err


def test_an_option_that_went_names_what_answers_now() -> None:
    with pytest.raises(BadInputError, match=r"chip simulate has no --trace since 0\.2") as caught:
        current_words(["simulate", "--chip", "a", "--trace=ids.csv"])
    assert "histogram:FILE.csv" in str(caught.value.next_step)
