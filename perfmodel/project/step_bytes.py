"""The bytes of a step of a projection: their equation, and every letter of it with its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from perfmodel.model import embedding_bag, exchanges, kernels
from perfmodel.passes.equations import Equation
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.steps import StepRow
from perfmodel.passes.terms import Term, plain_term, quantity_term
from perfmodel.project.costs import CONVERT_IN, CONVERT_OUT, SPARSE, Forward
from perfmodel.project.projection import Projection
from perfmodel.units import format_bytes

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
_PARTIAL = "bytes of an element of a partial bag"
_SUMS = {"B T": "bags", "B T L": "lookups", "B T D": "elements"}


def payload_equation(answer: Projection, step: StepRow) -> Equation:
    """The bytes of a step as an equation, with the function that computes them."""
    sparse = answer.forward.reduction == SPARSE
    if sparse and step.name in _SPARSE_BYTES:
        return Equation.of(Forward.traffic, _SPARSE_BYTES[step.name])
    if step.name in (CONVERT_OUT, CONVERT_IN):
        whose = f"{'m' if sparse else 'G'} " if _partial(answer, step) else ""
        return Equation.of(exchanges.convert_bytes, whose + _CONVERT_BYTES)
    if step.name == "reduce_scatter_across":
        return Equation.of(embedding_bag.partial_bags_bytes, _ACROSS_BYTES)
    return Equation.of(_PAYLOADS.get(step.name, embedding_bag.partial_bags_bytes))


def payload_terms(answer: Projection, step: StepRow) -> Iterator[Term]:
    """S, G, and every symbol of the bytes of a step."""
    size = format_bytes(step.payload_bytes)
    yield Term("S", step.payload_bytes, size, "", "", LETTERS["S"].meaning)
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
            yield plain_term(symbol, sent, f"bytes of an element on the wire: {answer.forward.payload}")
        elif symbol in LETTERS and LETTERS[symbol].key:
            letter = LETTERS[symbol]
            meaning = _PARTIAL if symbol == "w" else letter.meaning
            yield quantity_term(symbol, answer.setting.constants.quantity(letter.key), meaning)
        elif symbol == "id_bytes":
            yield plain_term("id_bytes", float(answer.work.id_bytes[0]))
        elif symbol == "m":
            yield plain_term("m", _touched(answer, step))


def _partial(answer: Projection, step: StepRow) -> bool:
    """Whether a conversion is of partial bags: before they are summed."""
    return step.name == CONVERT_OUT or any(other.name == "local_sum" for other in answer.steps)


def _touched(answer: Projection, step: StepRow) -> float:
    """m: shards that hold a row of a bag, weighted as the bytes of the step are where tables differ."""
    forward, traffic = answer.forward, answer.forward.traffic(answer.work)
    bags, elements = float(traffic.bags[0]), float(traffic.elements[0])
    if step.name in (CONVERT_OUT, CONVERT_IN):
        return float(traffic.sparse_elements[0]) / elements
    pooled, index = forward.constant("pooled_element_bytes"), forward.constant(LETTERS["i"].key)
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
            yield plain_term(letter, float(values[letter].flat[0]))
        return
    traffic = answer.forward.traffic(answer.work)
    for product in products:
        yield plain_term(product, float(getattr(traffic, _SUMS[product])[0]))


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
    yield plain_term("n", lookups, "rows looked up by this GPU, for everybody's samples")
    yield Term("r", row, f"{row:.4g} B", "", "", "bytes of one of them: sectors, times phi, less L2 hits")
    whose = "those that are not empty" if sparse else "one for each sample of every GPU"
    yield plain_term("bags", written, f"partial bags written, {whose}")
    yield plain_term("id", ids, "bytes of an id")
    yield Term("o", width, f"{width:.4g} B", "", "", "bytes of a partial bag and its offset")
    hits, misses = format_bytes(float(traffic.l2_bytes[0])), format_bytes(float(traffic.dram_bytes[0]))
    yield Term("dram_bytes", float(traffic.dram_bytes[0]), misses, "", "", "S: what misses the L2 cache")
    yield Term("l2_bytes", float(traffic.l2_bytes[0]), hits, "", "", "all that passes the L2 cache")
