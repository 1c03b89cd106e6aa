"""Why a log's times leave the band: each reason is a hypothesis with which the model predicts other times.

A reason is kept if with its times at least half of the sizes outside are inside the band, and more sizes in
all than without it. The reason with most sizes inside comes first; reasons with equally many cannot be
distinguished. The reasons are in ``data/validation/reasons.toml``, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.rates import rate_shift
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_ratio, format_time
from perfmodel.validate.checked import LATENCY_SHARE, Z95, Bools, Floats, Series, compare_algorithms
from perfmodel.validate.reason_table import LikelyReason, ReasonRule, load_reasons

Guess = tuple[Floats, str]
"""Times that a hypothesis predicts, and the number that it fits in words."""

_MOST_REASONS = 4
_EXPLAINED = 0.5  # of the sizes outside
_QUANTILES = (0.25, 0.5, 0.75)
_STEPS = 13  # of a range of rates
_CARDS, _LINKS, _PCIE = "nic_bytes_per_s", "nvlink_bytes_per_s", "pcie_bytes_per_s"


def reasons_of(one: Series, others: Sequence[Series]) -> tuple[LikelyReason, ...]:
    """The likely reasons why a series is outside its band, most likely first.

    others  the other series of the same command
    Limits: inside its band -> none;  only the first size outside -> the reason that it is the first call;
            single sizes outside -> noise
    """
    last = one.side.size - 1
    lone = [each.first for each in one.stretches if each.slow and each.first == each.last < last]
    rest = one.outside
    outside = int(rest.sum())
    rest[lone] = False
    found = _tested(one, others, rest, outside) if rest.any() else []
    counts = {"first": lone.count(0), "spikes": len(lone) - lone.count(0)}
    alone = [(rule, counts[rule.test]) for rule in load_reasons().reason if counts.get(rule.test)]
    return (*found, *(LikelyReason(rule, "", count, (), outside) for rule, count in alone))


def _tested(one: Series, others: Sequence[Series], rest: Bools, outside: int) -> list[LikelyReason]:
    """The reasons that agree with the times: first those that the log states, then by Akaike's criterion.

    rest  mask of the sizes outside that are to be explained;  outside  number of all sizes outside
    """
    used = one.judged & (rest | ~one.outside)
    before = int((used & (one.side == 0)).sum())
    stand = []
    for rule in load_reasons().reason:
        tries = []
        for times, value in () if _ruled_out(rule, one, others) else TESTS[rule.test](one, rule.rate):
            z = one.deviations(times, load_priors().uncertainty.unseen_log_sd)
            inside = np.abs(z) <= Z95
            explains, within = int((inside & rest).sum()), int((inside & used).sum())
            if explains >= _EXPLAINED * rest.sum() and within > before:
                misfit = float(np.sum(z[used] ** 2)) + 2 * rule.free
                slower = tuple((times / one.expected_s)[rest].tolist())
                tries.append((-within, misfit, explains, value, slower))
        if tries:
            within, misfit, explains, value, slower = min(tries)
            stated, hinted = (bool(re.search(each, one.said)) for each in (rule.stated, rule.hint))
            order = not stated, not hinted, rule.general, misfit
            stand.append((order, within, (rule, value, explains, slower)))
    stand.sort(key=lambda each: each[0])
    most = min((within for _, within, _ in stand), default=0)
    proven = [each for each in stand if not each[0][0]]
    alike = proven or [each for each in stand if each[1] <= most + 1]
    told = len(alike) == 1 or bool(proven)
    return [LikelyReason(*found, outside, bool(proven), not told) for *_, found in alike[:_MOST_REASONS]]


def _ruled_out(rule: ReasonRule, one: Series, others: Sequence[Series]) -> bool:
    """Whether the log's text, or another collective on the same ranks, excludes a reason."""
    ranks = one.gpus, one.gpus_per_node
    beside = [o for o in others if (o.gpus, o.gpus_per_node) == ranks and o.collective != one.collective]
    if (rule.network and any(not o.stretches for o in beside)) or re.search(rule.denied, one.said):
        return True
    return rule.alone and any(each.slow for o in beside for each in o.stretches)


def _rates(one: Series, key: str, between: tuple[float, float]) -> Iterator[Guess]:
    """Yields times with a machine value changed by a factor, by the law, for several factors.

    key  of the value, a rate;  between  range of the factors. Limits: factor 1 -> the expected times
    """
    machine, calibration = one.model.machine, one.model.calibration
    law = calibration.law(one.collective)
    for ratio in map(float, np.geomspace(*between, _STEPS) if law is not None else ()):
        assert law is not None
        other = machine.with_overrides({key: ratio * machine.value(key)})
        asked = Calibrated.of(machine, calibration), law, one.collective, one.group, one.payload_bytes
        shift = rate_shift(other, *asked) - rate_shift(machine, *asked)
        yield np.asarray(one.expected_s * np.exp(shift)), format_ratio(ratio)


def _later(one: Series, guesses: Iterator[Guess]) -> Iterator[Guess]:
    """Yields each guess, and also with additional latency: the latency that fits small messages."""
    for times, words in guesses:
        yield times, words
        excess = (one.time_s - times)[one.latency >= LATENCY_SHARE]
        for more in np.quantile(excess[excess > 0], _QUANTILES) if (excess > 0).any() else ():
            yield times + more, words


