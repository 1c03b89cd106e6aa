"""A law of collectives with the user's numbers: evaluated with numbers that record how they were computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.rates import scaled_unknowns
from perfmodel.collectives.stored import step_constants
from perfmodel.model import collectives
from perfmodel.model.differences import log_span
from perfmodel.model.laws import LINK_LAWS, LibraryChoice, ring_tree_choice, ring_tree_time
from perfmodel.model.recording import Recorded, named, unit_of
from perfmodel.model.unknowns import Group, StepConstants
from perfmodel.passes.equations import Equation
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.recorded_words import recorded_terms, value_text, working_lines
from perfmodel.passes.terms import Term
from perfmodel.schema.calibration import Law
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_fraction, format_time

_OVERLAP = "overlap of hops and bytes: 1 adds them up"
_EXACT = 0.005
_SAID = 5e-4  # weight above which a candidate appears in the printed mean
_ALONE = 0.995  # weight above which one candidate's time is printed instead of the mean


@dataclass(frozen=True)
class ExplainedLaw:
    """A law at one size for one group of ranks; ``time_s`` is the answer, with its ``evidence``.

    ranks  letter for the group's ranks; not G if the pass has more ranks
    """

    model: CollectiveModel
    law: Law
    collective: str
    group: Group
    payload_bytes: float
    time_s: float
    evidence: str
    ranks: str = "G"

    @cached_property
    def choice(self) -> LibraryChoice | None:
        """For rings and trees: the library's candidates, recorded."""
        law = LINK_LAWS[self.law.law]
        return ring_tree_choice(*self.asked) if law.time is ring_tree_time else None

    @cached_property
    def recorded(self) -> Recorded:
        """The law's time, recorded."""
        time = self.choice.time_s if self.choice else LINK_LAWS[self.law.law].time(*self.asked)
        found: Recorded = named("law", time, "time by the law")
        return found

    @property
    def constants(self) -> StepConstants:
        """The library's constants for the links of this machine."""
        return step_constants(self.model.machine, load_priors())

    @property
    def _library(self) -> str:
        return self.model.calibration.backend.upper()

    @property
    def taken(self) -> int | None:
        """Index of the candidate that the library chooses: the least time by its own table."""
        return None if self.choice is None else int(np.argmin([float(e) for e in self.choice.expected_s]))

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The law, then the functions of its parts, whose equations appear in the working."""
        law = Equation.of(LINK_LAWS[self.law.law].time)
        if self.choice is not None and self.taken is not None:
            candidate = self.choice.candidates[self.taken].law
            return law, Equation.of(candidate, ""), Equation.of(collectives.chosen_shares, "")
        parts = collectives.pairwise_latency, collectives.rendezvous_share, collectives.pairwise_transfer_time
        return law, *(Equation.of(part, "") for part in parts)

    def terms(self) -> Iterator[Term]:
        """Every letter of the law at this size, except S and G."""
        found = {term.symbol: term for term in (*self._choice_terms(), *recorded_terms(self.shown))}
        yield from (term for letter, term in found.items() if letter not in ("S", "G"))

    def working(self, basis: str) -> Iterator[str]:
        """The law with numbers filled in, line by line; the last line has the answer and its ``basis``."""
        yield from working_lines(self.shown)
        if self.choice is not None and self.taken is not None:
            yield from self._choice_words(self.choice, self.taken)
        law, time = float(self.recorded), self.time_s
        if abs(time / law - 1) < _EXACT:
            yield f"t = {format_time(time)}: {basis}"
        else:
            yield f"t = law {format_time(law)} × correction {time / law:.3g} = {format_time(time)}: {basis}"

    @property
    def shown(self) -> Recorded:
        """The time that an explanation derives: of the chosen candidate for rings and trees, else of the
        whole law."""
        if self.choice is None or self.taken is None:
            return self.recorded
        found: Recorded = self.choice.times_s[self.taken]
        return found

    @cached_property
    def asked(self) -> tuple[Mapping[str, Recorded], StepConstants, str, Group, Recorded]:
        """The arguments of the law, recorded: unknowns, library constants, collective, group of ranks, and
        bytes."""
        group = self.group
        own = ((self.ranks, group.gpus), ("g", group.domain_gpus), ("N", group.domains))
        ranks = (Recorded(value, symbol=letter, meaning=LETTERS[letter].meaning) for letter, value in own)
        size = Recorded(self.payload_bytes, unit_of("payload_bytes"), symbol="S")
        whole: Any = Group(*ranks)  # type: ignore[arg-type]
        return self._unknowns, recorded_constants(self.constants), self.collective, whole, size

    @cached_property
    def _unknowns(self) -> dict[str, Recorded]:
        """The fitted unknowns with 95 % intervals, by name; rates are scaled to this machine's links."""
        machine, calibration = self.model.machine, self.model.calibration
        measured_on = Calibrated.of(machine, calibration).machine
        logs = scaled_unknowns(np.log(np.array(self.law.values)), self.law, machine, measured_on)
        found = {}
        for i, (unknown, log) in enumerate(zip(LINK_LAWS[self.law.law].unknowns, logs, strict=True)):
            value = math.exp(log)
            low, _, high = log_span(value, math.sqrt(max(self.law.log_covariance[i][i], 0.0)))
            meaning = f"{unknown.name}: {unknown.meaning}" if unknown.symbol else unknown.meaning
            found[unknown.name] = Recorded(
                value,
                unit_of(unknown.name),
                symbol=unknown.symbol or unknown.name,
                meaning=meaning,
                source="fitted",
                evidence=self.evidence,
                low=float(low),
                high=float(high),
            )
        return found

    def _choice_terms(self) -> Iterator[Term]:
        """Terms for the choice among candidates: the chosen candidate, and ratios of the library's
        expected times."""
        if self.choice is None or self.taken is None:
            return
        names = [each.name for each in self.choice.candidates]
        words = f"algorithm and protocol: what {self._library} takes of {', '.join(names)}"
        yield Term("k", self.taken, names[self.taken], "", "", words)
        taken = self.choice.candidates[self.taken]
        yield Term("q", float(taken.sharpness), f"{float(taken.sharpness):g}", "", "", _OVERLAP)
        for number in (taken.choice, self.asked[1].choice_sharpness):
            yield from recorded_terms(number) if isinstance(number, Recorded) else ()

    def _choice_words(self, choice: LibraryChoice, k: int) -> Iterator[str]:
        """Why this candidate is chosen though another may be faster; and the mean that blends near a tie."""
        names = [each.name for each in choice.candidates]
        times, expected, shares = (
            [float(each) for each in numbers]
            for numbers in (choice.times_s, choice.expected_s, choice.shares)
        )
        others = ", ".join(f"{name} {format_time(times[i])}" for i, name in enumerate(names) if i != k)
        yield f"taken: {names[k]} (against {others})"
        said = ", ".join(f"{name} {format_time(time)}" for name, time in zip(names, expected, strict=True))
        yield f"{self._library} takes what its own table expects to be the fastest, even if it is not: {said}"
        if shares[k] < _ALONE:
            shown = [int(i) for i in np.argsort(-np.array(shares)) if shares[i] > _SAID]
            mean = " + ".join(f"{format_fraction(shares[i])} × {format_time(times[i])}" for i in shown)
            power = value_text(self.asked[1].choice_sharpness)
            law = format_time(float(self.recorded))
            yield (
                f"these are close, so the law is a mean of them, weighted by the expected time to the "
                f"power of -{power}: {mean} = {law}"
            )
        empty = ", ".join(f"{each.name} {format_time(each.latency_s)}" for each in choice.candidates)
        jumps = f"where {self._library} changes protocol, the share of latency jumps"
        yield f"latency without bytes: {empty}; {jumps}"


def recorded_constants(constants: StepConstants) -> StepConstants:
    """The constants of a machine's links, with their letters and sources."""
    found: dict[str, Any] = {}
    for each in fields(constants):
        value, (symbol, meaning, source) = getattr(constants, each.name), each.metadata["said"]
        given = {"unit": unit_of(each.name), "meaning": meaning, "source": source}
        if isinstance(value, bool):
            found[each.name] = value
        elif isinstance(value, Mapping):
            found[each.name] = {
                protocol: Recorded(float(one), symbol=symbol.format(protocol), **given)
                for protocol, one in value.items()
            }
        else:
            found[each.name] = Recorded(float(value), symbol=symbol, **given)
    return StepConstants(**found)
