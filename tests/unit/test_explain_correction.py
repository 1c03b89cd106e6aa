"""The correction of a law: which cell and size it is from, and that its numbers make the factor."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.stored import step_constants
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.passes.equations import PAGE, SECTIONS, documented
from perfmodel.passes.one_collective import explain_collective
from perfmodel.schema.calibration import Curve
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import load_priors
from perfmodel.units import parse_time

MODEL = CollectiveModel.load(load_machine("h100-sxm-ib"))
_OF_A_RING = ("reduce_scatter", "all_gather")


def nearest(collective: str, payload: float, gpus: int) -> tuple[Curve, float]:
    """By trying every cell across domains: the one that was measured nearest to the size, and that size."""
    best: tuple[tuple[float, float, float], Curve, float] | None = None
    for cell in MODEL.calibration.curves:
        if cell.collective != collective or cell.gpus == cell.domain_gpus:
            continue
        wanted = payload * (cell.gpus / gpus if collective in _OF_A_RING else 1)
        size = min(max(wanted, cell.anchor_bytes[0]), cell.anchor_bytes[-1])
        apart = abs(math.log2(size / wanted))
        far = abs(math.log2(cell.domain_gpus / 8)), abs(math.log2(cell.gpus / gpus))
        key = (0.0 if apart < 0.1 else apart, *far)
        if best is None or key < best[0]:
            best = key, cell, size
    assert best is not None
    return best[1], best[2]


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "all_reduce", "all_to_all"])
@pytest.mark.parametrize("payload", [2.0**12, 19 * 2.0**20, 3 * 2.0**26, 2.0**30])
def test_the_correction_adds_up(collective: str, payload: float) -> None:
    gpus = 152
    found = explain_collective(MODEL, collective, payload, gpus, 8)
    terms = {term.symbol: term for term in found.time.terms}
    cell, size = nearest(collective, payload, gpus)
    law = MODEL.calibration.law(collective)
    assert law is not None
    group, steps = Group.of(cell.gpus, cell.domain_gpus), step_constants(MODEL.machine, load_priors())
    by_law = LINK_LAWS[law.law].time_at(np.log(law.values), steps, collective, group, np.array([size]))[0]
    assert terms["law_near"].value == pytest.approx(by_law, rel=0.05)  # read on the grid of sizes
    at = np.abs(np.array(cell.anchor_bytes) / size - 1)
    if at.min() < 1e-6:
        assert terms["t_near"].value == pytest.approx(cell.anchor_times_s[int(at.argmin())], rel=0.02)
        assert terms["t_near"].evidence == "measured"
    assert f"on {cell.gpus} GPUs" in terms["t_near"].meaning
    assert terms["t_near"].source == ", ".join(cell.sources)
    own = terms["fade"].value * math.log(terms["t_near"].value / terms["law_near"].value)
    assert terms["res"].value == pytest.approx(own, abs=0.1)  # the average of an octave; single sizes scatter
    corr = math.exp(terms["carry"].value * terms["res"].value)
    assert terms["corr"].value == pytest.approx(corr)
    stages = {stage.what: stage.time_s for stage in found.stages}
    ratio = stages["corrected by measured cells"] / stages["law of the links"]
    assert corr == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize(
    ("machine", "overrides"), [("h200-sxm-ib", {}), ("h100-sxm-ib", {"nic_bytes_per_s": 10e9})]
)
def test_no_part_of_a_correction_is_left_unsaid(machine: str, overrides: dict[str, float]) -> None:
    """What no measured cell says is said to be of the grid, or of the stages after the law."""
    model = CollectiveModel.load(load_machine(machine).with_overrides(overrides))
    for payload in (2.0**14, 19.9 * 2**20, 2.0**30):
        found = explain_collective(model, "reduce_scatter", payload, 152, 8)
        last = re.search(r"× correction (\S+) = ", found.time.working[-1])
        factors = [float(term.value) for term in found.time.terms if term.symbol == "corr"]
        rest = re.search(r"of the correction × (\S+) is", found.time.working[-2])
        factors += [float(rest.group(1))] if rest else []
        assert math.prod(factors) == pytest.approx(float(last.group(1)) if last else 1.0, rel=0.01)


def test_what_was_not_measured_is_not_said_to_be(cli: Any) -> None:
    """Ten nodes were measured from 32 MiB on; 18 MiB on 144 GPUs is 10 MiB of theirs."""
    done = cli("explain", "reduce-scatter-bags", "--table-size", "10TB", "--sharding", "row-wise")
    text = " ".join(done.out.split())
    assert "80 GPUs (10 domains of 8), measured from 32.0 MiB to 16.0 GiB (xxrjun_c01_multi10)" in text
    assert "18 MiB × 80/144 = 10 MiB, the same S/G, is outside: 32.0 MiB is the nearest" in text
    assert "corrected by 80 measured GPUs" not in text
    said = re.search(r"measured (\S+ .s), law (\S+ .s), ln\(.*?\) = (\S+) ", text)
    assert said is not None
    measured, law = (parse_time(said.group(i)) for i in (1, 2))
    assert math.log(measured / law) == pytest.approx(float(said.group(3)), abs=2e-3)
    assert "perfmodel.collectives.corrections.correction" in text
    between = explain_collective(MODEL, "reduce_scatter", 3 * 2.0**26, 152, 8).time.terms
    (near,) = [term for term in between if term.symbol == "t_near"]
    assert near.evidence == "interpolated"


def test_a_cited_section_is_a_heading_of_the_page() -> None:
    """An installed program has no docs folder: it says the title of the page and the heading."""
    page = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    assert page.startswith("# The model")
    headings = re.findall(r"^##+ (.*)$", page, flags=re.M)
    for section in SECTIONS.values():
        said = documented(f"NVIDIA/nccl; {PAGE}#{section}; fitted")
        found = re.fullmatch(r'NVIDIA/nccl; The model, "(.*)"; fitted', said)
        assert found is not None and found.group(1) in headings, said
