"""``perfmodel figure``: one figure of a page, as a picture, a page, or its numbers; or all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.choices import CompareOption, NumbersOption
from perfmodel.cli.figure_file import told, write_figure
from perfmodel.cli.figure_source import FigureSource, source_of
from perfmodel.cli.ids import AlphaOption, DistributionOption
from perfmodel.cli.options import (
    BackendOption,
    CalibrationOption,
    ClockOption,
    ForceOption,
    GpusPerNodeOption,
    JsonOption,
    MachineOption,
    SetOption,
)
from perfmodel.cli.output import check_target, emit, emit_json
from perfmodel.cli.workload import (
    RESERVE,
    BatchOption,
    DimOption,
    DtypeOption,
    IdDtypeOption,
    ModelOption,
    PayloadOption,
    PoolingOption,
    ReductionOption,
    ReserveOption,
    ScenarioOption,
    ShardingOption,
    TableSizeOption,
    TablesOption,
)
from perfmodel.errors import BadInputError
from perfmodel.report.figures.names import EVERY, OTHERS
from perfmodel.report.picture_files import PICTURES, check_kaleido
from perfmodel.report.terminal import command_lines, page_width, wrapped
from perfmodel.schema.files import shown, unknown_name
from perfmodel.schema.whole_files import write_whole

if TYPE_CHECKING:
    from perfmodel.report.figures.block import Block

_ENDINGS = (*PICTURES, "html", "json", "csv")
_PIXELS, _SCALES = (300, 4000), (0.5, 8.0)


def figure(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Which figure, e.g. slowdown; without a name, list all.")
    ] = None,
    table_size: TableSizeOption = None,
    gpus: NumbersOption = None,
    model: ModelOption = None,
    batch: BatchOption = None,
    tables: TablesOption = None,
    pooling: PoolingOption = None,
    dim: DimOption = None,
    dtype: DtypeOption = None,
    id_dtype: IdDtypeOption = "int64",
    machine: MachineOption = None,
    backend: BackendOption = None,
    clock: ClockOption = None,
    reserve: ReserveOption = RESERVE,
    gpus_per_node: GpusPerNodeOption = None,
    scenario: ScenarioOption = "cluster",
    reduction: ReductionOption = "auto",
    sharding: ShardingOption = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    payload: PayloadOption = None,
    settings: SetOption = None,
    calibration: CalibrationOption = None,
    compare: CompareOption = None,
    draw: Annotated[
        list[str] | None,
        typer.Option(
            "--draw",
            metavar="LABEL",
            help="Choose a view of the figure, e.g. linear, ms, tables×dim, '4 GPUs'. Repeat for more.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help=f"File to write; its ending sets the format:  {', '.join(_ENDINGS)}.",
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"Without a name: write all figures, as {', '.join(PICTURES)}, into the folder --out.",
        ),
    ] = None,
    force: ForceOption = False,
    width: Annotated[
        int | None, typer.Option("--width", metavar="N", help="Width of a picture in pixels (default 960).")
    ] = None,
    height: Annotated[
        int | None,
        typer.Option("--height", metavar="N", help="Height of a picture in pixels (default: what it needs)."),
    ] = None,
    scale: Annotated[
        float | None, typer.Option("--scale", metavar="X", help="Scale of a PNG (default 2).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw one figure of a page, with its finding and its source. Without a name, list all figures.

    Takes the options of project (default: --table-size 10TB), or --compare as in report. Pictures (svg,
    png, pdf) need kaleido and a Chrome or Chromium; html, json and csv need neither.

    \b
    Examples
      perfmodel figure
      perfmodel figure slowdown --out slowdown.svg
      perfmodel figure heat-map --draw tables×dim --out heat-map.png --width 1200
      perfmodel figure links --out links.html
      perfmodel figure breakdown --table-size 20TB --machine h200-sxm-ib --out breakdown.csv
      perfmodel figure over-gpus --model mlperf-dlrm-dcnv2 --out over-gpus.svg
      perfmodel figure compare-time --compare h100-sxm-ib h200-sxm-ib --out both.svg
      perfmodel figure --table-size 20TB --format svg --out figures
    """
    _one_each(table_size=table_size, batch=batch, pooling=pooling, dim=dim)
    source = source_of(context)
    if name is None:
        _all(context, source)
        return
    if file_format is not None:
        raise BadInputError(
            f"--format {file_format} applies to all figures.", f"--out {name}.{file_format} says it of one."
        )
    ending = _checked(name, source, out, force)
    _check_pixels(width, height, scale, ending)
    if ending in PICTURES:
        check_kaleido()
    found = source.found(context, name, out.name if out else f"{name}.html")
    for label in draw or ():
        found = found.drawn(label)
    if out is not None:
        write_whole(out, lambda path: write_figure(path, ending, found, width, height, scale))
    if as_json:
        emit_json("figure", **told(found.block), file=str(out) if out else None)
    else:
        emit(_text(found.block, out))


