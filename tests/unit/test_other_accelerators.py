"""Accelerators that are not GPUs: Gaudi 3 from data sheets, and those that another law would describe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cli_calls import is_an_error

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import load_machine


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tpu-v5p", "a TPU is not modelled: its chips form a torus"),
        ("v6e", "a TPU is not modelled"),
        ("ironwood", "bound by the bisection"),
        ("trn2", "Trainium is not modelled: the chips of an instance form a torus"),
        ("Trainium3", "adds a level between instances"),
    ],
)
def test_a_torus_is_refused_and_not_guessed(cli: Any, name: str, why: str) -> None:
    """Rather than the nearest name: no machine with a switch is like it."""
    is_an_error(cli("project", "--machine", name, "--table-size", "1TB"), 2, why, "perfmodel machines")


@pytest.mark.parametrize("name", ["h100", "trial", "vera", "tp8"])
def test_other_unknown_names_are_only_unknown(name: str) -> None:
    with pytest.raises(BadInputError, match="is not known"):
        load_machine(name)


GAUDI, MI355X = "gaudi3-roce", "mi355x-roce"


def test_gaudi_borrows_the_latencies_of_another_library_with_a_wide_band() -> None:
    own, lender = CollectiveModel.load(load_machine(GAUDI)), CollectiveModel.load(load_machine(MI355X))
    assert own.borrowed and own.calibration_id == lender.calibration_id
    mine, theirs = (model.estimate("all_to_all", [2.0**20], 32) for model in (own, lender))
    assert mine.evidence[0] == Evidence.TRANSFERRED.rank
    assert mine.high_s[0] / mine.time_s[0] > 1.1 * theirs.high_s[0] / theirs.time_s[0] > 2


def test_gaudis_rates_are_those_of_its_ports() -> None:
    """Across boxes an all-to-all has at most 75 GB/s and a ring 8 times as much, until 525 inside."""
    model, size = CollectiveModel.load(load_machine(GAUDI)), np.array([2.0**34])
    exchanged, gathered = (model.estimate(name, size, 64) for name in ("all_to_all", "all_gather"))
    assert exchanged.low_s[0] >= size[0] * 56 / 64 / 75e9 * 0.999
    assert gathered.low_s[0] >= size[0] * 56 / 64 / 600e9 * 0.999
    assert exchanged.time_s[0] < 1.1 * size[0] * 56 / 64 / 75e9


def test_what_the_vendor_measured_is_inside_the_band() -> None:
    """An all-reduce of 256 MiB on 8 Gaudi 3 has 513 GB/s (docs.habana.ai); no fit saw it."""
    found = CollectiveModel.load(load_machine(GAUDI)).estimate("all_reduce", [2.0**28], 8)
    seen = 2**28 * 2 * 7 / 8 / 513e9
    assert found.low_s[0] < seen < found.high_s[0]
    assert found.time_s[0] == pytest.approx(seen, rel=0.35)


def test_a_name_that_begins_alike_is_only_unknown() -> None:
    with pytest.raises(BadInputError) as caught:
        load_machine("infra-h100")
    assert "Trainium" not in str(caught.value)
