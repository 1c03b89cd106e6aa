"""Text of ``perfmodel project``: the answer in a sentence, then its steps, then its evidence."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from perfmodel.answer import Answer
from perfmodel.answer.what_would_help import NextExperiment, Sensitivity
from perfmodel.engine.row_wise import TableGroup
from perfmodel.engine.schemes import DATA_PARALLEL, ROW_WISE, SHARDINGS
from perfmodel.engine.settings import is_published
from perfmodel.engine.steps import StepRow
from perfmodel.engine.tables import row_bytes
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.experiment_text import experiment_text, run_line
from perfmodel.report.terminal import (
    command_lines,
    facts,
    page_width,
    paragraph,
    sides,
    table,
    unbroken,
    wrapped,
)
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.evidence import LAW_BACKENDS, Evidence
from perfmodel.schema.machine import list_machines
from perfmodel.schema.workload import DTYPES, UNIFORM
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

Again = Callable[[Sequence[str]], str]
"""A function that returns the command for the same question to another command."""
_WEAK = Evidence.EXTRAPOLATED.rank
_MANY_ROWS, _BILLION = 1e7, 1e9
_GIVEN = "given"


def projection_text(
    answer: Answer,
    changes: Sequence[Sensitivity],
    experiment: NextExperiment | None,
    machine: str = "",
    calibration_file: str | None = None,
    again: Again = shlex.join,
    ways: str = "",
) -> str:
    """The text of ``perfmodel project -v``: slowdown, GPUs, steps, changes, the next measurement, sources.

    machine           as the user typed it, for suggested commands
    calibration_file  the user's own, named at the end; None: a shipped calibration
    again             returns the command that asks the same question, from other leading words
    ways              what is beside its sharding; "": it was typed
    """
    parts = [headline(answer), gpu_line(answer)]
    if ways:
        parts[0] += f"\n{paragraph(ways, 5)}"
    if answer.uneven:
        parts[0] += f"\n{paragraph(answer.uneven, 5)}"
    named = [(f"{label.capitalize():<7}", text) for label, text in question_facts(answer)]
    parts[-1] = f"{facts(named)}\n{parts[-1]}"
    if answer.gpus > 1:
        parts[-1] += f"\n{kernel_line(answer)}"
    if answer.steps:
        parts.append(step_table(answer))
    if changes:
        parts.append(change_table(changes, whole=True))
    if experiment is not None:
        run = run_line(calibration_file)
        parts.append(experiment_text(experiment, machine or answer.setting.machine.name, run))
    parts.append(footer(answer, calibration_file, again))
    return "\n\n".join(parts)


def headline(answer: Answer) -> str:
    """The slowdown in a sentence, with both times, the throughput and the band."""
    low, high = answer.band
    if answer.gpus == 1:
        size = format_bytes(answer.gpu_count.table_bytes, binary=False)
        first = f"{format_ratio(answer.slowdown)}: {size} of tables fit on one GPU, so nothing is sharded."
        return paragraph(f"{first}\n     {format_time(answer.time_s)} per batch")
    first = sentence(answer)
    if not answer.fits:
        held = answer.gpu_count.describe_memory().partition(":")[0]
        first = f"Does not fit {counted(answer.gpus, 'GPU')}: {held}. If it did: {first}"
    rate, ratio = format_per_second(answer.samples_per_s, "samples"), answer.totals["throughput_ratio"]
    second = (
        f"     {format_time(answer.time_s)} per batch, instead of {format_time(answer.baseline_time_s)} "
        f"on one GPU; {rate}, {format_ratio(ratio)} those of that GPU"
    )
    floor = format_ratio(answer.totals["slowdown_floor_part"])
    data = format_ratio(answer.totals["slowdown_bytes_part"])
    return "\n".join(
        [
            sides(first, f"band {format_ratio(low)} – {format_ratio(high)}"),
            paragraph(second),
            f"     {floor} of it is latency, {data} is bytes",
        ]
    )


def sentence(answer: Answer) -> str:
    """The slowdown of sharded tables in words."""
    over = f"{answer.sharding} over {counted(answer.gpus, 'GPU')}"
    return f"{format_ratio(answer.slowdown)} slower sharded {over} than if the tables fitted in one."


def shards_words(answer: Answer) -> str:
    """How a table is cut: ``grid: 8 row parts × 2 column parts, at most 66 GB per GPU``. One GPU: ''"""
    count, plan = answer.gpu_count, answer.plan
    if answer.gpus == 1:
        return ""
    if plan is None or answer.sharding == ROW_WISE:
        return f"row-wise shards of {format_bytes(count.shard_bytes, binary=False)}"
    if plan.scheme.copied:
        return f"{answer.sharding}: {SHARDINGS[DATA_PARALLEL].label}"
    parts = (plan.scheme.row_parts, "row"), (plan.scheme.col_parts, "column")
    words = " × ".join(f"{number} {name} parts" for number, name in parts if number > 1)
    most = format_bytes(count.rows_bytes, binary=False)
    return f"{answer.sharding}: {words or 'whole tables'}, at most {most} per GPU"


def question_facts(base: Answer) -> list[tuple[str, str]]:
    """The tables and the batch of a question, each with the values that the user gave before its defaults."""
    given, lines = {_GIVEN, *base.question.given}, []
    for label, items in (("tables", _list_tables(base)), ("batch", _list_batch(base))):
        texts = list(items)
        typed = [text for key, text in texts if key in given]
        rest = ", ".join(text for key, text in texts if key not in given)
        words = f"{', '.join(typed)} · default: {rest}" if typed and rest else ", ".join(typed)
        lines.append((label, words or f"{rest} (default)"))
    return lines


def _list_tables(base: Answer) -> Iterator[tuple[str, str]]:
    """Pairs for the tables of a question: the name of an argument, and its value in words.

    The name is ``_GIVEN`` if the value is never a default, and "" if it is always a default.
    """
    work, groups, payload = base.work, base.work.groups, base.basis.payload
    model = base.question.model
    of = "sample, not pooled" if base.basis.unpooled else "bag"
    if model is not None:
        count = sum(float(group.count.flat[0]) for group in groups)
        ids = sum(float(group.count.flat[0] * group.pooling.flat[0]) for group in groups)
        yield _GIVEN, f"{format_count(int(count))} of {model}, {ids / count:.3g} ids a {of} on average"
        weighted = sum(float(group.count.flat[0]) for group in groups if group.weight_bytes.any())
        if any(_stored(base, group) > group.dim * group.element_bytes for group in groups):
            yield _GIVEN, "rows with their scale, bias and padding"
        if weighted:
            some = "" if weighted == count else f" in {counted(int(weighted), 'table')}"
            yield _GIVEN, f"ids with weights{some}"
    else:
        only = groups[0]
        count, rows = int(only.count.flat[0]), float(only.rows.flat[0])
        yield "table_count", f"{format_count(count)} of {_rows(rows)} rows"
        yield "dim", f"dim {int(only.dim.flat[0])}"
        dtype, stored = DTYPES[int(only.dtype.flat[0])], _stored(base, only)
        longer = f" in rows of {format_count(stored)} bytes" if stored > only.dim * only.element_bytes else ""
        yield "dtype", f"{'' if payload is None else 'rows of '}{dtype}{longer}"
        yield "pooling", f"{float(only.pooling.flat[0]):g} ids a {of}"
    words = work.ids_names
    yield "" if words == UNIFORM.name else _GIVEN, f"{words} ids"


def _list_batch(base: Answer) -> Iterator[tuple[str, str]]:
    """Pairs for the batch and the pass of a question, as ``_list_tables``."""
    batch, gpus, payload = float(base.work.batch[0]), base.gpus, base.basis.payload
    yield "batch", f"{format_count(batch)} samples on each GPU, {format_count(batch * gpus)} in all"
    if payload is not None and gpus > 1:
        yield _GIVEN, f"{'rows' if base.basis.unpooled else 'bags'} sent as {payload}"
    if base.basis.training:
        yield _GIVEN, f"training step with {base.basis.optimizer}, without dense layers"
    else:
        yield "", "forward pass"


def _stored(base: Answer, group: TableGroup) -> float:
    """Bytes of a row of these tables in memory."""
    return float(row_bytes(group.dtype, group.dim, training=base.basis.training).flat[0])


def _rows(rows: float) -> str:
    """A number of rows; from ten million on with three figures: ``78.1 G``."""
    if rows < _MANY_ROWS:
        return format_count(rows)
    unit, name = (1e9, "G") if rows >= _BILLION else (1e6, "M")
    return f"{rows / unit:.3g} {name}"


def gpu_line(answer: Answer) -> str:
    """How many GPUs there are, and why: the bytes of the tables, and the memory that a GPU may use."""
    count = answer.gpu_count
    shard = shards_words(answer)
    gpus, *rest = wrapped(f"{count}", page_width(), "GPUs     ", " " * 9)
    if rest:
        text = "\n".join([gpus, *rest, *([paragraph(shard, indent=9)] if shard else [])])
    else:
        text = sides(gpus, shard, indent=9).rstrip()
    given = answer.question is None or "gpus" in answer.question.given
    never = "fits on no number of GPUs, since the buffers are as large on more of them"
    no = "does not fit" if given else never
    fits = "" if count.fits else f"{no}: "
    kept = f"; {format_fraction(count.reserve)} of {format_bytes(count.hbm_bytes, binary=False)} kept free"
    words = f"{fits}{count.describe_memory()}{kept if count.reserve else ''}{where_words(answer)}"
    return f"{text}\n{facts([('Memory ', words)])}"


def where_words(answer: Answer) -> str:
    """Where the rows are, after the memory of a GPU; "" in its HBM."""
    rows = answer.basis.rows
    if rows is None:
        return ""
    cached = f", {format_fraction(rows.cached)} of the rows cached in HBM" if rows.cached else ""
    return f", its share of the host memory{cached}"


LIBRARY_WORDS = {"fbgemm": "FBGEMM", "torch": "torch", "perfmodel": "perfmodel"}


def kernel_line(answer: Answer) -> str:
    """Whose look-up kernels the answer assumes."""
    setting = answer.setting
    name = LIBRARY_WORDS.get(setting.kernel_library, setting.kernel_library)
    if setting.kernels is not None:
        told = any(interval.known for interval in setting.kernels.values.values())
        name += ", timed on this machine" if told else ", from too few look-ups to know a rate"
    else:
        name = f"{name}, from published times" if is_published(setting.machine) else "of the machine file"
    return facts([("Kernels", name)])


def step_table(answer: Answer, *, brief: bool = False) -> str:
    """A table of steps: bytes, time, share, band, clock and evidence.

    brief  without the total time, and without the machine value behind weak evidence
    """
    return columns_text(step_columns(answer, brief=brief), answer.steps)


def step_columns(answer: Answer, *, brief: bool = False) -> tuple[Column, ...]:
    """The columns of the table of steps. brief  as in ``step_table``"""
    several, total = len(answer.clocks) > 1, "" if brief else format_time(answer.time_s)
    return (
        Column("step", lambda step: _label(answer, step), left=True),
        Column("bytes/GPU", lambda step: format_bytes(step.payload_bytes), goes=2),
        Column("time", lambda step: format_time(step.time_s), total=total),
        Column("share", lambda step: format_fraction(step.share)),
        Column("95 % band", lambda step: band(step.low_s, step.high_s), goes=3),
        *([Column("clock", lambda step: str(step.clock), left=True)] if several else []),
        Column("evidence", lambda step: str(step.evidence), left=True),
        *([] if brief else [Column("", _limit, left=True, goes=1)]),
    )


def _label(answer: Answer, step: StepRow) -> str:
    """The step's name; with backend ``best`` also the library that is faster."""
    label = "gather" if answer.basis.unpooled and step.name == "gather_pool" else step.label
    if answer.setting.backend == "best" and step.collective:
        label = label.replace(")", f", {step.library})")
    return label


