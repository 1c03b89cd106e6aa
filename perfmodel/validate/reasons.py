"""Why a log's times leave the band: each reason is a hypothesis with which the model predicts other times.

The reasons are in ``data/validation/reasons.toml``, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Literal, NamedTuple

import numpy as np

from perfmodel import resources
from perfmodel.engine.tables import Array
from perfmodel.schema.fields import Strict, read_as
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_ratio, format_time
from perfmodel.validate.checked import LATENCY_SHARE, Z95, Series

_MOST_REASONS = 4
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
    """The table. network  lines of each kind of network;  setting  what a variable costs that was set"""

    network: Mapping[str, str]
    setting: Mapping[str, str]
    reason: tuple[ReasonRule, ...]


@lru_cache(maxsize=1)
def load_reasons() -> ReasonRules:
    """The rules by which ``perfmodel check`` explains a slow log, from the shipped file."""
    return read_as(ReasonRules, resources.data_path("validation", "reasons.toml"), "reasons")


class LikelyReason(NamedTuple):
    """A reason that agrees with the measured times.

    words  of the rule, with its fitted number;  explains  slow sizes that would be inside, of so many
    ratios  times by this reason over expected times, at the slow sizes [-]
    stated  whether the log itself says so;  cannot_tell  whether other reasons explain as many sizes
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

    others  the series of the same command: a normal neighbour on the same ranks rules some reasons out
    With the times of a reason at least half of the slow sizes are inside the band, and more sizes in all than
    without it. Reasons with equally many cannot be told from each other.
    Limits: no size is slow -> none;  a reason that takes less than half of a deviation away -> not one
    """
    slow = series.find_outside(1)
    expected_s = series.normal.time_s
    used = series.judged & ~series.find_outside(-1)  # what is too fast tells nothing of slowness
    wide = load_priors().uncertainty.unseen_log_sd
    # a reason must bring a slow size into the band, and at least half of the way
    allowed = np.where(slow, np.minimum(Z95, np.abs(series.deviations(expected_s, wide)) / 2), Z95)
    ranks = series.gpus, series.gpus_per_node
    likely = []
    beside = [s for s in others if (s.gpus, s.gpus_per_node) == ranks and s.collective != series.collective]
    ruled_out = {"slow": not all(s.slow for s in beside), "normal": any(s.slow for s in beside)}
    for rule in load_reasons().reason if slow.any() else ():
        if ruled_out.get(rule.beside) or re.search(rule.denied, series.said):
            continue
        tries = []
        for times, value in predict_times(rule, series):
            z = series.deviations(times, wide)
            inside = np.abs(z) <= allowed
            misfit = float(np.sum(z[used] ** 2)) + 2 * rule.free  # Akaike: each fitted number costs 2
            explains = int((inside & slow).sum())
            within = int((inside & used).sum())
            if 2 * explains >= slow.sum() and within > (used & ~slow).sum():
                tries.append((-within, misfit, explains, value, tuple((times / expected_s)[slow])))
        if tries:
            within, misfit, explains, value, ratios = min(tries)
            texts = rule.name, rule.words.format(value), rule.look, rule.source
            stated = bool(re.search(rule.stated, series.said))
            reason = LikelyReason(*texts, explains, int(slow.sum()), ratios, stated)
            likely.append(((not stated, rule.general, misfit), within, reason))
    likely.sort(key=lambda row: row[0])
    largest = min((within for _, within, _ in likely), default=inf)
    proven = [reason for *_, reason in likely if reason.stated]
    alike = [reason for _, within, reason in likely if within <= largest + 1][:_MOST_REASONS]
    return proven or [reason._replace(cannot_tell=len(alike) > 1) for reason in alike]


def find_facts(curves: Sequence[Series]) -> list[tuple[str, str, str]]:
    """(log, reason that its lines of NCCL state though it is normal, or variable that was set, words)."""
    abnormal = {series.log for series in curves if series.abnormal}
    rules = load_reasons()
    costs = rules.setting
    facts = list[tuple[str, str, str]]()
    for series in curves:
        for rule in () if series.log in abnormal else rules.reason:
            if re.search(rule.stated, series.said) and next(predict_times(rule, series), None):
                facts.append((series.log, rule.name, f"look at {rule.look}"))
        stated = re.findall(rf"({'|'.join(costs)}) set by environment to ([\w,:^+.-]+)", series.said)
        facts += [(series.log, f"{name}={value}", costs[name]) for name, value in stated if value != "0"]
    return list(dict.fromkeys(facts))


def predict_times(rule: ReasonRule, series: Series) -> Iterator[tuple[Array, str]]:
    """Yields the time of each size under a hypothesis, with the number that it fits (a rate, …) in words.

    Limits: it is not of these links or this collective, or no law tells -> nothing
    """
    across = "across" if series.group.domains > 1 else "inside"
    if rule.links not in ("", across) or rule.collective not in ("", series.collective):
        return
    waits = rule.test == "wait"
    small = series.normal.floor_s >= LATENCY_SHARE * series.normal.time_s  # mostly latency: shows a wait
    small &= series.side > 0 if waits else rule.later
    for words, machine in _list_machines(rule, series):
        ratios = np.ones(small.size) if waits else series.predict_ratio(machine, rule.allowed)
        if ratios is None:
            return
        times = series.normal.time_s * ratios
        longer = (series.time_s - times)[small]  # waits that would explain the rest: a few are tried
        if not waits:
            yield times, words
            longer = longer[longer > 0]
        for wait_s in np.quantile(longer, _QUANTILES) if longer.size else ():
            yield times + wait_s, words or format_time(float(wait_s))


def _list_machines(rule: ReasonRule, series: Series) -> Iterator[tuple[str, Machine]]:
    """Yields (share left, in words; the machine with so much of the rule's value); no value -> as it is.

    Limits: no link inside a domain -> nothing;  one card of two -> nothing, it is half of the cards
    """
    machine = series.model.machine
    cards = 1.0
    if rule.of_cards:
        cards = series.gpus_per_node / machine.gpus_per_node * machine.value("nics_per_node")
    if not rule.key:
        yield "", machine
    elif (cards > 2 or not rule.of_cards) and (rule.links != "inside" or machine.nvlink_domain_gpus > 1):
        for ratio in np.geomspace(*rule.rate, _STEPS).tolist():
            less = {rule.key: ratio / cards * machine.value(rule.key)}
            yield format_ratio(ratio / cards), machine.with_overrides(less)
