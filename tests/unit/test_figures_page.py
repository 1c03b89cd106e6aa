"""docs/figures.md: its example runs, and the functions that it names are there."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from pathlib import Path
from typing import Any

from perfmodel.report.figures import Block

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")


def test_the_example_runs_and_prints_what_it_says() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names: dict[str, Any] = {}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    (said,) = re.findall(r"print\(found\.title\)  # (.*) …", code)
    assert out.getvalue().startswith(said)
    assert all(isinstance(names[name], Block) for name in ("found", "both", "roof"))


def test_the_functions_that_it_names_are_there() -> None:
    named = re.findall(r"^\| `(\w+)\.(\w+)` \|", PAGE, flags=re.M)
    assert len(named) == 8
    for module, function in named:
        assert callable(getattr(importlib.import_module(f"perfmodel.report.figures.{module}"), function))
