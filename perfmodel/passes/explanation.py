"""One step of a pass, explained: its equations, the user's numbers in them, and their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.library import Faster
from perfmodel.errors import BadInputError
from perfmodel.model import collectives, kernels, one_memory
from perfmodel.model.recording import BYTES, BYTES_PER_S, SECONDS, Recorded, geometric_mean, named
from perfmodel.passes.basis import LocalMemory
from perfmodel.passes.collective_parts import collective_parts
from perfmodel.passes.equations import Equation
from perfmodel.passes.handover import Handover
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.one_domain import OneDomain, beyond_one_domain
from perfmodel.passes.recorded_words import recorded_parts, recorded_quantity
from perfmodel.passes.settings import Setting
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.steps import ACROSS, HANDOVER, INSIDE, STEPS, StepRow, step_label
from perfmodel.passes.terms import Term, TimeParts
from perfmodel.schema.machine_keys import KEYS
from perfmodel.units import counted, format_time

_KERNEL_KEYS = {
    "bucketize": {"t0": "bucketize_floor_s", "rate": "bucketize_bytes_per_s"},
    "gather_pool": {
        "t0": "launch_floor_s",
        "dram_rate": "gather_bytes_per_s",
        "l2_rate": "l2_bytes_per_s",
        "sector": "sector_bytes",
        "least": "row_access_bytes",
        "beta_bag": "bag_factor",
    },
    "local_sum": {"t0": "launch_floor_s", "rate": "local_sum_bytes_per_s"},
    **{name: {"M": "hbm_bytes_per_s"} for name in STEPS if STEPS[name].sorts},
}
_SORT_KEYS = {"t_sort": "sort_floor_s", "t_digit": "sort_digit_s", "eta": "sort_memory_fraction"}
_UNIQUE_KEYS = {
    "t_hash": "hash_floor_s",
    "eta_hash": "hash_memory_fraction",
    "t_unique": "torch_unique_floor_s",
    "eta_unique": "torch_unique_memory_fraction",
}


@dataclass(frozen=True)
class Pass:
    """A pass whose steps are explained.

    gpus_words  how the number of GPUs came about, in words
    optimizer   optimizer of the row updates; "" without training
    digits      8-bit digits of an id that the backward pass sorts [-]; 0 without an evaluator
    memory      memory that the gather reads, if it is not the HBM
    bare_bytes  bytes of the gather that cross a network to that memory [bytes]
    """

    setting: Setting
    steps: tuple[StepRow, ...]
    gpus: int
    domain_gpus: int
    gpus_per_node: int
    gpus_words: str
    optimizer: str = ""
    digits: float = 0.0
    memory: LocalMemory | None = None
    bare_bytes: float = 0.0

    def ranks(self, step: StepRow) -> tuple[int, int]:
        """(ranks of the step's group, how many of them are in one node)."""
        which = STEPS[step.name].ranks
        if which == INSIDE and self.gpus % self.domain_gpus == 0:
            return self.domain_gpus, self.gpus_per_node
        if which == ACROSS:
            return self.gpus // self.domain_gpus, 1
        return self.gpus, self.gpus_per_node


@dataclass(frozen=True)
class Payload:
    """The bytes of a step: equation, terms, and a working in words where the bytes are a sum.

    like      step whose kernel constants are used, if not the step's own;  launches  number of kernels
    """

    equation: Equation
    terms: tuple[Term, ...]
    working: tuple[str, ...] = ()
    like: str = ""
    launches: int = 1


NOTHING_SENT = Equation("0", "perfmodel.passes.handover.Handover.times", "docs/model.md#in-a-whole-pass")
"""Equation of the bytes of the hand-over."""


@dataclass(frozen=True)
class Explanation:
    """A step with its equations, its terms, and how the terms give its time."""

    step: StepRow
    title: str
    payload: Equation
    time: TimeParts
    gpus: int

    @property
    def equation(self) -> str:
        """The equation of the time as text, and then the equations of its parts."""
        return "\n".join(each.text for each in self.time.equations if each.text)

    @property
    def payload_equation(self) -> str:
        """Text of the equation of the bytes."""
        return self.payload.text

    @property
    def terms(self) -> tuple[Term, ...]:
        """Terms of both equations."""
        return self.time.terms

    @property
    def working(self) -> tuple[str, ...]:
        """Both equations with the numbers filled in."""
        return self.time.working

    @property
    def reference(self) -> str:
        """Where the equation of the time comes from."""
        return self.time.reference or self.time.equations[0].source

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        first = self.time.equations[0]
        return {
            "step": self.step.to_dict(),
            "title": self.title,
            "payload_equation": self.payload.text,
            "payload_function": self.payload.function,
            "payload_section": self.payload.section,
            "equation": self.equation,
            "function": first.function,
            "section": first.section,
            "parts": [each.to_dict() for each in self.time.equations[1:]],
            "reference": self.reference,
            "terms": [vars(term) for term in self.terms],
            "working": list(self.working),
            "doubts": [{"what": what, "log_sd": log_sd} for what, log_sd in self.time.doubts],
            "gpus": self.gpus,
        }


def explained(whole: Pass, step: StepRow, payload: Payload) -> Explanation:
    """The explanation of a step: the equation of its bytes and the equation of its time."""
    updates = f" with {whole.optimizer}" if Resource.UPDATE_DRAM in STEPS[step.name].resources else ""
    title = f"{step.label}{updates} on {counted(whole.gpus, 'GPU')} of {whole.setting.machine.name}"
    if step.name == HANDOVER:
        return Explanation(step, title, NOTHING_SENT, _handover(whole, step), whole.gpus)
    alike = replace(step, name=payload.like or step.name)
    if step.collective:
        parts = _communication(whole, step)
    else:
        parts = _kernel(whole, alike, {term.symbol: term.value for term in payload.terms}, payload.launches)
    given = {term.symbol for term in payload.terms}
    terms = (*payload.terms, *(term for term in parts.terms if term.symbol not in given))
    borrowed = f"its constants are those of {step_label(alike.name)}: no kernel of its own was timed"
    words = [borrowed] if not step.collective and alike.name != step.name else []
    both = replace(parts, terms=terms, working=(*payload.working, *parts.working, *words))
    return Explanation(step, title, payload.equation, both, whole.gpus)


def _handover(whole: Pass, step: StepRow) -> TimeParts:
    known, source = whole.setting.handover, ", ".join(whole.setting.links.calibrations)
    terms = [
        Term(
            f"h({name.replace('_', ' ')})",
            each.value,
            f"{format_time(each.value)} ({format_time(each.low)} – {format_time(each.high)})",
            source,
            str(step.evidence),
            "median over whole passes of what the step takes there beyond its curve",
        )
        for name, each in sorted(known.constants.items())
    ]
    for name, pairs in sorted(known.pairs.items()):
        counts = ", ".join(str(after.gpus) for after, _ in pairs)
        text = f"{counts} ranks"
        meaning = f"curves of {name} after a kernel and in a loop of its own"
        terms.append(Term("t_after, t_alone", float(pairs[0][0].gpus), text, source, "measured", meaning))
    working = (f"t = {format_time(step.time_s)} for all collectives together",)
    return TimeParts((Equation.of(Handover.times, of=Handover),), tuple(terms), working)


def _kernel(whole: Pass, step: StepRow, terms: Mapping[str, float | None], launches: int) -> TimeParts:
    """The equation of a kernel's time, with its numbers.

    terms     numbers of the kernel's bytes, by letter;  launches  number of launches of the kernel
    """
    known = {symbol: _constant(whole.setting, symbol, key) for symbol, key in _KERNEL_KEYS[step.name].items()}
    if STEPS[step.name].sorts:
        known = _sort(whole, known["M"], alone=STEPS[step.name].sorts_alone)
    floor = of_launches(known["t0"], launches)
    if step.name != "gather_pool":
        moved = Recorded(step.payload_bytes, BYTES, symbol="x", meaning="S: bytes that the kernel moves")
        time = kernels.stream_kernel_time(moved, floor, known["rate"])
        return recorded_parts(named("t", time, ""), kernels.stream_kernel_time)
    dram = Recorded(step.payload_bytes, BYTES, symbol="dram_bytes", meaning="S: what misses the L2 cache")
    size, meaning = terms["l2_bytes"] or 0.0, "all that passes the L2 cache"
    passed = Recorded(size, BYTES, symbol="l2_bytes", meaning=meaning)
    memory = whole.memory
    rate = known["dram_rate"] if memory is None else _memory_rate(whole.setting, memory)
    time = kernels.gather_pool_time(dram, passed, floor, rate, known["l2_rate"])
    functions: tuple[Callable[..., Any], ...] = (kernels.gather_pool_time,)
    if memory is not None and memory.remote:
        time, functions = _far(whole, memory, time, floor), (one_memory.remote_time, *functions)
    used = ("sector", "least", "beta_bag") if "bags" in terms else ("sector", "least")
    return recorded_parts(named("t", time, ""), *functions, beside=[known[symbol] for symbol in used])


def of_launches(floor: Recorded, launches: int) -> Recorded:
    """The floor t0 of a kernel that is launched several times. Limits: one launch -> ``floor`` itself"""
    if launches == 1:
        return floor
    meaning = "launches: one for each group of tables that TorchRec looks up by itself"
    count = Recorded(float(launches), symbol="n_launch", meaning=meaning)
    return cast("Recorded", named("t0", count * replace(floor, symbol="t_launch"), "floors of all launches"))


def _memory_rate(setting: Setting, memory: LocalMemory) -> Recorded:
    """Rate at which a gather reads a memory other than the HBM, recorded."""
    stated = Recorded(
        memory.bytes_per_s, BYTES_PER_S, symbol="R", meaning="rate of the memory", source=str(memory)
    )
    sharers = Recorded(float(memory.sharers), symbol="n_shared", meaning="GPUs that share the memory")
    gather = _constant(setting, "gather_rate", "gather_bytes_per_s")
    reached = gather / _constant(setting, "hbm_rate", "hbm_bytes_per_s")
    why = "stated for a GPU, times the part that a gather reaches of the HBM's"
    return cast("Recorded", named("dram_rate", stated / sharers * reached, why))


def _far(whole: Pass, memory: LocalMemory, time: Recorded, floor: Recorded) -> Any:
    """The time of a gather from a memory over the network; None for any other memory."""
    meaning = "rows, ids and bags, each once: what the card carries"
    bare = Recorded(whole.bare_bytes, BYTES, symbol="x", meaning=meaning)
    reads = "from a read over the network to its data"
    latency = Recorded(memory.latency_s, SECONDS, symbol="lambda", meaning=reads, source=str(memory))
    near = named("t_memory", time, "of the same gather beside the GPU")
    card = _constant(whole.setting, "C", "nic_bytes_per_s")
    return one_memory.remote_time(near, floor, bare, card, latency)


def _sort(whole: Pass, memory: Recorded, *, alone: bool) -> dict[str, Recorded]:
    """(launch floor, rate) of a step that deduplicates ids, recorded, as ``PassBasis.sort_middle`` has
    them."""
    found = {
        symbol: recorded_quantity(symbol, quantity, f"{key}: {quantity.why}")
        for symbol, key in (_SORT_KEYS if alone else _UNIQUE_KEYS).items()
        for quantity in (whole.setting.constants.quantity(key),)
    }
    if alone:
        digits = Recorded(whole.digits, symbol="digits", meaning=LETTERS["digits"].meaning)
        floor, eta = kernels.sort_floor(found["t_sort"], found["t_digit"], digits), found["eta"]
        meaning = "of the sort that FBGEMM's backward runs"
    else:
        floor, eta = (geometric_mean(found[f"{x}_hash"], found[f"{x}_unique"]) for x in ("t", "eta"))
        meaning = "middle of a hash table and of torch.unique"
    return {"t0": named("t0", floor, meaning), "rate": named("rate", eta * memory, meaning)}


def _constant(setting: Setting, symbol: str, key: str) -> Recorded:
    """A constant of the machine, recorded, with its interval if a calibration fitted it."""
    quantity = setting.machine.quantity(key)
    found = recorded_quantity(symbol, quantity, f"{key}: {KEYS[key].meaning}")
    interval = setting.kernels.values.get(key) if setting.kernels is not None else None
    if interval is None or interval.value != quantity.value:
        return found
    if not interval.known:
        return replace(found, meaning=f"{found.meaning} (unknown: the samples do not determine it)")
    return replace(found, low=interval.low, high=interval.high)


def _communication(whole: Pass, step: StepRow) -> TimeParts:
    model, scenario = _model_of(whole.setting, step)
    if scenario is not None and whole.gpus > scenario.anchor:
        return _one_domain(whole, step, scenario)
    gpus, node = whole.ranks(step)
    collective = _collective_of(step)
    ranks = "G" if gpus == whole.gpus else "G_x"
    return collective_parts(
        model, collective, step.payload_bytes, gpus, node, step.time_s, step.evidence, ranks
    )


def _one_domain(whole: Pass, step: StepRow, scenario: OneDomain) -> TimeParts:
    """The equations of an exchange over more GPUs than were measured in one domain."""
    per_peer, rate = (scenario.assumed.quantity(key) for key in ("extra_peer_s", "bus_bytes_per_s"))
    collective, gpus, anchor = _collective_of(step), float(whole.gpus), float(scenario.anchor)
    measured, meaning = (
        scenario.measured.calibration_id,
        f"anchor_gpus: {scenario.assumed.quantity('anchor_gpus').why}",
    )
    empty = float(scenario.empty_s(collective, whole.gpus))
    what_if = "what-if of nvlink_bytes_per_s over the machine's own"
    time = beyond_one_domain(
        Recorded(empty, SECONDS, symbol="alpha(G0)", meaning="floor on G0 GPUs", source=measured),
        Recorded(gpus, symbol="G", meaning=whole.gpus_words),
        Recorded(anchor, symbol="G0", meaning=meaning),
        recorded_quantity("a", per_peer, f"extra_peer_s: {per_peer.why}"),
        Recorded(step.payload_bytes, BYTES, symbol="S", meaning=LETTERS["S"].meaning),
        Recorded(
            float(collectives.bus_factor(collective, whole.gpus)),
            symbol="f",
            meaning="bus factor: bytes on the wire over S",
        ),
        Recorded(scenario.rate_ratio, symbol="k", meaning=what_if),
        recorded_quantity("beta", rate, f"bus_bytes_per_s: {rate.why}"),
    )
    return recorded_parts(named("t", time, ""), beyond_one_domain)


def _model_of(setting: Setting, step: StepRow) -> tuple[CollectiveModel, OneDomain | None]:
    """(collective model that gave a step's time, scenario that wraps the model or None)."""
    links = setting.links
    if isinstance(links, Faster):
        links = links.first if links.first.name == step.library else links.second
    times = links.times
    if isinstance(times, OneDomain):
        inner = times.measured
        return (inner, times) if isinstance(inner, CollectiveModel) else _unknown(inner)
    return (times, None) if isinstance(times, CollectiveModel) else _unknown(times)


def _unknown(times: object) -> Any:
    raise BadInputError(
        f"times of kind {type(times).__name__} cannot be explained.", "use --scenario cluster."
    )


def _collective_of(step: StepRow) -> str:
    """The collective that a step runs. With library ``best``, which may run either of two: the first."""
    return step.collective.split(" or ")[0]
