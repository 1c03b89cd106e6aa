"""The first screen of ``perfmodel project``: TorchRec's fastest sharding, what is beside it, its limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from perfmodel.answer import Answer, Question, answer_row_wise
from perfmodel.answer.inputs import GIVEN
from perfmodel.answer.ranking import Ranking, is_slower, name_enough, rank
from perfmodel.answer.what_would_help import MORE_GPUS, NextExperiment, Sensitivity, find_next_experiment
from perfmodel.engine.schemes import DATA_PARALLEL, PLANNED, ROW_WISE, ROWS_ONCE, TORCHREC, WAYS, copied
from perfmodel.errors import BadInputError
from perfmodel.report.projection_text import (
    MOST_STEPS,
    change_table,
    changed_values,
    explain_words,
    find_file,
    join_quantities,
    kernel_words,
    provenance,
    question_facts,
    step_table,
)
from perfmodel.report.terminal import WIDTH, command_lines, facts, page_width, paragraph
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

_MOST_LINES = 22
_MOST_CHANGES = 3
_STEPS = MOST_STEPS, MOST_STEPS - 1, MOST_STEPS - 2
_INDENT = 3
_LONGEST_COMMAND = 50  # beside other words on a line
_WORTH_SAYING = 0.02  # of the time


class Line(Protocol):
    """The command line that was typed."""

    def text(self, without: Sequence[str] = (), gpus_words: Sequence[str] = (), command: str = "") -> str:
        """The line to paste: of another ``command``, ``without`` some options, with words after it."""


def project_text(
    ranking: Ranking, changes: Sequence[Sensitivity], line: Line, *, whole: bool = False, first: str = ""
) -> str:
    """The screen of ``perfmodel project``, at most 22 lines by default: answer, steps, changes.

    ranking  of one answer if the question names a sharding
    line     the command line, for commands to print;  first  a line above all
    whole    with all changes, the sources and the command of the longest step: ``-v``
    """
    answer = ranking.answer
    lines = throughput_words(answer), beside_words(ranking), answer.uneven
    head = [paragraph(words) for words in (first, headline(ranking)) if words]
    head += [paragraph(words, _INDENT) for words in lines if words]
    useless = [x for x in changes if x.group == MORE_GPUS and x.after_s >= x.before_s]
    pairs = [
        *question_facts(ranking.base),
        ("memory", gpu_words(answer, next(iter(useless), None))),
        ("times", source_words(answer)),
        ("kernels", kernel_words(answer) if whole or answer.question.kernels else ""),
    ]
    helping = [change for change in changes if change not in useless]
    end = _write_end(ranking, line, whole=whole)
    changes_most = len(helping) if whole else _MOST_CHANGES
    for changes_count, steps_count in itertools.product(reversed(range(changes_most + 1)), _STEPS):
        parts = ["\n".join([*head, facts(pairs)]), step_table(answer, whole=whole, most=steps_count)]
        if chosen := choose_changes(helping, changes_count):
            parts.append(change_table(chosen))
        text = "\n\n".join([*parts, end])
        if whole or page_width() < WIDTH or len(text.splitlines()) <= _MOST_LINES:
            break
    return text


def _write_end(ranking: Ranking, line: Line, *, whole: bool) -> str:
    """What was not measured, the sources, and what else can be printed."""
    answer = ranking.answer
    file = find_file(answer)
    step = explain_words(answer)
    experiment = find_next_experiment(answer)
    alone = ranking.base.basis.unpooled or answer.gpus == 1
    shardings_flag = "--sharding NAME" if answer.question.max_latency_s else "--sharding all"
    words = ["-v", *([] if alone else [shardings_flag]), " ".join(step)]
    if ranking.planned:
        left_out = ("as_json", "sharding", "rows", "max_latency", "gpus")
        search = line.text(left_out, ("--gpus", str(answer.gpus)), "plan")
        words[1:2] = [search] if len(search) < _LONGEST_COMMAND else []  # which -v prints
    parts = []
    if experiment is not None:
        parts.append(experiment_text(experiment, run_line(file), "" if whole else ", ".join(words)))
    if whole or experiment is None:
        parts.append(provenance(answer, file))
    if whole:
        equation = command_lines(line.text(("as_json",), step))
        parts.append(f"The equation behind the longest step:\n{equation}")
        if ranking.planned:
            parts.append(f"The plan, table by table:\n{command_lines(search)}")
    elif experiment is None:
        parts[-1] += "\n" + paragraph("More: " + ", ".join(words))
    return "\n\n".join(parts)


def choose_changes(changes: Sequence[Sensitivity], changes_most: int) -> list[Sensitivity]:
    """At most so many changes: the first of each group, then others in the order of groups, as they stand."""
    firsts = list({change.group: change for change in reversed(changes)}.values())
    order = sorted(changes, key=lambda change: change not in firsts)
    return sorted(order[:changes_most], key=changes.index)


def rank_fitting(question: Question) -> Ranking:
    """The ranking of a question that names no sharding.

    Limits: nothing fits -> BadInputError with the fewest GPUs that would
    """
    ranking = rank(answer_row_wise(question))
    if ranking.fits:
        return ranking
    filled = question.table_bytes is None and question.tables is None
    enough = "" if filled or question.gpus is None else name_enough(question)
    next_step = enough or "use a smaller --batch or --set reserve."
    raise BadInputError(headline(ranking), next_step)


def headline(ranking: Ranking) -> str:
    """The time and the slowdown of what leads, or that nothing fits."""
    answer = ranking.answer
    size = format_bytes(answer.gpu_count.table_bytes, binary=False)
    nodes = -(-answer.gpus // answer.gpu_count.gpus_per_node)
    name = answer.setting.machine.name
    if answer.gpus == 1 and answer.fits:
        return f"{size} on 1 GPU of {name}, so nothing is sharded: {format_time(answer.time_s)} a batch"
    where = f"{size} on {counted(answer.gpus, 'GPU')} ({counted(nodes, 'node')} of {name})"
    if ranking.fits:
        return f"{where}: {time_words(answer)}"
    if answer.question.sharding is not None:
        memory = answer.gpu_count.describe_memory().partition(":")[0]
        return f"{where}: does not fit, {memory}. If it did: {time_words(answer)}"
    held = ranking.base.gpu_count.describe_memory("{} ({})")
    return f"{where}: no sharding that {TORCHREC} runs fits. {ROW_WISE} needs {held}."


def time_words(answer: Answer) -> str:
    """The time of a batch and its ratio to the time of one GPU, with the band of the ratio."""
    low, high = answer.band
    band = f"({format_ratio(low)} – {format_ratio(high)})"
    return f"{format_time(answer.time_s)} a batch, {format_ratio(answer.slowdown)} one GPU {band}"


def throughput_words(answer: Answer) -> str:
    """Samples per second of all GPUs, and over those of one GPU with all tables, the baseline's [-]."""
    rate = format_per_second(answer.samples_per_s, "samples")
    if answer.gpus == 1:
        return rate
    ratio = format_ratio(answer.totals["throughput_ratio"])
    baseline = format_time(answer.baseline_time_s)
    return f"together {rate}, {ratio} that one GPU, which holds all rows and takes {baseline}"


