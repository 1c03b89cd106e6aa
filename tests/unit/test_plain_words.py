"""Words that readers misread: 'a GPU' for 'per GPU', 'left to gain'; and changes that are listed twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PER = re.compile(
    r"\b(requests|bytes) a second\b|\bsamples a (GPU|second)\b|\branks? a (node|GPU)\b"
    r"|\bGPUs a (node|domain)\b"
    r"|\b(elements|bytes) a peer\b|\bbags a pass\b|\btime a sample\b|\bcards a node\b"
    r"|[})] a (second|GPU|node|rank|sample|row)\b|\"a GPU\""
)
"""A number for each: the word is 'per'. After a replaced field of a text, or alone in a heading, too."""
ODD = re.compile(r"is left to gain|as fast as all tables|[Tt]he same line goes on")


def written() -> list[Path]:
    """The program's sources and the pages; what published papers are quoted with is theirs."""
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]
    sources = [path for room in ("perfmodel", "calibrate") for path in (ROOT / room).rglob("*.py")]
    return [path for path in [*sources, *pages] if path.name != "accuracy.md"]


@pytest.mark.parametrize("words", [PER, ODD], ids=["per", "odd"])
def test_no_text_has_words_that_were_misread(words: re.Pattern[str]) -> None:
    paths = written()
    assert len(paths) > 300
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        'f"{rate} samples a second"',
        'headers = ["ranks", "a GPU"]',
        'f"{size} a GPU, NCCL"',
        "at 2 ranks a node",
    ],
)
def test_what_was_misread_is_found(line: str) -> None:
    assert PER.search(line)


def test_changes_of_one_command_are_told_apart() -> None:
    """Two entries of the changelog that begin with the same six words are one change."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    begun = [" ".join(re.findall(r"\w+", line)[:6]) for line in changes if line.startswith("- ")]
    assert len(begun) == len(set(begun)), sorted({each for each in begun if begun.count(each) > 1})
