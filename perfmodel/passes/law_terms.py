"""The laws of collectives with the user's numbers in them: terms, and the working line by line.

What a law adds up is told by ``model.law_parts``; here it is put into words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.rates import scaled_unknowns
from perfmodel.collectives.stored import LAW_TIMES, step_constants
from perfmodel.model import collectives, laws
from perfmodel.model.differences import log_span
from perfmodel.model.law_parts import Candidate, PairwiseParts, Summand, choices_of, pairwise_parts
from perfmodel.passes.equations import Equation
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.terms import Term
from perfmodel.schema.calibration import Law
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_bytes, format_fraction, format_number, format_rate, format_time

_NCCL = "NCCL's own constant (src/graph/tuning.cc)"
_EXACT = 0.005
_ALONE = 0.995  # of the weight of the mean that rounds corners, from which on it is one candidate's time
_UNKNOWNS = {
    "base_ratio": "launch and first step, over NCCL's constant",
    "inside_ratio": "a step inside a domain, over NCCL's constant",
    "network_ratio": "a step across a network card, over NCCL's constant",
    "overhead_ratio": "the proxies' part of a step inside, over NCCL's constant",
    "nvls_ratio": "launch of NVLS, over NCCL's constant",
    "nvls_head_s": "what one more GPU in the switch's domain adds",
    "nvls_bus_bytes_per_s": "bus bandwidth that copies in and out of the switch's buffers allow",
    "nvls_tree_fraction": "part of their rate that trees between switches reach",
    "choice_ratio": "time that NCCL's table expects over the real one, against LL",
    "tree_choice_ratio": "the same of trees, against rings",
    "nvls_choice_ratio": "the same of NVLS, against rings",
    "nvls_tree_ratio": "a step of its trees across, over NCCL's constant",
    "link_bytes_per_s": "rate of the links inside a domain",
    "nvls_bytes_per_s": "rate of NVLS inside a domain",
    "nic_bytes_per_s": "realised rate of one network card",
    "tree_fraction": "part of the rate that trees reach",
    "ll_fraction": "part of the link's rate that LL reaches",
    "ll_network_bytes_per_s": "rate of LL across cards, whatever they are",
    "ll128_fraction": "part of the link's rate that LL128 reaches",
}
_PARTS = {
    "base_k": ("base", "launch and first step", ""),
    "inside_k": ("step inside", "steps inside domains", "m"),
    "network_k": ("step across", "steps across domains", "n"),
    "rank_k": ("each rank's part", "ranks of PAT's exchange", "N"),
}
"""Of a summand: its words in the working, in the table, and the letter of its count."""
_PAIRWISE = {
    "launch_s": ("a0", "launch"),
    "peer_s": ("a1", "for each peer inside the domain"),
    "network_s": ("c", "once a round for leaving the domain"),
    "node_peer_s": ("b", "for each peer of one remote domain"),
    "remote_peer_s": ("a2", "for each post to a remote peer"),
    "rendezvous_s": ("r", "handshake of large messages across domains"),
    "link_rendezvous_s": ("r", "handshake of large messages inside the domain"),
    "link_bytes_per_s": ("B_link", "rate inside the domain"),
    "nic_bytes_per_s": ("B_nic", "realised rate of one network card"),
    "remote_peer_bytes_per_s": ("B_peer", "rate towards a single remote peer"),
}


@dataclass(frozen=True)
class LawCase:
    """A law at one size on one group of ranks; ``time_s`` is what was answered, as sure as ``evidence``."""

    model: CollectiveModel
    law: Law
    collective: str
    group: laws.Group
    payload_bytes: float
    time_s: float
    evidence: str

    @cached_property
    def steps(self) -> laws.StepConstants:
        """NCCL's constants for the links of this machine."""
        return step_constants(self.model.machine, load_priors())

    @cached_property
    def unknowns(self) -> laws.Floats:
        """Logarithms of the fitted values, rates scaled to this machine's."""
        machine, calibration = self.model.machine, self.model.calibration
        measured_on = load_machine(calibration.machine) if self.model.borrowed else machine.unchanged()
        return scaled_unknowns(np.log(np.array(self.law.values)), self.law, machine, measured_on)

    @cached_property
    def value(self) -> dict[str, float]:
        """Fitted values by name."""
        return dict(zip(self.law.names, np.exp(self.unknowns).tolist(), strict=True))

    def time(self, payload_bytes: float) -> float:
        """Time by the law alone [s]."""
        size = np.array([payload_bytes])
        return float(LAW_TIMES[self.law.law](self.unknowns, self.steps, self.collective, self.group, size)[0])

    def fitted(self, name: str, symbol: str, meaning: str) -> Term:
        """A fitted unknown with its 95 % interval, as sure as the answer that rests on it."""
        at, value = self.law.names.index(name), self.value[name]
        low, _, high = log_span(value, math.sqrt(max(self.law.log_covariance[at][at], 0.0)))
        write = _writer(name)
        text = f"{write(value)} ({write(float(low))} – {write(float(high))})"
        named = meaning if symbol == name else f"{name}: {meaning}"
        return Term(symbol, value, text, "fitted", self.evidence, named)

    @property
    def rings(self) -> bool:
        """Whether it is the law of rings and trees, else that of pairwise exchanges."""
        return self.law.law == "ring_tree"

    def choices(self) -> tuple[str, dict[str, float]]:
        """Of rings and trees: the (algorithm, protocol) that NCCL takes, and the time of each [s]."""
        k, found, times, _ = _taken(self)
        names = [candidate.name for candidate in found]
        return names[k], dict(zip(names, times, strict=True))

    def equations(self) -> tuple[Equation, ...]:
        """The law, and the equations of what it adds up."""
        return _ring_equations(self) if self.rings else _pairwise_equations(self)

    def terms(self) -> Iterator[Term]:
        """Every symbol of the law at this size."""
        yield _known("g", self.group.domain_gpus, str(self.group.domain_gpus), LETTERS["g"].meaning)
        yield _known("N", self.group.domains, str(self.group.domains), LETTERS["N"].meaning)
        yield from _ring_terms(self) if self.rings else _pairwise_terms(self)

    def working(self, basis: str) -> Iterator[str]:
        """The law with its numbers, line by line; the last has the answer and its ``basis``."""
        yield from _ring_working(self) if self.rings else _pairwise_working(self)
        law, time = self.time(self.payload_bytes), self.time_s
        ratio = time / law
        if abs(ratio - 1) < _EXACT:
            yield f"t = {format_time(time)}: {basis}"
        else:
            yield f"t = law {format_time(law)} × correction {ratio:.3g} = {format_time(time)}: {basis}"


