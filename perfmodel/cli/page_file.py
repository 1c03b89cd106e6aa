"""Writes a page to a file, in the format given by its name or by ``--format``."""

from __future__ import annotations

import contextlib
import gc
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli.output import check_named, check_target, emit, emit_json
from perfmodel.cli.pictures import FOLDER, check_folder, draw
from perfmodel.errors import BadInputError
from perfmodel.question.pages import PICTURES
from perfmodel.report.page.assemble import page_html
from perfmodel.report.page.markdown import page_markdown
from perfmodel.report.terminal import page_width, wrapped
from perfmodel.schema.files import unknown_name
from perfmodel.schema.whole_files import write_whole
from perfmodel.units import format_bytes

if TYPE_CHECKING:
    from perfmodel.report.page.parts import Page

DEFAULTS = {"html": "report.html", "markdown": "report.md", **dict.fromkeys(PICTURES, FOLDER)}
"""Default names by format: of a file, or of a folder of pictures."""
_OF_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


def format_of(out: Path | None, typed: str | None, option: str = "--out") -> str:
    """The format of a page: by ``--format`` (``typed``), else by the file's ending, else html.

    option  the option that named the file, for messages
    Limits: an unknown format, a name with no or another format's ending -> BadInputError
    """
    if typed is not None and typed not in DEFAULTS:
        raise unknown_name("--format", typed, DEFAULTS)
    if out is None:
        return typed or "html"
    check_named(out, option)
    ending = out.suffix.lower()
    named = _OF_ENDINGS.get(ending, ending.removeprefix(".") if ending[1:] in PICTURES else None)
    if typed is None:
        if named in PICTURES:
            raise BadInputError(
                f"{option} {out}: a page is not {ending.removeprefix('.').upper()}.",
                "its name must end in .html or .md; perfmodel figure lists pictures and draws one, e.g.\n"
                f"  {shlex.join(['perfmodel', 'figure', 'slowdown', '--out', str(out)])}",
            )
        if named is None:
            folder = "; --format svg --out FOLDER is a folder of pictures" if option == "--out" else ""
            raise BadInputError(
                f"{option} {out}: what kind of file?", f"its name must end in .html or .md{folder}."
            )
        return named
    if named not in (None, typed):
        raise BadInputError(
            f"{option} {out} and --format {typed} cannot be combined.",
            "leave out --format, or rename it.",
        )
    return typed


def check_place(out: Path, file_format: str, names: Iterable[str], *, force: bool) -> None:
    """Raise BadInputError if the page or the pictures cannot be written, before any work is done.

    names  of the figures, if a folder of pictures is to be written
    """
    if file_format in PICTURES:
        check_folder(out, file_format, names, force=force)
    else:
        check_target(out, force=force)


def deliver(page: Page, out: Path, file_format: str, as_json: bool, **entries: Any) -> None:
    """Write the page, or its figures as pictures, and print the files' names; JSON has ``entries`` too."""
    if file_format in PICTURES:
        draw(page.blocks(), out, file_format, as_json)
        return
    size = write(page, out, file_format)
    if as_json:
        emit_json("report", **entries, file=str(out), bytes=size, blocks=page.contents())
        return
    emit(wrote(out, size, file_format))


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
