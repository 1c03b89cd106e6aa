"""Parts of the screen of ``perfmodel project``: the question, the steps, the changes, the sources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from perfmodel.answer import Answer
from perfmodel.answer.inputs import DEFAULT_RESERVE
from perfmodel.answer.what_would_help import Sensitivity
from perfmodel.engine.settings import is_published
from perfmodel.engine.steps import StepRow
from perfmodel.engine.tables import WIDTHS, row_bytes
from perfmodel.question.groups import choose_optimizer
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import WIDTH, command_lines, page_width, paragraph, table, unbroken
from perfmodel.schema.calibration import list_calibrations, load_calibration
from perfmodel.schema.evidence import LAW_BACKENDS
from perfmodel.schema.workload import DTYPES, UNIFORM
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_time

_MANY_ROWS = 1e7
MOST_STEPS = 6
_GIVEN = "given"
_INT32_BYTES = 4
ANOTHER = "measured on another cluster of this kind"
"""Words for a shipped calibration, whose bands include the spread between clusters."""


def question_facts(base: Answer) -> list[tuple[str, str]]:
    """The tables and the batch of a question, each with the values that the user gave before its defaults."""
    typed_keys = {_GIVEN, *base.question.given}
    lines = []
    for label, items in (("tables", _list_tables(base)), ("batch", _list_batch(base))):
        texts = list(items)
        typed = [text for key, text in texts if key in typed_keys]
        defaults = ", ".join(text for key, text in texts if key not in typed_keys)
        words = f"{', '.join(typed)} · default: {defaults}" if typed and defaults else ", ".join(typed)
        lines.append((label, words or f"{defaults} (default)"))
    return lines


def _list_tables(base: Answer) -> Iterator[tuple[str, str]]:
    """Pairs for the tables of a question: the name of an argument, and its value in words.

    The name is ``_GIVEN`` if the value is never a default, and "" if it is always a default.
    """
    tables = base.work.tables
    count = base.table_count
    stored = row_bytes(tables.dtype, tables.dim, training=base.basis.training)
    longer = (stored > tables.dim * WIDTHS[tables.dtype.astype(np.int64)]).any()
    model = base.question.model
    of = "sample, not pooled" if base.basis.unpooled else "bag"
    if model is not None:
        bags = tables.count * tables.features
        mean = float((bags * tables.pooling).sum() / bags.sum())
        yield _GIVEN, f"{format_count(count)} of {model}, {mean:.3g} id{'s' * (mean != 1)} a {of} on average"
        if bags.sum() > count:
            yield _GIVEN, f"looked up by {format_count(int(bags.sum()))} features"
        weighted = float(tables.count[tables.weight_bytes.astype(bool)].sum())
        if longer:
            yield _GIVEN, "rows with their scale, bias and padding"
        if weighted:
            tables_text = "" if weighted == count else f" in {counted(int(weighted), 'table')}"
            yield _GIVEN, f"ids with weights{tables_text}"
    else:
        rows = float(tables.rows[0, 0])
        yield "table_count", f"{format_count(count)} of {_format_rows(rows)} rows"
        yield "dim", f"dim {int(tables.dim[0, 0])}"
        dtype = DTYPES[int(tables.dtype[0, 0])]
        padded = f" in rows of {format_count(float(stored[0, 0]))} bytes" if longer else ""
        yield "dtype", f"{'' if base.basis.payload is None else 'rows of '}{dtype}{padded}"
        pooling = float(tables.pooling[0, 0])
        repeat = ", more than it has rows" if pooling > rows else ""
        yield "pooling", f"{pooling:g} id{'s' * (pooling != 1)} a {of}{repeat}"
    if base.question.id_bytes == _INT32_BYTES:
        yield _GIVEN, "ids of int32"
    words = tables.ids_names
    yield "" if words == UNIFORM.name else _GIVEN, f"{words} ids"


def _list_batch(base: Answer) -> Iterator[tuple[str, str]]:
    """Pairs for the batch and the pass of a question, as ``_list_tables``."""
    batch = float(base.work.batch[0])
    payload = base.basis.payload
    yield "batch", f"{counted(int(batch), 'sample')} a GPU, {format_count(batch * base.gpus)} in all"
    if base.question.reserve != DEFAULT_RESERVE:
        yield _GIVEN, f"{format_fraction(base.question.reserve)} of memory free"
    if payload is not None and base.gpus > 1:
        yield _GIVEN, f"{'rows' if base.basis.unpooled else 'bags'} sent as {payload}"
    if base.basis.training:
        yield _GIVEN, f"training, {base.basis.optimizer}, no dense layers"
    elif base.basis.optimizer != choose_optimizer(training=False):
        yield _GIVEN, f"forward pass, the state of {base.basis.optimizer} in memory"
    else:
        yield "", "forward pass"


def _format_rows(rows: float) -> str:
    """A number of rows; from ten million on with three figures: ``78.1 G``."""
    for unit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if rows >= max(unit, _MANY_ROWS):
            return f"{rows / unit:.3g} {prefix}"
    return format_count(rows)


def step_table(answer: Answer, *, whole: bool = False, most: int = MOST_STEPS) -> str:
    """A table of steps: bytes, time, share, band, clock and evidence.

    most   rows, of which the last is the sum of the shortest steps, where there are more steps
    whole  with all steps, and the total time
    """
    clock = [Column("clock", lambda step: str(step.clock), left=True)] if len(answer.clocks) > 1 else []
    total = format_time(answer.time_s) if whole else ""
    columns = (
        Column("step", lambda step: _name_step(answer, step), left=True),
        Column(
            "bytes/GPU",
            lambda x: "" if math.isnan(x.payload_bytes) else format_bytes(x.payload_bytes),
            goes=2,
        ),
        Column("time", lambda step: format_time(step.time_s), total=total),
        Column("share", lambda step: format_fraction(step.share), goes=3),
        Column("95 % band", lambda step: band(step.low_s, step.high_s)),
        *clock,
        Column("evidence", lambda step: str(step.evidence), left=True),
    )
    return columns_text(columns, answer.steps if whole else _merge_shortest(answer.steps, most))


def _merge_shortest(steps: Sequence[StepRow], most: int) -> list[StepRow]:
    """The steps; of more than ``most`` the longest, and one row that is the sum of the others."""
    if len(steps) <= most:
        return list(steps)
    short = sorted(steps, key=lambda step: step.time_s)[: len(steps) - most + 1]
    sums = {key: sum(getattr(step, key) for step in short) for key in ("time_s", "share", "low_s", "high_s")}
    weakest = max(short, key=lambda step: step.evidence.rank)
    name = f"{len(short)} shorter steps"
    merged = replace(weakest, name=name, label=name, collective="", payload_bytes=math.nan, **sums)
    return [*(step for step in steps if step not in short), merged]


def _name_step(answer: Answer, step: StepRow) -> str:
    """The step's name; with backend ``best`` also the library that is faster."""
    label = "gather" if answer.basis.unpooled and step.name == "gather_pool" else step.label
    if answer.setting.backend == "best" and step.collective:
        label = label.replace(")", f", {step.library})")
    return label


