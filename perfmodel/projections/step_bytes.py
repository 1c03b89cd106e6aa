"""The bytes of a step of a projection: the function that computes them, asked with every letter recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from perfmodel.model import embedding_bag, exchanges, kernels
from perfmodel.model.recording import BYTES, Recorded, named
from perfmodel.passes.equations import Equation
from perfmodel.passes.explanation import Payload
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.recorded_words import recorded_quantity, recorded_terms, working_lines
from perfmodel.passes.steps import CONVERT_IN, CONVERT_OUT, STEPS, StepRow
from perfmodel.passes.terms import Term
from perfmodel.projections.costs import SPARSE
from perfmodel.projections.projection import Projection
from perfmodel.units import format_bytes

Law = tuple[Callable[..., object], tuple[str, ...]]
_LAWS: dict[str, Law] = {
    "bucketize": (embedding_bag.bucketize_bytes, ("B T L", "id_bytes", "G", "B T", "length_bytes")),
    "all_to_all_splits": (embedding_bag.splits_bytes, ("G", "fields", "value_bytes")),
    "all_to_all_lengths": (embedding_bag.lengths_bytes, ("G", "B T", "length_bytes")),
    "all_to_all_ids": (embedding_bag.ids_bytes, ("B T L", "id_bytes")),
    "local_sum": (embedding_bag.local_sum_bytes, ("G", "B T D", "w")),
}
_BAGS: Law = (embedding_bag.partial_bags_bytes, ("G", "B T D", "w"))
_SPARSE_BYTES = {"all_to_all_sparse_bags": "(B T) m (D w + i)", "local_sum": "(B T) (m (D w + i) + D w)"}
_CONVERT_BYTES = "(B T D) (v + w)"  # of whole bags; of partial ones as many times G, or m of them
_PARTIAL = "bytes of an element of a partial bag"
_SUMS = ("B T", "B T L", "B T D")


def payload_of(answer: Projection, step: StepRow, like: str) -> Payload:
    """Equation, letters and working of a step's bytes. like  as ``Payload`` has it"""
    letters = _Letters(answer, step)
    equation, number = letters.bytes()
    size = Term("S", step.payload_bytes, format_bytes(step.payload_bytes), "", "", LETTERS["S"].meaning)
    ranks = Term("G", answer.gpus, str(answer.gpus), "", "", f"GPUs: {answer.gpu_count}")
    first = {"S": size, "G": ranks}
    made = (*recorded_terms(number), *letters.beside())
    terms = first | {term.symbol: term for term in made if term.symbol not in first}
    return Payload(equation, tuple(terms.values()), tuple(working_lines(number)), like=like)