def _cards(one: Series, rate: tuple[float, float]) -> Iterator[Guess]:
    """Yields times with all network cards at a fraction of their rate, in a range.

    Limits: one domain -> nothing
    """
    if one.group.domains > 1:
        yield from _rates(one, _CARDS, rate)


def _one_card(one: Series, rate: tuple[float, float]) -> Iterator[Guess]:
    """Yields times if the GPUs of a node use a single network card.

    Limits: they have at most two cards -> nothing, since a single card is then the case of ``_cards``
    """
    machine = one.model.machine
    used = one.gpus_per_node / machine.gpus_per_node * machine.value("nics_per_node")
    if used > 2:
        yield from _cards(one, (rate[0] / used, rate[1] / used))


def _sockets(one: Series, rate: tuple[float, float]) -> Iterator[Guess]:
    """Yields times through sockets of the host's network. rate  range of the rate per node [bytes/s]"""
    low, high = (each / one.gpus_per_node / one.model.machine.value(_CARDS) for each in rate)
    if high < 1:
        yield from _later(one, _cards(one, (low, high)))


def _inside(one: Series, rate: tuple[float, float]) -> Iterator[Guess]:
    """Yields times with the scale-up link at a fraction of its rate.

    Limits: several domains, no such link -> nothing
    """
    if one.group.domains == 1 and one.model.machine.nvlink_domain_gpus > 1:
        yield from _rates(one, _LINKS, rate)


def _no_p2p(one: Series, rate: tuple[float, float]) -> Iterator[Guess]:
    """Yields times through host memory, at rates from a twentieth of PCIe's up to PCIe's."""
    machine = one.model.machine
    if one.group.domains == 1:
        key = _LINKS if machine.nvlink_domain_gpus > 1 else _PCIE
        most = machine.value(_PCIE) / machine.value(key)
        yield from _later(one, _rates(one, key, (most / 20, most)))


def _chosen(one: Series, allowed: Callable[[str], bool]) -> Iterator[Guess]:
    """Yields times of the fastest algorithm and protocol whose name is allowed, fitted and by table."""
    for ratios in compare_algorithms(one.model, one.collective, one.group, one.payload_bytes, allowed):
        yield one.expected_s * ratios, ""


def _launches(one: Series, rate: tuple[float, float]) -> Iterator[Guess]:
    """Yields times if each call takes at least a launch time; it only shows for small messages."""
    slow = one.time_s[(one.latency >= LATENCY_SHARE) & (one.side > 0)]
    for launch in np.quantile(slow, _QUANTILES) if slow.size else ():
        yield np.maximum(one.expected_s, launch), format_time(float(launch))


def _waits(one: Series, *, across: bool) -> Iterator[Guess]:
    """Yields times if each call waits for a constant time, at all sizes.

    across  whether this is for ranks in several domains, else in one
    """
    slow = (one.time_s - one.expected_s)[(one.latency >= LATENCY_SHARE) & (one.side > 0)]
    for more in np.quantile(slow, _QUANTILES) if slow.size and across == (one.group.domains > 1) else ():
        yield one.expected_s + more, format_time(float(more))


def _no_pxn(one: Series, rate: tuple[float, float]) -> Iterator[Guess]:
    """Yields times of an all-to-all without PXN: each GPU sends to all remote GPUs itself, over the spine.

    It has more latency, and a fraction of the rate.
    """
    if one.collective == "all_to_all" and one.gpus_per_node > 1:
        yield from _later(one, _cards(one, rate))


def _faster(one: Series, *, possible: bool) -> Iterator[Guess]:
    """Yields the measured times where they are below the band, as a reason for being fast.

    possible  whether the links allow all measured times. Limits: nowhere fast, or otherwise -> nothing
    """
    if (one.side < 0).any() and bool((one.time_s >= one.light_s).all()) == possible:
        yield np.where(one.side < 0, one.time_s, one.expected_s), ""


TESTS: dict[str, Callable[[Series, tuple[float, float]], Iterator[Guess]]] = {
    "no_nvls": lambda one, _: _chosen(one, lambda name: name != "NVLS"),
    "no_p2p": _no_p2p,
    "inside": _inside,
    "cards": _cards,
    "one_card": _one_card,
    "host_path": lambda one, rate: _later(one, _cards(one, rate)),
    "sockets": _sockets,
    "no_pxn": _no_pxn,
    "simple": lambda one, _: _chosen(one, lambda name: not name.endswith((" LL", " LL128"))),
    "ll": lambda one, _: _chosen(one, lambda name: name.endswith(" LL")),
    "rings": lambda one, _: _chosen(one, lambda name: name.startswith("ring ")),
    "launches": _launches,
    "waits_inside": lambda one, _: _waits(one, across=False),
    "waits_across": lambda one, _: _waits(one, across=True),
    "impossible": lambda one, _: _faster(one, possible=False),
    "faster": lambda one, _: _faster(one, possible=True),
    "first": lambda one, _: iter(()),
    "spikes": lambda one, _: iter(()),
}
"""Hypotheses by the names of the table. The last two need no times (``reasons_of``)."""
