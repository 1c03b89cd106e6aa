"""The bytes of a step of a plan as equations: of one shard, or of one table on every rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model import kernels, messages
from perfmodel.passes.equations import Equation, equation_of
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.step_resources import WHOLE, Resource
from perfmodel.passes.steps import FORWARD, WEIGHTS, Step
from perfmodel.plan.pricing.loads import LoadModel

_R = Resource
Side = tuple[Equation, str]
"""Equation, and the symbols in it."""

_NAMES = {
    "r": "parts",
    "c": "columns",
    "N": "domains",
}  # letters that mean something else in a collective's law
EVERY_RANK = {
    _R.BUCKETIZE, _R.LENGTHS_SENT, _R.IDS_SENT, _R.DEDUPLICATE, _R.REQUESTS_SENT, _R.ROWS_RECEIVED,
    _R.POOL_DRAM, _R.ACROSS_RECEIVED, _R.BAGS_RECEIVED, _R.SPARSE_RECEIVED, _R.CONVERT_IN, _R.LOCAL_SUM,
    _R.ACCUMULATE_DRAM, _R.ROW_GRADIENTS_SENT, _R.COPIED_GRADIENTS, _R.WEIGHTS_SENT,
}  # fmt: skip
"""What every rank has, for its own samples."""
BY_DOMAIN = (_R.ACROSS_RECEIVED, _R.CONVERT_IN, _R.LOCAL_SUM)
"""What a rank has once for each domain that holds row parts."""
GATHERS = (_R.GATHER_DRAM, _R.POOL_DRAM, _R.UPDATE_DRAM, _R.ACCUMULATE_DRAM)
_OTHERWISE = {"T": "of this table alone"}
_SHOWN = (
    *("G", "B", "T", "L", "D", "U", "domains", "parts", "columns", "q", "elements", "v", "w", "id_bytes"),
    *("index_bytes", "holders", "copies", "bag", "received"),
)
MEANINGS = {letter: _OTHERWISE.get(letter, LETTERS[letter].meaning) for letter in _SHOWN}
"""What a letter of the equations of bytes means."""


def _of(function: Callable[..., Any], symbols: str, factor: str = "") -> Side:
    """The equation of a docstring without its unit, times a factor."""
    text = re.sub(r" *\[\w+\]$", "", equation_of(function))
    if function is not kernels.gather_bytes:
        text = re.sub(r"\b[rcN]\b", lambda letter: _NAMES[letter.group()], text)
    return Equation.of(function, f"({text}) {factor}" if factor else text), symbols


def side(resource: Resource) -> Side:
    """Equation and symbols of the bytes of one shard, or of one table on every rank."""
    return _sides()[resource]


@lru_cache(maxsize=1)
def _sides() -> dict[Resource, Side]:
    sent = "G B q elements v index_bytes bag"
    received = "B parts q D v columns index_bytes"
    bags = _of(ex.bags_sent_bytes, sent)
    came = _of(ex.bags_received_bytes, received)
    gather = _of(kernels.gather_bytes, "n r id bags o")
    ids = _of(messages.routed_ids_bytes, "copies B T L id_bytes")
    lengths = _of(messages.routed_lengths_bytes, "holders B T length_bytes")
    convert = _of(ex.convert_bytes, "")[0].text
    both = Equation.of(eb.bucketize_bytes, f"{ids[0].text} + {lengths[0].text}")
    out, back = convert.replace("bags", "G B q"), convert.replace("bags elements", "B parts q D")
    loads = LoadModel.shard_loads
    return {
        _R.BUCKETIZE: (both, f"{ids[1]} {lengths[1]}"),
        _R.LENGTHS_SENT: lengths,
        _R.LENGTHS_RECEIVED: _of(ex.holder_lengths_bytes, "G B length_bytes"),
        _R.IDS_SENT: ids,
        _R.IDS_RECEIVED: _of(ex.shard_lookups, "G B L parts id_bytes", "id_bytes"),
        _R.WEIGHTS_SENT: ids,
        _R.WEIGHTS_RECEIVED: _of(ex.shard_lookups, "G B L parts id_bytes", "id_bytes"),
        _R.DEDUPLICATE: _of(ex.deduplicated_bytes, "B L U id_bytes"),
        _R.REQUESTS_SENT: _of(ex.row_request_bytes, "columns U id_bytes"),
        _R.REQUESTS_RECEIVED: _of(ex.requested_rows, "G U parts id_bytes", "id_bytes"),
        _R.GATHER_DRAM: gather,
        _R.POOL_DRAM: gather,
        _R.ROWS_SENT: _of(ex.requested_rows, "G U parts elements w", "elements w"),
        _R.ROWS_RECEIVED: (Equation.of(loads, "U D w"), "U D w"),
        _R.REDUCE_SCATTER: bags,
        _R.REDUCE_INSIDE: bags,
        _R.REDUCE_ACROSS: _of(ex.across_bytes, "domains B elements v"),
        _R.ACROSS_SENT: _of(ex.across_bytes, "domains B elements v"),
        _R.ACROSS_RECEIVED: came,
        _R.BAGS_SENT: bags,
        _R.BAGS_RECEIVED: came,
        _R.SPARSE_SENT: bags,
        _R.SPARSE_RECEIVED: came,
        _R.CONVERT_OUT: (Equation.of(ex.convert_bytes, out), "G B q elements v w"),
        _R.CONVERT_IN: (Equation.of(ex.convert_bytes, back), "B parts q D v w"),
        _R.LOCAL_SUM: _of(ex.bag_sum_bytes, "received B D w"),
        _R.SORT: (Equation.of(ex.deduplicated_bytes, "(lookups + touched) id_bytes"), _SORTED),
        _R.UPDATE_DRAM: gather,
        _R.ACCUMULATE_DRAM: gather,
        _R.ROW_GRADIENTS_SENT: (Equation.of(loads, "U D v"), "U D v"),
        _R.ROW_GRADIENTS_RECEIVED: _of(ex.requested_rows, "G U parts elements v", "elements v"),
        _R.COPIED_GRADIENTS: (Equation.of(ex.copied_gradient_bytes, "E D w"), "E D w"),
    }


_SORTED = "lookups touched id_bytes"


_BELOW = {
    "cache_lookup": "u id_bytes",
    "fetch_rows": "m row",
    "ssd_lookup": "u id_bytes",
    "read_ssd": "m row",
    "write_ssd": "m elements w",
    "gather_host": "m row",
    "update_host": "touched (row + state)",
}
"""Bytes of the steps that wait for a tier below the HBM, as ``tier_loads.TierLoads`` has them."""
BELOW_MEANINGS = {
    "u": "different rows that a batch asks for",
    "m": "rows that cross the link: those that the cache has not, or those that are read in place",
    "row": "bytes of one of them, whole sectors of the link",
    "touched": "different rows that are updated",
    "state": "bytes of the optimizer's state of one of them, whole sectors: of cached rows it alone moves",
}
"""What their letters mean, beside those of ``MEANINGS``."""


def bytes_equation(step: Step) -> str:
    """Bytes of one shard, or of one table on every rank, in a step, in the letters of ``MEANINGS``.

    Limits: of a gather -> those that miss the L2;  of splits -> one size;
            of a tier -> in those of ``BELOW_MEANINGS`` too;  no forward step has it -> ""
    """
    if step.splits:
        return re.sub(r" *\[\w+\]$", "", equation_of(eb.splits_bytes))
    if step.below_hbm:
        return _BELOW[step.name]
    forward = {resource for each in (*FORWARD, WEIGHTS) for resource in each.resources}
    sides = _sides()
    whole = [WHOLE.get(resource, resource) for resource in step.resources]
    known = [resource for resource in whole if resource in sides and resource in forward]
    return " or ".join(dict.fromkeys(sides[resource][0].text for resource in known))
