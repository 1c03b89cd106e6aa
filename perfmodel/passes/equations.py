"""Equations as printed: the formula in a docstring, the function that computes it, its section in the docs.

Text and source are read from the docstrings of the functions that compute, so that they stay in step.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PAGE = "docs/model.md"
_PAGE_TITLE = "The model"
_HEADINGS = {
    "all-to-all": "All-to-all",
    "all-reduce-across-domains": "All-reduce across domains",
}
"""Headings with a hyphen or a comma of their own."""
SECTIONS = {
    "perfmodel.collectives": "how-a-time-is-found",
    "perfmodel.model.access": "kernels",
    "perfmodel.model.bands": "bands",
    "perfmodel.model.bounds": "embedding-bag",
    "perfmodel.model.caching": "which-rows-are-asked-for",
    "perfmodel.model.capacity": "embedding-bag",
    "perfmodel.model.collectives": "rings",
    "perfmodel.model.collectives.bus_factor": "bus-factors",
    "perfmodel.model.collectives.nvls_bus_bandwidth": "all-reduce-across-domains",
    "perfmodel.model.collectives.pairwise_latency": "all-to-all",
    "perfmodel.model.collectives.pairwise_transfer_time": "all-to-all",
    "perfmodel.model.collectives.rendezvous_share": "all-to-all",
    "perfmodel.model.collectives.speed_of_light_time": "how-a-time-is-found",
    "perfmodel.model.collectives.tree_bus_bandwidth": "all-reduce-across-domains",
    "perfmodel.model.collectives.tree_depth": "all-reduce-across-domains",
    "perfmodel.model.collectives.tree_network_share": "all-reduce-across-domains",
    "perfmodel.model.core_cache": "one-chip",
    "perfmodel.model.curves": "curves",
    "perfmodel.model.dense": "a-training-step",
    "perfmodel.model.differences": "bands",
    "perfmodel.model.embedding_bag": "embedding-bag",
    "perfmodel.model.exchanges": "other-shardings",
    "perfmodel.model.kernels": "kernels",
    "perfmodel.model.laws": "rings",
    "perfmodel.model.laws.pairwise_time": "all-to-all",
    "perfmodel.model.look_ups": "which-rows-are-asked-for",
    "perfmodel.model.messages": "other-shardings",
    "perfmodel.model.one_chip": "one-chip",
    "perfmodel.model.one_core": "one-chip",
    "perfmodel.model.popularity": "which-rows-are-asked-for",
    "perfmodel.model.sharding": "embedding-bag",
    "perfmodel.model.one_memory": "one-memory",
    "perfmodel.passes.handover": "in-a-whole-pass",
    "perfmodel.passes.one_domain": "if-all-gpus-were-in-one-domain",
    "perfmodel.plan": "other-shardings",
    "perfmodel.projections": "embedding-bag",
}
"""Sections of ``docs/model.md`` by the start of a function's name; the longest match counts."""


@dataclass(frozen=True)
class Equation:
    """A printed equation.

    text  the formula;  function  full name of the function that computes it
    section  where docs/model.md derives it;  source  publication or code that it comes from"""

    text: str
    function: str
    section: str
    source: str = ""

    @staticmethod
    def of(
        function: Callable[..., Any], text: str | None = None, of: Callable[..., Any] | None = None
    ) -> Equation:
        """The equation of a function, read from its docstring.

        text  the equation, if its letters differ from the docstring's
        of    object whose docstring has the equation, if the function's has none: the class of a method
        """
        written = equation_of(of or function) if text is None else text
        return Equation(written, name_of(function), section_of(function), source_of(of or function))

    def to_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return {"equation": self.text, "function": self.function, "section": self.section}


@dataclass(frozen=True)
class ExplainedNumber:
    """One number of an answer, with its derivation.

    name  as printed;  key  of the same number in ``--json``;  value  in SI units;  text  value with its unit
    equation  computes the number;  working  the equation with the numbers filled in
    """

    name: str
    key: str
    value: float
    text: str
    equation: Equation
    working: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        named = {"name": self.name, "key": self.key, "value": self.value}
        return {**named, **self.equation.to_dict(), "working": list(self.working)}


def name_of(function: Callable[..., Any]) -> str:
    """The name by which a function is imported: ``perfmodel.model.curves.hockney_time``."""
    return f"{function.__module__}.{function.__qualname__}"


def section_of(function: Callable[..., Any]) -> str:
    """Section that derives a function: ``docs/model.md#curves``. Limits: no such section -> KeyError"""
    name = name_of(function)
    while name not in SECTIONS:
        name = name.rpartition(".")[0]
        if not name:
            raise KeyError(name_of(function))
    return f"{PAGE}#{SECTIONS[name]}"


def documented(text: str) -> str:
    """A text in which ``docs/model.md#rings`` is replaced by the title and heading: The model, "Rings".

    An installed program has no docs folder; the title and heading are on the site and in the file.
    """

    def title(found: re.Match[str]) -> str:
        heading = found[1].replace("-", " ").capitalize().replace(" gpus", " GPUs")
        return f'{_PAGE_TITLE}, "{_HEADINGS.get(found[1], heading)}"'

    return re.sub(rf"{re.escape(PAGE)}#([\w-]+)", title, text)


def equation_of(function: Callable[..., Any]) -> str:
    """The formula of a docstring, that is its first indented lines, without the unit."""
    lines = (inspect.getdoc(function) or "").splitlines()
    indented: list[str] = []
    for line in lines[1:]:
        if line.startswith("    "):
            indented.append(line.strip())
        elif indented:
            break
    return "\n".join(" ".join(line.split()) for line in indented)


def source_of(function: Callable[..., Any]) -> str:
    """The text after ``Source:`` in a docstring."""
    lines = (inspect.getdoc(function) or "").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("Source:")), len(lines))
    text: list[str] = []
    for line in lines[start:]:
        if text and not line.startswith("  "):
            break
        text.append(line.removeprefix("Source:").strip())
    return " ".join(text)
