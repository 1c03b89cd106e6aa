"""The laws of collectives with the user's numbers in them: terms, and the working line by line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.rates import scaled_unknowns
from perfmodel.collectives.stored import law_time, step_constants
from perfmodel.model import collectives, laws
from perfmodel.model.differences import log_span
from perfmodel.passes.steps import StepRow
from perfmodel.project.terms import Term
from perfmodel.schema.calibration import Law
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_bytes, format_number, format_rate, format_time

_NCCL = "NCCL's own constant (src/graph/tuning.cc)"
_PROTOCOLS = ("ll", "ll128", "simple")
_EXACT = 0.005
_RATIOS = {
    "base_ratio": "launch and first step, over NCCL's constant",
    "inside_ratio": "a step inside a domain, over NCCL's constant",
    "network_ratio": "a step across a network card, over NCCL's constant",
    "overhead_ratio": "the proxies' part of a step inside, over NCCL's constant",
}
_RATES = {
    "link_bytes_per_s": "rate of the links inside a domain",
    "nic_bytes_per_s": "realised rate of one network card",
    "ll_fraction": "part of the link's rate that LL reaches",
    "ll_network_bytes_per_s": "rate of LL across cards, whatever they are",
    "ll128_fraction": "part of the link's rate that LL128 reaches",
}
_PAIRWISE = {
    "launch_s": ("a0", "launch"),
    "peer_s": ("a1", "for each peer inside the domain"),
    "network_s": ("c", "once for leaving the domain"),
    "remote_peer_s": ("a2", "for each remote peer"),
    "rendezvous_s": ("r", "handshake of large messages across domains"),
    "link_rendezvous_s": ("r", "handshake of large messages inside the domain"),
    "link_bytes_per_s": ("B_link", "rate inside the domain"),
    "nic_bytes_per_s": ("B_nic", "realised rate of one network card"),
    "remote_peer_bytes_per_s": ("B_peer", "rate towards a single remote peer"),
}


@dataclass(frozen=True)
class Case:
    """A law at one size on one group of ranks."""

    model: CollectiveModel
    law: Law
    collective: str
    group: laws.Group
    step: StepRow

    @property
    def steps(self) -> laws.StepConstants:
        """NCCL's constants for the links of this machine."""
        return step_constants(self.model.machine, load_priors())

    @property
    def unknowns(self) -> laws.Floats:
        """Logarithms of the fitted values, rates scaled to this machine's."""
        machine, calibration = self.model.machine, self.model.calibration
        measured_on = load_machine(calibration.machine) if self.model.borrowed else machine.unchanged()
        return scaled_unknowns(np.log(np.array(self.law.values)), self.law, machine, measured_on)

    @property
    def value(self) -> dict[str, float]:
        """Fitted values by name."""
        return dict(zip(self.law.names, np.exp(self.unknowns).tolist(), strict=True))

    def time(self, payload_bytes: float) -> float:
        """Time by the law alone [s]."""
        size = np.array([payload_bytes])
        return float(law_time(self.law.law, self.unknowns, self.steps, self.collective, self.group, size)[0])

    def fitted(self, name: str, symbol: str, meaning: str) -> Term:
        """A fitted unknown with its 95 % interval, as sure as the step that rests on it."""
        at, value = self.law.names.index(name), self.value[name]
        low, _, high = log_span(value, math.sqrt(max(self.law.log_covariance[at][at], 0.0)))
        write = _writer(name)
        text = f"{write(value)} ({write(float(low))} – {write(float(high))})"
        named = meaning if symbol == name else f"{name}: {meaning}"
        return Term(symbol, value, text, "fitted", str(self.step.evidence), named)

    def known(self, symbol: str, value: float, text: str, meaning: str, source: str = "") -> Term:
        """A number that follows from the others."""
        return Term(symbol, value, text, source, "", meaning)


def _writer(name: str) -> Callable[[float], str]:
    if name.endswith("_bytes_per_s"):
        return format_rate
    return format_time if name.endswith("_s") else format_number


def corrected(case: Case, basis: str) -> str:
    """The last line: the law, and what the nearest measured cell makes of it."""
    law, time = case.time(case.step.payload_bytes), case.step.time_s
    ratio = time / law
    if abs(ratio - 1) < _EXACT:
        return f"t = {format_time(time)}: {basis}"
    return f"t = law {format_time(law)} × correction {ratio:.3g} = {format_time(time)}: {basis}"