def band(low_s: float, high_s: float) -> str:
    """A band as text: ``8.60 – 9.50 µs``."""
    return join_quantities(format_time(low_s), "–", format_time(high_s))


def join_quantities(first: str, word: str, second: str) -> str:
    """Two quantities with a word between, and the unit once if both have it: ``69.5 of 72.2 GB``."""
    number, _, unit = first.rpartition(" ")
    return f"{number if second.endswith(f' {unit}') else first} {word} {second}"


def change_table(changes: Sequence[Sensitivity]) -> str:
    """A table of changes by group: the time after each with its band, its evidence and its option.

    Where the words of several changes have no room, each option stands below its change.
    """
    rows: list[list[str]] = []
    group = ""
    order = list(dict.fromkeys(change.group for change in changes))
    for change in sorted(changes, key=lambda change: order.index(change.group)):
        name = "" if change.group == group else change.group.split()[-1]
        group = change.group
        times = [format_time(change.after_s), band(change.low_s, change.high_s)]
        rows.append([name, change.label, *times, str(change.evidence), change.option])
    headers = ("", "What would help", "time", "95 % band", "evidence", "")
    wide = [[*cells, unbroken(option)] for *cells, option in rows]
    text = table(headers, wide, left=(0, 1, 4, 5), indent=0)
    if page_width() == WIDTH and len(text.splitlines()) <= len(rows) + 2:
        return text
    below: dict[int, str] = {}
    cells: list[list[str]] = []
    for name, label, *times, option in rows:
        cells += [[name, "", "", ""]] if name else []
        cells.append([f" {label}", *times])
        below[len(cells)] = command_lines(option)
    return table(headers[1:5], cells, left=(0, 3), indent=0, drop=(3,), below=below)


def origin(calibration_id: str, calibration_file: str | None) -> str:
    """A calibration in words: its id; for a user's own file ``mine.json (h100-sxm-ib/nccl-2.29.2+mine)``."""
    return f"{calibration_file} ({calibration_id})" if calibration_file else f"{calibration_id}, {ANOTHER}"


def find_file(answer: Answer) -> str | None:
    """The user's calibration file behind the answer; None for a shipped calibration."""
    named = answer.setting.calibration
    return None if named is None or str(named) in list_calibrations() else str(named)


def _find_lacking(answer: Answer) -> str:
    """A paragraph that names the exchanges without samples in the user's calibration; "" if none lacks."""
    if answer.setting.backend not in LAW_BACKENDS:
        return ""
    measured = {curve.collective for curve in load_calibration(str(answer.setting.calibration)).curves}
    missing = sorted({step.collective for step in answer.steps if step.collective} - measured)
    words = f"No sample of {', '.join(missing)} in it: a law of the machine's kind stands in."
    return f"\n{paragraph(words)}" if missing else ""


def explain_words(answer: Answer) -> list[str]:
    """The words of the option that explains the longest step: --explain, gather-pool."""
    return ["--explain", answer.longest_step.name.replace("_", "-")]


def kernel_words(answer: Answer) -> str:
    """Whose look-up kernels the answer assumes, and how their times are known."""
    setting = answer.setting
    name = setting.kernel_library.replace("fbgemm", "FBGEMM")
    if setting.kernels is None:
        return f"{name}, from published times" if is_published(setting.machine) else "of the machine file"
    timed = any(interval.known for interval in setting.kernels.values.values())
    return f"{name}, {'timed on this machine' if timed else 'from too few look-ups to know a rate'}"


def provenance(answer: Answer, calibration_file: str | None = None) -> str:
    """The machine with its changed values, the clock, and the calibration."""
    machine = answer.setting.machine
    parts = [f"Machine {machine.name}", *changed_values(answer)]
    parts.append("clock " + ", ".join(str(clock) for clock in answer.clocks))
    shipped = f", {ANOTHER}" if calibration_file is None and answer.gpus > 1 else ""
    parts.append("calibration " + ", ".join(dict.fromkeys(answer.calibrations)) + shipped)
    file = f"\nCalibration file {calibration_file}{_find_lacking(answer)}" if calibration_file else ""
    return paragraph(" · ".join(parts)) + file


def changed_values(answer: Answer) -> list[str]:
    """The values of the machine that the user changed, in words; none: no text."""
    machine = answer.setting.machine
    changed = [f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides)]
    return [f"assumed: {', '.join(changed)}"] if changed else []
