"""What would make the answer faster, and which measurement would narrow its band."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from perfmodel.answer.answer import Answer
from perfmodel.answer.inputs import GIVEN
from perfmodel.answer.question import INT32_BYTES, Question
from perfmodel.engine.basis import HostRows
from perfmodel.engine.schemes import BY_DOMAIN, ROW_WISE, find_way
from perfmodel.engine.settings import BEST
from perfmodel.engine.steps import SORT_ALONE, STEPS, StepRow
from perfmodel.errors import PerfmodelError
from perfmodel.model.capacity import list_even_gpus
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import load_machine
from perfmodel.units import counted, format_ratio

WELL_KNOWN = Evidence.INTERPOLATED  # evidence from which on a number needs no new measurement

_WORTH_MEASURING = 0.01
_WORTH_SAYING = 0.02
_MORE_SAMPLES = 4
_MORE_GPUS = 1.25, 1.5, 2.0, 3.0

Ask = Callable[[Question], Answer]  # answers a question; raises PerfmodelError where it has no answer


SETTINGS, MORE_GPUS, MACHINES = GROUPS = "settings", "more GPUs", "a machine"
"""Groups of changes, in the order in which they are listed."""


@dataclass(frozen=True)
class Change:
    """A changed question. label  the change, in words;  option  the command-line option that makes it"""

    group: str
    label: str
    option: str
    question: Question


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """A change and its effect: what its ``option``, typed beside the question's own, would answer.

    group  one of ``GROUPS``
    before, after  slowdowns [-];  low, high  band of the slowdown after;  gpus  of the answer after
    before_s, after_s  times of a batch [s];  low_s, high_s  band of the time after [s]
    samples_ratio  samples per second of all GPUs, after over before [-]
    """

    group: str
    label: str
    option: str
    before: float
    after: float
    low: float
    high: float
    evidence: Evidence
    before_s: float
    after_s: float
    low_s: float
    high_s: float
    gpus: int
    samples_ratio: float

    @property
    def loses_samples(self) -> bool:
        """Whether all GPUs together do at least 2 % fewer samples per second, though a batch is faster."""
        return self.samples_ratio <= 1 - _WORTH_SAYING


def list_helping(answer: Answer, ask: Ask) -> tuple[Sensitivity, ...]:
    """The changes that make an answer at least 2 % faster, each asked in full, by group and time.

    Those after which all GPUs together do fewer samples per second stand last. Where nobody gave the number
    of GPUs, a node more is listed even if it gives less than 2 %.
    ask  answers a changed question as ``answer`` was: with its sharding, or with the fastest
    A search is slow: a change is planned anew only if it makes the best single sharding faster too.
    Limits: one GPU that holds all rows, or a batch chosen to meet a latency, as every change would alter that
    choice -> empty;  a change that has no answer -> left out
    """
    if answer.gpus == 1 or answer.question.max_latency_s is not None:
        return ()
    question = replace(answer.question, setting=answer.setting)  # loaded once
    if answer.gpu_count.rule != GIVEN:  # the GPUs follow from the question, here too
        question = replace(question, gpus=None)
    answer = replace(answer, question=question)
    uniform = _ask_uniform(answer, ask)
    effects = list[Sensitivity]()
    for change in _list_changes(answer):
        searched = replace(change, question=replace(change.question, planner=None))
        if uniform is None or any(map(_helps, _ask_again(uniform, searched, ask))):
            effects += _ask_again(answer, change, ask)
    counts = None if uniform is None else [effect.gpus for effect in _ask_more_gpus(uniform, ask)]
    helping = [effect for effect in effects if _helps(effect)]
    helping += [*_ask_more_gpus(answer, ask, counts), *_ask_larger_batch(answer, ask)]
    return tuple(sorted(helping, key=lambda x: (x.loses_samples, GROUPS.index(x.group), x.after_s)))


def _helps(effect: Sensitivity) -> bool:
    """Whether a change saves at least 2 % of the time of a batch."""
    return effect.after_s <= (1 - _WORTH_SAYING) * effect.before_s


def _ask_uniform(answer: Answer, ask: Ask) -> Answer | None:
    """The answer with one sharding for all tables. Limits: no planner, or none that fits -> None"""
    question = replace(answer.question, planner=None)
    if answer.question.planner is None or answer.question.table_set is None:
        return None
    uniform = ask(question)
    return replace(uniform, question=question) if uniform.fits and uniform.gpus == answer.gpus else None


def _ask_again(answer: Answer, change: Change, ask: Ask) -> Iterator[Sensitivity]:
    """The effect of a change on an answer, as one item; none if the new question has no answer that fits."""
    try:
        after = ask(change.question.share_total())
    except PerfmodelError:
        return
    if not after.fits:
        return
    label = change.label
    samples_ratio = after.samples_per_s / answer.samples_per_s
    if change.group == MACHINES:
        domain = f", one {after.setting.machine.links.scale_up} domain" if after.domain == after.gpus else ""
        label = f"{counted(after.gpus, 'GPU')}{domain}"
    elif change.group == SETTINGS and after.gpus != answer.gpus:
        label = f"{label}, {counted(after.gpus, 'GPU')}, {format_ratio(samples_ratio)} samples/s"
    if after.gpus > 1 and after.sharding not in (answer.sharding, change.question.sharding):
        label = f"{label}, {after.sharding}"
    yield Sensitivity(
        group=change.group,
        label=label,
        option=change.option,
        before=answer.slowdown,
        after=after.slowdown,
        low=after.band[0],
        high=after.band[1],
        evidence=after.main_evidence,
        before_s=answer.time_s,
        after_s=after.time_s,
        low_s=after.totals["low_s"],
        high_s=after.totals["high_s"],
        gpus=after.gpus,
        samples_ratio=samples_ratio,
    )


def _list_changes(answer: Answer) -> Iterator[Change]:
    """The changes that are tried: a new one is a further line here. All of them can be set or bought."""
    question, machine = answer.question, answer.setting.machine
    if question.sharding == ROW_WISE:
        exchanges = {BY_DOMAIN: f"{BY_DOMAIN} exchange", "sparse": "only non-empty bags"}
        for name, label in exchanges.items():
            yield Change(SETTINGS, label, f"--sharding {name}", replace(question, sharding=find_way(name)))
    if question.payload is None:
        yield Change(SETTINGS, "bags sent as fp16", "--set payload=fp16", replace(question, payload="fp16"))
    if question.id_bytes != INT32_BYTES:
        int32 = replace(question, id_bytes=INT32_BYTES)
        yield Change(SETTINGS, "ids of int32", "--set id_dtype=int32", int32)
    if not (question.rows or question.unpooled or answer.basis.training):
        host = replace(question, rows=HostRows.of("host"))
        yield Change(SETTINGS, "host memory", "--rows host", host)
    if question.backend != BEST:
        best = replace(question, backend=BEST, setting=None)
        yield Change(SETTINGS, "faster library per step", "--backend best", best)
    if question.calibration is None and not machine.overrides:
        for name in machine.successors:
            bought = load_machine(name)
            is_usual = question.backend == machine.defaults.backend
            backend = str(bought.defaults.backend) if is_usual else question.backend
            there = replace(question, machine=bought, backend=backend, setting=None)
            yield Change(MACHINES, name, f"--machine {name}", there)


def _ask_more_gpus(answer: Answer, ask: Ask, counts: Sequence[int] | None = None) -> Iterator[Sensitivity]:
    """What a node more gives, and the number of GPUs whose GPU-time for a sample is least, if it is another.

    counts  numbers of GPUs that are tried; None: as below
    Tried are a node more, then more and more GPUs until GPU-time rises, and ``list_even_gpus``. It is the
    time of a batch, if each GPU has its own samples; GPUs x time, if the batch of all is given.
    Limits: GPUs were given -> a node more, if it is at least 2 % faster
    """
    question = answer.question
    is_given = question.gpus is not None
    node = answer.gpu_count.gpus_per_node
    next_node = node * (answer.gpus // node + 1)
    more = "the whole node" if answer.gpus % node else "a node more"
    spread = [] if is_given else [node * math.ceil(factor * answer.gpus / node) for factor in _MORE_GPUS]
    for_tables = [] if is_given else list_even_gpus(next_node + 1, spread[-1], answer.table_count, node)
    certain = [next_node, *for_tables] if counts is None else counts  # tried whatever GPU-time does

    def cost(gpus: int, time_s: float) -> float:
        """GPU-time of a sample, up to a factor that all numbers of GPUs share."""
        return time_s if question.total is None else gpus * time_s

    effects = list[Sensitivity]()
    for gpus in dict.fromkeys([*certain, *(spread if counts is None else [])]):
        change = Change(MORE_GPUS, counted(gpus, "GPU"), f"--gpus {gpus}", replace(question, gpus=gpus))
        effects += _ask_again(answer, change, ask)
        costs = [cost(answer.gpus, answer.time_s), *(cost(effect.gpus, effect.after_s) for effect in effects)]
        if gpus not in certain and min(costs) < costs[-1]:  # more GPUs have begun to cost more
            break
    cheapest = min(effects, key=lambda effect: cost(effect.gpus, effect.after_s), default=None)
    for effect in effects:
        is_least = effect is cheapest and cost(effect.gpus, effect.after_s) < cost(answer.gpus, answer.time_s)
        label = f"{effect.label}, {more}" if effect.gpus == next_node else effect.label
        if is_least and not is_given:
            yield replace(effect, label=f"{label}, less GPU-time")
        elif effect.gpus == next_node and (not is_given or _helps(effect)):
            yield replace(effect, label=label)


def _ask_larger_batch(answer: Answer, ask: Ask) -> Iterator[Sensitivity]:
    """More samples per batch, if latency is most of the time and nobody gave the batch of all GPUs."""
    latency_s = sum(step.floor_s for step in answer.steps if step.collective)
    batch = _MORE_SAMPLES * int(answer.work.batch[0])
    if answer.question.total is not None or latency_s < answer.time_s / 2:
        return
    question = replace(answer.question, batch=batch)
    for effect in _ask_again(answer, Change(SETTINGS, "", f"--batch {batch}", question), ask):
        if effect.samples_ratio > 1 + _WORTH_SAYING:
            label = f"{_MORE_SAMPLES}× batch, {format_ratio(effect.samples_ratio)} samples/s"
            yield replace(effect, label=label)


@dataclass(frozen=True)
class NextExperiment:
    """The cheapest measurement that replaces numbers which were not measured on this machine.

    share  of the time that depends on them;  only  measurements to make, as backend:operation
    nodes, where  least number of nodes, and the hardware in words
    least_bytes, most_bytes  missing messages; None for kernels
    sizes_alone  these groups were measured, and only other sizes are missing
    """

    share: float
    only: tuple[str, ...]
    nodes: int
    where: str
    least_bytes: float | None = None
    most_bytes: float | None = None
    sizes_alone: bool = False


def find_next_experiment(answer: Answer) -> NextExperiment | None:
    """The measurement that would narrow the band most, of numbers with extrapolated or weaker evidence.

    Kernels are measured on one GPU and links on many: the one with the larger part of the band is proposed.
    The ends of the band are sums over the steps, so each step has its part of the width.
    Limits: all evidence is interpolated or measured, or all other numbers hardly widen the band -> None
    """
    width = sum(s.high_s - s.low_s for s in answer.steps) or 1.0  # of the band [s]
    weak = [s for s in answer.steps if s.evidence.rank > WELL_KNOWN.rank]
    shares: dict[str, float] = {}
    for step in weak:
        for name in _list_experiments(step):
            shares[name] = shares.get(name, 0.0) + (step.high_s - step.low_s) / width
    worth = sorted((n for n, share in shares.items() if share >= _WORTH_MEASURING), key=lambda n: -shares[n])
    kernels = [n for n in worth if n.startswith("kernel:")]
    links = [n for n in worth if n not in kernels]
    chosen = max(links, kernels, key=lambda names: sum(shares[n] for n in names))
    mine = [s for s in weak if any(n in chosen for n in _list_experiments(s))]
    if sum(shares[n] for n in chosen) < _WORTH_SAYING:
        return None
    share = sum(s.share for s in weak)
    experiment = NextExperiment(share=share, only=tuple(chosen), nodes=1, where="one GPU")
    if chosen is kernels:
        return experiment
    nodes, where, sizes_alone = _place_beyond_measured(answer, chosen)
    sent = [s.payload_bytes for s in mine]
    place = replace(experiment, nodes=nodes, where=where, sizes_alone=sizes_alone)
    return replace(place, least_bytes=min(sent), most_bytes=max(sent))


def _place_beyond_measured(answer: Answer, chosen: list[str]) -> tuple[int, str, bool]:
    """(least number of nodes, hardware in words, whether only sizes are new) of a useful measurement.

    chosen  what to measure
    Limits: a shipped calibration -> the smallest hardware with such links;  these very GPUs -> the same, at
    other sizes;  fewer nodes -> more of them
    """
    node = answer.gpu_count.gpus_per_node
    across = answer.domain < answer.gpus
    smallest = answer.domain // node + 1 if across else 1, _name_place(answer), False
    if answer.setting.calibration is None:
        return smallest
    (model,) = answer.setting.links.libraries.values()  # a file is of one library
    calibration = model.calibration
    if not calibration.this_cluster:
        return smallest
    names = {name.partition(":")[2] for name in chosen}
    cells = {(curve.collective, curve.gpus) for curve in calibration.curves if curve.domain_gpus < curve.gpus}
    nodes = -(-answer.gpus // node)
    if all(calibration.curve(name, answer.gpus, answer.domain) for name in names):
        return nodes, f"these {answer.gpus} GPUs, at sizes that were not measured", True
    measured_gpus = min(max((g for c, g in cells if c == name), default=node) for name in names)
    had = -(-measured_gpus // node)
    if had not in range(2, nodes):
        return smallest
    return had + 1, f"more than the {had} nodes that were measured, {nodes} if you can", False


def _name_place(answer: Answer) -> str:
    """The smallest hardware whose links are used as in this answer, in words."""
    node, domain = answer.gpu_count.gpus_per_node, answer.domain
    link = answer.setting.machine.links.scale_up
    if answer.gpus <= node:
        return "one node"
    if domain == answer.gpus:
        return f"{answer.gpus} GPUs of one {link} domain (or as many as there are)"
    return "≥ 2 nodes" if domain <= node else f"≥ 2 {link} domains"


def _list_experiments(step: StepRow) -> tuple[str, ...]:
    """Measurements for a step: backend:collective, or the kernel (the hand-over counts as a kernel).

    Limits: kernels that nobody times, such as converting bags, the sort, host memory -> none
    """
    if not step.collective:
        kernel = STEPS[step.name]
        return () if kernel.like or kernel.name == SORT_ALONE or kernel.hosted else (f"kernel:{step.name}",)
    return (f"{step.library}:{step.collective}",)
