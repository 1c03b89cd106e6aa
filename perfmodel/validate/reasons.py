"""Why a log's times leave the band: each reason is a hypothesis with which the model predicts other times.

A reason is kept if with its times at least half of the slow sizes are inside the band, and more sizes in all
than without it. The reason with most sizes inside comes first; reasons with equally many cannot be
distinguished. The reasons are in ``data/validation/reasons.toml``, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from perfmodel import resources
from perfmodel.collectives.derivation import Calibrated
from perfmodel.collectives.link_laws import compute_law_time
from perfmodel.schema.fields import Strict, read_as
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_ratio, format_time
from perfmodel.validate.checked import LATENCY_SHARE, Z95, Floats, Series

_MOST_REASONS = 4
_EXPLAINED = 0.5  # of the slow sizes
_QUANTILES = (0.25, 0.5, 0.75)
_STEPS = 13  # of a range of rates
_NOTHING = r"\A(?!)"  # that no log says


class ReasonRule(Strict):
    """A reason why collectives may be slow; ``data/validation/reasons.toml`` says what its keys mean."""

    name: str
    test: Literal["rate", "choice", "wait"]
    key: str = ""
    rate: tuple[float, float] = (1.0, 1.0)
    of_cards: bool = False
    later: bool = False
    allowed: str = ""
    links: Literal["", "inside", "across"] = ""
    collective: str = ""
    words: str
    look: str
    source: str
    free: int = 0
    general: bool = False
    beside: Literal["", "slow", "normal"] = ""
    stated: str = _NOTHING
    denied: str = _NOTHING


class ReasonRules(Strict):
    """The contents of the table. setting  what a variable of NCCL costs that a log says was set"""

    setting: Mapping[str, str]
    reason: tuple[ReasonRule, ...]


@lru_cache(maxsize=1)
def load_reasons() -> ReasonRules:
    """The rules by which ``perfmodel check`` explains a slow log, from the shipped file."""
    return read_as(ReasonRules, resources.data_path("validation", "reasons.toml"), "reasons")


@dataclass(frozen=True, kw_only=True)
class LikelyReason:
    """A reason that agrees with the measured times.

    name, words, look, source  of the rule, with its fitted number
    explains  number of slow sizes that would be inside with it;  of  number of slow sizes
    ratios    times by this reason over expected times, at the slow sizes [-]
    stated    whether the log itself says so;  cannot_tell  whether other reasons explain as many sizes
    """

    name: str
    words: str
    look: str
    source: str
    explains: int
    of: int
    ratios: tuple[float, ...]
    stated: bool
    cannot_tell: bool = False


def find_reasons(series: Series, others: Sequence[Series]) -> list[LikelyReason]:
    """The likely reasons why a series is slow: first those that the log states, then by Akaike's criterion.

    others  the series of the same command
    Limits: no size is slow -> none;  a reason that takes less than half of a deviation away -> not one
    """
    slow = series.outside & (series.side > 0)
    used = series.judged & (slow | ~series.outside)
    before, wide = int((used & ~slow).sum()), load_priors().uncertainty.unseen_log_sd
    allowed = np.where(slow, np.minimum(Z95, np.abs(series.deviations(series.expected_s, wide)) / 2), Z95)
    likely = []
    for rule in load_reasons().reason if slow.any() else ():
        tries = []
        for times, value in () if _is_ruled_out(rule, series, others) else predict_times(rule, series):
            z = series.deviations(times, wide)
            inside, misfit = np.abs(z) <= allowed, float(np.sum(z[used] ** 2)) + 2 * rule.free
            explains, within = int((inside & slow).sum()), int((inside & used).sum())
            if explains >= _EXPLAINED * slow.sum() and within > before:
                tries.append((-within, misfit, explains, value, tuple((times / series.expected_s)[slow])))
        if tries:
            within, misfit, explains, value, ratios = min(tries)
            reason = LikelyReason(
                name=rule.name,
                words=rule.words.format(value),
                look=rule.look,
                source=rule.source,
                explains=explains,
                of=int(slow.sum()),
                ratios=ratios,
                stated=bool(re.search(rule.stated, series.said)),
            )
            likely.append(((not reason.stated, rule.general, misfit), within, reason))
    likely.sort(key=lambda row: row[0])
    largest = min((within for _, within, _ in likely), default=0)
    proven = [reason for *_, reason in likely if reason.stated]
    alike = [reason for _, within, reason in likely if within <= largest + 1][:_MOST_REASONS]
    return proven or [replace(reason, cannot_tell=len(alike) > 1) for reason in alike]


def _is_ruled_out(rule: ReasonRule, series: Series, others: Sequence[Series]) -> bool:
    """Whether the log's text, or another collective on the same ranks, excludes a reason."""
    ranks = series.gpus, series.gpus_per_node
    beside = [s for s in others if (s.gpus, s.gpus_per_node) == ranks and s.collective != series.collective]
    slow = [any(stretch.slow for stretch in neighbour.stretches) for neighbour in beside]
    excluded = {"slow": not all(slow), "normal": any(slow)}.get(rule.beside, False)
    return excluded or bool(re.search(rule.denied, series.said))


