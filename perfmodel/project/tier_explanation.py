"""A step of a tier below the HBM, explained: its equation, and every number in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.model import caching, set_caches, tiers
from perfmodel.model import exchanges as ex
from perfmodel.passes.basis import PassBasis
from perfmodel.passes.equations import Equation, equation_of, source_of
from perfmodel.passes.explanation import Explanation
from perfmodel.passes.steps import StepRow
from perfmodel.passes.terms import Term, TimeParts, plain_term, quantity_term
from perfmodel.project.projection import Projection
from perfmodel.project.tiered import GATHER_HOST, READ_SSD, AskedRows, Tiered
from perfmodel.schema.machine_keys import ALL_KEYS
from perfmodel.schema.tiers import LFU, Tier
from perfmodel.units import counted, format_bytes, format_rate, format_time


@dataclass(frozen=True)
class Reader:
    """Who reads a tier.

    basis  constants and machine;  gpus  of the pass;  sharers  GPUs of a node that read at once
    tier   of the rows, and the policy of the cache
    both   rate of the link while as many rows cross the other way, over that of one way [-]
    """

    basis: PassBasis
    gpus: int
    sharers: float
    tier: Tier
    both: float = 1.0


def explain_tier(answer: Projection, step: StepRow, tier: Tier) -> Explanation:
    """Of one of ``steps.BELOW_HBM``."""
    asked = Tiered(answer.forward, tier, answer.forward.ids).asked(answer.work, 0)
    sharers = float(min(answer.gpus, answer.gpu_count.gpus_per_node))
    return explain_asked(Reader(answer.forward, answer.gpus, sharers, tier), step, asked)


def explain_asked(reader: Reader, step: StepRow, asked: AskedRows) -> Explanation:
    """Of one of ``steps.BELOW_HBM``, whoever asks. asked  of the GPU that waits longest"""
    machine = reader.basis.setting.machine.name
    name = "" if step.name in (GATHER_HOST, UPDATE_HOST) else f" ({step.name.replace('_', '-')})"
    title = f"{step.label}{name} on {counted(reader.gpus, 'GPU')} of {machine}"
    bytes_of, letters = _bytes(step, reader.tier.policy == LFU)
    if step.name in _LOOK_UPS:
        time = _looked(reader, step, asked)
    elif step.name == READ_SSD:
        time = _read(reader, step, asked)
    elif step.name == WRITE_SSD:
        time = _written(reader, step)
    else:
        time = _crossing(reader, step, asked)
    known = {"id": step.payload_bytes / asked.distinct} if asked.distinct else {}
    meant = tuple(
        plain_term(each, known[each], _OF_BYTES[each])
        if each in known
        else Term(each, None, "varies", "", "", _OF_BYTES[each])
        for each in letters.split()
    )
    return Explanation(step, title, bytes_of, replace(time, terms=(*time.terms, *meant)), reader.gpus)


def _bytes(step: StepRow, lfu: bool) -> tuple[Equation, str]:
    """Equation of the bytes, in letters that the time does not have, and those letters."""
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
"""Letters of the bytes; what has no value here differs by table and row."""

UPDATE_HOST, WRITE_SSD = "update_host", "write_ssd"
_LOOK_UPS = ("cache_lookup", "ssd_lookup")


def _looked(reader: Reader, step: StepRow, asked: AskedRows) -> TimeParts:
    floor = reader.basis.constant("cache_floor_s")
    terms = (
        plain_term("u", asked.distinct, "different rows of a GPU's batch"),
        *_constants(reader, t0="cache_floor_s", c="cache_row_s"),
    )
    rest = format_time(reader.basis.constant("cache_row_s") * asked.distinct)
    working = [f"t = {format_time(floor)} + {rest} for the rows = {_whole(floor, reader, asked)}"]
    return TimeParts((Equation.of(tiers.cache_lookup_time),), terms, (*working, *_prefetched(reader, step)))


def _whole(floor: float, reader: Reader, asked: AskedRows) -> str:
    return format_time(floor + reader.basis.constant("cache_row_s") * asked.distinct)


def _crossing(reader: Reader, step: StepRow, asked: AskedRows) -> TimeParts:
    moved = asked.in_place_bytes if step.name == GATHER_HOST else asked.missed_bytes
    ratio = moved / asked.wire_bytes if asked.wire_bytes else 1.0
    value, sharers = reader.basis.setting.machine.value, reader.sharers
    link = reader.both * value("host_link_bytes_per_s") * ratio
    link *= reader.basis.constant("link_packet_fraction")
    memory = reader.both * value("host_bytes_per_s") / sharers
    slower = "the link" if link <= memory else "the host memory, shared"
    bytes_time = format_time(moved / min(link, memory))
    terms = (
        Term("x", moved, format_bytes(moved), "", "", "S: rows that cross the link, whole sectors"),
        Term("b / b_wire", ratio, f"{ratio:.3g}", "", "", "of a row, and with the headers of its packets"),
        plain_term("g", sharers, "GPUs of a node that read at once"),
        *_machine(reader, lambda_="host_latency_s", C="host_link_bytes_per_s", M="host_bytes_per_s"),
        *_constants(reader, f="link_packet_fraction", a="link_request_bytes", h="link_header_bytes"),
        *(_constants(reader, k="link_both_ways_fraction") if reader.both < 1 else ()),
    )
    both = f"R times {reader.both:.3g}, while as many rows cross the other way"
    working = (
        f"R = min({format_rate(link)}, {format_rate(memory)}): {slower}",
        *([both] if reader.both < 1 else []),
        f"t = {format_time(value('host_latency_s'))} + {bytes_time} for the bytes",
        *_prefetched(reader, step),
    )
    if step.name == GATHER_HOST:
        launch = reader.basis.setting.machine.value("launch_floor_s")
        working = (*working, f"and {format_time(launch)} for the launch of the kernel")
    return TimeParts((Equation.of(tiers.link_time), Equation.of(tiers.row_rate)), terms, working)


def _read(reader: Reader, step: StepRow, asked: AskedRows) -> TimeParts:
    value, sharers = reader.basis.setting.machine.value, reader.sharers
    queue = value("ssd_queue_depth"), value("ssd_latency_s"), value("ssd_bytes_per_s")
    reads = float(tiers.ssd_reads_per_s(value("ssd_reads_per_s"), *queue, value("ssd_block_bytes"))) / sharers
    terms = (
        plain_term("n", asked.blocks, "blocks that are read: rows that the cache has not"),
        plain_term("g", sharers, "GPUs of a node that read at once: each has 1/g of N"),
        *_machine(reader, IOPS="ssd_reads_per_s", Q="ssd_queue_depth", lambda_="ssd_latency_s"),
        *_machine(reader, rate="ssd_bytes_per_s", a="ssd_block_bytes"),
    )
    rest = format_time(asked.blocks / reads)
    working = (
        f"N = {reads:.4g} reads per second and GPU",
        f"t = {format_time(value('ssd_latency_s'))} + {rest} for the reads; rows cross the link beside them",
        *_prefetched(reader, step),
    )
    equations = Equation.of(tiers.ssd_time), Equation.of(tiers.ssd_reads_per_s)
    return TimeParts(equations, terms, working, source_of(tiers.link_time))


def _written(reader: Reader, step: StepRow) -> TimeParts:
    rate = reader.basis.setting.machine.value("ssd_write_bytes_per_s") / reader.sharers
    terms = (
        Term("x", step.payload_bytes, format_bytes(step.payload_bytes), "", "", "S: updated rows that leave"),
        plain_term("g", reader.sharers, "GPUs of a node that write at once: each has 1/g of W"),
        *_machine(reader, W="ssd_write_bytes_per_s"),
    )
    working = (
        f"W / g = {format_rate(rate)}: every row that comes takes the place of one that was updated",
        f"t = {format_time(step.payload_bytes / rate)} for the bytes",
        *_prefetched(reader, step),
    )
    return TimeParts((Equation.of(tiers.ssd_write_time),), terms, working)


def _prefetched(reader: Reader, step: StepRow) -> Iterator[str]:
    if reader.tier.prefetch:
        yield f"of it {format_time(step.time_s)} are left to wait for: the rest runs beside the other steps"


def _machine(reader: Reader, **keys: str) -> Iterator[Term]:
    for symbol, key in keys.items():
        quantity = reader.basis.setting.machine.quantity(key)
        yield quantity_term(symbol.rstrip("_"), quantity, f"{key}: {ALL_KEYS[key].meaning}")


def _constants(reader: Reader, **keys: str) -> Iterator[Term]:
    for symbol, key in keys.items():
        quantity = reader.basis.setting.constants.quantity(key)
        yield quantity_term(symbol, quantity, f"{key}: {quantity.why}")
