"""The gather from one memory, beside the GPU or over the network, explained."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.model import tiers
from perfmodel.passes.basis import LocalMemory
from perfmodel.passes.equations import Equation
from perfmodel.passes.explanation import Explanation
from perfmodel.passes.terms import Term, TimeParts, plain_term, quantity_term
from perfmodel.project.projection import Projection
from perfmodel.schema.machine_keys import KEYS
from perfmodel.units import format_bytes, format_rate, format_time


def explain_memory(answer: Projection, found: Explanation, memory: LocalMemory) -> Explanation:
    """With the rate of that memory in place of the HBM's, and what the network adds.

    found  the gather from HBM, explained
    """
    machine = answer.setting.machine
    stated = memory.bytes_per_s / memory.sharers
    rate = stated * machine.value("gather_bytes_per_s") / machine.value("hbm_bytes_per_s")
    why = f"{format_rate(stated)} stated for a GPU, times the part that a gather reaches of the HBM's"
    of_memory = Term("dram_rate", rate, format_rate(rate), str(memory), "assumed", why)
    terms = tuple(of_memory if term.symbol == "dram_rate" else term for term in found.time.terms)
    equations, working = found.time.equations, found.time.working
    if memory.remote:
        floor, card = machine.value("launch_floor_s"), machine.value("nic_bytes_per_s")
        x = float(answer.forward.traffic(answer.work).bare_bytes[0])
        t = answer.steps[0].time_s - memory.latency_s
        terms = (
            *terms,
            Term("x", x, format_bytes(x), "", "", "rows, ids and bags, each once: what the card carries"),
            quantity_term("C", machine.quantity("nic_bytes_per_s"), KEYS["nic_bytes_per_s"].meaning),
            Term("lambda", memory.latency_s, format_time(memory.latency_s), str(memory), "assumed", _LATENCY),
            plain_term("n", memory.sharers, "GPUs that share the memory"),
        )
        over = format_time(floor + x / card)
        slower = f"the card takes {over}, and the slower of it and the memory {format_time(t)}"
        whole = f"t_remote = {format_time(memory.latency_s)} + {format_time(t)} = "
        working = (slower, f"{whole}{format_time(answer.steps[0].time_s)}", *working[1:])
        equations = (Equation.of(tiers.remote_time), Equation.of(tiers.shared_rate), *equations)
    return replace(found, time=TimeParts(equations, terms, working, found.time.reference))


_LATENCY = "from a read over the network to its data"
