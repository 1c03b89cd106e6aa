"""Why a log's times leave the band: each reason is a hypothesis with which the model predicts other times.

A reason is kept if with its times at least half of the sizes outside are inside the band, and more sizes in
all than without it. The reason with most sizes inside comes first; reasons with equally many cannot be
distinguished. The reasons are in ``data/validation/reasons.toml``, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from perfmodel.collectives.derivation import Calibrated
from perfmodel.collectives.link_laws import compute_law_time
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_ratio, format_time
from perfmodel.validate.checked import (
    LATENCY_SHARE,
    Z95,
    Bools,
    Floats,
    LikelyReason,
    ReasonRule,
    Series,
    compare_algorithms,
    load_reasons,
)

Guess = tuple[Floats, str]
"""Times that a hypothesis predicts, and the number that it fits in words."""

_MOST_REASONS = 4
_EXPLAINED = 0.5  # of the sizes outside
_QUANTILES = (0.25, 0.5, 0.75)
_STEPS = 13  # of a range of rates
_PCIE, _LINKS = "pcie_bytes_per_s", "nvlink_bytes_per_s"


def find_reasons(one: Series, others: Sequence[Series]) -> tuple[LikelyReason, ...]:
    """The likely reasons why a series is outside its band, most likely first.

    others  the other series of the same command
    Limits: inside its band -> none;  only the first size outside -> the reason that it is the first call;
            single sizes outside -> noise
    """
    last = one.side.size - 1
    lone = [first for first, end, slow, _ in one.stretches if slow and first == end < last]
    rest = one.outside
    outside = int(rest.sum())
    rest[lone] = False
    likely = _test_rules(one, others, rest, outside) if rest.any() else []
    counts = {"first": lone.count(0), "spikes": len(lone) - lone.count(0)}
    alone = [(rule, counts[rule.test]) for rule in load_reasons().reason if counts.get(rule.test)]
    return (*likely, *(LikelyReason(rule, rule.words, count, (), outside) for rule, count in alone))


def _test_rules(one: Series, others: Sequence[Series], rest: Bools, outside: int) -> list[LikelyReason]:
    """The reasons that agree with the times: first those that the log states, then by Akaike's criterion.

    rest  mask of the sizes outside that are to be explained;  outside  number of all sizes outside
    Limits: a reason that takes less than half of a deviation away, or makes a fast size slower -> not one
    """
    used = one.judged & (rest | ~one.outside)
    before = int((used & (one.side == 0)).sum())
    wide = load_priors().uncertainty.unseen_log_sd
    unexplained = np.abs(one.deviations(one.expected_s, wide))
    stand = []
    for rule in load_reasons().reason:
        tries = []
        for times, value in () if _is_ruled_out(rule, one, others) else predict_times(rule, one):
            z = one.deviations(times, wide)
            inside = np.abs(z) <= np.where(rest, np.minimum(Z95, unexplained / 2), Z95)
            explains, within = int((inside & rest).sum()), int((inside & used).sum())
            if explains >= _EXPLAINED * rest.sum() and within > before:
                misfit = float(np.sum(z[used] ** 2)) + 2 * rule.free
                slower = tuple((times / one.expected_s)[rest].tolist())
                tries.append((-within, misfit, explains, value, slower))
        if tries:
            within, misfit, explains, value, slower = min(tries)
            stated, hinted = (bool(re.search(pattern, one.said)) for pattern in (rule.stated, rule.hint))
            order = not stated, not hinted, rule.general, misfit
            stand.append((order, within, (rule, rule.words.format(value), explains, slower)))
    stand.sort(key=lambda row: row[0])
    most = min((within for _, within, _ in stand), default=0)
    proven = [row for row in stand if not row[0][0]]
    alike = proven or [row for row in stand if row[1] <= most + 1]
    sure = len(alike) == 1 or bool(proven)
    return [LikelyReason(*row, outside, bool(proven), not sure) for *_, row in alike[:_MOST_REASONS]]


def _is_ruled_out(rule: ReasonRule, one: Series, others: Sequence[Series]) -> bool:
    """Whether the log's text, or another collective on the same ranks, excludes a reason."""
    ranks = one.gpus, one.gpus_per_node
    beside = [o for o in others if (o.gpus, o.gpus_per_node) == ranks and o.collective != one.collective]
    if (rule.network and any(not o.stretches for o in beside)) or re.search(rule.denied, one.said):
        return True
    return rule.alone and any(stretch.slow for o in beside for stretch in o.stretches)