def _known(symbol: str, value: float, text: str, meaning: str, source: str = "") -> Term:
    """A number that follows from the others."""
    return Term(symbol, value, text, source, "", meaning)


def _writer(name: str) -> Callable[[float], str]:
    if name.endswith("_bytes_per_s"):
        return format_rate
    return format_time if name.endswith("_s") else format_number


# --- rings and trees ---------------------------------------------------------------------------------------


def _taken(case: LawCase) -> tuple[int, tuple[Candidate, ...], list[float], float]:
    """Place of the candidate that NCCL takes, all of them, their times [s], and the bus factor."""
    found = choices_of(case.unknowns, case.steps, case.collective, case.group)
    factor = float(collectives.bus_factor(case.collective, case.group.gpus))
    wire = case.payload_bytes * factor
    times = [each.time_s(wire) for each in found]
    expected = [each.choice * time for each, time in zip(found, times, strict=True)]
    return int(np.argmin(expected)), found, times, factor


def _ring_equations(case: LawCase) -> tuple[Equation, ...]:
    k, found, _, _ = _taken(case)
    parts = {part.symbol for part in found[k].parts}
    summands = [f"{_PARTS[p][2]} {p}" for p in ("inside_k", "rank_k", "network_k") if p in parts]
    hops = Equation.of(laws.ring_tree_latencies, f"hops_k = {' + '.join(summands)}")
    return Equation.of(laws.ring_tree_time), hops, Equation.of(found[k].bandwidth, "")


def _meaning(name: str, protocol: str) -> str:
    """Of an unknown, whose name may begin with its protocol."""
    return _UNKNOWNS.get(name) or _UNKNOWNS[name.removeprefix(f"{protocol.lower()}_")]


