"""Docstrings of this project as Markdown: arguments with their units become a list, labels stand out.

A docstring has a sentence, equations indented by four blanks, and then lines such as

    S      send buffer of one rank [bytes];  G  ranks [-]
    Source: nccl-tests doc/PERFORMANCE.md
    Limits: G = 1 -> 0;  S -> 0 -> alpha
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_LABEL = re.compile(r"(Source|Limits|Columns|Raises|Returns)(?::\s*|\s+)(?P<text>.*)", re.DOTALL)
_ARGUMENT = re.compile(r"(?P<name>[*\w.]+(?:, [*\w.]+)*) {2,}(?P<text>\S.*)", re.DOTALL)
_NEXT = re.compile(r"; {2,}")
_CODE = re.compile(r"(``?[^`]+``?)")


class ProjectDocstrings(griffe.Extension):
    """Rewrites each docstring before mkdocstrings shows it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Of a module, a class, a function or an attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The same text: equations as code, arguments as a list, each label on a line of its own."""
    summary, *rest = re.split(r"\n{2,}", docstring.strip())
    return "\n\n".join([_text(summary), *(_block(block) for block in rest)])


def _block(block: str) -> str:
    """A paragraph; what is indented by four blanks from its first line on stays as it is."""
    if block.startswith("    "):
        return f"```text\n{_outdented(block)}\n```"
    return "\n".join(_lines(_items(block)))


def _outdented(block: str) -> str:
    return "\n".join(line.removeprefix("    ").rstrip() for line in block.splitlines())


def _items(block: str) -> list[str]:
    """Lines of a paragraph with the lines that go on with them."""
    items: list[str] = []
    for line in block.splitlines():
        starts = _LABEL.match(line) or _ARGUMENT.match(line)
        if starts or not items:
            items.append(line)
        else:
            items[-1] += " " + line.strip()
    return items


def _lines(items: list[str]) -> list[str]:
    made: list[str] = []
    listed = False
    for item in items:
        label = _LABEL.match(item)
        argument = None if label else _ARGUMENT.match(item)
        if argument:
            made += [] if listed or not made else [""]
            made += [f"- {_argument(part)}" for part in _NEXT.split(item)]
        elif label:
            made += ["", f"**{label[1]}**: {_text('; '.join(_NEXT.split(label['text'])))}", ""]
        else:
            made.append(_text(item))
        listed = bool(argument)
    return made


def _argument(part: str) -> str:
    found = _ARGUMENT.match(part.strip())
    return f"`{found['name']}`: {_text(found['text'])}" if found else _text(part)


def _text(text: str) -> str:
    """Words whose signs are no HTML, and whose products are no emphasis; code stays as it is."""
    parts = _CODE.split(text)
    return "".join(part if at % 2 else _plain(part) for at, part in enumerate(parts))


def _plain(text: str) -> str:
    return re.sub(r"(?<=\w)\*(?=\w)", r"\*", text.replace("\\", "\\\\").replace("<", "&lt;"))
