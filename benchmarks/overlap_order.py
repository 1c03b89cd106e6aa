"""Does the fastest pass make the fastest overlapped step? ``python benchmarks/overlap_order.py``.

The search minimises a pass whose steps run one after the other. Here the plans that it finds with each kind
of exchange alone and with all are put into the overlap pipeline with the dense layers of DLRM-DCNv2, and the
best of them are changed further, a few tables at a time, as long as that shortens the overlapped step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.passes.dense import Dense, dense_of
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.training import CostedPlan
from perfmodel.plan import Evaluator, Plan
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.searching.packing import Packing, Scale, place
from perfmodel.plan.searching.search import Restriction, Search
from perfmodel.report.terminal import table
from perfmodel.units import format_time
from perfmodel.validate.dlrm_inputs import Case, load_inputs

_BATCH = {8: 6912, 64: 2112, 128: 1056}
_DENSE = (1.0, 4.0)
_NEAR, _CHANGED = 1.2, 3


def only(kind: Exchange) -> Restriction:
    """Copies, and one kind of exchange."""
    return lambda options, evaluator: np.isin(options.exchange, [Exchange.DP, kind])


def plans(evaluator: Evaluator, limit_bytes: float, effort_s: float) -> Iterator[Plan]:
    """The plan of the fastest pass first, then those of each kind of exchange."""
    yield Search(evaluator, limit_bytes, effort_s=effort_s).run().plan
    for kind in Exchange:
        if kind == Exchange.DP:
            continue
        try:
            search = Search(evaluator, limit_bytes, effort_s=effort_s / 2, restrict=only(kind))
            yield search.run().plan
        except (BadInputError, ValueError):  # these tables cannot be sharded so
            continue


def state_of(evaluator: Evaluator, options: Options, plan: Plan, limit_bytes: float) -> Packing:
    """A plan that can be changed."""
    state = Packing(evaluator, options, limit_bytes)
    for t, placement in enumerate(plan.placements):
        option = options.find(t, placement.scheme)
        assert option is not None
        state.choose([t], np.array([option]))
        if state.ranks[t] is None:
            state.put(t, placement.ranks)
    return state


def changed(state: Packing, random: np.random.Generator) -> Packing | None:
    """One to three tables cut and placed otherwise; None where they do not fit."""
    new, o = state.copy(), state.options
    for t in random.choice(len(new.ranks), random.integers(1, _CHANGED + 1), replace=False):
        new.clear(int(t))
        at = o.of(int(t))
        option = int(random.integers(at.start, at.stop))
        new.choose([int(t)], np.array([option]))
        if new.ranks[t] is None:
            scale = Scale.of(new.evaluator, new.most + o.own[option])
            ranks = place(new, option, scale)
            if ranks is None:
                return None
            new.put(int(t), ranks)
    return new if new.fits else None


def step_s(evaluator: Evaluator, plan: Plan, dense: Dense) -> float:
    """The overlapped step."""
    return CostedPlan.of(evaluator, plan).step(dense).step_s


def climbed(state: Packing, dense: Dense, tries: int) -> Packing:
    """So many changes of a plan, of which those stay that shorten its overlapped step."""
    random = np.random.default_rng(0)
    best_s, most_s = step_s(state.evaluator, state.plan(), dense), _NEAR * state.time_s
    for _ in range(tries):
        new = changed(state, random)
        if new is None or new.time_s > most_s:
            continue
        new_s = step_s(state.evaluator, new.plan(), dense)
        if new_s < best_s:
            state, best_s = new, new_s
    return state


def rows(gpus: int, effort_s: float, tries: int) -> Iterator[list[str]]:
    """A line for each weight of the dense layers: the first plan's times, then what others have less."""
    inputs = load_inputs()
    asked = inputs.mlperf.model_copy(update={"skew": ()})  # uniform ids
    case = Case(asked.model, "h100-sxm-ib", gpus, 8, _BATCH[gpus], asked)
    evaluator = case.evaluator()
    limit = case.usable_bytes(evaluator)
    options = options_of(evaluator, limit)
    found = [state_of(evaluator, options, plan, limit) for plan in plans(evaluator, limit, effort_s)]
    usual = dense_of(inputs.dense, case.machine)
    assert isinstance(usual, Dense)
    for weight in _DENSE:
        dense = replace(usual, flops_per_s=usual.flops_per_s / weight)

        def step(state: Packing, dense: Dense = dense) -> float:
            return step_s(evaluator, state.plan(), dense)

        fastest = min(found, key=lambda state: state.time_s)
        order = [fastest, *sorted(found, key=step)[:2]]
        best = min((climbed(state, dense, tries) for state in order), key=step)
        gains = [
            f"{100 * (1 - time_s / first):.1f} %"
            for state in (order[1], best)
            for time_s, first in ((step(state), step(fastest)), (state.time_s, fastest.time_s))
        ]
        yield [str(gpus), f"{weight:g}×", format_time(fastest.time_s), format_time(step(fastest)), *gains]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", choices=list(_BATCH), default=list(_BATCH))
    parser.add_argument("--effort", type=float, default=10.0, help="counted seconds of each search")
    parser.add_argument("--tries", type=int, default=500, help="changes of each climb")
    asked = parser.parse_args()
    headers = ["GPUs", "dense", "fastest pass", "overlapped", "best found", "its pass", "climbed", "its pass"]
    lines = [line for gpus in asked.gpus for line in rows(gpus, asked.effort, asked.tries)]
    sys.stdout.write(table(headers, lines) + "\n")


if __name__ == "__main__":
    main()