def beside_words(ranking: Ranking) -> str:
    """The sharding, and what is beside it: ``row-wise, as TorchRec runs it · fastest used: 564 µs, …``.

    Limits: one GPU -> ""
    """
    base = ranking.base
    answer = ranking.answer
    if base.gpus == 1:
        return ""
    if base.question.sharding is not None:
        way = WAYS[answer.sharding]
        return f"{way.summary}, as {way.runs} runs it" if way.runs else f"{way.summary}, which nobody runs"
    parts = [f"{name_sharding(answer)}, as {TORCHREC} runs it"]
    uniform = ranking.uniform
    if uniform is not None:
        parts.append(f"{uniform.sharding} for all: {format_time(uniform.time_s)}")
    near = [f"{peer.sharding} ({format_time(peer.time_s)})" for peer in ranking.as_good]
    if near and uniform is None:
        parts.append(f"{join_words(near)} may be as fast")
    if ranking.unknown:
        parts.append(f"no calibration has times for {', '.join(ranking.unknown)}")
    fastest = ranking.beside.left_out or ranking.beside.unique_rows
    if fastest is not None and fastest.time_s < answer.time_s:
        way = WAYS[fastest.sharding]
        time = format_time(fastest.time_s)
        name = "use_index_dedup" if base.basis.unpooled else option_words(fastest)
        if copied(way.exchange):
            parts[0] = f"{name_sharding(answer)}, {TORCHREC}'s fastest that cuts tables"
            parts.append(f"they fit every GPU uncut: {time} ({way.name})")
        else:
            equal = "" if is_slower(answer, fastest) else ", which may be as fast"
            parts.append(f"fastest used: {time}, {name}{equal}")
    return " · ".join(parts)


def option_words(answer: Answer) -> str:
    """The option of a sharding, and who runs it: ``--sharding ub (EMBark: each row sent once)``."""
    way = WAYS[answer.sharding]
    short = way.also[0] if way.name.startswith(f"{ROW_WISE}-") else way.name
    return f"--sharding {short} ({way.runs}{': each row sent once' * (way.name == ROWS_ONCE)})"


def name_sharding(answer: Answer) -> str:
    """The sharding of an answer, in words."""
    if answer.sharding == PLANNED:
        return "a sharding for each table"
    return "a copy of each table on every GPU" if answer.sharding == DATA_PARALLEL else answer.sharding