def _limit(step: StepRow) -> str:
    """The machine value that a step with weak evidence depends on: "gather rate" for gather_bytes_per_s.

    Limits: strong evidence -> ""
    """
    if step.evidence.rank < _WEAK:
        return ""
    words = step.limit.removesuffix("_bytes_per_s")
    return (words + "_rate" if words != step.limit else step.limit.removesuffix("_s")).replace("_", " ")


def band(low_s: float, high_s: float) -> str:
    """A band as text: ``8.60 – 9.50 µs``, with the unit once if both ends have it."""
    low, high = format_time(low_s), format_time(high_s)
    number, _, unit = low.rpartition(" ")
    return f"{number} – {high}" if high.endswith(f" {unit}") else f"{low} – {high}"


def change_table(changes: Sequence[Sensitivity], *, whole: bool = False) -> str:
    """A table of changes by group: the time after each with its band, and its option. whole  and evidence"""
    rows, group = [], ""
    for change in changes:
        name = "" if change.group == group else change.group
        cells = [name, change.label, format_time(change.after_s), band(change.low_s, change.high_s)]
        rows.append([*cells, str(change.evidence) if whole else "", unbroken(change.option)])
        group = change.group
    headers = ("", "What would help", "time", "95 % band", "evidence" if whole else "", "")
    return table(headers, rows, left=(0, 1, 4, 5), indent=0, drop=(4,))


