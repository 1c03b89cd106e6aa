"""Changes that would affect the answer, and the next measurement that would narrow its band."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from perfmodel.answer.inputs import local_memory_work
from perfmodel.answer.projection import Projection
from perfmodel.answer.question import exact_text, memory_text
from perfmodel.engine.basis import LocalMemory
from perfmodel.engine.grid import project_grid
from perfmodel.engine.row_wise import SPARSE, TWO_LEVEL, Configs, Forward
from perfmodel.engine.schemes import AUTO, BY_DOMAIN
from perfmodel.engine.settings import BEST, load_setting
from perfmodel.engine.steps import STEPS, StepRow
from perfmodel.errors import NoCalibrationError
from perfmodel.question.groups import LARGEST
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine_keys import KEYS
from perfmodel.units import format_bytes, format_rate, format_ratio

WELL_KNOWN = Evidence.INTERPOLATED
"""Evidence from which on a number needs no new measurement."""

_WORTH_MEASURING = 0.01
_WORTH_SAYING = 0.02
_MORE_SAMPLES = 4


@dataclass(frozen=True)
class Change:
    """A changed question.

    label  the change, in words;  option  the command-line option that makes it
    forward, work  the pass and the configuration after the change
    """

    label: str
    option: str
    forward: Forward
    work: Configs


@dataclass(frozen=True)
class Sensitivity:
    """A change and its effect on the slowdown [-].

    before, after  slowdowns;  low, high  band of the slowdown after
    before_s, after_s  times of a batch [s]
    """

    label: str
    option: str  # the option that makes the change
    before: float
    after: float
    low: float
    high: float
    evidence: Evidence
    before_s: float  # time of a batch [s]
    after_s: float


Answered = Callable[[Projection, Change], Sensitivity | None]
"""Computes the effect of a change; None if no calibration covers it, or it does not fit."""


@dataclass(frozen=True)
class Swing:
    """The slowdowns that follow if one machine value is halved, and if it is doubled.

    value  in the SI unit of the machine's ``key``;  halved, doubled  slowdowns [-]
    """

    key: str
    value: float
    halved: float
    doubled: float
    evidence: Evidence  # of the value

    @property
    def reach(self) -> float:
        """The larger of the two slowdowns divided by the smaller [-]."""
        return max(self.halved, self.doubled) / min(self.halved, self.doubled)


@dataclass(frozen=True)
class NextExperiment:
    """The cheapest measurement that replaces numbers which were not measured on this machine."""

    share: float  # of the time that depends on them
    band_share: float  # of the width of the answer's band that is due to them
    numbers: int  # how many numbers: measurements of calibrate, and kernels that it cannot time
    only_band_share: float  # share of that width that depends on ``only``
    only: tuple[str, ...]  # measurements to make, as backend:operation
    nodes: int  # least number of nodes
    where: str  # the hardware needed, in words
    least_bytes: float | None = None  # missing messages; None for kernels
    most_bytes: float | None = None
    sizes_alone: bool = False  # these groups were measured, and only other sizes are missing


def sensitivities(p: Projection) -> tuple[Sensitivity, ...]:
    """The most useful changes for this projection, each with its slowdown computed in full.

    Each gains at least 2 %. Only the best exchange of bags is listed; one memory that holds all tables is
    always listed.
    Limits: one GPU that holds all rows -> empty
    """
    if p.gpus == 1:
        return ()
    exchanges = sorted(_helping(p, _exchanges(p)), key=lambda s: s.after)[:1]
    return (*exchanges, *of_hardware(p, row_wise), *_answers(p, _appliance(p), row_wise))


def of_hardware(p: Projection, answered: Answered) -> tuple[Sensitivity, ...]:
    """Changes of links, library and batch, which are possible with any sharding.

    answered  computes the effect of a change
    """
    links = (*_helping(p, _hardware(p), answered), *_helping(p, _libraries(p), answered))
    return (*links, *_batch(p, answered))


def swings(p: Projection) -> tuple[Swing, ...]:
    """The slowdown with each rate and floor of the machine halved and doubled, largest reach first.

    Local memory is on the same machine: a value that both sides use changes both. The memory's datasheet rate
    is left out, because the kernel rates that follow it are listed.
    Limits: one GPU -> none;  a value that changes the slowdown by less than 2 %, or that no
    calibration covers when changed -> left out
    """
    if p.gpus == 1:
        return ()
    machine = p.setting.machine
    found = []
    for key, kind in KEYS.items():
        value = machine.value(key)
        if kind.unit not in ("byte/s", "s") or not value or key == "hbm_bytes_per_s":
            continue
        sides = [_changed(p, "", {key: value * factor}, "") for factor in (0.5, 2.0)]
        after = [s.after for side in sides for s in _answers(p, side, row_wise)]
        if len(after) == len(sides):
            found.append(Swing(key, value, after[0], after[1], machine.quantity(key).evidence))
    return tuple(sorted((s for s in found if s.reach >= 1 + _WORTH_SAYING), key=lambda s: -s.reach))


def _helping(p: Projection, changes: Iterator[Change], answered: Answered | None = None) -> list[Sensitivity]:
    found = _answers(p, changes, answered or row_wise)
    return [s for s in found if s.after <= (1 - _WORTH_SAYING) * s.before]


def _answers(p: Projection, changes: Iterable[Change], answered: Answered) -> Iterator[Sensitivity]:
    yield from (found for each in changes if (found := answered(p, each)) is not None)


def row_wise(p: Projection, change: Change) -> Sensitivity | None:
    """Effect of a change on a row-wise pass, or on a pass from one memory."""
    try:
        columns = project_grid(change.forward, change.work).columns
    except NoCalibrationError:
        return None
    if p.gpu_count.fits and not columns["fits"][0] and not p.work.filled:
        return None  # tables that fill the memory would become smaller
    keys = ("slowdown", "slowdown_low", "slowdown_high", "time_s")
    after, low, high, time = (float(columns[key][0]) for key in keys)
    evidence = Evidence.from_rank(int(columns["evidence"][0]))
    return Sensitivity(change.label, change.option, p.slowdown, after, low, high, evidence, p.time_s, time)


def _exchanges(p: Projection) -> Iterator[Change]:
    """Changes of the reduction: the other exchanges of partial bags."""
    if p.forward.reduction != AUTO:
        return
    domain = float(p.forward.domain(p.work.gpus)[0])
    bags = next((s for s in p.steps if s.name.endswith("_bags")), None)
    if bags is None:  # every table is replicated
        return
    flat = bags.collective.replace("_", "-").removesuffix(" or all-to-all")
    if 1 < domain < p.gpus and p.gpus % domain == 0:
        label = f"{BY_DOMAIN} exchange instead of a flat {flat}"
        two_level = replace(p.forward, reduction=TWO_LEVEL)
        yield Change(label, f"--sharding {BY_DOMAIN}", two_level, p.work)
    sparse = replace(p.forward, reduction=SPARSE)
    yield Change("sending only the partial bags that are not empty", "--sharding sparse", sparse, p.work)


def _hardware(p: Projection) -> Iterator[Change]:
    """Changes to twice the network, twice the scale-up link, and one domain for all."""
    machine, domain = p.setting.machine, int(p.forward.domain(p.work.gpus)[0])
    several = domain < p.gpus and not p.setting.one_domain
    if several:
        yield from _doubled(p, "NIC", "nic_bytes_per_s")
    if machine.nvlink_domain_gpus == 1:
        return
    link = machine.links.scale_up
    yield from _doubled(p, link, "nvlink_bytes_per_s")
    if several:
        nodes = -(-p.gpus // p.gpu_count.gpus_per_node)
        wide = nodes * machine.gpus_per_node
        label = f"{link} domain {domain} → {p.gpus} GPUs"
        yield from _changed(p, label, {"nvlink_domain_gpus": wide}, f"nvlink_domain_gpus={wide}")


def _doubled(p: Projection, name: str, key: str) -> Iterator[Change]:
    """Change to twice a rate of the links."""
    rate = p.setting.machine.value(key)
    label = f"{name} {format_rate(rate)} → {format_rate(2 * rate)} per GPU"
    yield from _changed(p, label, {key: 2 * rate}, f"{key}={exact_text(2 * rate, 'byte/s')}")


def _forward_with(p: Projection, values: Mapping[str, float | str]) -> Forward:
    """The pass of a projection on a machine with other values."""
    s = p.setting
    said = s.kernels is None and "gather_bytes_per_s" in values  # known whose kernels have that rate
    kernels, machine = None if said else s.asked_kernels, s.machine.with_overrides(values)
    setting = load_setting(machine, s.backend, s.clock, s.scenario, s.calibration, kernels=kernels)
    return replace(p.forward, setting=setting)


def _changed(p: Projection, label: str, values: dict[str, float | str], text: str) -> Iterator[Change]:
    yield Change(label, f"--set {text}", _forward_with(p, values), p.work)


def _libraries(p: Projection) -> Iterator[Change]:
    """Change to the faster library for each step, if this machine has calibrations of two."""
    s = p.setting
    if s.backend == BEST or s.calibration is not None:
        return
    try:
        setting = load_setting(s.machine, BEST, s.clock, s.scenario, kernels=s.asked_kernels)
    except NoCalibrationError:
        return
    if len(setting.links.clocks) > 1:
        label = "the faster of NCCL and NVSHMEM for each step"
        yield Change(label, "--backend best", replace(p.forward, setting=setting), p.work)


def _batch(p: Projection, answered: Answered) -> Iterator[Sensitivity]:
    """Changes to more samples per batch, if latency is most of the communication time.

    The gain is in samples per second, as the label says.
    """
    links = [step for step in p.steps if step.collective]
    latency = sum(step.floor_s for step in links)
    batch = float(p.work.batch[0])
    if latency < p.time_s / 2 or _MORE_SAMPLES * batch > LARGEST["batch"]:
        return
    more = replace(p.work, batch=p.work.batch * _MORE_SAMPLES)
    found = answered(p, Change("", f"--batch {_MORE_SAMPLES * batch:.0f}", p.forward, more))
    gain = 0.0 if found is None else _MORE_SAMPLES * p.time_s / found.after_s
    if found is not None and gain > 1 + _WORTH_SAYING:
        label = f"{_MORE_SAMPLES} times the batch: {format_ratio(gain)} the samples per second"
        yield replace(found, label=label)


def _appliance(p: Projection) -> Iterator[Change]:
    """Change to an appliance: one local memory that holds all tables."""
    if p.forward.memory is not None or p.forward.training:  # rows of such a memory are not updated here
        return
    size, rate = _in_few_digits(float(p.work.table_bytes[0])), p.forward.constant("appliance_bytes_per_s")
    memory = LocalMemory(size, rate)
    forward = replace(p.forward, memory=memory)
    label = f"one memory of {format_bytes(size, binary=False)} at {format_rate(rate)} (appliance)"
    option = f"--local-memory {memory_text(memory)}"
    yield Change(label, option, forward, local_memory_work(p.work, memory))


def _in_few_digits(size_bytes: float) -> float:
    """A memory size of at least this many bytes, rounded up to three digits."""
    one = 10.0 ** (math.floor(math.log10(size_bytes)) - 2)
    return math.ceil(size_bytes / one * (1 - 1e-12)) * one


def next_experiment(p: Projection) -> NextExperiment | None:
    """The measurement that would narrow the band most, of numbers with extrapolated or weaker evidence.

    Kernels are measured on one GPU and links on many: the one with the larger part of the band is proposed.
    The ends of the band are sums over the steps, so each step has its part of the width.
    Limits: all evidence is interpolated or measured, or all other numbers hardly widen the band -> None
    """
    width = sum(s.high_s - s.low_s for s in p.steps) or 1.0
    weak = [s for s in p.steps if s.evidence.rank > WELL_KNOWN.rank]
    shares: dict[str, float] = {}
    numbers = {name for step in weak for name in _experiments(step) or (step.name,)}
    for step in weak:
        for name in _experiments(step):
            shares[name] = shares.get(name, 0.0) + (step.high_s - step.low_s) / width
    worth = sorted((n for n, share in shares.items() if share >= _WORTH_MEASURING), key=lambda n: -shares[n])
    kernels = [n for n in worth if n.startswith("kernel:")]
    links = [n for n in worth if n not in kernels]
    heavier = sum(shares[n] for n in links) >= sum(shares[n] for n in kernels)
    chosen = links if links and heavier else kernels
    if not chosen:
        return None
    node, domain = p.gpu_count.gpus_per_node, int(p.forward.domain(p.work.gpus)[0])
    across = chosen is links and not p.setting.one_domain and domain < p.gpus
    mine = [s for s in weak if any(n in chosen for n in _experiments(s))]
    of_all, of_mine = (sum(s.high_s - s.low_s for s in some) / width for some in (weak, mine))
    if of_mine < _WORTH_SAYING:
        return None
    nodes = domain // node + 1 if across else 1
    rests = sum(s.share for s in weak), of_all, len(numbers), of_mine, tuple(chosen)
    if chosen is not links:
        return NextExperiment(*rests, nodes, "one GPU")
    nodes, where, sizes_alone = _beyond_measured(p, chosen, nodes, _place(p))
    sent = [s.payload_bytes for s in mine]
    ends = min(sent), max(sent), sizes_alone
    return NextExperiment(*rests, nodes, where, *ends)


def _beyond_measured(p: Projection, chosen: list[str], nodes: int, place: str) -> tuple[int, str, bool]:
    """(least number of nodes, hardware in words, whether only sizes are new) of a useful measurement.

    chosen  what to measure;  nodes, place  least number of nodes for it, and these in words
    Limits: a shipped calibration -> these;  these very GPUs -> the same, at other sizes;  fewer nodes ->
    more of them
    """
    known = getattr(getattr(p.setting.links, "times", None), "calibration", None)
    if p.setting.calibration is None or known is None or not known.this_cluster:
        return nodes, place, False
    names = {name.partition(":")[2] for name in chosen}
    cells = {(curve.collective, curve.gpus) for curve in known.curves if curve.domain_gpus < curve.gpus}
    here = -(-p.gpus // p.gpu_count.gpus_per_node)
    domain = min(p.gpus, int(p.forward.domain(p.work.gpus)[0]))
    if all(known.curve(name, p.gpus, domain) for name in names):
        return here, f"these {p.gpus} GPUs, at sizes that were not measured", True
    most = min((max((g for c, g in cells if c == name), default=0) for name in names), default=0)
    had = -(-most // p.gpu_count.gpus_per_node)
    if not 1 < had < here:
        return nodes, place, False
    return had + 1, f"more than the {had} nodes that were measured, {here} if you can", False


def _place(p: Projection) -> str:
    """The smallest hardware that shows the behaviour of this projection's links."""
    node, domain = p.gpu_count.gpus_per_node, int(p.forward.domain(p.work.gpus)[0])
    if p.gpus <= node:
        return "one node"
    if p.setting.one_domain or domain >= p.gpus:
        return f"{p.gpus} GPUs of one {p.setting.machine.links.scale_up} domain (or as many as there are)"
    return "≥ 2 nodes" if domain <= node else f"≥ 2 {p.setting.machine.links.scale_up} domains"


def _experiments(step: StepRow) -> tuple[str, ...]:
    """Measurements for a step: backend:collective, or the kernel (the hand-over counts as a kernel).

    Limits: converting bags, backward-only steps, host memory -> none: calibrate has no such kernel
    """
    if not step.collective:
        known = STEPS[step.name]
        return () if known.like or known.sorts_alone or known.hosted else (f"kernel:{step.name}",)
    return tuple(f"{step.library}:{c}" for c in step.collective.split(" or "))
