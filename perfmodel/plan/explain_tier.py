"""Explains a step that reads or writes memory below the HBM: its equation, and every number in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.model import caching, set_caches, tiers
from perfmodel.model import exchanges as ex
from perfmodel.model.recording import BYTES, Recorded, named
from perfmodel.passes.basis import PassBasis
from perfmodel.passes.equations import Equation, equation_of
from perfmodel.passes.explanation import Explanation, of_launches
from perfmodel.passes.recorded_words import equation_lines, recorded_parts, recorded_quantity
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.steps import BELOW_HBM, StepRow
from perfmodel.passes.terms import Term, TimeParts, plain_term
from perfmodel.passes.tier_times import PACKET, TierTimes
from perfmodel.schema.machine_keys import ALL_KEYS
from perfmodel.schema.tiers import LFU, Tier
from perfmodel.units import counted, format_time

SWITCH = "gpus_per_pcie_switch"
GATHER_HOST, UPDATE_HOST, READ_SSD, WRITE_SSD = "gather_host", "update_host", "read_ssd", "write_ssd"
_LOOK_UPS = ("cache_lookup", "ssd_lookup")
OF_SSDS = ("ssd_lookup", READ_SSD, WRITE_SSD)
_COUNTED = {step.name: step.counted for step in BELOW_HBM}


@dataclass(frozen=True)
class Reader:
    """What is known about a pass that reads rows from a tier of memory below the HBM.

    basis  constants and machine;  gpus  of the pass;  id_bytes  bytes of an id
    tier   that holds the rows, with the policy of its cache;  loads  bytes of each resource on the GPU that
           waits longest
    both   whether as many rows cross the link in the other direction;  launches  of the gather
    """

    basis: PassBasis
    gpus: int
    id_bytes: float
    tier: Tier
    loads: Any
    both: bool = False
    launches: int = 1

    def machine(self, symbol: str, key: str) -> Recorded:
        """The machine's value ``key`` as a term of an equation, with its letter ``symbol``."""
        quantity = self.basis.setting.machine.quantity(key)
        return recorded_quantity(symbol, quantity, f"{key}: {ALL_KEYS[key].meaning}")

    def constant(self, symbol: str, key: str) -> Recorded:
        """The constant ``key`` of the software as a term of an equation, with its letter ``symbol``."""
        quantity = self.basis.setting.constants.quantity(key)
        return recorded_quantity(symbol, quantity, f"{key}: {quantity.why}")

    def shared(self, what: str) -> Recorded:
        """Number of GPUs of a node that use the memory at once, as a term. what  they do: read, or write"""
        sharers = float(TierTimes(self.basis).sharers(float(self.gpus)))
        return Recorded(sharers, symbol="g", meaning=f"GPUs of a node that {what} at once")

    def moved(self, step: str) -> float:
        """Bytes that cross the link in the step with this name; for a look-up in a cache, of the ids."""
        return float(self.loads[_COUNTED[step]])

    def on_the_wire(self, step: str) -> float:
        """Bytes that cross the link in the step with this name, with the headers of their packets."""
        return float(self.loads[_COUNTED[step] + 1])


def explain_tier(reader: Reader, step: StepRow, words: Sequence[str] = ()) -> Explanation:
    """The explanation of a step that is in ``steps.BELOW_HBM``. words  lines to show after the working"""
    title = f"{step.label} on {counted(reader.gpus, 'GPU')} of {reader.basis.setting.machine.name}"
    bytes_of, letters = _bytes(step, reader.tier.policy == LFU)
    if step.name in _LOOK_UPS:
        time = _looked(reader, step)
    elif step.name == READ_SSD:
        time = _read(reader, step)
    elif step.name == WRITE_SSD:
        time = _written(reader, step)
    else:
        time = _crossing(reader, step)
    meant = tuple(
        plain_term(each, reader.id_bytes, _OF_BYTES[each])
        if each == "id"
        else Term(each, None, "varies", "", "", _OF_BYTES[each])
        for each in letters.split()
    )
    both = replace(time, terms=(*time.terms, *meant), working=(*time.working, *words))
    return Explanation(step, title, bytes_of, both, reader.gpus)


def _bytes(step: StepRow, lfu: bool) -> tuple[Equation, str]:
    """(equation of the step's bytes, its letters that the equation of the time lacks).

    lfu  whether caches keep the most frequent rows
    """
    if step.name == UPDATE_HOST:
        return Equation.of(ex.touched_rows, "S = touched (row + state)"), "touched row state"
    law: Callable[..., Any] = set_caches.lru_batch_misses
    first, letters = "S = m row", "m row rows q z y A P(gap=k) e_k U(k) r"
    if step.name in _LOOK_UPS:
        law, first, letters = set_caches.rows_asked, "S = u id, u = U(1)", "id U(k) rows r"
    elif step.name == WRITE_SSD:
        letters = letters.replace("row", "written", 1)
        first = "S = m written"
    elif step.name == GATHER_HOST:
        law, first, letters = caching.cold_misses, "S = reads row, reads =", "reads row n U(n) T_c X m"
    text = re.sub(r"\ba\b", "r", re.sub(r"\bx\b", "z", equation_of(law))).replace("``", "")
    if step.name == GATHER_HOST:
        text = re.sub(r"\bm\b", "late", text)
        letters = letters.replace(" m", " late")
        if lfu:
            text += "\nof the rows that have no place in the cache"
            law = set_caches.lfu_reads
    return Equation.of(law, f"{first}\n{text}"), letters


