"""The first screen of ``perfmodel project``: TorchRec's fastest sharding, what is beside it, its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking, is_slower
from perfmodel.answer.uniform_plans import MOST_COMPARED
from perfmodel.answer.what_would_help import MORE_GPUS, Sensitivity, find_next_experiment
from perfmodel.engine.schemes import ROW_WISE, ROWS_ONCE, TORCHREC, UNIQUE_ROWS, WAYS, copied
from perfmodel.report.experiment_text import experiment_text, run_line
from perfmodel.report.projection_text import (
    change_table,
    changed_values,
    explain_words,
    kernel_words,
    provenance,
    question_facts,
    step_table,
)
from perfmodel.report.terminal import command_lines, facts, paragraph
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
_SEVEN = 7  # steps
_INDENT = 3
_LONGEST_COMMAND = 50  # beside other words on a line
_WORTH_SAYING = 0.02  # of the time


def project_text(
    found: Ranking,
    changes: Sequence[Sensitivity],
    calibration_file: str | None,
    again: Callable[[Sequence[str]], str],
    *,
    planned: Answer | None = None,
    whole: bool = False,
) -> str:
    """The screen of ``perfmodel project``, at most 22 lines by default: answer, steps, changes.

    found    of one answer if the question names a sharding
    again    returns the command that asks the same question, from its leading words
    planned  the answer in which each table has its own sharding, if it leads
    whole    with all changes, the sources and the command of the longest step: ``-v``
    """
    base, answer = found.base, planned or found.answer
    lines = throughput_words(answer), beside_words(found, planned=planned), answer.uneven
    given = [
        *question_facts(base),
        ("memory", gpu_words(answer)),
        ("times", source_words(answer, calibration_file)),
        ("kernels", kernel_words(answer) if whole or answer.question.kernels else ""),
    ]
    head = [paragraph(headline(found, planned)), *(paragraph(line, _INDENT) for line in lines if line)]
    parts = ["\n".join([*head, facts(given)]), step_table(answer, whole=whole)]
    if planned is not None:
        least_s = (1 - _WORTH_SAYING) * planned.time_s
        changes = [change for change in changes if change.after_s <= least_s or change.group == MORE_GPUS]
    if changes:
        title = "What would help" if planned is None else "What would help (uniform sharding)"
        parts.append(change_table(changes if whole else choose_changes(changes), title, whole=whole))
    explain = again(["perfmodel", "plan"] if planned else ["perfmodel", "project", *explain_words(answer)])
    more = ["-v"] if planned or base.basis.unpooled or base.gpus == 1 else ["-v", "--sharding all"]
    short = explain if len(explain) < _LONGEST_COMMAND else "perfmodel plan"
    words = ", ".join([*more, short if planned else " ".join(explain_words(answer))])
    experiment, name = find_next_experiment(answer), answer.setting.machine.name
    if experiment is not None:
        run = run_line(calibration_file)
        parts.append(experiment_text(experiment, name, run, brief=not whole, more=words))
    if whole or experiment is None:
        parts.append(provenance(answer, calibration_file))
    if whole:
        last = "The search for such a plan:" if planned else "The equation behind the longest step:"
        parts.append(f"{last}\n{command_lines(explain)}")
    elif experiment is None:
        parts[-1] += f"\n{paragraph(f'More: {words}')}"
    if not whole and len(answer.steps) == _SEVEN:  # without a gap they still fit a screen of 22 lines
        parts[-2:] = ["\n".join(parts[-2:])]
    return "\n\n".join(parts)


def choose_changes(changes: Sequence[Sensitivity], most: int = _LINES) -> list[Sensitivity]:
    """At most so many changes: the first of each group, then others in the order of groups, as they stand."""
    firsts = list({change.group: change for change in reversed(changes)}.values())
    order = sorted(changes, key=lambda change: change not in firsts)
    return sorted(order[:most], key=changes.index)


def headline(found: Ranking, planned: Answer | None = None) -> str:
    """The time and the slowdown of what leads, or that nothing fits. planned  as in ``project_text``"""
    answer = planned or found.answer
    size = format_bytes(answer.gpu_count.table_bytes, binary=False)
    nodes, name = -(-answer.gpus // answer.gpu_count.gpus_per_node), answer.setting.machine.name
    if answer.gpus == 1 and answer.fits:
        return f"{size} on 1 GPU of {name}, so nothing is sharded: {format_time(answer.time_s)} a batch"
    where = f"{size} on {counted(answer.gpus, 'GPU')} ({counted(nodes, 'node')} of {name})"
    if found.best:
        return f"{where}: {time_words(answer)}"
    if answer.question.sharding is not None:
        memory = answer.gpu_count.describe_memory().partition(":")[0]
        return f"{where}: does not fit, {memory}. If it did: {time_words(answer)}"
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
    rate, ratio = format_per_second(answer.samples_per_s, "samples"), answer.totals["throughput_ratio"]
    if answer.gpus == 1:
        return f"{rate}"
    return (
        f"together {rate}, {format_ratio(ratio)} that one GPU, which holds all rows and takes "
        f"{format_time(answer.baseline_time_s)}"
    )


def beside_words(found: Ranking, *, whole: bool = True, planned: Answer | None = None) -> str:
    """The sharding, and what is beside it: ``row-wise, as TorchRec runs it · with unique rows (…): 564 µs``.

    whole  whether to name a sharding that cannot lead, if it is faster: this takes more answers
    planned  as in ``project_text``
    Limits: nothing fits -> how many GPUs would be enough;  too many tables -> the command that compares
    shardings;  one GPU -> ""
    """
    base, answer = found.base, found.answer
    if base.gpus == 1:
        return ""
    if base.question.sharding is not None:
        way = WAYS[answer.sharding]
        return f"{way.summary}, as {way.runs} runs it" if way.runs else f"{way.summary}, which nobody runs"
    if not found.best and base.table_count > MOST_COMPARED:
        most = format_count(MOST_COMPARED)
        return f"other shardings of more than {most} tables are compared by --sharding all alone"
    if not found.best:
        return found.enough
    parts = [f"{answer.sharding}, as {TORCHREC} runs it"]
    if planned is not None:
        parts = [f"a sharding for each table, as {TORCHREC} runs it"]
        parts.append(f"{answer.sharding} for all: {format_time(answer.time_s)}")
    near = [f"{other.sharding} ({format_time(other.time_s)})" for other in found.as_good]
    if near and planned is None:
        parts.append(f"{join_words(near)} may be as fast")
    if found.unknown:
        parts.append(f"no calibration has times for {', '.join(found.unknown)}")
    fastest = found.beside.unique_rows
    if whole and found.beside.left_out is not None:
        fastest = found.beside.left_out
    if fastest is not None and fastest.time_s < (planned or answer).time_s:
        way = WAYS[fastest.sharding]
        name = f"{way.summary} ({way.runs}'s {way.name})"
        if fastest.sharding == ROWS_ONCE:
            name = "use_index_dedup" if base.basis.unpooled else UNIQUE_ROWS
        equal, time = is_slower(planned or answer, fastest), format_time(fastest.time_s)
        if copied(way.exchange):
            parts[0] = f"{answer.sharding}, {TORCHREC}'s fastest that cuts tables"
            parts.append(f"they fit every GPU uncut: {time} ({way.name})")
        else:
            parts.append(f"fastest known: {time} with {name}{'' if equal else ', which may be as fast'}")
    return " · ".join(parts)


def join_words(names: Sequence[str]) -> str:
    """The words joined: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
        return provenance(found.answer, calibration_file)
    return experiment_text(found.experiment, "", run_line(calibration_file), brief=True)


def gpu_words(answer: Answer) -> str:
    """The memory that each GPU uses, and why so many GPUs."""
    count = answer.gpu_count
    held, room = (format_bytes(x, binary=False) for x in (count.memory_bytes, count.usable_bytes))
    rows, where = answer.basis.rows, ""
    if rows is not None:
        where = ", its share of the host memory"
        where += f", {format_fraction(rows.cached)} of the rows cached in HBM" if rows.cached else ""
    return f"{held} of {room} on the fullest GPU{where} · {count}"


def source_words(answer: Answer, calibration_file: str | None) -> str:
    """What of the machine was changed or measured by the user; "" if all of it is shipped."""
    question, parts = answer.question, changed_values(answer)
    if question.backend != str(question.machine.defaults.backend):
        parts.append(f"library {question.backend}")
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