def shape_terms(group: laws.Group) -> Iterator[Term]:
    """g and N."""
    yield Term("g", group.domain_gpus, str(group.domain_gpus), "", "", "ranks of one domain")
    yield Term("N", group.domains, str(group.domains), "", "", "domains")


# --- rings -------------------------------------------------------------------------------------------------

RING_EQUATION = "latency_k = b_k base_k + m inside_k + n network_k"


def _cheapest(case: Case) -> tuple[int, laws.Floats, laws.Floats, float]:
    """The cheapest ring, latencies and bus bandwidths of all, and the bus factor."""
    latency = laws.ring_tree_latencies(case.unknowns, case.steps, case.collective, case.group)[:3]
    rate = laws.ring_tree_bandwidths(case.unknowns, case.steps, case.collective, case.group)[:3]
    factor = float(collectives.bus_factor(case.collective, case.group.gpus))
    return int(np.argmin(latency + case.step.payload_bytes * factor / rate)), latency, rate, factor


def _ring_steps(case: Case) -> tuple[int, int, float, float, float]:
    """m, n, and what the base, a step inside and a step across take with the cheapest protocol [s]."""
    k, latency, _, _ = _cheapest(case)
    m, n = collectives.ring_steps(case.collective, case.group.gpus, case.group.domains)
    base = float(case.steps.ring_base_s[k]) * case.value[f"{_PROTOCOLS[k]}_base_ratio"]
    across = float(case.steps.ring_network_s[k]) * case.value[f"{_PROTOCOLS[k]}_network_ratio"]
    inside = (float(latency[k]) - base - n * across) / m if m else 0.0
    return m, n, base, inside, across


def ring_terms(case: Case) -> Iterator[Term]:
    """Every symbol of the ring law, for the protocol that is the cheapest here."""
    k, latency, rate, factor = _cheapest(case)
    m, n, _, inside, across = _ring_steps(case)
    protocol, key, several = collectives.PROTOCOLS[k], _PROTOCOLS[k], case.group.domains > 1
    constant = float(case.steps.ring_base_s[k])
    yield case.known("f", factor, f"{factor:.3f}", "bus factor: bytes on the wire over S")
    yield case.known("k", k, f"ring {protocol}", "algorithm and protocol: the cheapest of LL, LL128, Simple")
    yield case.known(
        "latency_k", float(latency[k]), format_time(float(latency[k])), "time of an empty message"
    )
    yield case.known("bandwidth_k", float(rate[k]), format_rate(float(rate[k])), "bus bandwidth of k")
    yield case.known("base_k", constant, format_time(constant), "launch and first step", _NCCL)
    yield case.fitted(f"{key}_base_ratio", "b_k", _RATIOS["base_ratio"])
    yield case.known("m", m, str(m), "steps inside domains")
    yield case.known("inside_k", inside, format_time(inside), "one of them")
    yield case.known("n", n, str(n), "steps across domains")
    yield case.known("network_k", across, format_time(across), "one of them")
    for ratio in ("inside_ratio", *(("network_ratio", "overhead_ratio") if several else ())):
        yield case.fitted(f"{key}_{ratio}", f"{key}_{ratio}", _RATIOS[ratio])
    names = ["link_bytes_per_s", *(["nic_bytes_per_s"] if several else [])]
    names += {"ll": ["ll_fraction", *(["ll_network_bytes_per_s"] if several else [])],
              "ll128": ["ll128_fraction"]}.get(key, [])  # fmt: skip
    for name in names:
        yield case.fitted(name, name, _RATES[name])


