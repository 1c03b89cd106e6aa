"""Public functions and classes of the model whose docstring has an equation."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfmodel import model

PAGE = Path(__file__).parents[2] / "docs" / "model.md"


def page_text() -> str:
    return PAGE.read_text(encoding="utf-8")


def anchors() -> set[str]:
    """Of the headings of the page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page_text(), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def with_equation() -> Iterator[Callable[..., Any]]:
    for each in pkgutil.iter_modules(model.__path__):
        module = importlib.import_module(f"perfmodel.model.{each.name}")
        for name, found in vars(module).items():
            own = inspect.isfunction(found) or inspect.isclass(found)
            public = own and found.__module__ == module.__name__ and not name.startswith("_")
            if public and re.search(r"\n\n {4}\S", inspect.getdoc(found) or ""):
                yield found
