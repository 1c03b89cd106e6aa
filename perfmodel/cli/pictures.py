"""``--format svg``: a picture of every figure of a page, in a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from perfmodel.cli.choices import only, other_keywords, page_question
from perfmodel.cli.output import check_target, emit, emit_json, warn
from perfmodel.cli.waiting_line import Progress
from perfmodel.errors import BadInputError
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import QUESTION
from perfmodel.report.picture_files import check_kaleido, write_pictures
from perfmodel.report.static import printed
from perfmodel.schema.whole_files import cannot_write

FOLDER = "report"


def draw_all(context: typer.Context, folder: Path, ending: str) -> None:
    """Draw all figures of the question that a page would open with into a folder.

    context  of the running ``perfmodel report`` or ``figure``;  ending  svg, png or pdf
    """
    typed = context.params
    check_folder(folder, ending, QUESTION.shows, force=typed["force"])
    question = page_question(typed)
    question.check_gpus()
    from perfmodel.report.page.question_page import every_figure

    figures = Progress(len(QUESTION.figures), "figures")
    with question.advised():
        options = other_keywords(question)
        found = list(figures.over(every_figure(*only(question), question.machine, options)))
    draw(found, folder, ending, typed["as_json"], str(context.info_name))


def draw(
    found: Sequence[Block | Missing], folder: Path, ending: str, as_json: bool, command: str = "report"
) -> None:
    """Draw each figure into a folder, and print which files were written and which figures are missing.

    command  its name in the JSON answer
    """
    blocks = [block for block in found if isinstance(block, Block)]
    missing = [block for block in found if isinstance(block, Missing)]
    files = write_folder(folder, blocks, ending)
    if as_json:
        left_out = [{"name": each.name, "left_out": each.why} for each in missing]
        pairs = zip(blocks, files, strict=True)
        drawn = [{"name": b.name, "title": b.title, "file": str(file)} for b, file in pairs]
        emit_json(command, folder=str(folder), figures=drawn, left_out=left_out)
        return
    for each in missing:
        warn(f"{each.name} is left out: {each.why}")
    emit("\n".join(f"Wrote {file}" for file in files))


def check_folder(folder: Path, ending: str, names: Iterable[str], *, force: bool) -> None:
    """Raise BadInputError if pictures cannot be written into the folder, before any work is done.

    names  of the figures, whose pictures must not exist yet, unless ``force``
    """
    check_kaleido()
    if folder.suffix == f".{ending}":
        raise BadInputError(
            f"--out {folder} is a file's name; with --format {ending} it is a folder.",
            f"for one picture: perfmodel figure {next(iter(names))} --out {folder}",
        )
    if not folder.is_dir():
        if folder.exists():
            raise BadInputError(
                f"{folder} is a file.", f"--out is a folder here, of one {ending.upper()} a figure."
            )
        check_target(folder, force=force)
        return
    there = [name for name in names if os.path.lexists(folder / f"{name}.{ending}")]
    if there and not force:
        raise BadInputError(
            f"{folder / there[0]}.{ending} exists already.",
            "name another folder, or replace it with --force.",
        )


def write_folder(folder: Path, blocks: Sequence[Block], ending: str) -> list[Path]:
    """Draw a picture of each figure, and return the files; if one fails, none is written.

    The folder is made if it is missing. ending  svg, png or pdf
    """
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except (OSError, ValueError) as error:
        raise cannot_write(folder, error) from None
    try:
        drawn = [beside / f"{block.name}.{ending}" for block in blocks]
        write_pictures([(printed(block), path) for block, path in zip(blocks, drawn, strict=True)])
        folder.mkdir(exist_ok=True)
        for path in drawn:
            os.replace(path, folder / path.name)
    except OSError as error:
        raise cannot_write(folder, error) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [folder / path.name for path in drawn]
