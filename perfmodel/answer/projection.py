"""One configuration in full: time by step, its evidence, and how the number of GPUs was determined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.answer.question import Question
from perfmodel.collectives.library import Crossover, Faster, crossover
from perfmodel.engine.grid import CostedGrid, gpu_memory
from perfmodel.engine.row_wise import TWO_LEVEL, Configs, Forward, GpuLoads, fullest_part
from perfmodel.engine.schemes import BY_DOMAIN, ROW_WISE
from perfmodel.engine.settings import Setting
from perfmodel.engine.steps import StepRow, Times, evidence_shares
from perfmodel.model import capacity, sharding
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.units import counted, format_bytes, format_count, format_rate, format_ratio

if TYPE_CHECKING:
    import pandas as pd

_UNEVEN = 1.5  # look-ups of the fullest row shard over the mean, above which a note says so
_MANY = 1000
"""Numbers from here on are printed with grouped digits: 1 250, not 1.25e+03."""
_SMALLEST_CROSSOVER, _LARGEST_CROSSOVER, _CROSSOVER_POINTS = 128.0, 2.0**32, 201


@dataclass(frozen=True)
class GpuCount:
    """How the number of GPUs was determined, and whether what one GPU then holds ``fits``; sizes in bytes.

    gpus, needed     GPUs of the job, and the fewest that can hold row-wise parts and exchange buffers
    rule             why ``gpus`` is used for ``needed``, in words: given, fits one GPU, whole nodes of 8
    table_bytes, state_bytes    rows, and optimizer state, of all tables;  shard_bytes  table_bytes / gpus
    hbm_bytes, usable_bytes     HBM of one GPU; the part for tables, if a share ``reserve`` stays free
    rows_bytes, optimizer_bytes, buffer_bytes   on one GPU: rows (parts and replicas), their optimizer state,
        buffers of the largest exchange
    """

    gpus: int
    needed: int  # fewer GPUs may do for another sharding
    rule: str
    table_bytes: float
    hbm_bytes: float
    usable_bytes: float
    reserve: float
    gpus_per_node: int
    shard_bytes: float
    rows_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    state_bytes: float = 0.0
    buffer_bytes: float = 0.0
    fits: bool = True  # whether all that one GPU holds is within the usable memory

    @property
    def memory_bytes(self) -> float:
        """Memory that a GPU needs [bytes]."""
        return self.rows_bytes + self.optimizer_bytes + self.buffer_bytes

    @property
    def for_rows(self) -> int:
        """GPUs that the rows and the optimizer state alone need: no sharding fits fewer."""
        return int(sharding.gpus_needed(self.table_bytes + self.state_bytes, self.usable_bytes, 0.0))

    def memory_words(self, form: str = "{}: {}") -> str:
        """``66.3 GB of 68 GB per GPU: rows 65.8 GB, exchange buffers 541 MB``. form  joins sum and parts"""
        total, usable = (format_bytes(x, binary=False) for x in (self.memory_bytes, self.usable_bytes))
        named = [("rows", self.rows_bytes), ("optimizer state", self.optimizer_bytes)]
        named += [("exchange buffers", self.buffer_bytes)]
        texts = [f"{name} {format_bytes(size, binary=False)}" for name, size in named if size]
        parts = ", ".join(texts) or "no rows, no buffers"
        return form.format(f"{total} of {usable} per GPU", parts)

    def __str__(self) -> str:
        room, sizes = self.usable_bytes, (self.table_bytes, self.state_bytes, self.usable_bytes)
        size, state, usable = (format_bytes(x, binary=False) for x in sizes)
        size = f"({size} + {state} of optimizer state)" if self.state_bytes else size
        alone = sharding.whole_nodes(self.for_rows, self.gpus_per_node)
        if self.fits and alone < self.gpus:
            room = max(room - self.buffer_bytes, 1.0)
            usable = f"({usable} − {format_bytes(self.buffer_bytes, binary=False)} of buffers)"
        ratio = (self.table_bytes + self.state_bytes) / room
        if self.rule == "given":
            where, least = counted(self.gpus, "GPU"), format_count(self.for_rows)
            return f"{size} over {where} as given (the rows alone need {least})"
        if self.gpus == 1:
            return f"{size} ÷ {usable} = {ratio:.3g}  →  1 ({self.rule})"
        times = format_count(ratio) if ratio >= _MANY else f"{ratio:.4g}"
        return f"{size} ÷ {usable} = {times}  →  {format_count(self.gpus)} ({self.rule})"


@dataclass(frozen=True)
class Projection:
    """The answer for one configuration (``work``), with everything that explains it."""

    setting: Setting
    forward: Forward
    work: Configs
    gpu_count: GpuCount
    steps: tuple[StepRow, ...]  # of the sharded pass
    totals: dict[str, float]  # the columns of ``project_grid``
    evidence: Evidence
    baseline_evidence: Evidence  # of the baseline: the same batch in local memory
    local: dict[str, Times]  # time of the baseline [s], by cause of error
    clocks: tuple[Clock, ...]  # of the collective times
    calibrations: tuple[str, ...]
    notes: tuple[str, ...]
    crossovers: tuple[Crossover, ...]  # sizes from which another library is faster
    question: Question | None = None
    shards: str = ""  # parts on a GPU in words, if the sharding is not row-wise
    fullest_part: float = 1.0  # ids of the GPU with the hottest row of a table, over the mean GPU's

    @property
    def uneven(self) -> str:
        """A note that the GPU with the hottest row has more work than the times assume; "" if little more."""
        if self.fullest_part < _UNEVEN:
            return ""
        more = format_ratio(self.fullest_part)
        return f"the GPU with the hottest row gets {more} the ids of the mean GPU, whose times these are"

    @property
    def every_note(self) -> tuple[str, ...]:
        """The notes and ``uneven``, for an answer that prints ``uneven`` nowhere else."""
        return (*self.notes, *([self.uneven] if self.uneven else []))

    @property
    def loads(self) -> GpuLoads:
        """Loads of each GPU, in bytes by resource."""
        return self.forward.loads(self.work, self.forward.kinds(self.work))

    @property
    def gpus(self) -> int:
        """GPUs that the tables are spread over."""
        return self.gpu_count.gpus

    @property
    def sharding(self) -> str:
        """The sharding of its tables, a name of ``WAYS``."""
        return (self.question.sharding if self.question else None) or ROW_WISE

    @property
    def slowdown(self) -> float:
        """Time over the baseline's, the same batch in local memory [-]."""
        return self.totals["slowdown"]

    @property
    def band(self) -> tuple[float, float]:
        """95 % band of the slowdown."""
        return self.totals["slowdown_low"], self.totals["slowdown_high"]

    @property
    def time_s(self) -> float:
        """Time of a batch."""
        return self.totals["time_s"]

    @property
    def baseline_time_s(self) -> float:
        """Time of the same batch in local memory."""
        return self.totals["baseline_time_s"]

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs: G B / t, with B samples on each of G GPUs in t."""
        return self.gpus * float(self.work.batch[0]) / self.time_s

    def evidence_shares(self) -> dict[Evidence, float]:
        """Share of the time by evidence class, strongest first."""
        return evidence_shares(self.steps)

    @property
    def main_evidence(self) -> Evidence:
        """The weakest evidence class that accounts for a large share of the time (``Evidence.main``)."""
        return Evidence.main(self.evidence_shares())

    def to_frame(self) -> pd.DataFrame:
        """The steps as a table."""
        import pandas as pd

        return pd.DataFrame([step.to_dict() for step in self.steps])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        asked = self.question.to_dict(self.forward, self.work) if self.question else {}
        totals: dict[str, Any] = {
            k: v for k, v in self.totals.items() if not k.endswith("_time_s") or k in _KEPT_TIMES
        }
        totals["fits"] = self.gpu_count.fits
        return {
            **asked,
            "gpu_count": vars(self.gpu_count) | {"text": str(self.gpu_count)},
            **totals,
            **{k: int(totals[k]) for k in _COUNTS},
            "samples_per_s": self.samples_per_s,
            "evidence": str(self.evidence),
            "main_evidence": str(self.main_evidence),
            "clocks": [str(c) for c in self.clocks],
            "calibrations": list(self.calibrations),
            "steps": [step.to_dict() for step in self.steps],
            "crossovers": [vars(c) | {"clocks": [str(x) for x in c.clocks]} for c in self.crossovers],
            "fullest_part": self.fullest_part,
            "notes": list(self.every_note),
        }


_COUNTS = ("gpus", "gpus_needed")
_KEPT_TIMES = ("baseline_time_s", "floor_time_s", "light_time_s")


_RANKS = ("evidence", "main_evidence")


def projections(forward: Forward, work: Configs, reserve: float, found: CostedGrid) -> list[Projection]:
    """The projection of each configuration; ``found`` has their costs."""
    return [projection_at(forward, work, reserve, found, at) for at in range(len(work))]


def projection_at(forward: Forward, many: Configs, reserve: float, found: CostedGrid, at: int) -> Projection:
    """The projection of the configuration at a position."""
    setting, work, columns = forward.setting, many.part(slice(at, at + 1)), found.grid.columns
    totals = {name: float(values[at]) for name, values in columns.items() if name not in _RANKS}
    steps = found.cost.rows(at)
    clocks = tuple(dict.fromkeys(s.clock for s in steps))
    count = _gpu_count(forward, work, reserve)
    return Projection(
        setting=setting,
        forward=forward,
        work=work,
        gpu_count=count,
        steps=steps,
        totals=totals,
        evidence=Evidence.from_rank(int(columns["evidence"][at])),
        baseline_evidence=Evidence.from_rank(int(found.base.evidence[at])),
        local={
            cause: (float(low[at]), float(time[at]), float(high[at]))
            for cause, (low, time, high) in found.base.causes.items()
        },
        clocks=clocks,
        calibrations=setting.links.calibrations,
        notes=(*setting.notes, *_too_much(count, forward, work), *_notes(work, clocks, forward)),
        crossovers=tuple(_crossovers(setting, forward, steps, int(work.gpus[0]))),
        fullest_part=fullest_part(forward, work) if forward.memory is None else 1.0,
    )


def _gpu_count(forward: Forward, work: Configs, reserve: float) -> GpuCount:
    machine = forward.setting.machine
    gpus, needed = int(work.gpus[0]), int(work.needed[0])
    node = forward.gpus_per_node or machine.gpus_per_node
    hbm = forward.room_bytes
    if forward.memory is not None:
        rule, usable = "one memory holds it", forward.memory.capacity_bytes
    else:
        usable = hbm * (1 - reserve)
        alone = "fits one GPU" if gpus == 1 else "inside one node, not rounded"
        rule = "given" if work.given_gpus else alone if gpus <= node else f"whole nodes of {node}"
    size = float(work.table_bytes[0])
    held = gpu_memory(forward, work)
    parts = held.rows_bytes, held.optimizer_bytes, held.buffer_bytes / forward.buffer_weight
    rows, state, buffers = (float(part[0]) for part in parts)
    good = bool(capacity.fits(float(held.total_bytes[0]), work.usable_bytes))
    counts = (gpus, needed, rule, size, hbm, usable, reserve, node, size / gpus)
    every = float(gpu_memory(forward, replace(work, gpus=np.ones_like(work.gpus))).optimizer_bytes[0])
    return GpuCount(*counts, rows, state, every, buffers, good)


def _too_much(count: GpuCount, forward: Forward, work: Configs) -> Iterator[str]:
    """Lines that say what does not fit, and what would."""
    if count.fits:
        return
    room = count.usable_bytes - (count.memory_bytes - count.buffer_bytes)
    buffers = count.buffer_bytes * forward.buffer_weight
    batch = int(work.batch[0] * room / buffers) if room > 0 and buffers else 0
    more = replace(work, gpus=work.needed)
    enough = count.needed > count.gpus and capacity.fits(
        gpu_memory(forward, more).total_bytes[0], work.usable_bytes
    )
    ways = [f"{counted(count.needed, 'GPU')} or more"] if enough else []
    ways += [f"a batch of at most {format_count(batch)}"] if 0 < batch < work.batch[0] else []
    ways += ["--reserve 0"] if count.memory_bytes <= count.hbm_bytes and count.reserve else []
    instead = f"; it would with {' or '.join(ways)}" if ways else ""
    yield f"this does not fit: {count.memory_words()}{instead}"


def _notes(work: Configs, clocks: tuple[Clock, ...], forward: Forward) -> Iterator[str]:
    if len(clocks) > 1:
        kernels = forward.setting.kernel_clock
        yield f"this sum mixes clocks: {', '.join(clocks)} (kernels are on the {kernels} clock)"
    gpus = work.gpus[0]
    small = [bool(np.all(g.rows < gpus)) for g in work.groups]
    copies = sum(float(np.max(g.count)) for g, few in zip(work.groups, small, strict=True) if few)
    if copies:
        which = "1 table has" if copies == 1 else f"{copies:.0f} tables have"
        text = f"{which} fewer rows than {gpus:.0f} GPUs and is whole on every GPU"
        text = text if copies == 1 else text.replace("and is", "and are")
        yield f"{text}, so nothing is exchanged" if all(small) else text
    domain = forward.domain(work.gpus)[0]
    if forward.reduction == TWO_LEVEL and gpus > 1 and (domain in (1, gpus) or gpus % domain):
        why = f"all {gpus:.0f} GPUs are in one domain" if domain == gpus else f"domains of {domain:.0f} GPUs"
        yield f"{why}: the {BY_DOMAIN} exchange is a flat reduce-scatter here"
    if work.filled and forward.memory is None:
        size = format_bytes(float(work.table_bytes[0]), binary=False)
        yield f"no table size is given: the tables are assumed to fill the memory, {size}"
    memory = forward.memory
    if memory is not None and memory.remote:
        own, share = forward.memory_rate(memory), memory.bytes_per_s / memory.sharers
        why = "its share of the memory" if own == share else "what its network card carries"
        got = f"{format_rate(own)} each, {why}"
        yield f"{counted(memory.sharers, 'GPU')} read the memory at once, each its own batch: {got}"
    if memory is not None:
        yield "the memory's rate is a stated one, like the HBM's: a gather reaches the same part of both"


def _crossovers(
    setting: Setting, forward: Forward, steps: tuple[StepRow, ...], gpus: int
) -> Iterator[Crossover]:
    links = setting.links
    if not isinstance(links, Faster) or gpus == 1:
        return
    names = {step.name for step in steps}
    domain = int(forward.domain(np.array([float(gpus)]))[0])
    node, reduce = forward.gpus_per_node, "reduce_scatter"
    groups = [
        ("all_to_all", gpus, node, "", any("all_to_all" in s.collective for s in steps)),
        (reduce, gpus, node, "", "reduce_scatter_bags" in names),
        (reduce, domain, node, "inside a domain", "reduce_scatter_inside" in names),
        (reduce, gpus // domain, 1, "across domains", "reduce_scatter_across" in names),
    ]
    for collective, ranks, per_node, group, used in groups:
        if used:
            smallest = max(_SMALLEST_CROSSOVER, 16.0 * ranks)
            sizes = np.geomspace(smallest, _LARGEST_CROSSOVER, _CROSSOVER_POINTS)
            found = crossover(links, collective, ranks, per_node, sizes.tolist(), group)
            if found is not None:
                yield found
