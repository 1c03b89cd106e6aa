"""LaTeX of ``math`` blocks as MathML, which browsers draw without a script and without a font of ours."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown


def fence(source: str, language: str, css_class: str, options: dict[str, Any], md: Markdown, **_: Any) -> str:
    """The HTML of one block, as SuperFences asks for it; ``aligned`` has another name in the converter."""
    latex = source.strip().replace("{aligned}", "{align*}")
    return f'<div class="{css_class}">{convert(latex, display="block")}</div>'
