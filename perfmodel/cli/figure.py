"""``perfmodel figure``: one figure of the report, as a picture, a page, or its numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    advice,
)
from perfmodel.cli.output import SCHEMA_VERSION, check_target, emit, emit_json, plain, write_whole
from perfmodel.cli.project import (
    BatchOption,
    DimOption,
    DtypeOption,
    IdDtypeOption,
    PayloadOption,
    PoolingOption,
    ReductionOption,
    ReserveOption,
    ScenarioOption,
    TableSizeOption,
    TablesOption,
)
from perfmodel.cli.question import question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.report.pictures import PICTURES, check_kaleido

if TYPE_CHECKING:
    from perfmodel.report.figures.block import Block
    from perfmodel.report.page.assemble import Page

_ENDINGS = (*PICTURES, "html", "json", "csv")
_NOT_OF_THE_FIGURE = ("name", "out", "force", "as_json", "width", "height", "scale")
_PIXELS, _SCALES = (300, 4000), (0.5, 8.0)


def figure(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Which figure, e.g. slowdown; leave out for the list.")
    ] = None,
    table_size: TableSizeOption = None,
    batch: BatchOption = None,
    tables: TablesOption = None,
    pooling: PoolingOption = None,
    dim: DimOption = None,
    dtype: DtypeOption = None,
    id_dtype: IdDtypeOption = "int64",
    machine: MachineOption = None,
    backend: BackendOption = None,
    clock: ClockOption = None,
    reserve: ReserveOption = "0",
    gpus_per_node: GpusPerNodeOption = None,
    scenario: ScenarioOption = "cluster",
    reduction: ReductionOption = "auto",
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    payload: PayloadOption = None,
    settings: SetOption = None,
    calibration: CalibrationOption = None,
    draw: Annotated[
        str | None,
        typer.Option("--draw", metavar="LABEL", help="Another way to draw it, e.g. linear, ms, tables×dim."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help=f"File to write; its ending says what: {', '.join(_ENDINGS)}."
        ),
    ] = None,
    force: ForceOption = False,
    width: Annotated[
        int | None, typer.Option("--width", metavar="N", help="Pixels of a picture (default 960).")
    ] = None,
    height: Annotated[
        int | None,
        typer.Option("--height", metavar="N", help="Pixels of a picture (default: what it needs)."),
    ] = None,
    scale: Annotated[
        float | None, typer.Option("--scale", metavar="X", help="Dots of a PNG for each pixel (default 2).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """One figure of the report, its finding above and its source below; without a name, the list of them.

    Takes the options of project (default: --table-size 10TB). Pictures (svg, png, pdf) need kaleido and a
    Chrome or Chromium; html, json and csv need neither.

    \b
    Examples
      perfmodel figure
      perfmodel figure slowdown --out slowdown.svg
      perfmodel figure heat-map --draw tables×dim --out heat-map.png --width 1200
      perfmodel figure links --out links.html
      perfmodel figure breakdown --table-size 20TB --machine h200-sxm-ib --out breakdown.csv
    """
    if name is None:
        _list(as_json)
        return
    ending = _checked(name, out, force)
    _one_each(table_size=table_size, batch=batch, pooling=pooling, dim=dim)
    _check_pixels(width, height, scale, ending)
    if ending in PICTURES:
        check_kaleido()
    line = replace(TypedLine.of(context).pinned(), command=("perfmodel", "figure", name))
    command = line.text(_NOT_OF_THE_FIGURE, ["--out", out.name if out else f"{name}.html"])
    asked = question_of(context.params)
    from perfmodel.cli.report import alerts
    from perfmodel.report.page.single import single, with_block
    from perfmodel.report.static import drawn

    with advice(asked.machine, asked.options["backend"], clock):
        said = alerts(asked.options.get("calibration"))
        page = single(name, asked.sizes, asked.selectors, asked.machine, asked.options, command, said)
    block = _drawable(page)
    if draw is not None:
        block = drawn(block, draw)
        page = with_block(page, block)
    if out is not None:
        write_whole(out, lambda path: _write(path, ending, page, block, width, height, scale))
    if as_json:
        emit_json("figure", **_told(block), file=str(out) if out else None)
    else:
        emit(_text(block, out))


def _one_each(**typed: str | None) -> None:
    """Refuse lists: a figure is of one value each."""
    for name, text in typed.items():
        first, *rest = re.split(r",|\.\.", text or "")
        if rest:
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(
                f"{option} {text}: a figure is of one value.",
                f"{option} {first} or another one; perfmodel report takes lists.",
            )


def _list(as_json: bool) -> None:
    from perfmodel.report.figures.names import FIGURES

    if as_json:
        emit_json("figure", figures=[{"name": name, "shows": shows} for name, shows in FIGURES.items()])
    else:
        emit(_lines("") + "\n\nDraw one: perfmodel figure slowdown --out slowdown.svg")


def _lines(indent: str) -> str:
    from perfmodel.report.figures.names import FIGURES

    letters = max(map(len, FIGURES))
    return "\n".join(f"{indent}{name:{letters}}  {shows}" for name, shows in FIGURES.items())


def _checked(name: str, out: Path | None, force: bool) -> str:
    """How the file ends. Limits: an unknown name, an ending that is none of ours -> BadInputError"""
    from perfmodel.report.figures.names import FIGURES
    from perfmodel.schema.files import shown, unknown_name

    if name not in FIGURES:
        hint = unknown_name("figure", name, FIGURES).next_step.partition("known:")[0].strip()
        listed = f"{hint} the figures are:".strip() + f"\n{_lines('  ')}"
        raise BadInputError(f"there is no figure {shown(name)}.", listed)
    if out is None:
        return ""
    ending = out.suffix.lower().removeprefix(".")
    if ending not in _ENDINGS:
        raise BadInputError(
            f"--out {out}: what kind of file?", f"its name must end in .{', .'.join(_ENDINGS)}."
        )
    check_target(out, force=force)
    return ending


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
                f"{option} is of a picture.", f"--out must end in .{', .'.join(endings)} for it."
            )
        if not low <= value <= high:
            raise BadInputError(f"{option} {value:g} cannot be drawn.", f"{low:g} to {high:g}.")


def _drawable(page: Page) -> Block:
    """Limits: what cannot be drawn -> NoCalibrationError with the reason"""
    from perfmodel.report.figures.block import Missing

    found = page.first.blocks[0]
    if isinstance(found, Missing):
        why, colon, line = found.why.partition(": ")
        raise NoCalibrationError(f"{found.name} cannot be drawn: {why}{'.' if colon else ''}", line)
    return found


def _told(block: Block) -> dict[str, Any]:
    """What ``--json`` and a file say of a figure."""
    from perfmodel.report.page.assemble import block_data

    data = block_data(block)
    return {
        "name": block.name,
        "title": block.title,
        "how_to_read": block.how_to_read,
        "source": block.source,
        "columns": data["columns"],
        "rows": data["rows"],
    }


def _write(
    path: Path,
    ending: str,
    page: Page,
    block: Block,
    width: int | None,
    height: int | None,
    scale: float | None,
) -> None:
    from perfmodel.report.page.assemble import page_html

    if ending == "html":
        path.write_text(page_html(page), encoding="utf-8")
    elif ending == "csv":
        path.write_text(_csv(block), encoding="utf-8")
    elif ending == "json":
        drawing = json.loads(block.figure.to_json(engine="json"))
        document = {"schema_version": SCHEMA_VERSION, **_told(block), "figure": drawing}
        text = json.dumps(plain(document), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
    else:
        from perfmodel.report.pictures import SCALE, write_pictures
        from perfmodel.report.static import WIDTH, printed

        write_pictures([(printed(block, width or WIDTH, height), path)], scale or SCALE)


def _csv(block: Block) -> str:
    told, out = _told(block), io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([told["columns"], *told["rows"]])
    return out.getvalue()


def _text(block: Block, out: Path | None) -> str:
    """The finding in words; how to read the figure where it is not written."""
    from perfmodel.report.terminal import page_width, wrapped

    lines = wrapped(block.title, page_width())
    if out is not None:
        return "\n".join([*lines, f"Wrote {out}."])
    for words in (block.how_to_read, block.source):
        lines += ["", *wrapped(words, page_width())]
    said = f"Draw it with --out {block.name}.svg; its numbers are in --out {block.name}.csv."
    return "\n".join([*lines, "", said])