ANOTHER, ANOTHER_BRIEFLY = "measured on another cluster of this kind", "of another cluster"
"""Words for a shipped calibration, whose bands include the spread between clusters."""


def origin(calibration_id: str, calibration_file: str | None) -> str:
    """A calibration in words: its id; for a user's own file ``mine.json (h100-sxm-ib/nccl-2.29.2+mine)``."""
    return f"{calibration_file} ({calibration_id})" if calibration_file else f"{calibration_id}, {ANOTHER}"


def lacking(answer: Answer) -> str:
    """Exchanges of which the user's calibration has no samples, and the curves used instead."""
    if answer.setting.calibration is None or answer.setting.backend not in LAW_BACKENDS:
        return ""
    known = {curve.collective for curve in load_calibration(str(answer.setting.calibration)).curves}
    missing = sorted({step.collective for step in answer.steps if step.collective} - known)
    if not missing:
        return ""
    shipped = answer.setting.machine.name in list_machines()
    wider = ", with a band that can be wider than without --calibration" if shipped else ""
    return "\n" + paragraph(
        f"No sample of {', '.join(missing)} in it: a law of the machine's kind stands in{wider}."
    )


def explain_words(answer: Answer) -> list[str]:
    """The words of the option that explains the longest step: --explain, gather-pool."""
    longest = max(answer.steps, key=lambda step: step.time_s)
    return ["--explain", longest.name.replace("_", "-")]


