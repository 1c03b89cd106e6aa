"""The shape of what people read, with every number masked: layout is a snapshot, physics never is.

Write the snapshots again with ``python tests/golden/test_layout.py`` after a change that is meant.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

from perfmodel.cli import run
from perfmodel.schema.evidence import Evidence

HERE = Path(__file__).resolve().parent
SCREENS = {
    "project": ["project", "--table-size", "10TB"],
    "project_row_wise": ["project", "--table-size", "10TB", "--sharding", "row-wise"],
    "project_fits": ["project", "--table-size", "10GB"],
    "collective": ["collective", "--op", "all", "--size", "1MiB", "--gpus", "128"],
    "sweep": ["sweep", "--table-size", "1TB..8TB", "--batch", "128,1024"],
    "plan": ["plan", "--model", "criteo-kaggle", "--gpus", "8", "--effort", "quick"],
    "check": ["check", str(HERE.parents[1] / "docs" / "examples" / "half_the_cards.log")],
    "error_ambiguous": ["project", "--table-size", "10Tb"],
    "error_no_tables": ["project"],
}
_EVIDENCE = re.compile(rf"\b({'|'.join(Evidence)})\b.*")
_NUMBER = re.compile(r"(?<![A-Za-z_0-9])[<>]?\d(?:[\d .]*\d)?|∞")
_EXPERIMENT = re.compile(
    r"^(?:\S+ % of the time rests on|\d+ numbers? not measured) .*?(?=^$|^Machine )", re.DOTALL | re.MULTILINE
)
_UNIT = re.compile(r"# ?(ns|µs|ms|s|B|KiB|MiB|GiB|TiB|kB|MB|GB|TB|GB/s|MB/s|TB/s|%)(?![\w/])")


def screen(words: list[str]) -> str:
    """What a command prints on either stream, numbers masked and gaps closed."""
    os.environ.pop("COLUMNS", None)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    return mask(f"{out.getvalue()}{err.getvalue()}") + f"exit {code}\n"


def mask(text: str) -> str:
    """``393 µs`` becomes ``#``, what follows an evidence class is dropped, runs of spaces become one."""
    lines = []
    text = _EXPERIMENT.sub("EXPERIMENT\n", text)
    for line in text.splitlines():
        line = _EVIDENCE.sub("EVIDENCE", line)
        line = _UNIT.sub("#", _NUMBER.sub("#", line))
        lines.append(re.sub(r"(?<=\S) +", " ", line))
    return "\n".join(line for line in lines if line.strip(" #") or not line) + "\n"


@pytest.mark.parametrize("name", SCREENS)
def test_layout(name: str) -> None:
    expected = (HERE / f"{name}.txt").read_text(encoding="utf-8")
    assert screen(SCREENS[name]) == expected


def test_the_mask_hides_numbers_and_nothing_else() -> None:
    assert mask("a   393 µs  81.7 %  62.8×  measured  x\n") == "a # # #× EVIDENCE\n"
    assert mask("reduce-scatter (bags)\n") == "reduce-scatter (bags)\n"


if __name__ == "__main__":
    for name, words in SCREENS.items():
        (HERE / f"{name}.txt").write_text(screen(words), encoding="utf-8")
