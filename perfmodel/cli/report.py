"""``perfmodel report``: one page to send to someone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
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
    calibration_of,
    check_gpus,
    count_values,
    library_of,
    load_calibration_file,
    machine_of,
    size_values,
    split_values,
)
from perfmodel.cli.output import Progress, check_target, emit, emit_json, write_whole
from perfmodel.cli.project import (
    DtypeOption,
    IdDtypeOption,
    PayloadOption,
    ReductionOption,
    ReserveOption,
    ScenarioOption,
    TablesOption,
    reserve_of,
)
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from perfmodel.report.page.assemble import Page
    from perfmodel.report.page.views import Selector
    from perfmodel.schema.machine import Machine

_SIZES, _BATCHES, _POOLINGS, _DIMS = "10TB,1TB,100TB", "1024,256,4096", "32,8", "32,128"
_FORMATS = {"html": "report.html", "markdown": "report.md"}
_NOT_OF_THE_PAGE = ("out", "force", "as_json", "as_csv", "report")

SizesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table-size",
        metavar="SIZES",
        help="Bytes of all tables together; the first is what is asked, the others can be chosen in the page "
        "(default 10TB,1TB,100TB).",
    ),
]
BatchesOption = Annotated[
    list[str] | None,
    typer.Option("--batch", metavar="NS", help="Samples per GPU to choose from (default 1024,256,4096)."),
]
PoolingsOption = Annotated[
    list[str] | None,
    typer.Option("--pooling", metavar="NS", help="Rows summed per bag to choose from (default 32,8)."),
]
DimsOption = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NS", help="Elements of a row to choose from (default 32,128)."),
]


def report(
    context: typer.Context,
    table_size: SizesOption = None,
    batch: BatchesOption = None,
    tables: TablesOption = None,
    pooling: PoolingsOption = None,
    dim: DimsOption = None,
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
    file_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="html, or markdown: sentences and small tables.")
    ] = "html",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Page to write (default: report, ending as --format)."),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """One HTML page that opens from disk with no network: the answer, its figures, their data and sources.

    \b
    Examples
      perfmodel report
      perfmodel report --table-size 10TB,20TB --batch 4096 --machine h200-sxm-ib --out h200.html
      perfmodel report --calibration latest --pooling 1,8,64 --force
      perfmodel report --batch 1024 --pooling 32 --dim 32 --format markdown
    """
    out = out or Path(_default_name(file_format))
    check_target(out, force=force)
    from perfmodel.schema.workload import id_dtype_bytes
    from perfmodel.units import parse_count

    ids, kept = ids_of(alpha, distribution), reserve_of(reserve)
    sizes, selectors = _selectors(table_size, batch, pooling, dim)
    calibration = calibration_of(calibration, backend, clock)
    chosen = machine_of(machine, settings, calibration)
    check_gpus(max(sizes.values), chosen, kept)
    options: dict[str, Any] = {
        "backend": library_of(chosen, backend, calibration),
        "clock": clock,
        "reserve": kept,
        "gpus_per_node": gpus_per_node,
        "scenario": scenario,
        "reduction": reduction,
        "payload": payload,
        "distribution": ids,
        "calibration": calibration,
        "table_count": parse_count(tables, "--tables") if tables is not None else None,
        "dtype": dtype,
        "id_bytes": id_dtype_bytes(id_dtype),
    }
    known = {name: value for name, value in options.items() if value is not None}
    command = TypedLine.of(context).text(without=_NOT_OF_THE_PAGE)
    with advice(chosen, options["backend"], clock):
        page = _page(sizes, selectors, chosen, known, command)
    size = _write(page, out, file_format)
    if as_json:
        emit_json("report", file=str(out), bytes=size, blocks=page.contents())
        return
    emit(_wrote(out, size))


def write_beside(
    context: typer.Context,
    out: Path,
    texts: Sequence[str | None],
    machine: Machine,
    options: Mapping[str, Any],
) -> str:
    """The page of a question of ``perfmodel project``: that of ``report`` with the same options; what to say.

    texts  table size, batch, pooling and dim as they were typed;  options  of ``perfmodel.project``
    """
    sizes, selectors = _selectors(*([text] if text is not None else None for text in texts))
    line = replace(TypedLine.of(context), command=("perfmodel", "report"))
    known = {name: value for name, value in options.items() if value is not None}
    page = _page(sizes, selectors, machine, known, line.text(without=_NOT_OF_THE_PAGE))
    return _wrote(out, _write(page, out))


def check_beside(out: Path, force: bool, **other: object) -> None:
    """Refuse what a page cannot be of, before any work is done.

    other  options of ``perfmodel project`` by name, None where one was not given
    """
    given = [f"--{name.replace('_', '-')}" for name, value in other.items() if value is not None]
    if given:
        raise BadInputError(
            f"--report and {given[0]} exclude each other.",
            "a page is of equal tables over as many GPUs as each size needs.",
        )
    check_target(out, force=force, option="--report")


def _page(
    sizes: Selector, selectors: tuple[Selector, ...], machine: Machine, options: dict[str, Any], command: str
) -> Page:
    from perfmodel.report.page.assemble import Page
    from perfmodel.report.page.contents import FIXED, fixed_blocks
    from perfmodel.report.page.views import Settings, combinations, view

    choices = combinations(selectors)
    start = tuple(selector.start for selector in selectors)
    bar = Progress(len(choices) + FIXED, "report")
    views, settings = [], Settings(machine, options)
    for choice in choices:
        views.append(view(choice, selectors, sizes, settings, options))
        bar.advance(1)
    asked = views[choices.index(start)].answers[sizes.start]
    fixed = []
    for block in fixed_blocks(asked, {**options, **{s.name: s.values[s.start] for s in selectors}}):
        fixed.append(block)
        bar.advance(1)
    bar.close()
    return Page(sizes, selectors, tuple(views), tuple(fixed), command, _alerts(options.get("calibration")))


def _alerts(calibration: str | None) -> tuple[str, ...]:
    if calibration is None or load_calibration_file(calibration).complete:
        return ()
    return (f"Calibration {calibration} is incomplete: some planned points are missing.",)


def _default_name(file_format: str) -> str:
    from perfmodel.schema.files import unknown_name

    if file_format not in _FORMATS:
        raise unknown_name("--format", file_format, _FORMATS)
    return _FORMATS[file_format]


def _write(page: Page, out: Path, file_format: str = "html") -> int:
    """Its bytes."""
    from perfmodel.report.page.assemble import page_html
    from perfmodel.report.page.markdown import page_markdown

    content = (page_html if file_format == "html" else page_markdown)(page).encode()

    def write(path: Path) -> None:
        path.write_bytes(content)

    write_whole(out, write)
    return len(content)


def _wrote(out: Path, size: int) -> str:
    from perfmodel.units import format_bytes

    how = "open it in a browser, no network needed" if out.suffix == ".html" else "sentences and small tables"
    return f"Wrote {out} ({format_bytes(size, binary=False)}): {how}."


def _selectors(
    sizes: list[str] | None, batch: list[str] | None, pooling: list[str] | None, dim: list[str] | None
) -> tuple[Selector, tuple[Selector, ...]]:
    """The table sizes, and the other things to choose: the values typed first are shown at first."""
    from perfmodel.units import format_bytes, format_count, parse_number

    def poolings(texts: list[str], option: str) -> list[float]:
        return [parse_number(text, option) for text in split_values(texts, option)]

    def words(value: float) -> str:
        return format_bytes(value, binary=False)

    first = _selector("table_bytes", "table size", sizes, _SIZES, "--table-size", size_values, words)
    return first, (
        _selector("batch", "batch", batch, _BATCHES, "--batch", count_values, format_count),
        _selector("pooling", "pooling", pooling, _POOLINGS, "--pooling", poolings, "{:g}".format),
        _selector("dim", "dim", dim, _DIMS, "--dim", count_values, format_count),
    )


def _selector(
    name: str,
    label: str,
    texts: list[str] | None,
    default: str,
    option: str,
    parse: Callable[[list[str], str], Any],
    words: Callable[[float], str],
) -> Selector:
    from perfmodel.report.page.views import Selector

    given = texts or [default]
    values = sorted(set(parse(given, option)))
    first = parse([given[0].split(",")[0].split("..")[0]], option)[0]
    return Selector(name, label, tuple(values), tuple(words(v) for v in values), values.index(first))
