"""The gather from one memory, beside the GPU or over the network, explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perfmodel.model import kernels, tiers
from perfmodel.model.recording import BYTES, BYTES_PER_S, SECONDS, Recorded, named
from perfmodel.passes.basis import LocalMemory
from perfmodel.passes.explanation import Explanation
from perfmodel.passes.recorded_words import recorded_parts, recorded_quantity
from perfmodel.passes.steps import STEPS
from perfmodel.projections.projection import Projection
from perfmodel.schema.machine_keys import KEYS


def explain_memory(answer: Projection, found: Explanation, memory: LocalMemory) -> Explanation:
    """With the rate of that memory in place of the HBM's, and what the network adds.

    found  the gather from HBM, explained
    """
    machine, whose = answer.setting.machine, str(memory)

    def given(symbol: str, key: str) -> Recorded:
        return recorded_quantity(symbol, machine.quantity(key), f"{key}: {KEYS[key].meaning}")

    loads, floor = answer.loads, given("t0", "launch_floor_s")
    dram, passed = (float(loads.most[0, each]) for each in STEPS["gather_pool"].resources)
    stated = Recorded(memory.bytes_per_s, BYTES_PER_S, symbol="R", meaning="rate of the memory", source=whose)
    sharers = Recorded(float(memory.sharers), symbol="n_shared", meaning="GPUs that share the memory")
    reached = given("gather_rate", "gather_bytes_per_s") / given("hbm_rate", "hbm_bytes_per_s")
    why = "stated for a GPU, times the part that a gather reaches of the HBM's"
    time = kernels.gather_pool_time(
        Recorded(dram, BYTES, symbol="dram_bytes", meaning="S: what misses the L2 cache"),
        Recorded(passed, BYTES, symbol="l2_bytes", meaning="all that passes the L2 cache"),
        floor,
        named("dram_rate", stated / sharers * reached, why),
        given("l2_rate", "l2_bytes_per_s"),
    )
    functions: tuple[Callable[..., Any], ...] = (kernels.gather_pool_time,)
    if memory.remote:
        whole = "rows, ids and bags, each once: what the card carries"
        bare = Recorded(float(loads.bare_bytes[0]), BYTES, symbol="x", meaning=whole)
        reads = "from a read over the network to its data"
        latency = Recorded(memory.latency_s, SECONDS, symbol="lambda", meaning=reads, source=whose)
        near = named("t_memory", time, "of the same gather beside the GPU")
        time = tiers.remote_time(near, floor, bare, given("C", "nic_bytes_per_s"), latency)
        functions = (tiers.remote_time, kernels.gather_pool_time)
    words = [line for line in found.working if line.startswith("the same batch")]
    parts = recorded_parts(named("t", time, ""), *functions, words=words)
    made = {term.symbol for term in parts.terms}
    terms = (*(term for term in found.terms if term.symbol not in made), *parts.terms)
    return replace(found, time=replace(parts, terms=terms))
