"""The first screen of ``perfmodel project``: TorchRec's fastest sharding, what is beside it, its limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking, is_slower
from perfmodel.answer.uniform_plans import MOST_COMPARED
from perfmodel.engine.row_wise import TableGroup
from perfmodel.engine.schemes import ROW_WISE, TORCHREC, UNIQUE_ROWS, WAYS
from perfmodel.engine.tables import row_bytes
from perfmodel.report.experiment_text import experiment_text, run_line
from perfmodel.report.projection_text import explain_words, provenance, step_table, where_words
from perfmodel.report.terminal import paragraph, table, unbroken
from perfmodel.schema.distributions import UNIFORM
from perfmodel.schema.workload import DTYPES
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

CHANGED = ("What would change it, shortest time first", "time", "")
_LINES = 3  # changes that are listed: the screen has 25 lines
_INDENT = 5
_MANY_ROWS = 1e7
_GIVEN = "given"


def ranking_text(found: Ranking, calibration_file: str | None) -> str:
    """The first screen of ``perfmodel project``, at most 25 lines by default: answer, steps, changes."""
    answer, base = found.answer, found.base
    fair = throughput_words(answer) if found.best else ""
    lines = fair, beside_words(found), planned_words(found), question_words(base), gpu_words(answer)
    below = [paragraph(line, _INDENT) for line in (*lines, answer.uneven) if line]
    parts = ["\n".join([paragraph(headline(found)), *below]), step_table(answer, brief=True)]
    if found.changes:
        rows = [[f" {label}", times, unbroken(option)] for label, times, option in change_rows(found)]
        parts.append(table(CHANGED, rows, left=(0, 2), indent=0))
    last = [measure_text(found, calibration_file), provenance(answer, calibration_file, brief=True)]
    parts.append("\n".join(line for line in [*last, more_words(found)] if line))
    return "\n\n".join(parts)


def more_words(found: Ranking) -> str:
    """The options for more: all lines, all shardings, and the explanation of the longest step."""
    every = "" if found.base.basis.unpooled else "--sharding all, "
    return paragraph(f"More: -v, {every}{' '.join(explain_words(found.answer))}")


def headline(found: Ranking) -> str:
    """The time and the slowdown of the fastest sharding, or that none fits."""
    answer = found.answer
    size = format_bytes(answer.gpu_count.table_bytes, binary=False)
    where = f"{size} on {counted(answer.gpus, 'GPU')}"
    if found.best:
        return f"{where}: {time_words(answer)}"
    if found.base.table_count > MOST_COMPARED:
        return f"{where}: {too_large(found.base)}."
    return f"{where}: no uniform sharding that {TORCHREC} runs fits. {too_large(found.base)}."


def time_words(answer: Answer) -> str:
    """The time of a batch and its ratio to the time of one GPU, with the band of the ratio."""
    low, high = answer.band
    alone = f"the {format_time(answer.baseline_time_s)} of one GPU with all rows"
    band = f"({format_ratio(low)} – {format_ratio(high)})"
    return f"{format_time(answer.time_s)} a batch, {format_ratio(answer.slowdown)} {alone} {band}"


def throughput_words(answer: Answer) -> str:
    """Samples per second of all GPUs, against the GPU that the time is compared with, at its batch."""
    rate = format_per_second(answer.samples_per_s, "samples")
    return f"together {rate}, {format_ratio(answer.totals['throughput_ratio'])} those of that one GPU"


def beside_words(found: Ranking, *, whole: bool = True) -> str:
    """The sharding, and what is beside it: ``row-wise, as TorchRec runs it · with unique rows (…): 564 µs``.

    whole  whether to name a sharding that cannot lead, if it is faster: this takes more answers
    Limits: nothing fits -> how many GPUs would be enough;  too many tables -> the command that compares
    shardings
    """
    if not found.best and found.base.table_count > MOST_COMPARED:
        most = format_count(MOST_COMPARED)
        return f"other shardings of more than {most} tables are compared by --sharding all alone"
    if not found.best:
        return found.enough
    base, answer = found.base, found.answer
    parts = [f"{answer.sharding}, as {TORCHREC} runs it"]
    near = [f"{other.sharding} ({format_time(other.time_s)})" for other in found.as_good]
    if near:
        parts.append(f"{join_words(near)} may be as fast")
    if found.unknown:
        parts.append(f"no calibration has times for {', '.join(found.unknown)}")
    if answer.sharding != ROW_WISE and not base.fits:
        parts.append(too_large(base))
    elif ROW_WISE not in (answer.sharding, *(other.sharding for other in found.as_good)):
        parts.append(f"{ROW_WISE}: {format_time(base.time_s)}, {format_ratio(base.slowdown)}")
    if found.unique_rows is not None:
        time = format_time(found.unique_rows.time_s)
        unique = "use_index_dedup" if base.basis.unpooled else UNIQUE_ROWS
        parts.append(f"with {unique}: {time}, {_against(found, found.unique_rows)}")
    if whole and found.left_out is not None:
        way = WAYS[found.left_out.sharding]
        parts.append(f"{way.name} ({way.summary}): {format_time(found.left_out.time_s)}")
    return " · ".join(parts)


def _against(found: Ranking, other: Answer) -> str:
    """How another sharding's time compares with the best's: ``2.38× faster``, or that it may be as fast."""
    slow, fast = sorted((found.answer, other), key=lambda answer: -answer.time_s)
    if not is_slower(slow, fast):
        return "may be as fast"
    word = "faster" if fast is other else "slower"
    return f"{format_ratio(slow.time_s / fast.time_s)} {word}"


def join_words(names: Sequence[str]) -> str:
    """The words joined: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def planned_words(found: Ranking) -> str:
    """The time of a plan with a sharding for each table, if it is shorter; else ""."""
    if len(found.base.work.groups) < 2:
        return ""
    from perfmodel.plan.searched import plan_beside  # the planner's modules are not loaded in vain

    planned = plan_beside(found)
    if planned is None:
        return ""
    time = format_time(planned.found.cost.time_s)
    return f"a sharding of its own for each table takes {time}: perfmodel plan"