def _ring_terms(case: LawCase) -> Iterator[Term]:
    """Every symbol of the law, for the candidate that NCCL takes here."""
    k, found, _, factor = _taken(case)
    each = found[k]
    protocol = "Simple" if each.name == "PAT" else each.name.split()[-1]
    rings = len(found) == len(collectives.PROTOCOLS)
    among = ", ".join(collectives.PROTOCOLS if rings else (other.name for other in found))
    rate = each.bus_bytes_per_s
    yield _known("f", factor, f"{factor:.3f}", "bus factor: bytes on the wire over S")
    yield _known("k", k, each.name, f"algorithm and protocol: what NCCL takes of {among}")
    yield _known("q", each.sharpness, f"{each.sharpness:g}", "overlap of hops and bytes: 1 adds them up")
    yield _known("hops_k", each.hops_s, format_time(each.hops_s), "dependent steps of one chunk together")
    yield _known("bandwidth_k", rate, format_rate(rate), "bus bandwidth of k")
    first, *others = each.parts
    name, constant = first.made_of[0]
    yield _known("base_k", constant, format_time(constant), _PARTS["base_k"][1], _NCCL)
    yield case.fitted(name, "b_k", _meaning(name, protocol))
    for part in others:
        _, meaning, letter = _PARTS[part.symbol]
        if letter != "N":  # told above
            yield _known(letter, part.count, str(part.count), meaning)
        yield _known(part.symbol, part.each_s, format_time(part.each_s), "one of them")
    taken = [part for part in others if part.count or part.symbol == "inside_k"]
    named = [part.made_of[0][0] for part in taken]
    named += [name for part in taken for name, _ in part.made_of[1:]]
    for name in dict.fromkeys((*named, *each.rates, *each.choices)):
        yield case.fitted(name, name, _meaning(name, protocol))


def _product(case: LawCase, name: str, constant: float) -> str:
    number = case.value[name]
    if name.endswith("_s"):  # an unknown that is a time itself
        return format_time(number * constant)
    return f"{number:.3g} × {format_time(constant)} = {format_time(number * constant)}"


def _summand_words(case: LawCase, part: Summand) -> str:
    """How one summand is made of its unknowns and constants."""
    products = [_product(case, name, constant) for name, constant in part.made_of]
    if len(products) == 1:
        return products[0]
    return f"{products[0]}; the proxies' pace {products[1]}; rounded maximum {format_time(part.each_s)}"


def _ring_working(case: LawCase) -> Iterator[str]:
    """Ratios times constants, launch and hops, the candidate that is taken."""
    k, found, times, factor = _taken(case)
    each, several = found[k], len(found) > len(collectives.PROTOCOLS)
    protocol = "Simple" if each.name == "PAT" else each.name.split()[-1]
    for part in each.parts:
        if part.symbol != "network_k" or case.group.domains > 1:
            yield f"{protocol} {_PARTS[part.symbol][0]}: {_summand_words(case, part)}"
    texts = [
        f"{part.count} × {format_time(part.each_s)}"
        for part in each.parts[1:]
        if part.symbol != "network_k" or part.count
    ]
    base, hops = format_time(each.base_s), format_time(each.hops_s)
    yield f"hops: {' + '.join(texts)} = {hops}"
    size, rate = format_bytes(case.payload_bytes), format_rate(each.bus_bytes_per_s)
    moved = f"{size} · {factor:.3f} / {rate}"
    q = f"{each.sharpness:g}"
    overlap = f"{hops} + {moved}" if each.sharpness == 1 else f"(({hops})^{q} + ({moved})^{q})^(1/{q})"
    yield f"{each.name}: {base} + {overlap} = {format_time(times[k])}"
    names = [other.name if several else other.name.split()[-1] for other in found]
    yield from _choice_words(case, names, k, times, [other.choice for other in found])
    latencies = ", ".join(
        f"{name} {format_time(one.latency_s)}" for name, one in zip(names, found, strict=True)
    )
    yield f"latency without bytes: {latencies}; where NCCL changes protocol, the share of latency jumps"


