"""docs/figures.md: its examples run, and the functions that it names are there."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from perfmodel.report.figures import Block
from perfmodel.report.figures.registry import QUESTION

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^(<!-- not-run[^\n]*\n)?```python\n(.*?)```", PAGE, flags=re.S | re.M)


def test_the_examples_run_and_print_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = [code for kept, code in EXAMPLES if not kept]
    assert len(run) == 4 and len(EXAMPLES) == 5  # the last is run by tests/browser/test_figure_pictures.py
    names: dict[str, Any] = {}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for code in run:
            exec(code, names)
    (said,) = re.findall(r"print\(found\.title\)  # (.*) …", run[0])
    assert out.getvalue().startswith(said)
    assert isinstance(names["blocks"], dict) and names["blocks"]["balance"].title in out.getvalue()
    assert all(isinstance(names[name], Block) for name in ("found", "lines", "bars", "both", "roof"))
    assert json.loads((tmp_path / "changes.json").read_text())["layout"]["width"] == 1200
    assert [f"<b>{names['blocks']['balance'].title}</b>"] == [
        names["waits"].layout.title.text.replace("<br>", " ")
    ]
    assert "NVLink" in names["alone"].layout.title.text and names["linear"].layout.yaxis.type != "log"


def test_the_functions_that_it_names_are_there() -> None:
    named = re.findall(r"^\| `(\w+)\.(\w+)` \| ([^|]*) \|", PAGE, flags=re.M)
    for module, function, _ in named:
        assert callable(getattr(importlib.import_module(f"perfmodel.report.figures.{module}"), function))
    assert {name for *_, shown in named for name in shown.split(", ")} == set(QUESTION.shows)
