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
from perfmodel.passes.equations import section_of

PAGE = Path(__file__).parents[2] / "docs" / "model.md"


def page_text() -> str:
    return PAGE.read_text(encoding="utf-8")


def anchors() -> set[str]:
    """Of all headings of the page."""
    headings = re.findall(r"^#+ (.+)$", page_text(), flags=re.MULTILINE)
    return {anchor(heading) for heading in headings}


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def with_equation() -> Iterator[Callable[..., Any]]:
    for each in pkgutil.iter_modules(model.__path__):
        module = importlib.import_module(f"perfmodel.model.{each.name}")
        for name, found in vars(module).items():
            own = inspect.isfunction(found) or inspect.isclass(found)
            public = own and found.__module__ == module.__name__ and not name.startswith("_")
            if public and re.search(r"\n\n {4}\S", inspect.getdoc(found) or ""):
                yield found


def function_table() -> str:
    """The list of the section "Every function": of each section, in the page's order."""
    of: dict[str, list[str]] = {}
    for found in with_equation():
        name = f"`{found.__module__.rpartition('.')[2]}.{found.__name__}`"
        of.setdefault(section_of(found).partition("#")[2], []).append(name)
    headings = re.findall(r"^## (.+)$", page_text(), flags=re.MULTILINE)
    rows = [
        f"| [{heading}](#{anchor(heading)}) | {', '.join(of[anchor(heading)])} |"
        for heading in headings
        if anchor(heading) in of
    ]
    return "\n".join(["| section | functions |", "|---|---|", *rows])


if __name__ == "__main__":  # writes the list anew, after a function was added to the model
    before, _, rest = page_text().partition("| section | functions |\n")
    PAGE.write_text(before + function_table() + "\n\n" + rest[rest.index("## ") :], encoding="utf-8")
