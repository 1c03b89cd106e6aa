"""Names of steps: what a user may type for a step, and which step of a pass is meant."""

from __future__ import annotations

import re

from perfmodel.errors import BadInputError
from perfmodel.passes.steps import BACKWARD, StepRow
from perfmodel.schema.files import nearest_names

PLAN, PROJECTION = "plan", "projection"
"""Kinds of answers whose steps are explained."""
GATHER = "gather_pool"
_ACROSS = ("reduce_scatter_across", "all_to_all_across")
_ROWS = ("all_to_all_rows",)
ALIASES: dict[str, tuple[str, ...]] = {
    "gather": (GATHER,),
    "lookup": (GATHER,),
    "pool": (GATHER,),
    "permute": ("bucketize",),
    "splits": ("all_to_all_splits",),
    "lengths": ("all_to_all_lengths",),
    "ids": ("all_to_all_ids",),
    "rows": _ROWS,
    "requests": ("all_to_all_requests",),
    "inside": ("reduce_scatter_inside",),
    "across": _ACROSS,
    "bags": (*_ACROSS, *_ROWS, "reduce_scatter_bags", "all_to_all_bags", "all_to_all_sparse_bags"),
    "gradients": ("all_to_all_gradients", "all_gather_gradients", "all_to_all_row_gradients"),
    **{
        old: (name,)
        for name, words in {
            "bucketize": "bucketize_indices",
            "all_to_all_ids": "indices all_to_all_indices",
            "deduplicate": "deduplicate_indices",
            "all_to_all_rows": "all_to_all_unique_rows",
            "all_to_all_sparse_bags": "all_to_all_non_empty_bags",
            "all_to_all_across": "all_to_all_across_domains",
            "reduce_scatter_inside": "reduce_scatter_inside_a_domain",
            "reduce_scatter_across": "reduce_scatter_across_domains",
            "convert_out": "convert_bags_to_send",
            "convert_in": "convert_bags_that_came",
            "handover": "hand_over waits_between_steps",
        }.items()
        for old in words.split()
    },
}
"""Other names of steps, short or former ones; if a name stands for several steps, the first in the pass
counts. Besides these, a step is known by its name, its label (``steps.step_label``), and any prefix of its
name that no other step shares. ``bags`` is the exchange of bags, whatever collective does it."""
_SHORTEST = 3
_TRAINED = {step.name for step in BACKWARD}


class NoSuchStepError(BadInputError):
    """The name matches no step of a pass."""


def meant_steps(name: str) -> tuple[str, ...]:
    """Step names that a typed name or alias may mean; the first of them that a pass has is taken."""
    wanted = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return ALIASES.get(wanted, (wanted,))


def find_step(steps: tuple[StepRow, ...], name: str, what: str = PROJECTION) -> StepRow:
    """The step that a user means: by its name, its label, an alias, or a prefix that only one name has.

    what  the answer that has the steps, for the error message
    Limits: '' and names of no step -> NoSuchStepError that lists the steps;  a prefix of several names ->
            BadInputError that lists these names
    """
    known, meant = {step.name: step for step in steps}, meant_steps(name)
    row = next((known[each] for each in meant if each in known), None)
    if row is not None:
        return row
    found = [s for s in steps if s.name.startswith(meant[0])] if len(meant[0]) >= _SHORTEST else []
    if len(found) == 1:
        return found[0]
    listed = ", ".join(step.name.replace("_", "-") for step in found or steps)
    if found:
        raise BadInputError(f"{name!r} means several steps of this {what}.", f"one of: {listed}.")
    whole = "; slowdown: how they add up" if what == PROJECTION else ""
    if what == PLAN and not {*meant}.isdisjoint(_TRAINED) and not known.keys() & _TRAINED:
        whole = "; the backward pass has others: --objective throughput"
    nearest = nearest_names(meant[0].replace("_", "-"), [step.name.replace("_", "-") for step in steps])
    hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    raise NoSuchStepError(f"{name!r} is not a step of this {what}.", f"{hint}its steps: {listed}{whole}.")
