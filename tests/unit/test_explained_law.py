"""A law explains itself: what is recorded is the law, and what is printed makes its number."""

from __future__ import annotations

import re

import numpy as np
import pytest

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import BadInputError
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.recording import Recorded
from perfmodel.model.unknowns import Group
from perfmodel.passes.explained_law import ExplainedLaw
from perfmodel.passes.one_collective import explain_collective
from perfmodel.passes.recorded_words import recorded_terms, working_lines
from perfmodel.schema.evidence import COLLECTIVES
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.units import parse_time

GROUPS = [
    Group.of(2, 8),
    Group.of(8, 8),
    Group.of(72, 72),
    Group.of(16, 8),
    Group.of(20, 8),
    Group.of(24, 8),
    Group.of(512, 8),
    Group.of(16, 1),
]
SIZES = [1.0, 2.0**18, 2.0**22, 2.0**30]


def explained(machine: str, collective: str, group: Group, size: float) -> tuple[ExplainedLaw, float]:
    """A law with its time by the same numbers without a record."""
    model = CollectiveModel.load(load_machine(machine))
    law = model.calibration.law(collective)
    assert law is not None
    found = ExplainedLaw(model, law, collective, group, size, 1.0, "assumed")
    values, nccl = ({k: float(v) for k, v in found.asked[0].items()}, found.asked[1])
    plain = LINK_LAWS[law.law].time(values, found.constants, collective, group, np.array([size]))
    assert isinstance(nccl.choice_sharpness, Recorded)
    return found, float(plain[0])


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("machine", ["h100-sxm-ib", "l40s-pcie"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_recorded_is_the_law(collective: str, machine: str, group: Group) -> None:
    for size in SIZES:
        found, plain = explained(machine, collective, group, size)
        assert float(found.recorded) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_letter_of_the_working_is_explained(collective: str, group: Group) -> None:
    for size in SIZES:
        found, _ = explained("h100-sxm-ib", collective, group, size)
        lines = list(working_lines(found.shown))
        known = {term.symbol for term in recorded_terms(found.shown)}
        assert len(lines) == len({line.split(" = ")[0] for line in lines})
        for line in lines:
            letters = line.split(" = ")[1]
            used = re.findall(r"[A-Za-z_][\w]*(?:\([A-Z][\w ]*\))?", letters)
            assert set(used) <= known | {"max", "min", "ceil", "log2"}, line


def test_the_last_line_of_a_candidate_adds_up() -> None:
    found, _ = explained("h100-sxm-ib", "all_gather", Group.of(16, 8), 2.0**18)
    line = list(working_lines(found.shown))[-1]
    base, hops, moved, total = re.findall(r"([\d.]+ [µm]?s) \+ ([\d.]+ [µm]?s) \+ (.*) = (.*)$", line)[0]
    size, factor, rate = re.findall(r"([\d.]+) KiB × ([\d.]+) / ([\d.]+) GB/s", moved)[0]
    seconds = float(size) * 2**10 * float(factor) / (float(rate) * 1e9)
    whole = parse_time(base) + parse_time(hops) + seconds
    assert whole == pytest.approx(parse_time(total), rel=0.01)


@pytest.mark.parametrize("group", [Group.of(8, 8), Group.of(16, 8), Group.of(24, 8)], ids=str)
def test_the_unknowns_that_are_shown_are_those_that_move_the_time(group: Group) -> None:
    """Each unknown up in turn: the candidate's time moves if and only if its record has it."""
    found, _ = explained("h100-sxm-ib", "all_reduce", group, 2.0**24)
    assert found.choice is not None
    values = {name: float(each) for name, each in found.asked[0].items()}
    for each, time in zip(found.choice.candidates, found.choice.times_s, strict=True):
        shown = {term.symbol for term in recorded_terms(time)} & values.keys()
        moved = set()
        for name in values:
            times = []
            for factor in (0.1, 1.0, 10.0):
                changed = {**values, name: factor * values[name]}
                made = each.law(changed, found.constants, "all_reduce", group, each.name.split()[-1])
                times.append(float(made.time_s(2.0**24 * 2 * (group.gpus - 1) / group.gpus)))
            if max(times) / min(times) > 1 + 1e-9:
                moved.add(name)
        assert shown == moved, each.name


@pytest.mark.parametrize("machine", list_machines())
def test_stages_end_in_the_answer_and_doubts_make_its_band(machine: str) -> None:
    box = load_machine(machine)
    random = np.random.default_rng(5)
    for what_if in ({}, {"nic_bytes_per_s": box.value("nic_bytes_per_s") * 2}):
        try:
            model = CollectiveModel.load(box.with_overrides(what_if))
        except BadInputError:
            continue
        for collective in COLLECTIVES:
            for gpus in (2, 5, 8, 24, 100):
                size = float(2 ** random.uniform(10, 33))
                found = explain_collective(model, collective, size, gpus, box.gpus_per_node)
                answer = model.estimate(collective, size, gpus)
                assert found.stages[-1].time_s == found.time_s == float(answer.time_s)
                sd = np.sqrt(sum(log_sd**2 for _, log_sd in found.doubts))
                if found.on_grid or found.high_s == 0:
                    continue
                assert np.log(found.high_s / found.time_s) >= 1.96 * sd * (1 - 1e-3) - 1e-2
                assert found.speed_of_light_s <= found.time_s * (1 + 1e-9)


@pytest.mark.parametrize(("machine", "backend"), [("h100-sxm-ib", "nccl"), ("h200-sxm-ib", "nvshmem")])
def test_every_time_says_where_its_equation_is_from(machine: str, backend: str) -> None:
    """Of a cell, between cells, and of the law."""
    model = CollectiveModel.load(load_machine(machine), backend)
    for gpus in (2, 6, 8, 16, 100):
        for collective in ("all_gather", "all_to_all"):
            assert explain_collective(model, collective, 1e6, gpus, 8).reference, (collective, gpus)


def test_one_gpu_has_nothing_to_explain() -> None:
    model = CollectiveModel.load(load_machine("h100-sxm-ib"))
    with pytest.raises(BadInputError, match="sends nothing"):
        explain_collective(model, "all_to_all", 1e6, 1, 8)


@pytest.mark.parametrize(("at", "named"), [(0, 2), (-1, 2), (3, 2)])
def test_a_measured_cell_names_the_sizes_on_either_side(at: int, named: int) -> None:
    model = CollectiveModel.load(load_machine("h100-sxm-ib"))
    curve = model.calibration.curve("all_gather", 8, 8)
    assert curve is not None
    found = explain_collective(model, "all_gather", curve.anchor_bytes[at], 8, 8)
    times = [term.value for term in found.time.terms if term.symbol in ("t_i", "t_i+1")]
    assert len(times) == named and curve.anchor_times_s[at] in times
    assert found.reference.startswith("docs/model.md#curves")