def ring_working(case: Case, basis: str) -> Iterator[str]:
    """Ratios times constants, the latency, the cheapest protocol, the correction."""
    k, latency, rate, factor = _cheapest(case)
    m, n, base, inside, across = _ring_steps(case)
    name, key, steps, value = collectives.PROTOCOLS[k], _PROTOCOLS[k], case.steps, case.value

    def product(ratio: str, constant: float) -> str:
        number = value[f"{key}_{ratio}"]
        return f"{number:.3g} × {format_time(constant)} = {format_time(number * constant)}"

    yield f"{name} base: {product('base_ratio', float(steps.ring_base_s[k]))}"
    line = f"{name} step inside: {product('inside_ratio', float(steps.ring_inside_s[k]))}"
    if case.group.domains > 1:
        proxies = product("overhead_ratio", float(steps.network_overhead_s[k]))
        yield f"{line}; the proxies' pace {proxies}; rounded maximum {format_time(inside)}"
        yield f"{name} step across: {product('network_ratio', float(steps.ring_network_s[k]))}"
    else:
        yield line
    sum_text = f"{format_time(base)} + {m} × {format_time(inside)}"
    sum_text += f" + {n} × {format_time(across)}" if n else ""
    yield f"latency: {sum_text} = {format_time(float(latency[k]))}"
    size = case.step.payload_bytes
    times = latency + size * factor / rate
    size_text = format_bytes(size)
    total = f"{format_time(float(latency[k]))} + {size_text} · {factor:.3f} / {format_rate(float(rate[k]))}"
    yield f"ring {name}: {total} = {format_time(float(times[k]))}"
    pairs = enumerate(zip(collectives.PROTOCOLS, times.tolist(), strict=True))
    others = ", ".join(f"{protocol} {format_time(time)}" for i, (protocol, time) in pairs if i != k)
    law = format_time(case.time(size))
    yield f"cheapest: {name} (against {others}); with rounded corners the law says {law}"
    yield corrected(case, basis)


# --- pairwise ----------------------------------------------------------------------------------------------


def pairwise_equations(case: Case) -> str:
    """The parts of the pairwise law, for one domain or for several."""
    if case.group.domains == 1:
        alpha, moved = "alpha = a0 + a1 (G - 1)", "bytes = S (G - 1)/G / B_link"
    else:
        alpha = "alpha = a0 + a1 (g - 1) + c + a2 (G - g)"
        moved = "bytes = max( S (g - 1)/G / B_link,  S (G - g)/G / min(B_nic, (G - g) B_peer) )"
    return "\n".join([alpha, "rho(u) = u / (u + u_half)", moved])


def _pairwise_parts(case: Case) -> tuple[float, float, float, float, float]:
    """alpha, rho, r, r rho, and the bytes' time; seconds but for rho."""
    size, group = case.step.payload_bytes, case.group
    alpha, whole = case.time(0.0), case.time(size)
    rho = float(collectives.rendezvous_share(size, group.gpus, case.steps.rendezvous_half_bytes))
    r = case.value["link_rendezvous_s" if group.domains == 1 else "rendezvous_s"]
    return alpha, rho, r, r * rho, whole - alpha - r * rho


def pairwise_terms(case: Case) -> Iterator[Term]:
    """Every symbol of the pairwise law."""
    alpha, rho, _, _, moved = _pairwise_parts(case)
    half = case.steps.rendezvous_half_bytes
    peer = case.step.payload_bytes / case.group.gpus
    yield case.known("alpha", alpha, format_time(alpha), "time of an empty message")
    yield case.known("u", peer, format_bytes(peer), "S/G: bytes for one peer")
    yield case.known("u_half", half, format_bytes(half), "u at which half of r shows", "data/priors")
    yield case.known("rho", rho, f"{rho:.3g}", "part of r that these messages pay")
    yield case.known("bytes", moved, format_time(moved), "time of the bytes on the slower kind of link")
    inside = case.group.domains == 1
    skipped = {"network_s", "remote_peer_s", "rendezvous_s", "nic_bytes_per_s", "remote_peer_bytes_per_s"}
    for name, (symbol, meaning) in _PAIRWISE.items():
        if name not in (skipped if inside else {"link_rendezvous_s"}):
            yield case.fitted(name, symbol, meaning)


def pairwise_working(case: Case, basis: str) -> Iterator[str]:
    """alpha peer by peer, the handshake, the bytes, the correction."""
    alpha, rho, r, handshake, moved = _pairwise_parts(case)
    value, group = case.value, case.group
    launch, peer = format_time(value["launch_s"]), format_time(value["peer_s"])
    sum_text = f"{launch} + {group.domain_gpus - 1} × {peer}"
    if group.domains > 1:
        once, each = format_time(value["network_s"]), format_time(value["remote_peer_s"])
        sum_text += f" + {once} + {group.gpus - group.domain_gpus} × {each}"
    yield f"alpha: {sum_text} = {format_time(alpha)}"
    yield f"r rho: {format_time(r)} × {rho:.3g} = {format_time(handshake)}"
    whole = format_time(case.time(case.step.payload_bytes))
    parts = " + ".join(format_time(part) for part in (alpha, handshake, moved))
    yield f"law: {parts} for the bytes = {whole}"
    yield corrected(case, basis)
