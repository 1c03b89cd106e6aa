"""The first screen of ``perfmodel project``: the best uniform sharding, beside it row-wise, its limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfmodel.passes.schemes import ROW_WISE, WAYS
from perfmodel.plan.as_projection import Compared
from perfmodel.plan.leading import MOST_COMPARED, Leading, table_count
from perfmodel.projections import Projection
from perfmodel.projections.hosted import Hosted
from perfmodel.projections.inputs import DEFAULTS
from perfmodel.projections.sensitivity import NextExperiment, Sensitivity
from perfmodel.report.projection_text import experiment_text, provenance, run_line, step_table
from perfmodel.report.terminal import paragraph, table, unbroken
from perfmodel.schema.workload import DTYPE_BYTES
from perfmodel.units import counted, format_bytes, format_count, format_per_second, format_ratio, format_time

_LINES = 3  # of changes: the first screen has 25 lines
_INDENT = 5
_MANY_ROWS = 1e7
_GIVEN = "given"


def leading_text(
    found: Leading,
    changes: Sequence[Sensitivity],
    experiment: NextExperiment | None,
    machine: str,
    calibration_file: str | None,
    planned_s: float | None = None,
    enough: str = "",
) -> str:
    """At most 25 lines at the default.

    enough  where nothing fits the GPUs that were given: how many would do

    machine  as the user gave it
    planned_s  time of a pass where each table has a sharding of its own, where that is less
    """
    answer = found.answer
    first = [*_first(found, planned_s, enough)]
    if found.best:
        first.append(paragraph(_gpu_rule(answer), _INDENT))
    parts = ["\n".join(first)]
    if found.best:
        parts.append(step_table(answer, brief=True))
    if changes:
        parts.append(_change_table(changes))
    if experiment is not None and found.best:
        run = run_line(calibration_file)
        parts.append(experiment_text(experiment, machine or answer.setting.machine.name, run, brief=True))
    parts.append(provenance(answer, calibration_file, "more: -v, --sharding all"))
    return "\n\n".join(parts)


def _first(found: Leading, planned_s: float | None, enough: str) -> Iterator[str]:
    """The answer, what runs it beside row-wise, and the question as it was understood."""
    answer, base = found.answer, found.base
    size = format_bytes(answer.gpu_count.table_bytes, binary=False)
    where = f"{size} on {counted(answer.gpus, 'GPU')}"
    if found.best:
        low, high = answer.band
        band = f"{format_ratio(answer.slowdown)} ({format_ratio(low)} – {format_ratio(high)})"
        alone = f"the {format_time(answer.baseline_time_s)} of one GPU with all rows"
        yield paragraph(f"{where}: {format_time(answer.time_s)} per batch, {band} {alone}.")
        yield paragraph(way_words(found), _INDENT)
    elif table_count(base) > MOST_COMPARED:
        most = format_count(MOST_COMPARED)
        yield paragraph(f"{where}: {too_large(base)}, and other shardings of more than {most} tables are")
        yield paragraph("compared by --sharding all alone.", _INDENT)
    else:
        yield paragraph(f"{where}: no uniform sharding fits. {too_large(base)}.")
        if enough:
            yield paragraph(enough, _INDENT)
    if planned_s is not None:
        words = f"a sharding of its own for each table takes {format_time(planned_s)}: perfmodel plan"
        yield paragraph(words, _INDENT)
    yield paragraph(question_words(base), _INDENT)


def _gpu_rule(answer: Projection) -> str:
    """How the number of GPUs came about, and what each holds: for one line."""
    count = answer.gpu_count
    held, room = (format_bytes(x, binary=False) for x in (count.memory_bytes, count.usable_bytes))
    per_s = answer.gpus * float(answer.work.batch[0]) / answer.time_s
    return f"{count}, {held} of {room} each; {format_per_second(per_s, 'samples')}"


def too_large(base: Projection) -> str:
    return f"{ROW_WISE} does not fit: it needs {base.gpu_count.memory_words('{} ({})')}"


def way_words(found: Leading, row_wise: Hosted | None = None) -> str:
    """``by row-wise-ub (EMBark's; cannot be told from 3d, 686 µs); row-wise (TorchRec's): 1.33 ms, 182×``

    row_wise  with the host, where the best was chosen with it: no difference with a host has a band
    """
    base, words = found.base, [f"{WAYS[found.way].runs}'s"]
    close = found.as_good if row_wise is None else ()
    others = [f"{each.way}, {_time(each)}" for each in close if each.way != ROW_WISE]
    if others:
        words.append(f"cannot be told from {' and '.join(others)}")
    text = f"by {found.way} ({'; '.join(words)})"
    if found.way == ROW_WISE:
        return text
    if not base.gpu_count.fits:
        return f"{text}; {too_large(base)}"
    near = ", cannot be told from it" if any(each.way == ROW_WISE for each in close) else ""
    beside = row_wise or base
    time = f"{format_time(beside.time_s)}, {format_ratio(beside.slowdown)}"
    return f"{text}; {ROW_WISE} (TorchRec's): {time}{near}"


def _time(each: Compared) -> str:
    return format_time(each.answer.time_s) if each.answer else ""


def question_words(base: Projection) -> str:
    """What was asked, and what nobody said and is a default."""
    given = {_GIVEN, *(base.question.given if base.question else ())}
    items = list(_items(base))
    asked = [text for key, text in items if key in given]
    rest = [text for key, text in items if key not in given]
    if not asked:
        return f"{', '.join(rest)}: all by default"
    return f"{', '.join(asked)}; by default {', '.join(rest)}"


def _items(base: Projection) -> Iterator[tuple[str, str]]:
    """Each part of the question with the key that says whether it was given."""
    work, groups = base.work, base.work.groups
    model = base.question.model if base.question else None
    batch, gpus = float(work.batch[0]), base.gpus
    if model is not None:
        count = sum(float(group.count.flat[0]) for group in groups)
        ids = sum(float(group.count.flat[0] * group.pooling.flat[0]) for group in groups)
        yield _GIVEN, f"{counted(int(count), 'table')} of {model}, {ids / count:.3g} ids per bag on average"
    else:
        only = groups[0]
        count, rows = int(only.count.flat[0]), float(only.rows.flat[0])
        each = "" if count == 1 else " each"
        yield "table_count", f"{counted(count, 'table')} of {_rows(rows)} rows{each}"
        yield "dim", f"dim {int(only.dim.flat[0])}"
        yield "dtype", _dtype(base, float(only.element_bytes.flat[0]))
        yield "pooling", f"{float(only.pooling.flat[0]):g} ids per bag"
    yield "batch", f"{format_count(batch)} samples per GPU ({format_count(batch * gpus)} in all)"
    yield "" if base.forward.ids.uniform else _GIVEN, f"{base.forward.ids.name} ids"
    yield "", "forward pass without a host"


def _rows(rows: float) -> str:
    """``78 125 M``: whole rows below ten million."""
    return format_count(rows) if rows < _MANY_ROWS else f"{format_count(rows / 1e6)} M"


def _dtype(base: Projection, element_bytes: float) -> str:
    given = base.question.given if base.question else {}
    name = str(given.get("dtype", DEFAULTS["dtype"]))
    return name if DTYPE_BYTES[name] == element_bytes else f"{element_bytes:g} bytes"


def _change_table(changes: Sequence[Sensitivity]) -> str:
    """What would change the time, the most helpful first."""
    best = sorted(changes, key=lambda each: each.after_s)[:_LINES]
    rows = [
        [
            f" {each.label}",
            f"{format_time(each.before_s)} → {format_time(each.after_s)}",
            unbroken(each.option),
        ]
        for each in best
    ]
    return table(["What would change it", "time", ""], rows, left=(0, 2), indent=0)