class _Letters:
    """The letters of one step's bytes, recorded."""

    def __init__(self, answer: Projection, step: StepRow) -> None:
        self.answer, self.step = answer, step
        self.sparse = answer.forward.reduction == SPARSE

    def bytes(self) -> tuple[Equation, Recorded]:
        """Their equation with the function that computes them, and the number."""
        name, letter = self.step.name, self.letter
        if name == "gather_pool":
            law: Law = (kernels.gather_bytes, ("n", "r", "id", "bags", "o"))
        elif self.sparse and name in _SPARSE_BYTES:
            bags, elements, w = letter("B T"), letter("B T D"), letter("w")
            made = letter("m") * exchanges.bag_bytes(elements, w, bags * letter("i"))
            made = made if self.step.collective else made + elements * w
            return Equation.of(exchanges.bag_bytes, _SPARSE_BYTES[name]), named("S", made, "")
        elif name in (CONVERT_OUT, CONVERT_IN):
            whose = ("m" if self.sparse else "G") if self.partial else ""
            many = letter(whose) if whose else 1
            made = exchanges.convert_bytes(many, letter("B T D"), letter("v"), letter("w"))
            text = f"{whose} {_CONVERT_BYTES}".strip()
            return Equation.of(exchanges.convert_bytes, text), named("S", made, "")
        else:
            law = _LAWS.get(name, _BAGS)
        function, names = law
        made, equation = function(*map(letter, names)), Equation.of(function)
        if name == "reduce_scatter_across":
            made, equation = made / letter("g_in"), Equation.of(function, "G (B T D) w / g_in")
        return equation, named("S", made, "")

    def letter(self, symbol: str) -> Recorded:
        """One of ``passes.letters.LETTERS``, with its value here."""
        forward, constants = self.answer.forward, self.answer.setting.constants
        if symbol in _SUMS:
            return self._product(symbol)
        if symbol in self._gather:
            return self._gather[symbol]
        if symbol == "v" or (symbol == "w" and self.step.collective and forward.payload is not None):
            words = f"bytes of an element on the wire: {forward.payload}"
            return Recorded(forward.sent_element_bytes, BYTES, symbol=symbol, meaning=words)
        known = LETTERS[symbol]
        if known.key:
            meaning = _PARTIAL if symbol == "w" else known.meaning
            return recorded_quantity(symbol, constants.quantity(known.key), meaning)
        values: dict[str, Callable[[], float]] = {
            "G": lambda: float(self.answer.gpus),
            "g_in": lambda: float(forward.domain(self.answer.work.gpus)[0]),
            "id_bytes": lambda: float(self.answer.work.id_bytes[0]),
            "m": self._touched,
        }
        unit = BYTES if known.unit == "B" else (0, 0)
        return Recorded(values[symbol](), unit, symbol=symbol, meaning=known.meaning)

    def beside(self) -> Iterator[Term]:
        """Letters that the time of a gather has, and not its bytes."""
        if self.step.name == "gather_pool":
            for symbol in ("dram_bytes", "l2_bytes"):
                yield from recorded_terms(self._gather[symbol])

    @property
    def partial(self) -> bool:
        """Whether a conversion is of partial bags: before they are summed."""
        return self.step.name == CONVERT_OUT or any(each.name == "local_sum" for each in self.answer.steps)

    def _product(self, symbols: str) -> Recorded:
        """The letters of equal tables, multiplied; their sum where tables differ."""
        groups = self.answer.work.groups
        if len(groups) > 1:
            return Recorded(self._total(symbols), symbol=symbols, meaning=LETTERS[symbols].meaning)
        only = groups[0]
        values = {"B": self.answer.work.batch, "T": only.count, "L": only.pooling, "D": only.dim}
        first, *others = (
            Recorded(float(values[each].flat[0]), symbol=each, meaning=LETTERS[each].meaning)
            for each in symbols.split()
        )
        for other in others:
            first = first * other
        return first

    def _total(self, symbols: str) -> float:
        """The same product of each table that is cut, added up."""
        work, total = self.answer.work, 0.0
        for t in work.groups:
            of = {"B": work.batch, "T": t.count, "L": t.pooling, "D": t.dim, "G": t.rows >= work.gpus}
            total += math.prod(float(np.asarray(of[each]).flat[0]) for each in (*symbols.split(), "G"))
        return total

    def _touched(self) -> float:
        """m: shards that hold a row of a bag, weighted as the bytes of the step are where tables differ."""
        forward, size = self.answer.forward, self.step.payload_bytes
        bags, elements = self._total("B T"), self._total("B T D")
        sent, pooled = forward.sent_element_bytes, forward.constant("pooled_element_bytes")
        if self.step.name in (CONVERT_OUT, CONVERT_IN):
            return size / float(exchanges.convert_bytes(1, elements, sent, pooled))
        index = forward.constant(LETTERS["i"].key)
        if self.step.collective:
            return size / (elements * sent + bags * index)
        return (size - elements * pooled) / (elements * pooled + bags * index)

    @cached_property
    def _gather(self) -> dict[str, Recorded]:
        """The letters of the bytes that a gather moves; none of any other step."""
        if self.step.name != "gather_pool":
            return {}
        forward, work = self.answer.forward, self.answer.work
        most = self.answer.loads.most
        dram, passed = (float(most[0, each]) for each in STEPS["gather_pool"].resources)
        lookups = sum(float((work.batch * t.count * t.pooling).flat[0]) for t in work.groups)
        cuts = list(forward.cuts(work, forward.kinds(work)))
        written = sum(float((count * cut.bags).sum()) for cut, count in cuts)
        pooled = sum(float((count * cut.bags * cut.D).sum()) for cut, count in cuts)
        width = pooled / written * forward.constant("pooled_element_bytes") + forward.constant("offset_bytes")
        width *= forward.setting.machine.value("bag_factor")
        ids = float(work.id_bytes[0])
        whose = "those that are not empty" if self.sparse else "one for each sample of every GPU"
        rows = (
            ("n", lookups, "rows looked up by this GPU, for everybody's samples"),
            (
                "r",
                (dram - written * width) / lookups - ids,
                "bytes of one of them: sectors, row_access_bytes at least, less L2 hits",
            ),
            ("bags", written, f"partial bags written, {whose}"),
            ("id", ids, "bytes of an id"),
            ("o", width, "bytes of a partial bag and its offset, times bag_factor"),
            ("dram_bytes", dram, "S: what misses the L2 cache"),
            ("l2_bytes", passed, "all that passes the L2 cache"),
        )
        counts = ("n", "bags")
        return {
            symbol: Recorded(value, (0, 0) if symbol in counts else BYTES, symbol=symbol, meaning=meaning)
            for symbol, value, meaning in rows
        }