def find_facts(curves: Sequence[Series]) -> list[tuple[str, ReasonRule]]:
    """Each log of normal curves with a reason for slow collectives that its lines of NCCL state."""
    slow = {one.log for one in curves if one.stretches}
    normal = [one for one in curves if one.log not in slow]
    facts = [
        (one.log, rule)
        for one in normal
        for rule in load_reasons().reason
        if re.search(rule.stated, one.said) and next(predict_times(rule, one), None)
    ]
    return list(dict.fromkeys(facts))


def find_settings(curves: Sequence[Series]) -> list[tuple[str, str, str]]:
    """(log, variable of NCCL with its value, what it costs), of those that a log says were set."""
    costs, settings = load_reasons().setting, []
    for log, said in {one.log: one.said for one in curves}.items():
        stated = re.findall(rf"({'|'.join(costs)}) set by environment to ([\w,:^+.-]+)", said)
        rows = [(log, f"{name}={value}", costs[name]) for name, value in stated if value != "0"]
        settings += list(dict.fromkeys(rows))
    return settings


def predict_times(rule: ReasonRule, one: Series) -> Iterator[Guess]:
    """Yields times under a hypothesis. Limits: it is not of these links or collective -> nothing"""
    across, collective = "across" if one.group.domains > 1 else "inside", rule.collective or one.collective
    if rule.links not in ("", across) or collective != one.collective:
        return
    small = (one.latency >= LATENCY_SHARE) & (one.side > 0)
    if rule.test == "rate":
        for times, words in _lower_rates(rule, one):
            yield times, words
            excess = (one.time_s - times)[one.latency >= LATENCY_SHARE] if rule.later else np.zeros(0)
            for more in np.quantile(excess[excess > 0], _QUANTILES) if (excess > 0).any() else ():
                yield times + more, words
    elif rule.test == "choice":
        question = one.model, one.collective, one.group, one.payload_bytes
        for ratios in compare_algorithms(*question, rule.allowed):
            yield one.expected_s * ratios, ""
    elif rule.test == "launch":
        for launch in np.quantile(one.time_s[small], _QUANTILES) if small.any() else ():
            yield np.maximum(one.expected_s, launch), format_time(float(launch))
    elif rule.test == "wait":
        for more in np.quantile((one.time_s - one.expected_s)[small], _QUANTILES) if small.any() else ():
            yield one.expected_s + more, format_time(float(more))
    possible = bool((one.time_s >= one.light_s).all())
    if rule.test == ("faster" if possible else "impossible") and (one.side < 0).any():
        yield np.where(one.side < 0, one.time_s, one.expected_s), ""


def _lower_rates(rule: ReasonRule, one: Series) -> Iterator[Guess]:
    """Yields times with a machine value changed by a factor, by the law, for several factors of a range.

    Limits: no law, no such link -> nothing;  sockets that are no slower, one card of two -> nothing
    """
    machine, calibration = one.model.machine, one.model.calibration
    law = calibration.law(one.collective)
    key = _PCIE if rule.unit == "pcie" and machine.nvlink_domain_gpus <= 1 else rule.key
    value = machine.value(key)
    cards = one.gpus_per_node / machine.gpus_per_node * machine.value("nics_per_node")
    if law is None or (key == _LINKS and machine.nvlink_domain_gpus <= 1):
        return
    whole = {"": 1.0, "card": 1 / cards, "pcie": machine.value(_PCIE) / value}
    scale = whole.get(rule.unit, 1 / (one.gpus_per_node * value))
    low, high = (end * scale for end in rule.rate)
    if (rule.unit == "card" and cards <= 2) or (rule.unit == "node" and high >= 1):
        return
    question = Calibrated.of(machine, calibration).machine, one.collective, one.group, one.payload_bytes
    before = compute_law_time(law, machine, *question)
    for ratio in np.geomspace(low, high, _STEPS).tolist():
        after = compute_law_time(law, machine.with_overrides({key: ratio * value}), *question)
        yield one.expected_s * after / before, format_ratio(ratio)
