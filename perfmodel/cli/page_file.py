"""Writes a page to a file, in the format given by its name."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.cli.output import check_named
from perfmodel.errors import BadInputError
from perfmodel.report.page.assemble import page_html, page_markdown
from perfmodel.report.terminal import page_width, wrapped
from perfmodel.schema.files import write_whole
from perfmodel.units import format_bytes

if TYPE_CHECKING:
    from perfmodel.report.page.parts import Page

_OF_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


def format_of(out: Path) -> str:
    """The format of a page, by the ending of its file. Limits: another ending -> BadInputError"""
    check_named(out, "--out")
    kind = _OF_ENDINGS.get(out.suffix.lower())
    if kind is None:
        raise BadInputError(f"--out {out}: what kind of file?", "its name must end in .html or .md.")
    return kind


def write(page: Page, out: Path, file_format: str) -> int:
    """Write the page, and return its number of bytes."""
    content = (page_html if file_format == "html" else page_markdown)(page).encode()
    write_whole(out, lambda path: path.write_bytes(content))
    return len(content)


def wrote(out: Path, size: int, file_format: str) -> str:
    """The words that are printed about a written page: its name, its size [byte], and how to read it."""
    how = "open it in a browser, no network needed" if file_format == "html" else "sentences and small tables"
    line = f"Wrote {out} ({format_bytes(size, binary=False)}): {how}."
    return "\n".join(wrapped(line, page_width(), long_words=False))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Context without Python's garbage collector: a page keeps all its objects until it is written."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
