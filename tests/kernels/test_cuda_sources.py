"""The sources are a library: nothing in them is left over, and no two things in them have one name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from perfmodel.resources import kernels_path

COMMENT = re.compile(r"//.*")
DEFINED = re.compile(
    r"""(?:__device__|inline|constexpr|using)\s+(?:[\w:<>*&,]+\s+)*?[*&]?(\w+)\s*(?:\(|=|\{)
        |struct\s+(?:alignas\(\w+\)\s+)?(\w+)\s*\{""",
    re.VERBOSE,
)
KERNEL = re.compile(r"__global__\s+void(?:\s+__launch_bounds__\([^{;]*?\))?\s+(\w+)\(")


def sources() -> dict[str, str]:
    """The sources by name, without comments."""
    paths = [path for path in kernels_path().iterdir() if path.suffix in (".cu", ".cuh", ".hpp")]
    return {path.name: COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sorted(paths)}


def left_over(texts: Mapping[str, str]) -> list[str]:
    """Names that are defined and stand nowhere else; kernels are for others."""
    whole = "\n".join(texts.values())
    kernels = {name for text in texts.values() for name in KERNEL.findall(text)}
    names = {one or other for one, other in DEFINED.findall(whole)} - kernels - {"operator"}
    return sorted(name for name in names if len(re.findall(rf"\b{name}\b", whole)) < 2)


def defined_twice(texts: Mapping[str, str]) -> list[str]:
    """Types and values of a namespace that two files define."""
    found: dict[str, set[str]] = {}
    for file, text in texts.items():
        if file == "cpu.hpp":  # a namespace of its own
            continue
        for name in re.findall(
            r"^(?:struct|enum|constexpr \w+) (?:alignas\(\w+\) )?(\w+)\s*[:{=]", text, re.MULTILINE
        ):
            found.setdefault(name, set()).add(file)
    return sorted(name for name, files in found.items() if len(files) > 1)


def test_nothing_is_left_over() -> None:
    assert left_over(sources()) == []


def test_no_two_things_have_one_name() -> None:
    assert defined_twice(sources()) == []
