"""``perfmodel figure``: one figure as a picture, a page or its numbers; or pictures of all figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfmodel.cli.figure_file import told, write_figure
from perfmodel.cli.figure_source import FigureSource, source_of
from perfmodel.cli.output import check_target, emit, emit_json
from perfmodel.errors import BadInputError
from perfmodel.question.pages import ENDINGS, PICTURES, FigureOptions
from perfmodel.report.figures.registry import EVERY, PAGES, QUESTION
from perfmodel.report.picture_files import check_kaleido
from perfmodel.report.terminal import command_lines, page_width, paragraph, wrapped
from perfmodel.schema.files import shown, unknown_name
from perfmodel.schema.whole_files import write_whole

if TYPE_CHECKING:
    from perfmodel.report.figures.block import Block

_PIXELS, _SCALES = (300, 4000), (0.5, 8.0)


def figure(context: typer.Context, options: FigureOptions) -> None:
    """Draw a figure into a file, or print its content; without a name, list all figures or draw all."""
    _one_each(table_size=options.table_size, batch=options.batch, pooling=options.pooling, dim=options.dim)
    source = source_of(context)
    if options.name is None:
        _all(context, source)
        return
    if options.file_format is not None:
        raise BadInputError(
            f"--format {options.file_format} applies to all figures.",
            f"--out {options.name}.{options.file_format} says it of one.",
        )
    ending = _checked(options.name, source, options.out, options.force)
    _check_pixels(options.width, options.height, options.scale, ending)
    if ending in PICTURES:
        check_kaleido()
    found = source.found(context, options.name, options.out.name if options.out else f"{options.name}.html")
    for label in options.draw or ():
        found = found.drawn(label)
    if options.out is not None:
        write_whole(
            options.out,
            lambda path: write_figure(path, ending, found, options.width, options.height, options.scale),
        )
    if options.as_json:
        emit_json("figure", **told(found.block), file=str(options.out) if options.out else None)
    else:
        emit(_text(found.block, options.out))


def _one_each(**typed: str | None) -> None:
    """Raise BadInputError if an option has a list of values, since a figure shows a single value of each.

    typed  the texts of options by name
    """
    for name, text in typed.items():
        first, *rest = re.split(r",|\.\.", text or "")
        if rest:
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(
                f"{option} {text}: a figure shows one value.",
                f"{option} {first} or another one; perfmodel report takes lists.",
            )


def _all(context: typer.Context, source: FigureSource) -> None:
    """Without a figure's name: print the list of figures or, with --format and --out, draw them all."""
    out, ending = context.params["out"], context.params["file_format"]
    if ending is not None and ending not in PICTURES:
        raise unknown_name("--format", ending, PICTURES)
    if out is not None and ending is not None:
        source.draw_all(context, out, ending)
    elif out is None and ending is None:
        _list(source, context.params["as_json"])
    else:
        what = f"--out {out}: which figure?" if ending is None else "all figures: into which folder?"
        raise BadInputError(what, "name one figure, or give --format svg and --out FOLDER for all.")


def _list(source: FigureSource, as_json: bool) -> None:
    """Print the list of figures.

    It has the figures of the question and of all other pages; with --compare or --gpus, only their page's.
    """
    others = [page for page in PAGES if page is not QUESTION] if source.page is None else ()
    if as_json:
        found = EVERY if others else source.figures
        emit_json("figure", figures=[{"name": name, "shows": shows} for name, shows in found.items()])
        return
    parts = [_lines(source.figures)]
    for other in others:
        line = other.line.format(name=other.figures[0].name)
        parts.append(f"{paragraph(f'Of {other.of}, e.g.')}\n{command_lines(line)}\n{_lines(other.shows)}")
    first = next(iter(source.figures))
    emit("\n\n".join([*parts, f"Draw one:\n{command_lines(source.command(first, f'{first}.svg'))}"]))


def _lines(figures: Mapping[str, str], indent: str = "") -> str:
    letters = max(map(len, EVERY))
    rest = f"{indent}{'':{letters}}  "
    lines = (
        wrapped(shows, page_width(), f"{indent}{name:{letters}}  ", rest) for name, shows in figures.items()
    )
    return "\n".join(line.rstrip() for each in lines for line in each)


def _checked(name: str, source: FigureSource, out: Path | None, force: bool) -> str:
    """The ending of ``--out`` without its point; "" without the option.

    Limits: an unknown figure or ending, an existing file -> BadInputError
    """
    if name not in source.figures:
        raise _unknown(name, source)
    if out is None:
        return ""
    ending = out.suffix.lower().removeprefix(".")
    if ending not in ENDINGS:
        raise BadInputError(
            f"--out {out}: what kind of file?", f"its name must end in .{', .'.join(ENDINGS)}."
        )
    check_target(out, force=force)
    return ending


def _unknown(name: str, source: FigureSource) -> BadInputError:
    """The error for a name that is not of this page: the command that draws it, else the list of figures."""
    if name in EVERY:
        page = next(one for one in PAGES if name in one.shows)
        line = page.line
        where = (
            ", not of this page"
            if "{name}" in line
            else f": it is drawn on {line.split()[-1]}, a page that this command writes"
        )
        return BadInputError(f"{name} is a figure of {page.of}{where}.", line.format(name=name))
    hint = unknown_name("figure", name, source.figures).next_step.partition("known:")[0].strip()
    listed = f"{hint} the figures are:".strip() + f"\n{_lines(source.figures, '  ')}"
    return BadInputError(f"there is no figure {shown(name)}.", listed)


def _check_pixels(width: int | None, height: int | None, scale: float | None, ending: str) -> None:
    for option, value, (low, high), endings in (
        ("--width", width, _PIXELS, PICTURES),
        ("--height", height, _PIXELS, PICTURES),
        ("--scale", scale, _SCALES, ("png",)),
    ):
        if value is None:
            continue
        if ending not in endings:
            raise BadInputError(
                f"{option} applies to pictures only.", f"--out must end in .{', .'.join(endings)} for it."
            )
        if not low <= value <= high:
            raise BadInputError(f"{option} {value:g} cannot be drawn.", f"{low:g} to {high:g}.")


def _text(block: Block, out: Path | None) -> str:
    """The text to print: the figure's title and, without a file, how to read it and how to draw it."""
    lines = wrapped(block.title, page_width())
    if out is not None:
        return "\n".join([*lines, f"Wrote {out}."])
    for words in (block.how_to_read, block.source):
        lines += ["", *wrapped(words, page_width())]
    said = f"Draw it with --out {block.name}.svg; its numbers are in --out {block.name}.csv."
    return "\n".join([*lines, "", *wrapped(said, page_width())])