def _one_each(**typed: str | None) -> None:
    """Refuse lists: a figure is of one value each."""
    for name, text in typed.items():
        first, *rest = re.split(r",|\.\.", text or "")
        if rest:
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(
                f"{option} {text}: a figure shows one value.",
                f"{option} {first} or another one; perfmodel report takes lists.",
            )


def _all(context: typer.Context, source: FigureSource) -> None:
    """The list of them, or a picture of each."""
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
    """Figures of the question with those of other pages; of another page its own alone."""
    others = OTHERS if source.page is None else ()
    if as_json:
        found = EVERY if others else source.figures
        emit_json("figure", figures=[{"name": name, "shows": shows} for name, shows in found.items()])
        return
    parts = [_lines(source.figures)]
    for other in others:
        line = other.line.format(name=next(iter(other.figures)))
        parts.append(f"Of {other.of}, e.g.\n{command_lines(line)}\n{_lines(other.figures)}")
    first = next(iter(source.figures))
    emit("\n\n".join([*parts, f"Draw one: {source.command(first, f'{first}.svg')}"]))


def _lines(figures: Mapping[str, str], indent: str = "") -> str:
    letters = max(map(len, EVERY))
    rest = f"{indent}{'':{letters}}  "
    lines = (
        wrapped(shows, page_width(), f"{indent}{name:{letters}}  ", rest) for name, shows in figures.items()
    )
    return "\n".join(line.rstrip() for each in lines for line in each)


def _checked(name: str, source: FigureSource, out: Path | None, force: bool) -> str:
    """How the file ends. Limits: an unknown name, an ending that is none of ours -> BadInputError"""
    if name not in source.figures:
        raise _unknown(name, source)
    if out is None:
        return ""
    ending = out.suffix.lower().removeprefix(".")
    if ending not in _ENDINGS:
        raise BadInputError(
            f"--out {out}: what kind of file?", f"its name must end in .{', .'.join(_ENDINGS)}."
        )
    check_target(out, force=force)
    return ending


def _unknown(name: str, source: FigureSource) -> BadInputError:
    """The refusal of a name: what draws it where it is of another page, else the figures there are."""
    if name in EVERY:
        other = next((one for one in OTHERS if name in one.figures), None)
        line = other.line if other else "perfmodel figure {name}"
        what = f"a figure of {other.of}" if other else "a figure of one question"
        where = (
            ", not of this page"
            if "{name}" in line
            else f": it is drawn on {line.split()[-1]}, a page that this command writes"
        )
        return BadInputError(f"{name} is {what}{where}.", line.format(name=name))
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
    """The finding in words; how to read the figure where it is not written."""
    lines = wrapped(block.title, page_width())
    if out is not None:
        return "\n".join([*lines, f"Wrote {out}."])
    for words in (block.how_to_read, block.source):
        lines += ["", *wrapped(words, page_width())]
    said = f"Draw it with --out {block.name}.svg; its numbers are in --out {block.name}.csv."
    return "\n".join([*lines, "", *wrapped(said, page_width())])
