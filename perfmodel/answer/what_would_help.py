"""What would make the answer faster, and which measurement would narrow its band."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from perfmodel.answer.answer import Answer
from perfmodel.answer.question import Question, format_exact
from perfmodel.engine.basis import HostRows
from perfmodel.engine.schemes import BY_DOMAIN, ROW_WISE, find_way
from perfmodel.engine.settings import BEST, load_setting
from perfmodel.engine.steps import STEPS, StepRow
from perfmodel.errors import PerfmodelError
from perfmodel.question.groups import LARGEST
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_rate, format_ratio

WELL_KNOWN = Evidence.INTERPOLATED
"""Evidence from which on a number needs no new measurement."""

_WORTH_MEASURING = 0.01
_WORTH_SAYING = 0.02
_MORE_SAMPLES = 4
_SPARSE = "sparse"

Ask = Callable[[Question], Answer]
"""Answers a question; raises PerfmodelError where it has no answer."""


@dataclass(frozen=True)
class Change:
    """A changed question. label  the change, in words;  option  the command-line option that makes it"""

    label: str
    option: str
    question: Question


@dataclass(frozen=True)
class Sensitivity:
    """A change and its effect: what its ``option``, typed beside the question's own, would answer.

    before, after  slowdowns [-];  low, high  band of the slowdown after;  before_s, after_s  times of a batch
    """

    label: str
    option: str
    before: float
    after: float
    low: float
    high: float
    evidence: Evidence
    before_s: float
    after_s: float


def list_helping(answer: Answer, ask: Ask) -> tuple[Sensitivity, ...]:
    """The changes that make an answer at least 2 % faster, each asked in full, the shortest time first.

    ask  answers a changed question as ``answer`` was: with its sharding, or with the fastest
    Limits: one GPU that holds all rows, or a batch that was chosen for a latency, which a change would change
    -> empty;  a change that has no answer -> left out
    """
    if answer.gpus == 1 or answer.question.max_latency_s is not None:
        return ()
    effects = [effect for change in _list_changes(answer) for effect in _ask_again(answer, change, ask)]
    helping = [effect for effect in effects if effect.after_s <= (1 - _WORTH_SAYING) * effect.before_s]
    helping += _ask_larger_batch(answer, ask)
    return tuple(sorted(helping, key=lambda effect: effect.after_s))


def _ask_again(answer: Answer, change: Change, ask: Ask) -> Iterator[Sensitivity]:
    try:
        after = ask(change.question)
    except PerfmodelError:
        return
    if not after.fits:
        return
    is_same = after.sharding in (answer.sharding, change.question.sharding)
    label = change.label if is_same else f"{change.label}, sharded {after.sharding}"
    if after.gpus != answer.gpus:
        gain = format_ratio(after.samples_per_s / answer.samples_per_s)
        label = f"{label} on {after.gpus} GPUs, {gain} samples/s"
    ends = after.slowdown, *after.band, after.evidence
    yield Sensitivity(label, change.option, answer.slowdown, *ends, answer.time_s, after.time_s)


def _list_changes(answer: Answer) -> Iterator[Change]:
    """The changes that are tried: a new one is a further line here."""
    question, machine = answer.question, answer.setting.machine
    domain, link = answer.domain, machine.links.scale_up
    across = domain < answer.gpus
    if question.sharding == ROW_WISE:
        yield from _list_exchanges(question)
    if question.payload is None:
        yield Change("bags sent as fp16", "--payload fp16", replace(question, payload="fp16"))
    if not (question.rows or question.unpooled or answer.basis.training):
        rows = HostRows.of("host")
        yield Change("rows in host memory", "--rows host", replace(question, rows=rows))
    if question.backend != BEST and question.calibration is None and _has_two_libraries(question):
        label = "the faster of NCCL and NVSHMEM for each step"
        yield Change(label, "--backend best", replace(question, backend=BEST, setting=None))
    if across:
        yield _double(question, "NIC", "nic_bytes_per_s")
    if machine.nvlink_domain_gpus > 1:
        yield _double(question, link, "nvlink_bytes_per_s")
        if across:
            nodes = -(-answer.gpus // answer.gpu_count.gpus_per_node)
            wide = nodes * machine.gpus_per_node
            label = f"{link} domain {domain} → {answer.gpus} GPUs"
            yield _set(question, label, "nvlink_domain_gpus", wide, str(wide))


def _list_exchanges(question: Question) -> Iterator[Change]:
    for name, label in (
        (BY_DOMAIN, f"{BY_DOMAIN} exchange instead of a flat one"),
        (_SPARSE, "sending only the partial bags that are not empty"),
    ):
        yield Change(label, f"--sharding {name}", replace(question, sharding=find_way(name)))


def _has_two_libraries(question: Question) -> bool:
    try:
        setting = load_setting(question.machine, BEST, question.clock, kernels=question.kernels)
    except PerfmodelError:
        return False
    return len(setting.links.clocks) > 1


def _double(question: Question, name: str, key: str) -> Change:
    """Twice a rate of the links."""
    rate = question.machine.value(key)
    label = f"{name} {format_rate(rate)} → {format_rate(2 * rate)} per GPU"
    return _set(question, label, key, 2 * rate, format_exact(2 * rate, "byte/s"))


def _set(question: Question, label: str, key: str, value: float, text: str) -> Change:
    """Another value of the machine."""
    machine = question.machine.with_overrides({key: value})
    return Change(label, f"--set {key}={text}", replace(question, machine=machine, setting=None))


def _ask_larger_batch(answer: Answer, ask: Ask) -> Iterator[Sensitivity]:
    """More samples per batch, if latency is most of the time: the gain is in samples per second."""
    latency_s = sum(step.floor_s for step in answer.steps if step.collective)
    batch = _MORE_SAMPLES * int(answer.work.batch[0])
    if latency_s < answer.time_s / 2 or batch > LARGEST["batch"]:
        return
    question = replace(answer.question, batch=batch, total=None)
    for effect in _ask_again(answer, Change("", f"--batch {batch}", question), ask):
        gain = _MORE_SAMPLES * answer.time_s / effect.after_s
        if gain > 1 + _WORTH_SAYING:
            label = f"{_MORE_SAMPLES} times the batch: {format_ratio(gain)} the samples per second"
            yield replace(effect, label=label)


@dataclass(frozen=True)
class NextExperiment:
    """The cheapest measurement that replaces numbers which were not measured on this machine.

    share, band_share  of the time, and of the width of its band, that depend on them
    numbers  how many: measurements of calibrate, and kernels that it cannot time
    only, only_band_share  measurements to make, as backend:operation, and what of the width is theirs
    nodes, where  least number of nodes, and the hardware in words
    least_bytes, most_bytes  missing messages; None for kernels
    sizes_alone  these groups were measured, and only other sizes are missing
    """

    share: float
    band_share: float
    numbers: int
    only_band_share: float
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
    width = sum(s.high_s - s.low_s for s in answer.steps) or 1.0
    weak = [s for s in answer.steps if s.evidence.rank > WELL_KNOWN.rank]
    shares: dict[str, float] = {}
    numbers = {name for step in weak for name in _list_experiments(step) or (step.name,)}
    for step in weak:
        for name in _list_experiments(step):
            shares[name] = shares.get(name, 0.0) + (step.high_s - step.low_s) / width
    worth = sorted((n for n, share in shares.items() if share >= _WORTH_MEASURING), key=lambda n: -shares[n])
    kernels = [n for n in worth if n.startswith("kernel:")]
    links = [n for n in worth if n not in kernels]
    heavier = sum(shares[n] for n in links) >= sum(shares[n] for n in kernels)
    chosen = links if links and heavier else kernels
    mine = [s for s in weak if any(n in chosen for n in _list_experiments(s))]
    of_all, of_mine = (sum(s.high_s - s.low_s for s in steps) / width for steps in (weak, mine))
    if not chosen or of_mine < _WORTH_SAYING:
        return None
    experiment = NextExperiment(
        share=sum(s.share for s in weak),
        band_share=of_all,
        numbers=len(numbers),
        only_band_share=of_mine,
        only=tuple(chosen),
        nodes=1,
        where="one GPU",
    )
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
    setting, node, domain = answer.setting, answer.gpu_count.gpus_per_node, answer.domain
    across = domain < answer.gpus
    smallest = domain // node + 1 if across else 1, _name_place(answer), False
    calibration = getattr(getattr(setting.links, "times", None), "calibration", None)
    if setting.calibration is None or calibration is None or not calibration.this_cluster:
        return smallest
    names = {name.partition(":")[2] for name in chosen}
    cells = {(curve.collective, curve.gpus) for curve in calibration.curves if curve.domain_gpus < curve.gpus}
    nodes = -(-answer.gpus // node)
    if all(calibration.curve(name, answer.gpus, min(answer.gpus, domain)) for name in names):
        return nodes, f"these {answer.gpus} GPUs, at sizes that were not measured", True
    measured_gpus = min((max((g for c, g in cells if c == name), default=0) for name in names), default=0)
    had = -(-measured_gpus // node)
    if not 1 < had < nodes:
        return smallest
    return had + 1, f"more than the {had} nodes that were measured, {nodes} if you can", False


def _name_place(answer: Answer) -> str:
    """The smallest hardware that shows the behaviour of this answer's links."""
    node, domain, link = answer.gpu_count.gpus_per_node, answer.domain, answer.setting.machine.links.scale_up
    if answer.gpus <= node:
        return "one node"
    if domain >= answer.gpus:
        return f"{answer.gpus} GPUs of one {link} domain (or as many as there are)"
    return "≥ 2 nodes" if domain <= node else f"≥ 2 {link} domains"


def _list_experiments(step: StepRow) -> tuple[str, ...]:
    """Measurements for a step: backend:collective, or the kernel (the hand-over counts as a kernel).

    Limits: converting bags, backward-only steps, host memory -> none: calibrate has no such kernel
    """
    if not step.collective:
        kernel = STEPS[step.name]
        return () if kernel.like or kernel.sorts_alone or kernel.hosted else (f"kernel:{step.name}",)
    return tuple(f"{step.library}:{c}" for c in step.collective.split(" or "))