def find_facts(curves: Sequence[Series]) -> list[tuple[str, ReasonRule]]:
    """Each log of curves that are not slow, with reasons to be slow that its lines of NCCL state."""
    abnormal = {series.log for series in curves if series.abnormal}
    facts = [
        (series.log, rule)
        for series in curves
        for rule in load_reasons().reason
        if series.log not in abnormal and re.search(rule.stated, series.said)
        if next(predict_times(rule, series), None)
    ]
    return list(dict.fromkeys(facts))


def find_settings(curves: Sequence[Series]) -> list[tuple[str, str, str]]:
    """(log, variable of NCCL with its value, what it costs), of those that a log says were set."""
    costs, settings = load_reasons().setting, []
    for series in curves:
        stated = re.findall(rf"({'|'.join(costs)}) set by environment to ([\w,:^+.-]+)", series.said)
        settings += [(series.log, f"{name}={value}", costs[name]) for name, value in stated if value != "0"]
    return list(dict.fromkeys(settings))


def predict_times(rule: ReasonRule, series: Series) -> Iterator[tuple[Floats, str]]:
    """Yields times under a hypothesis, with the number that it fits in words.

    Limits: it is not of these links or this collective -> nothing
    """
    across = "across" if series.group.domains > 1 else "inside"
    if rule.links not in ("", across) or rule.collective not in ("", series.collective):
        return
    expected_s, small = series.expected_s, series.latency >= LATENCY_SHARE
    if rule.test == "choice":
        ratios = series.compare_algorithms(rule.allowed)
        if ratios is not None:
            yield expected_s * ratios, ""
    elif rule.test == "wait":
        longer = (series.time_s - expected_s)[small & (series.side > 0)]
        for wait_s in np.quantile(longer, _QUANTILES) if longer.size else ():
            yield expected_s + wait_s, format_time(float(wait_s))
    for ratio, slower in _predict_lower_rates(rule, series) if rule.test == "rate" else ():
        times = expected_s * slower
        yield times, format_ratio(ratio)
        longer = (series.time_s - times)[small & rule.later]
        for wait_s in np.quantile(longer[longer > 0], _QUANTILES) if (longer > 0).any() else ():
            yield times + wait_s, format_ratio(ratio)


def _predict_lower_rates(rule: ReasonRule, series: Series) -> Iterator[tuple[float, Floats]]:
    """Yields factors of a machine value, each with the law's times over those without it [-].

    Limits: no law, no such link -> nothing;  one card of two -> nothing, it is half of the cards
    """
    machine, calibration = series.model.machine, series.model.calibration
    law, cards = calibration.law(series.collective), 1.0
    if law is None or (rule.links == "inside" and machine.nvlink_domain_gpus <= 1):
        return
    if rule.of_cards:
        cards = series.gpus_per_node / machine.gpus_per_node * machine.value("nics_per_node")
    measured_on = Calibrated.of(machine, calibration).machine
    question = measured_on, series.collective, series.group, series.payload_bytes
    before = compute_law_time(law, machine, *question)
    for ratio in np.geomspace(*rule.rate, _STEPS).tolist() if not rule.of_cards or cards > 2 else ():
        slower = machine.with_overrides({rule.key: ratio / cards * machine.value(rule.key)})
        yield ratio / cards, compute_law_time(law, slower, *question) / before