_OF_BYTES = {
    "id": "bytes of an id",
    "row": "bytes of a row that crosses the link, whole sectors; of SSDs whole blocks are read",
    "rows": "rows of a bin: those of a table that are asked for alike",
    "r": "times that one of them is asked for in a batch, on average",
    "U(k)": "different rows that k batches ask for",
    "reads": "rows of a table that cross the link",
    "n": "look-ups of a batch in the shard",
    "U(n)": "different rows among n look-ups",
    "T_c": "look-ups after which the read of a row has arrived, and the next crosses the link again",
    "X": "rows that are on their way at once: lambda R / row",
    "late": "share of the look-ups after T_c whose row is not on its way",
    "m": "rows of a bin that the cache has not when a batch asks for them",
    "written": "bytes of a row that was updated",
    "touched": "different rows that are updated",
    "state": "bytes of the optimizer's state of one of them, whole sectors: of cached rows it alone moves",
    "q": "chance that a batch asks for a row",
    "z": "chance that a row is in the cache",
    "y": "share of the missed rows that find a place; it fills the cache",
    "A": "chance that the cache still has a row that had a place, over the gaps between its batches",
    "P(gap=k)": "chance that a row is asked for again after k batches, and not before",
    "e_k": "chance that a row has left its set after k batches (evicted_between)",
}
"""Letters of the bytes; a letter without a value here differs by table and row."""


def _looked(reader: Reader, step: StepRow) -> TimeParts:
    distinct = reader.moved(step.name) / reader.id_bytes
    rows = Recorded(distinct, symbol="u", meaning="different rows of a GPU's batch")
    floor, each = reader.constant("t0", "cache_floor_s"), reader.constant("c", "cache_row_s")
    time = named("t", tiers.cache_lookup_time(rows, floor, each), "")
    return _parts(time, tiers.cache_lookup_time, words=_prefetched(reader, step))


def _parts(
    time: Recorded,
    *laws: Callable[..., Any],
    beside: Sequence[Recorded] = (),
    words: Sequence[str] = (),
) -> TimeParts:
    """The derivation of a step's time by ``laws``, its equations in the letters of its working.

    The docstrings of the laws have other letters, for one row and one GPU; a step covers all rows.
    """
    found = recorded_parts(time, *laws, beside=beside, words=words)
    texts = (equation_lines(time), *("" for _ in laws[1:]))
    return replace(found, equations=tuple(map(Equation.of, laws, texts)))


def _crossing(reader: Reader, step: StepRow) -> TimeParts:
    size, sent = reader.moved(step.name), reader.on_the_wire(step.name)
    x = Recorded(size, BYTES, symbol="x", meaning="S: rows that cross the link, whole sectors")
    wire = Recorded(sent, BYTES, symbol="x_wire", meaning="the same with the headers of packets")
    link, memory = reader.machine("C", "host_link_bytes_per_s"), reader.machine("M", "host_bytes_per_s")
    packets, latency = (
        reader.constant("f", "link_packet_fraction"),
        reader.machine("lambda", "host_latency_s"),
    )
    beside = [reader.constant(symbol, key) for symbol, key in zip(("a", "h", "w_min"), PACKET, strict=True)]
    rate = tiers.row_rate(link, packets, x, wire, memory, reader.shared("read")) if size else link
    if reader.both:
        rate = reader.constant("both", "link_both_ways_fraction") * rate
    time = tiers.link_time(x, latency, named("R", rate, "of the slower: the link, or a share of the memory"))
    if step.name == GATHER_HOST:
        time = of_launches(reader.machine("t0", "launch_floor_s"), reader.launches) + time
    words = _prefetched(reader, step)
    return _parts(named("t", time, ""), tiers.link_time, tiers.row_rate, beside=beside, words=words)


def _read(reader: Reader, step: StepRow) -> TimeParts:
    meaning = "blocks that are read: rows that the cache has not"
    latency = reader.machine("lambda", "ssd_latency_s")
    queue = reader.machine("IOPS", "ssd_reads_per_s"), reader.machine("Q", "ssd_queue_depth"), latency
    size = reader.machine("rate", "ssd_bytes_per_s"), reader.machine("a", "ssd_block_bytes")
    reads = named("N", tiers.ssd_reads_per_s(*queue, *size) / reader.shared("read"), "reads of a GPU")
    blocks = Recorded(reader.loads[Resource.SSD_READ] / size[1].value, symbol="n", meaning=meaning)
    time = tiers.ssd_time(blocks, reads, latency)
    words = ("rows cross the link beside the reads", *_prefetched(reader, step))
    return _parts(named("t", time, ""), tiers.ssd_time, tiers.ssd_reads_per_s, words=words)


def _written(reader: Reader, step: StepRow) -> TimeParts:
    x = Recorded(step.payload_bytes, BYTES, symbol="x", meaning="S: updated rows that leave")
    share = reader.machine("W", "ssd_write_bytes_per_s") / reader.shared("write")
    time = tiers.ssd_write_time(x, named("W_g", share, "a GPU's share of the rate of writes"))
    words = ("every row that comes takes the place of one that was updated", *_prefetched(reader, step))
    return _parts(named("t", time, ""), tiers.ssd_write_time, words=words)


def _prefetched(reader: Reader, step: StepRow) -> tuple[str, ...]:
    if not reader.tier.prefetch:
        return ()
    left = f"of it {format_time(step.time_s)} are left to wait for: the rest runs beside the other steps"
    return (left,)