def limit_words(answer: Answer) -> str:
    """Where the time goes: the share of exchanges, of their latency, and of the longest step."""
    sent = [step for step in answer.steps if step.collective]
    of_links = sum(step.share for step in sent)
    latency = sum(step.floor_s for step in sent) / answer.time_s
    longest = max(answer.steps, key=lambda step: step.time_s)
    return (
        f"Exchanges between GPUs take {format_fraction(of_links)} of the time ({format_fraction(latency)} is "
        f"their latency); the longest step is {longest.label}, {format_fraction(longest.share)}."
    )


def help_words(found: Ranking) -> str:
    """A sentence: which change makes the pass fastest, with the times before and after it."""
    rows = change_rows(found)
    if not rows:
        return "None of the changes tried makes it 2 % faster."
    label, times, _ = rows[0]
    return f"What would change it most: {label}, {times}."


def measure_text(found: Ranking, calibration_file: str | None) -> str:
    """The measurement that narrows the band most, and its command; "" if there is none."""
    if found.experiment is None:
        return ""
    return experiment_text(found.experiment, "", run_line(calibration_file), brief=True)


def gpu_words(answer: Answer) -> str:
    """A line: how many GPUs and why, and the memory that each uses."""
    count = answer.gpu_count
    held, room = (format_bytes(x, binary=False) for x in (count.memory_bytes, count.usable_bytes))
    return f"{count}, each holds {held} of {room}{where_words(answer)}"


def too_large(base: Answer) -> str:
    return f"{ROW_WISE} does not fit: it needs {base.gpu_count.describe_memory('{} ({})')}"


def question_words(base: Answer) -> str:
    """A line with the values that the user gave, then the values that are defaults."""
    given = {_GIVEN, *(base.question.given)}
    items = list(_items(base))
    asked = [text for key, text in items if key in given]
    rest = [text for key, text in items if key not in given]
    if not asked:
        return f"{', '.join(rest)}: all by default"
    return f"{', '.join(asked)}; by default {', '.join(rest)}"


def setting_words(base: Answer) -> str:
    """Machine, its values that were changed, and library: ``h100-sxm-ib, hbm_bytes = 96 GB, nccl``."""
    machine = base.setting.machine
    changed = [f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides)]
    return ", ".join([machine.name, *changed, base.setting.backend])


def _items(base: Answer) -> Iterator[tuple[str, str]]:
    """Pairs for each part of the question: the name of its argument, and its value in words.

    The name is ``_GIVEN`` if the value is never a default, and "" if it is always a default.
    """
    work, groups = base.work, base.work.groups
    model = base.question.model
    batch, gpus, payload = float(work.batch[0]), base.gpus, base.basis.payload
    of = "sample, not pooled," if base.basis.unpooled else "bag"
    if model is not None:
        count = sum(float(group.count.flat[0]) for group in groups)
        ids = sum(float(group.count.flat[0] * group.pooling.flat[0]) for group in groups)
        yield _GIVEN, f"{counted(int(count), 'table')} of {model}, {ids / count:.3g} ids per {of} on average"
        weighted = sum(float(group.count.flat[0]) for group in groups if group.weight_bytes.any())
        if any(_stored(base, group) > group.dim * group.element_bytes for group in groups):
            yield _GIVEN, "rows with their scale, bias and padding"
        if weighted:
            some = "" if weighted == count else f" in {counted(int(weighted), 'table')}"
            yield _GIVEN, f"ids with weights{some}"
    else:
        only = groups[0]
        count, rows = int(only.count.flat[0]), float(only.rows.flat[0])
        each = "" if count == 1 else " each"
        yield "table_count", f"{counted(count, 'table')} of {_rows(rows)} rows{each}"
        yield "dim", f"dim {int(only.dim.flat[0])}"
        dtype, stored = DTYPES[int(only.dtype.flat[0])], _stored(base, only)
        longer = f" in rows of {format_count(stored)} bytes" if stored > only.dim * only.element_bytes else ""
        yield "dtype", f"{'' if payload is None else 'rows of '}{dtype}{longer}"
        yield "pooling", f"{float(only.pooling.flat[0]):g} ids per {of.rstrip(',')}"
    if payload is not None and gpus > 1:
        yield _GIVEN, f"{'rows' if base.basis.unpooled else 'bags'} sent as {payload}"
    yield "batch", f"{format_count(batch)} samples per GPU ({format_count(batch * gpus)} in all)"
    words = work.ids_names
    yield "" if words == UNIFORM.name else _GIVEN, f"{words} ids"
    if base.basis.training:
        yield _GIVEN, f"training step with {base.basis.optimizer}, without dense layers"
    else:
        yield "", "forward pass"


def _stored(base: Answer, group: TableGroup) -> float:
    """Bytes of a row of these tables in memory."""
    return float(row_bytes(group.dtype, group.dim, training=base.basis.training).flat[0])


def _rows(rows: float) -> str:
    """A number of rows; from ten million on in millions: ``78 125 M``."""
    return format_count(rows) if rows < _MANY_ROWS else f"{format_count(rows / 1e6)} M"


def change_rows(found: Ranking) -> list[list[str]]:
    """Rows of the table ``CHANGED``: a change, the times before and after it, its option."""
    return [
        [each.label, f"{format_time(each.before_s)} → {format_time(each.after_s)}", each.option]
        for each in found.changes[:_LINES]
    ]