def join_words(names: Sequence[str]) -> str:
    """The words joined: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def limit_words(answer: Answer) -> str:
    """Where the time goes: the share of exchanges, of their latency, and of the longest step."""
    sent = [step for step in answer.steps if step.collective]
    of_links = sum(step.share for step in sent)
    latency = sum(step.floor_s for step in sent) / answer.time_s
    longest = answer.longest_step
    return (
        f"Exchanges between GPUs take {format_fraction(of_links)} of the time ({format_fraction(latency)} is "
        f"their latency); the longest step is {longest.label}, {format_fraction(longest.share)}."
    )


def help_words(ranking: Ranking) -> str:
    """A sentence: which change makes the pass fastest, with the times before and after it."""
    if not ranking.changes:
        return "None of the changes tried makes it 2 % faster."
    change = min(ranking.changes, key=lambda change: (change.loses_samples, change.after_s))
    times = f"{format_time(change.before_s)} → {format_time(change.after_s)}"
    return f"What would help most: {change.label} ({change.option}), {times}."


def measure_text(ranking: Ranking) -> str:
    """How the times are known, and the command whose measurements narrow the band most, if there is one."""
    file = find_file(ranking.answer)
    if ranking.experiment is None:
        return provenance(ranking.answer, file)
    return experiment_text(ranking.experiment, run_line(file))


def run_line(calibration_file: str | None) -> str:
    """The command that also measures kernels into the folder of the user's run; "" if there is no such run.

    calibration_file  the user's calibration, which lies in the folder of its run
    """
    folder = Path(calibration_file or "").parent
    if not calibration_file or not (folder / SAMPLES_NAME).is_file():
        return ""
    from perfmodel.schema.run_files import calibrate_line

    return calibrate_line(folder)


def experiment_text(experiment: NextExperiment, run: str = "", more: str = "") -> str:
    """How much of the time was not measured on this machine, and the command that narrows the band most.

    run   the command that measures kernels into the user's run ("": a new run); where links are to be
          measured, their command alone is printed;  more  a hint at a further option
    """
    links = [name.split(":") for name in experiment.only if not name.startswith("kernel:")]
    command = run
    place = "this machine"
    if links:
        only = ",".join(f"{library}:{operation}" for library, operation in links)
        command = f"perfmodel calibrate --only {only}"
        place = experiment.where
        low = experiment.least_bytes
        high = experiment.most_bytes
        if experiment.sizes_alone and low and high:  # powers of two around the messages
            ends = 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))
            sizes = "..".join(dict.fromkeys(map(format_bytes, ends))).replace(" ", "").replace(".0", "")
            command += f" --sizes {sizes}"
    elif not run:
        parts = ("composed" if name == "kernel:handover" else "kernels" for name in experiment.only)
        command = f"perfmodel calibrate --only {','.join(dict.fromkeys(parts))}"
    share = format_fraction(experiment.share)
    head = f"{share} of the time is not measured here." + (f" More: {more}" if more else "")
    line = f"On {place}: {command}"
    line = line if len(line) <= page_width() else f"{paragraph(f'On {place}:')}\n{command_lines(command)}"
    return f"{paragraph(head)}\n{line}"


def gpu_words(answer: Answer, next_node: Sensitivity | None = None) -> str:
    """The memory that each GPU uses, and why so many GPUs. next_node  what a node more would take"""
    count = answer.gpu_count
    rows = answer.basis.rows
    held = format_bytes(count.memory_bytes, binary=False)
    room = format_bytes(count.usable_bytes, binary=False)
    where = f"{join_quantities(held, 'of', room)} on the fullest GPU"
    if rows is not None:
        where += ", its share of the host memory"
        where += f", {format_fraction(rows.cached)} of the rows cached in HBM" if rows.cached else ""
    if count.rule == GIVEN:
        where += f" · the rows alone need {counted(count.for_rows, 'GPU')}"
    elif count.gpus > 1:
        fewest = format_count(min(count.needed, count.gpus))
        rule = count.rule.partition(" of ")[0]
        exact = answer.fits and (answer.sharding == ROW_WISE or count.needed == count.gpus)
        where += f" · {'fits from' if exact else 'rows need'} {fewest} GPUs, {rule}"
    if next_node is not None:
        more = "whole node" if answer.gpus % count.gpus_per_node else "a node more"
        where += f" · {more}: {format_time(next_node.after_s)}"
    return where


def source_words(answer: Answer) -> str:
    """What of the machine was changed or measured by the user; "" if all of it is shipped."""
    file = find_file(answer)
    question = answer.question
    parts = changed_values(answer)
    if question.backend != str(question.machine.defaults.backend):
        parts.append(f"library {question.backend}")
    if question.clock is not None or question.calibration is not None:
        clocks = ", ".join(str(clock) for clock in answer.clocks)
        parts.append(f"calibration {file or ', '.join(answer.calibrations)}, clock {clocks}")
    return " · ".join(parts)


def setting_words(base: Answer) -> str:
    """Machine, its values that were changed, and library: ``h100-sxm-ib, nccl``."""
    return ", ".join([base.setting.machine.name, *changed_values(base), base.setting.backend])
