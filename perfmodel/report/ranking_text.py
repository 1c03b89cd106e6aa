"""The first screen of ``perfmodel project``: TorchRec's fastest sharding, what is beside it, its limits."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking, is_slower
from perfmodel.answer.uniform_plans import MOST_COMPARED
from perfmodel.answer.what_would_help import Sensitivity
from perfmodel.engine.schemes import ROW_WISE, ROWS_ONCE, TORCHREC, UNIQUE_ROWS, WAYS
from perfmodel.report.experiment_text import experiment_text, run_line
from perfmodel.report.projection_text import (
    change_table,
    explain_words,
    provenance,
    question_facts,
    step_table,
    where_words,
)
from perfmodel.report.terminal import facts, paragraph
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

_LINES = 3  # changes that are listed: the screen has 22 lines by default
_INDENT = 3


def ranking_text(found: Ranking, calibration_file: str | None) -> str:
    """The first screen of ``perfmodel project``, at most 22 lines by default: answer, steps, changes."""
    answer, base = found.answer, found.base
    fair = throughput_words(answer) if found.best else ""
    lines = fair, beside_words(found), planned_words(found), answer.uneven
    below = [paragraph(line, _INDENT) for line in lines if line]
    given = [
        *question_facts(base),
        ("memory", gpu_words(answer)),
        ("times", source_words(answer, calibration_file)),
    ]
    head = [paragraph(headline(found)), *below, facts(given)]
    parts = ["\n".join(head), step_table(answer, brief=True)]
    if found.changes:
        parts.append(change_table(choose_changes(found.changes)))
    last = [measure_text(found, calibration_file), more_words(found)]
    parts.append("\n".join(line for line in last if line))
    return "\n\n".join(parts)


def choose_changes(changes: Sequence[Sensitivity], most: int = _LINES) -> list[Sensitivity]:
    """At most so many changes: the first of each group, then others in the order of groups, as they stand."""
    firsts = list({change.group: change for change in reversed(changes)}.values())
    order = sorted(changes, key=lambda change: change not in firsts)
    return sorted(order[:most], key=changes.index)


def more_words(found: Ranking) -> str:
    """The options for more: all lines, all shardings, and the explanation of the longest step."""
    every = "" if found.base.basis.unpooled else "--sharding all, "
    return paragraph(f"More: -v, {every}{' '.join(explain_words(found.answer))}")


def headline(found: Ranking) -> str:
    """The time and the slowdown of the fastest sharding, or that none fits."""
    answer = found.answer
    size = format_bytes(answer.gpu_count.table_bytes, binary=False)
    nodes, name = -(-answer.gpus // answer.gpu_count.gpus_per_node), answer.setting.machine.name
    where = f"{size} on {counted(answer.gpus, 'GPU')} ({counted(nodes, 'node')} of {name})"
    if found.best:
        return f"{where}: {time_words(answer)}"
    if found.base.table_count > MOST_COMPARED:
        return f"{where}: {too_large(found.base)}."
    return f"{where}: no uniform sharding that {TORCHREC} runs fits. {too_large(found.base)}."


def time_words(answer: Answer) -> str:
    """The time of a batch and its ratio to the time of one GPU, with the band of the ratio."""
    low, high = answer.band
    band = f"({format_ratio(low)} – {format_ratio(high)})"
    return f"{format_time(answer.time_s)} a batch, {format_ratio(answer.slowdown)} one GPU {band}"


def throughput_words(answer: Answer) -> str:
    """Samples per second of all GPUs, against the GPU that the time is compared with, at its batch."""
    rate, ratio = answer.samples_per_s, answer.totals["throughput_ratio"]
    return (
        f"together {format_per_second(rate, 'samples')}, {format_ratio(ratio)} that one GPU, which holds all "
        f"rows and takes {format_time(answer.baseline_time_s)}"
    )


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
    fastest = found.unique_rows
    if whole and found.left_out is not None:
        fastest = found.left_out
    if fastest is not None and fastest.time_s < answer.time_s:
        way = WAYS[fastest.sharding]
        name = f"{way.summary} ({way.runs}'s {way.name})"
        if fastest.sharding == ROWS_ONCE:
            name = "use_index_dedup" if base.basis.unpooled else UNIQUE_ROWS
        equal = "" if is_slower(answer, fastest) else ", which may be as fast"
        parts.append(f"fastest known: {format_time(fastest.time_s)} with {name}{equal}")
    return " · ".join(parts)


def join_words(names: Sequence[str]) -> str:
    """The words joined: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def planned_words(found: Ranking) -> str:
    """The time of a plan with a sharding for each table, if it is shorter; else ""."""
    if len(found.base.work.groups) < 2:
        return ""
    from perfmodel.plan.quick import plan_quickly  # the planner's modules are not loaded in vain

    planned = plan_quickly(found)
    if planned is None:
        return ""
    return f"a sharding of its own for each table takes {format_time(planned.time_s)}: perfmodel plan"


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
    if not found.changes:
        return "None of the changes tried makes it 2 % faster."
    change = min(found.changes, key=lambda change: (change.loses_samples, change.after_s))
    times = f"{format_time(change.before_s)} → {format_time(change.after_s)}"
    return f"What would help most: {change.label} ({change.option}), {times}."


def measure_text(found: Ranking, calibration_file: str | None) -> str:
    """How the times are known, and the command whose measurements narrow the band most, if there is one."""
    if found.experiment is None:
        return provenance(found.answer, calibration_file, brief=True)
    return experiment_text(found.experiment, "", run_line(calibration_file), brief=True)


def gpu_words(answer: Answer) -> str:
    """The memory that each GPU uses, and why so many GPUs."""
    count = answer.gpu_count
    held, room = (format_bytes(x, binary=False) for x in (count.memory_bytes, count.usable_bytes))
    return f"{held} of {room} on the fullest GPU{where_words(answer)} · {count}"


def source_words(answer: Answer, calibration_file: str | None) -> str:
    """What of the machine was changed or measured by the user; "" if all of it is shipped."""
    machine = answer.setting.machine
    changed = [f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides)]
    parts = [f"assumed: {', '.join(changed)}"] if changed else []
    if calibration_file or answer.question.clock is not None or answer.question.calibration is not None:
        clocks = ", ".join(str(clock) for clock in answer.clocks)
        parts.append(f"calibration {calibration_file or ', '.join(answer.calibrations)}, clock {clocks}")
    return " · ".join(parts)


def too_large(base: Answer) -> str:
    return f"{ROW_WISE} does not fit: it needs {base.gpu_count.describe_memory('{} ({})')}"


def setting_words(base: Answer) -> str:
    """Machine, its values that were changed, and library: ``h100-sxm-ib, hbm_bytes = 96 GB, nccl``."""
    machine = base.setting.machine
    changed = [f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides)]
    return ", ".join([machine.name, *changed, base.setting.backend])