def _choice_words(
    case: LawCase, names: list[str], k: int, times: list[float], ratios: list[float]
) -> Iterator[str]:
    """Why this candidate is taken, though another may be faster; and the mean that rounds the corner."""
    pairs = enumerate(zip(names, times, strict=True))
    others = ", ".join(f"{name} {format_time(time)}" for i, (name, time) in pairs if i != k)
    expected = [time * ratio for time, ratio in zip(times, ratios, strict=True)]
    said = ", ".join(f"{name} {format_time(time)}" for name, time in zip(names, expected, strict=True))
    yield f"taken: {names[k]} (against {others})"
    yield f"NCCL takes what its own table expects to be the fastest, even if it is not: {said}"
    weight = (np.array(expected) / min(expected)) ** -case.steps.choice_sharpness
    share = weight / weight.sum()
    if share[k] < _ALONE:
        shown = [i for i in np.argsort(-share) if share[i] > 1 - _ALONE]
        mean = " + ".join(f"{format_fraction(float(share[i]))} × {format_time(times[i])}" for i in shown)
        law = format_time(case.time(case.payload_bytes))
        yield f"these are close, so the law is a weighted mean of them: {mean} = {law}"


# --- pairwise ----------------------------------------------------------------------------------------------


def _pairwise_equations(case: LawCase) -> tuple[Equation, ...]:
    """The law and its parts, for one domain or for several."""
    if case.group.domains == 1:
        alpha, moved = "alpha = a0 + a1 (G - 1)", "bytes = S (G - 1)/G / B_link"
    else:
        alpha = "alpha = a0 + a1 (g - 1) + R (c + b g) + a2 (G - g),  R = ceil((N - 1) / C)"
        moved = "bytes = max( S (g - 1)/G / B_link,  S (G - g)/G / min(B_nic, (G - g) B_peer) )"
    return (
        Equation.of(laws.pairwise_time),
        Equation.of(collectives.pairwise_latency, alpha),
        Equation.of(collectives.rendezvous_share, "rho(u) = u / (u + u_half)"),
        Equation.of(collectives.pairwise_transfer_time, moved),
    )


def _pairwise_parts(case: LawCase) -> tuple[PairwiseParts, float, float, float]:
    """The summands; alpha, r rho and the bytes' time [s]."""
    found = pairwise_parts(case.unknowns, case.steps, case.group, case.payload_bytes)
    alpha, handshake = case.time(0.0), case.value[found.rendezvous] * found.rho
    return found, alpha, handshake, case.time(case.payload_bytes) - alpha - handshake


def _pairwise_terms(case: LawCase) -> Iterator[Term]:
    """Every symbol of the pairwise law."""
    found, alpha, _, moved = _pairwise_parts(case)
    half = case.steps.rendezvous_half_bytes
    peer = case.payload_bytes / case.group.gpus
    yield _known("alpha", alpha, format_time(alpha), "time of an empty message")
    if case.group.domains > 1:
        channels = case.steps.p2p_channels
        rounds = -(-(case.group.domains - 1) // channels)
        yield _known("R", rounds, str(rounds), "rounds of remote domains")
        yield _known(
            "C", channels, str(channels), "channels: remote domains served side by side", "data/priors"
        )
    yield _known("u", peer, format_bytes(peer), "S/G: bytes for one peer")
    yield _known("u_half", half, format_bytes(half), "u at which half of r shows", "data/priors")
    yield _known("rho", found.rho, f"{found.rho:.3g}", "part of r that these messages pay")
    yield _known("bytes", moved, format_time(moved), "time of the bytes on the slower kind of link")
    for name in (*(part.made_of[0][0] for part in found.parts), found.rendezvous, *found.rates):
        yield case.fitted(name, *_PAIRWISE[name])


def _pairwise_working(case: LawCase) -> Iterator[str]:
    """alpha peer by peer, the handshake, the bytes."""
    found, alpha, handshake, moved = _pairwise_parts(case)
    texts = [
        format_time(part.each_s) if part.count == 1 else f"{part.count} × {format_time(part.each_s)}"
        for part in found.parts
    ]
    yield f"alpha: {' + '.join(texts)} = {format_time(alpha)}"
    r = format_time(case.value[found.rendezvous])
    yield f"r rho: {r} × {found.rho:.3g} = {format_time(handshake)}"
    whole = format_time(case.time(case.payload_bytes))
    parts = " + ".join(format_time(part) for part in (alpha, handshake, moved))
    yield f"law: {parts} for the bytes = {whole}"
