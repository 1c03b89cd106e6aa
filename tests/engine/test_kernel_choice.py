"""Whose look-up kernels an answer is of: FBGEMM's unless another is asked for, and the others a line down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.answer import Answer, project_one
from perfmodel.errors import BadInputError, NoKernelsError
from perfmodel.schema.calibration import KernelConstants, KernelFit, save_calibration, shipped_calibration
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import load_machine

MACHINE = "h100-sxm-ib"
ASKED = {"table_bytes": 1e12, "gpus": 16, "table_count": 4, "batch": 4096}


def constants(implementation: str, rate: float) -> KernelConstants:
    interval = Interval(value=rate, low=rate / 2, high=rate * 2)
    fit = KernelFit(log_sd=0.1, sample_count=9, loo_median=0.1, loo_p90=0.2, low_bytes=1, high_bytes=1e12)
    return KernelConstants(
        values={"gather_bytes_per_s": interval},
        fits={"gather_pool": fit},
        log_sd=0.1,
        sample_count=9,
        loo_median=0.1,
        loo_p90=0.2,
        implementation=implementation,
        clock=Clock.STREAM,
    )


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """A shipped calibration with kernels of FBGEMM at 2 TB/s and of this project at 3."""
    shipped = shipped_calibration(f"{MACHINE}/nccl-2.29.2-stream")
    own = shipped.model_copy(
        update={"kernels": constants("fbgemm", 2e12), "more_kernels": [constants("perfmodel", 3e12)]}
    )
    path = tmp_path / "mine.json"
    save_calibration(own, path)
    return path


def answer(**options: object) -> Answer:
    return project_one(machine=MACHINE, **ASKED, **options)


def gather_rate(p: Answer) -> float:
    return p.setting.machine.value("gather_bytes_per_s")


def test_unasked_it_is_fbgemms_and_the_machine_files() -> None:
    plain = answer()
    assert plain.setting.kernel_library == "fbgemm"
    assert gather_rate(plain) == load_machine(MACHINE).value("gather_bytes_per_s")
    assert answer(kernels="fbgemm").time_s == plain.time_s


def test_torchs_published_rate_is_a_part_of_the_datasheets() -> None:
    """0.406 of 3.35 TB/s; slower look-ups in local memory too."""
    torch = answer(kernels="torch")
    assert gather_rate(torch) == pytest.approx(0.406 * 3.35e12)
    assert torch.setting.machine.quantity("gather_bytes_per_s").evidence is Evidence.TRANSFERRED
    assert torch.time_s > answer().time_s and torch.baseline_time_s > answer().baseline_time_s


def test_kernels_that_nobody_timed_have_no_answer() -> None:
    with pytest.raises(NoKernelsError, match=r"there are no times of perfmodel kernels on h100-sxm-ib"):
        answer(kernels="perfmodel")
    with pytest.raises(BadInputError, match=r"kernels 'cuembed' is not known"):
        answer(kernels="cuembed")


def test_a_calibration_has_those_that_were_timed(timed: Path) -> None:
    known = {name: answer(calibration=timed, kernels=name) for name in ("fbgemm", "perfmodel")}
    assert [gather_rate(p) for p in known.values()] == [2e12, 3e12]
    assert gather_rate(answer(calibration=timed)) == 2e12
    with pytest.raises(NoKernelsError, match=r"has no kernels of torch; it has fbgemm, perfmodel"):
        answer(calibration=timed, kernels="torch")


def test_the_command_takes_the_option_and_explain_too(cli: Callable[..., Outcome]) -> None:
    words = ["--table-size", "1TB", "--set", "kernels=torch", "--sharding", "row-wise"]
    said = json.loads(cli("project", *words, "--json").out)["kernels"]
    assert said["implementation"] == "torch" and not said["timed"]
    told = cli("project", *words, "--explain", "gather")
    assert told.code == 0 and "2410.22249" in told.out
    shown = cli("project", *words, "-v")
    assert "kernels  torch" in shown.out and shown.out.count("--set kernels=torch") == 1
    is_an_error(cli("project", "--table-size", "1TB", "--set", "kernels=perfmodel"), 3, "perfmodel calibrate")
