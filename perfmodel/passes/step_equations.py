"""Bytes of a step of a plan, of one shard or of one table on every rank: laws evaluated by letter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model import kernels, messages
from perfmodel.model.recording import Number, Recorded, named
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.recorded_words import letters_text
from perfmodel.passes.step_resources import WHOLE, Resource
from perfmodel.passes.steps import FORWARD, WEIGHTS, Step

_R = Resource
Ask = Callable[[str], Number]
"""Returns the number that a letter stands for."""

EVERY_RANK = {
    _R.BUCKETIZE, _R.LENGTHS_SENT, _R.IDS_SENT, _R.DEDUPLICATE, _R.REQUESTS_SENT, _R.ROWS_RECEIVED,
    _R.POOL_DRAM, _R.ACROSS_RECEIVED, _R.BAGS_RECEIVED, _R.SPARSE_RECEIVED, _R.CONVERT_IN, _R.LOCAL_SUM,
    _R.ACCUMULATE_DRAM, _R.ROW_GRADIENTS_SENT, _R.COPIED_GRADIENTS, _R.WEIGHTS_SENT,
}  # fmt: skip
"""Resources that every rank has for its own samples."""
BY_DOMAIN = (_R.ACROSS_RECEIVED, _R.CONVERT_IN, _R.LOCAL_SUM)
"""Resources that a rank has once for each domain that holds row parts."""
ROWS_OF_ASKING = (_R.ROWS_RECEIVED, _R.ROW_GRADIENTS_SENT)
"""Rows that come to the rank that asked for them, and their gradients that leave it: U D of each."""
GATHERS = (_R.GATHER_DRAM, _R.POOL_DRAM, _R.UPDATE_DRAM, _R.ACCUMULATE_DRAM)
_SHOWN = (
    *("G", "B", "L", "D", "U", "domains", "parts", "columns", "q", "elements", "v", "w", "id_bytes"),
    *("index_bytes", "holders", "copies", "bag", "received", "fields", "value_bytes", "length_bytes"),
    *("digits", "place_bytes", "state", "feature_bytes"),
)
GATHERED = {
    "n": "rows looked up by this GPU: of a shard for everybody's samples",
    "r": "bytes of one of them that miss the L2 cache: sectors, row_access_bytes at least",
    "id": "bytes of an id, with its weight where it has one",
    "bags": "bags, or parts of bags, written; of unique rows the rows",
    "o": "bytes of one of them, times bag_factor",
    "n_g": "look-ups whose gradients this GPU reads",
    "r_g": "bytes of the gradient of one of them that miss the L2 cache: sectors, row_access_bytes at least",
    "touched": "rows updated: the different ones among these look-ups; of a copy all rows",
    "row_state": "bytes of the optimizer's state of a row beside that of its elements",
    "copied": "bytes of the gradient of a row of a copy, written and read",
}
MEANINGS = {**{letter: LETTERS[letter].meaning for letter in _SHOWN}, **GATHERED}
"""Meaning of each letter in the equations of bytes."""


@dataclass(frozen=True)
class Bytes:
    """The bytes of a step as a law: of one shard, or of one table on every rank.

    law    the function of ``perfmodel.model`` that computes the bytes; an explanation refers to it
    asked  calls the law: it takes an ``Ask``, which returns the number behind each letter, and returns bytes
    """

    law: Callable[..., Any]
    asked: Callable[[Ask], Number]

    @staticmethod
    def of(law: Callable[..., Any], letters: str) -> Bytes:
        """The bytes by ``law``; its arguments are the values of ``letters``, for example "G B"."""
        return Bytes(law, lambda x: law(*map(x, letters.split())))

    @property
    def text(self) -> str:
        """The equation as text."""
        return letters_text(self.asked(lambda letter: Recorded(1.0, symbol=letter)))


def _lengths(x: Ask) -> Number:
    return messages.routed_lengths_bytes(x("holders"), x("B"), x("length_bytes"))


def _ids(x: Ask) -> Number:
    return messages.routed_ids_bytes(x("copies"), x("B") * x("L"), x("id_bytes"))


def _looked_up(x: Ask) -> Number:
    return ex.shard_lookups(x("G"), x("B"), x("L"), x("parts")) * x("id_bytes")


def _requested(x: Ask) -> Number:
    return ex.requested_rows(x("G"), x("U"), x("parts"))


def _request(x: Ask) -> Number:
    return x("id_bytes") + x("feature_bytes")


def _bags_sent(x: Ask) -> Number:
    bag = ex.bag_bytes(x("elements"), x("v"), x("index_bytes"))
    return ex.bags_sent_bytes(x("G"), x("B"), x("q"), named("bag", bag, "bytes of one bag that is sent"))


def _sorted(x: Ask, lookups: Number) -> Number:
    return ex.sort_bytes(lookups, *map(x, ("digits", "id_bytes", "place_bytes")))


def _summed(x: Ask) -> Number:
    letters = "B parts q D w columns index_bytes"
    received = ex.bags_received_bytes(*map(x, letters.split()))
    return ex.bag_sum_bytes(x("B"), named("received", received, LETTERS["received"].meaning), x("D"), x("w"))


def _updated(x: Ask) -> Number:
    row = ex.update_row_bytes(x("elements"), x("w"), x("state"), x("row_state")) + x("copied")
    moved = named("o", row, "of the update of a row: it and its optimizer's state, read and written")
    return kernels.gather_bytes(x("n_g"), x("r_g"), x("id"), x("touched"), moved)


def _accumulated(x: Ask) -> Number:
    return kernels.gather_bytes(x("n_g"), x("r_g"), x("id"), x("U"), x("D") * x("w"))


_GATHER = Bytes.of(kernels.gather_bytes, "n r id bags o")
_IDS, _LENGTHS = Bytes(messages.routed_ids_bytes, _ids), Bytes(messages.routed_lengths_bytes, _lengths)
_LOOKED_UP = Bytes(ex.shard_lookups, _looked_up)
_BAGS = Bytes(ex.bags_sent_bytes, _bags_sent)
_CAME = Bytes.of(ex.bags_received_bytes, "B parts q D v columns index_bytes")
_ACROSS = Bytes.of(ex.across_bytes, "B domains elements v")
SPLITS = Bytes.of(eb.splits_bytes, "G fields value_bytes")
"""Bytes of the sizes that peers send each other before an exchange."""
_BYTES = {
    _R.BUCKETIZE: Bytes(eb.bucketize_bytes, lambda x: _ids(x) + _lengths(x)),
    _R.LENGTHS_SENT: _LENGTHS,
    _R.LENGTHS_RECEIVED: Bytes.of(ex.holder_lengths_bytes, "G B length_bytes"),
    _R.IDS_SENT: _IDS,
    _R.IDS_RECEIVED: _LOOKED_UP,
    _R.WEIGHTS_SENT: _IDS,
    _R.WEIGHTS_RECEIVED: _LOOKED_UP,
    _R.DEDUPLICATE: Bytes(ex.sort_bytes, lambda x: _sorted(x, x("B") * x("L"))),
    _R.REQUESTS_SENT: Bytes(
        ex.row_request_bytes, lambda x: ex.row_request_bytes(x("U"), x("columns"), _request(x))
    ),
    _R.REQUESTS_RECEIVED: Bytes(ex.requested_rows, lambda x: _requested(x) * _request(x)),
    _R.DEDUPLICATE_REQUESTS: Bytes(ex.sort_bytes, lambda x: _sorted(x, _requested(x))),
    _R.GATHER_DRAM: _GATHER,
    _R.POOL_DRAM: _GATHER,
    _R.ROWS_SENT: Bytes(ex.requested_rows, lambda x: _requested(x) * x("elements") * x("w")),
    _R.ROWS_RECEIVED: Bytes(ex.requested_rows, lambda x: x("U") * x("D") * x("w")),
    _R.REDUCE_SCATTER: _BAGS,
    _R.REDUCE_INSIDE: _BAGS,
    _R.REDUCE_ACROSS: _ACROSS,
    _R.ACROSS_SENT: _ACROSS,
    _R.ACROSS_RECEIVED: _CAME,
    _R.BAGS_SENT: _BAGS,
    _R.BAGS_RECEIVED: _CAME,
    _R.SPARSE_SENT: _BAGS,
    _R.SPARSE_RECEIVED: _CAME,
    _R.CONVERT_OUT: Bytes(
        ex.convert_bytes, lambda x: ex.convert_bytes(x("G") * x("B") * x("q"), x("elements"), x("v"), x("w"))
    ),
    _R.CONVERT_IN: Bytes(
        ex.convert_bytes, lambda x: ex.convert_bytes(x("B") * x("parts") * x("q"), x("D"), x("v"), x("w"))
    ),
    _R.LOCAL_SUM: Bytes(ex.bag_sum_bytes, _summed),
    _R.SORT: Bytes(ex.sort_bytes, lambda x: _sorted(x, x("lookups"))),
    _R.UPDATE_DRAM: Bytes(kernels.gather_bytes, _updated),
    _R.ACCUMULATE_DRAM: Bytes(kernels.gather_bytes, _accumulated),
    _R.ROW_GRADIENTS_SENT: Bytes(ex.requested_rows, lambda x: x("U") * x("D") * x("v")),
    _R.ROW_GRADIENTS_RECEIVED: Bytes(ex.requested_rows, lambda x: _requested(x) * x("elements") * x("v")),
    _R.COPIED_GRADIENTS: Bytes.of(ex.copied_gradient_bytes, "E D w"),
}


def whole_of(resource: Resource) -> Resource:
    """Resource of all tables together that corresponds to a resource of one sharding type."""
    return WHOLE.get(resource, resource)


def bytes_of(resource: Resource) -> Bytes:
    """Bytes of a resource, of one shard or of one table on every rank."""
    return _BYTES[whole_of(resource)]


def bytes_equation(step: Step) -> str:
    """Equation of the bytes in a step, of a shard or of a table on every rank, in letters of ``MEANINGS``.

    Limits: a gather -> the bytes that miss the L2;  an exchange of splits -> the bytes of one exchange;
            a step that no forward pass has -> ""
    """
    if step.splits:
        return SPLITS.text
    forward = {resource for each in (*FORWARD, WEIGHTS) for resource in each.resources}
    known = [whole_of(resource) for resource in step.resources]
    both = [resource for resource in known if resource in _BYTES and resource in forward]
    return " or ".join(dict.fromkeys(_BYTES[resource].text for resource in both))
