"""Tables that are larger than the memory of a chip: a time is said, and that they do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.onechip.answer import too_large
from perfmodel.schema.chip import load_chip

TABLES = "name,rows,dim,pooling\nsmall,100,64,1\nlarge,1000000000,64,1\n"
SAID = "ables of 256 GB do not fit the 84.9 GB of h100-sxm: the time is as if they did."


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "tables.csv"
    path.write_text(TABLES)
    return str(path)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_what_fits_is_not_talked_about() -> None:
    chip = load_chip("h100-sxm")
    assert too_large(chip, 80e9) == []
    (said,) = too_large(chip, 24e12)
    assert said == "Tables of 24 TB do not fit the 84.9 GB of h100-sxm: the time is as if they did."
    assert too_large(chip.with_overrides({"gm_size_bytes": 0}), 24e12) == []
    assert too_large(chip.with_overrides({"gm_size_bytes": "30TB"}), 24e12) == []


def test_plan_says_so_on_the_screen_and_in_the_document(cli: Any, own: str) -> None:
    words = ("chip", "plan", "--chip", "h100-sxm", "--model", own, "--batch", "8", "--json")
    words = (*words, "--effort", "quick")
    found = cli(*words)
    assert SAID in flat(found.err) and SAID in json.loads(found.out)["notes"][0]
    fine = cli(*words, "--set", "gm_size_bytes=300GB")
    assert fine.err == "" and json.loads(fine.out)["notes"] == []
