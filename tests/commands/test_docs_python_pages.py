"""The examples of the page of the Python functions run as they are printed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import perfmodel

PAGES = Path(__file__).resolve().parents[2] / "docs" / "site" / "python_pages.py"


def made() -> Any:
    """The module that makes the pages."""
    spec = importlib.util.spec_from_file_location("python_pages", PAGES)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLES: dict[str, str] = made().EXAMPLES


def test_every_function_of_the_package_has_an_example() -> None:
    public = [name for name in perfmodel.__all__ if not name.startswith("__")]
    assert {f"{getattr(perfmodel, name).__module__}.{name}" for name in public} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(EXAMPLES[name], {"perfmodel": perfmodel})
    assert capsys.readouterr().out.strip()
