"""The symbols of an explanation: every letter of an equation with its value, unit, source and meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.model import embedding_bag, kernels
from perfmodel.passes.steps import StepRow
from perfmodel.project.costs import CONVERT_IN, CONVERT_OUT, SPARSE
from perfmodel.project.projection import Projection
from perfmodel.schema.machine import KEYS, Quantity
from perfmodel.units import format_amount, format_bytes, format_quantity


@dataclass(frozen=True)
class Term:
    """One number of an equation."""

    symbol: str
    value: float
    text: str  # the value with its unit, as people write it
    source: str
    evidence: str
    meaning: str


_PAYLOADS: dict[str, Callable[..., object]] = {
    "bucketize": embedding_bag.bucketize_bytes,
    "all_to_all_splits": embedding_bag.splits_bytes,
    "all_to_all_lengths": embedding_bag.lengths_bytes,
    "all_to_all_ids": embedding_bag.ids_bytes,
    "gather_pool": kernels.gather_bytes,
    "local_sum": embedding_bag.local_sum_bytes,
}
_SYMBOLS = {
    "bucketize": ("B T", "B T L", "id_bytes", "length_bytes"),
    "all_to_all_splits": ("fields", "value_bytes"),
    "all_to_all_lengths": ("B T", "length_bytes"),
    "all_to_all_ids": ("B T L", "id_bytes"),
    "local_sum": ("B T D", "w"),
}
_SPARSE_BYTES = {"all_to_all_bags": "(B T) m (D w + i)", "local_sum": "(B T) (m (D w + i) + D w)"}
_ACROSS_BYTES = "G (B T D) w / g"
_CONVERT_BYTES = "(B T D) (v + w)"  # of whole bags; of partial ones as many times G, or m of them
_CONSTANTS = {
    "fields": ("splits_per_peer", "numbers that each peer is told"),
    "value_bytes": ("split_bytes", "bytes of one of them"),
    "length_bytes": ("length_bytes", "bytes of the length of a bag"),
    "w": ("pooled_element_bytes", "bytes of an element of a partial bag"),
    "i": ("sparse_bag_index_bytes", "bytes of the position of a bag"),
}
_LETTERS = {"B": "samples of one GPU", "T": "tables", "L": "rows summed per bag", "D": "elements of a row"}
_SUMS = {"B T": "bags", "B T L": "lookups", "B T D": "elements"}
_SUM_MEANINGS = {
    "B T": "bags of one GPU's samples, all tables together",
    "B T L": "ids of one GPU's samples, all tables together",
    "B T D": "elements of those bags, all tables together",
}
_KERNEL_KEYS = {
    "bucketize": {"t0": "bucketize_floor_s", "rate": "bucketize_bytes_per_s"},
    "gather_pool": {
        "t0": "launch_floor_s",
        "dram_rate": "gather_bytes_per_s",
        "l2_rate": "l2_bytes_per_s",
        "sector": "sector_bytes",
        "phi, D <= 32": "small_row_penalty_32",
        "phi, D <= 64": "small_row_penalty_64",
    },
    "local_sum": {"t0": "launch_floor_s", "rate": "local_sum_bytes_per_s"},
}


def payload_equation(answer: Projection, step: StepRow, of: Callable[[Callable[..., object]], str]) -> str:
    """The bytes of a step as an equation; ``of`` reads one from a docstring."""
    sparse = answer.forward.reduction == SPARSE
    if sparse and step.name in _SPARSE_BYTES:
        return _SPARSE_BYTES[step.name]
    if step.name in (CONVERT_OUT, CONVERT_IN):
        return f"{'m' if sparse else 'G'} {_CONVERT_BYTES}" if _partial(answer, step) else _CONVERT_BYTES
    if step.name == "reduce_scatter_across":
        return _ACROSS_BYTES
    return of(_PAYLOADS.get(step.name, embedding_bag.partial_bags_bytes))


def payload_terms(answer: Projection, step: StepRow) -> Iterator[Term]:
    """S, G, and every symbol of the bytes of a step."""
    size = format_bytes(step.payload_bytes)
    yield Term("S", step.payload_bytes, size, "", "", "bytes of one GPU in this step")
    yield Term("G", answer.gpus, str(answer.gpus), "", "", f"GPUs: {answer.gpu_count}")
    if step.name == "gather_pool":
        yield from _gather(answer)
        return
    symbols = _SYMBOLS.get(step.name, ("B T D", "w"))
    if answer.forward.reduction == SPARSE and step.name in _SPARSE_BYTES:
        symbols = ("B T D", "w", "m", "i")
    if step.name in (CONVERT_OUT, CONVERT_IN):
        sparse = answer.forward.reduction == SPARSE and _partial(answer, step)
        symbols = ("B T D", "v", "w", *(["m"] if sparse else []))
    yield from _workload(answer, [symbol for symbol in symbols if symbol in _SUMS])
    for symbol in symbols:
        if symbol == "v" or (symbol == "w" and step.collective and answer.forward.payload is not None):
            sent = answer.forward.sent_element_bytes
            yield _plain(symbol, sent, f"bytes of an element on the wire: {answer.forward.payload}")
        elif symbol in _CONSTANTS:
            key, meaning = _CONSTANTS[symbol]
            yield from _quantity(symbol, answer.setting.constants.quantity(key), meaning)
        elif symbol == "id_bytes":
            yield _plain("id_bytes", float(answer.work.id_bytes[0]), "bytes of an id")
        elif symbol == "m":
            yield _plain("m", _touched(answer, step), "shards with a row of a bag, on average")


def _partial(answer: Projection, step: StepRow) -> bool:
    """Whether a conversion is of partial bags: before they are summed."""
    return step.name == CONVERT_OUT or any(other.name == "local_sum" for other in answer.steps)


def _touched(answer: Projection, step: StepRow) -> float:
    """m: shards that hold a row of a bag, weighted as the bytes of the step are where tables differ."""
    forward, traffic = answer.forward, answer.forward.traffic(answer.work)
    bags, elements = float(traffic.bags[0]), float(traffic.elements[0])
    if step.name in (CONVERT_OUT, CONVERT_IN):
        return float(traffic.sparse_elements[0]) / elements
    pooled, index = forward.constant("pooled_element_bytes"), forward.constant(_CONSTANTS["i"][0])
    if step.collective:
        width, size = forward.sent_element_bytes, float(traffic.sparse_bytes[0])
    else:
        width, size = pooled, float(traffic.sparse_sum_bytes[0]) - elements * pooled
    return size / (elements * width + bags * index)


def _workload(answer: Projection, products: list[str]) -> Iterator[Term]:
    """The letters of equal tables; their sums where tables differ."""
    groups = answer.work.groups
    if len(groups) == 1:
        only = groups[0]
        values = {"B": answer.work.batch, "T": only.count, "L": only.pooling, "D": only.dim}
        for letter in dict.fromkeys(" ".join(products).split()):
            yield _plain(letter, float(values[letter].flat[0]), _LETTERS[letter])
        return
    traffic = answer.forward.traffic(answer.work)
    for product in products:
        yield _plain(product, float(getattr(traffic, _SUMS[product])[0]), _SUM_MEANINGS[product])


def _gather(answer: Projection) -> Iterator[Term]:
    """The symbols of the bytes that a gather moves."""
    forward, work = answer.forward, answer.work
    traffic = forward.traffic(work)
    lookups = sum(float((work.batch * t.count * t.pooling).flat[0]) for t in work.groups)
    written, pooled, sparse = 0.0, 0.0, forward.reduction == SPARSE
    for t in work.groups:
        shards = float(answer.gpus) if float(t.rows.flat[0]) >= answer.gpus else 1.0
        touched = float(forward.touched(work, t, np.asarray(shards)).flat[0]) if sparse else shards
        bags = float((work.batch * t.count).flat[0]) * touched
        written, pooled = written + bags, pooled + bags * float(t.dim.flat[0])
    width = pooled / written * forward.constant("pooled_element_bytes") + forward.constant("offset_bytes")
    ids = float(work.id_bytes[0])
    row = (float(traffic.dram_bytes[0]) - written * width) / lookups - ids
    yield _plain("n", lookups, "rows looked up by this GPU, for everybody's samples")
    yield Term("r", row, f"{row:.4g} B", "", "", "bytes of one of them: sectors, times phi, less L2 hits")
    whose = "those that are not empty" if sparse else "one for each sample of every GPU"
    yield _plain("bags", written, f"partial bags written, {whose}")
    yield _plain("id", ids, "bytes of an id")
    yield Term("o", width, f"{width:.4g} B", "", "", "bytes of a partial bag and its offset")
    hits, misses = format_bytes(float(traffic.l2_bytes[0])), format_bytes(float(traffic.dram_bytes[0]))
    yield Term("dram_bytes", float(traffic.dram_bytes[0]), misses, "", "", "S: what misses the L2 cache")
    yield Term("l2_bytes", float(traffic.l2_bytes[0]), hits, "", "", "all that passes the L2 cache")


def kernel_terms(answer: Projection, step: StepRow) -> Iterator[Term]:
    """The machine's constants in the time of a kernel."""
    if step.name != "gather_pool":
        size = format_bytes(step.payload_bytes)
        yield Term("x", step.payload_bytes, size, "", "", "S: bytes that the kernel moves")
    for symbol, key in _KERNEL_KEYS[step.name].items():
        quantity = answer.setting.machine.quantity(key)
        (term,) = _quantity(symbol, quantity, f"{key}: {KEYS[key].meaning}")
        yield replace(term, text=f"{term.text}{_interval_words(answer, key, quantity)}")


def _interval_words(answer: Projection, key: str, quantity: Quantity) -> str:
    """The interval of a constant that a calibration has fitted; nothing for any other."""
    fitted = answer.setting.kernels
    interval = fitted.values.get(key) if fitted is not None else None
    if interval is None or interval.value != quantity.value:
        return ""
    if not interval.known:
        return " (unknown: the samples do not tell it)"
    low, high = (format_quantity(value, quantity.unit) for value in (interval.low, interval.high))
    return f" ({low} – {high})"


def _quantity(symbol: str, quantity: Quantity, meaning: str) -> Iterator[Term]:
    text = format_quantity(quantity.value, quantity.unit)
    yield Term(symbol, quantity.value, text, quantity.source, str(quantity.evidence), meaning)


def _plain(symbol: str, value: float, meaning: str) -> Term:
    text = format_amount(value)
    return Term(symbol, value, text, "", "", meaning)
