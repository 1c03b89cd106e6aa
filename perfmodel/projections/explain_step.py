"""One step of a projection, explained."""

from __future__ import annotations

from perfmodel.passes.explanation import Explanation, Pass, explained, find_step
from perfmodel.passes.steps import BELOW_HBM, CONVERT_IN, CONVERT_OUT
from perfmodel.projections.memory_explanation import explain_memory
from perfmodel.projections.projection import Projection
from perfmodel.projections.step_bytes import payload_of
from perfmodel.projections.tier_explanation import explain_tier


def explain_step(answer: Projection, name: str) -> Explanation:
    """Explain the step that ``name`` means.

    Limits: as ``passes.explanation.find_step``
    """
    step = find_step(answer.steps, name)
    if answer.forward.tier is not None and step.name in {below.name for below in BELOW_HBM}:
        return explain_tier(answer, step, answer.forward.tier)
    like = "local_sum" if step.name in (CONVERT_OUT, CONVERT_IN) else ""
    found, memory = explained(pass_of(answer), step, payload_of(answer, step, like)), answer.forward.memory
    return found if memory is None else explain_memory(answer, found, memory)


def pass_of(answer: Projection) -> Pass:
    """What an explanation needs of a projection."""
    return Pass(
        answer.setting,
        answer.steps,
        answer.gpus,
        int(answer.forward.domain(answer.work.gpus)[0]),
        answer.gpu_count.gpus_per_node,
        f"GPUs: {answer.gpu_count}",
        answer.baseline_time_s,
    )
