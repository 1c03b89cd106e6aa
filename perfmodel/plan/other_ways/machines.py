"""The best plan of the same tables on each of several machines, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.model import serving_cost, sharding
from perfmodel.plan.leading import on_fewest
from perfmodel.plan.other_ways.alternatives import Planner, priced
from perfmodel.plan.other_ways.one_alternative import Alternative, EqualBatch, copies_of
from perfmodel.projections import Projection, project_one
from perfmodel.question.passes import GLOBAL
from perfmodel.schema.prices import Prices

AS_ASKED, HELD = "as asked", "as many as hold the tables in HBM"
_AT_MOST = 4
"""Multiple of the GPUs that the best uniform sharding needs: the most GPUs that are tried."""


def on_machines(
    asked: Sequence[tuple[Mapping[str, Any], Planner]],
    prices: Prices | None = None,
    equal_batch: str = GLOBAL,
    *,
    training: bool = False,
) -> list[Alternative]:
    """The best plan on each machine, on the given number of GPUs, else on the fewest that fit.

    asked  for each machine, options of ``project_one`` and its planner;  training  whether plans train
    equal_batch  for all, one of ``EQUAL_BATCHES``; global: the batch of the first possible machine
    Limits: none is possible -> the error of the first
    """
    found, refused, equal = list[Alternative](), list[PerfmodelError](), None
    for options, plan in asked:
        name = options["machine"].name
        try:
            base = on_fewest(options)
            equal = equal or EqualBatch.of(equal_batch, base, f"of {name}")
            (what, answer), why = _planned(options, plan, base, equal)
        except PerfmodelError as error:
            refused.append(error)
            found.append(Alternative(name, name, name, why=error.message.rstrip(".")))
            continue
        copies = copies_of(answer)
        each = Alternative(name, name, name, what, answer, why, equal=equal, copies=copies, training=training)
        found.append(priced(each, prices))
    if len(refused) == len(found):
        raise refused[0]
    return found


def _planned(
    options: Mapping[str, Any], plan: Planner, base: Projection, equal: EqualBatch
) -> tuple[tuple[str, Projection], str]:
    """(words, answer, why this number of GPUs) of a plan for its share of the batch.

    base  row-wise, on the given GPUs, or on the fewest where the best sharding fits
    """
    count, given = base.gpu_count, options.get("gpus") is not None
    node, most = count.gpus_per_node, _AT_MOST * max(base.gpus, count.gpus_per_node)
    refused: BadInputError | None = None
    for gpus in [base.gpus] if given else sharding.allowed_gpus(count.for_rows, most, node):
        copies = int(serving_cost.copies_in_machine(gpus, node, whole=False))
        try:
            its = project_one(**{**options, "gpus": gpus, "batch": equal.on(gpus * copies)})
            return plan(its, (), 1.0), AS_ASKED if given else HELD
        except BadInputError as error:
            refused = error
    assert refused is not None  # the error for the largest number of GPUs
    raise refused