def footer(answer: Answer, calibration_file: str | None = None, again: Again = shlex.join) -> str:
    """The sources of the numbers, and the command that explains the longest step of this pass."""
    text = provenance(answer, calibration_file)
    line = command_lines(again(["perfmodel", "project", *explain_words(answer)]))
    return f"{text}\n{paragraph('The equation behind the longest step:')}\n{line}"


def provenance(answer: Answer, calibration_file: str | None = None, *, brief: bool = False) -> str:
    """The machine with its changed values, the clock, and the calibration. brief  on a single line"""
    machine = answer.setting.machine
    parts = [f"Machine {machine.name}"]
    assumed = [f"{k} = {machine.quantity(k)}" for k in sorted(machine.overrides)]
    if assumed:
        parts.append("assumed: " + ", ".join(assumed))
    if answer.basis.payload is not None and answer.gpus > 1 and not brief:  # else said in the question
        parts.append(f"bags sent as {answer.basis.payload}")
    parts.append("clock " + ", ".join(str(clock) for clock in answer.clocks))
    another = ANOTHER_BRIEFLY if brief else ANOTHER
    shipped = f", {another}" if calibration_file is None and answer.gpus > 1 else ""
    parts.append("calibration " + ", ".join(dict.fromkeys(answer.calibrations)) + shipped)
    text = paragraph(" · ".join(parts))
    return text + (f"\nCalibration file {calibration_file}{lacking(answer)}" if calibration_file else "")
