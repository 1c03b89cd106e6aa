"""The figures of the evidence behind an answer, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfmodel.answer import Answer
from perfmodel.engine.settings import BEST
from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures import registry
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.collective_curves import MeasuredLibrary, collectives, measured
from perfmodel.report.figures.roofline import roofline
from perfmodel.report.figures.validation import held_out_points, own_run_points, validation
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.machine import load_machine
from perfmodel.schema.run_files import read_run
from perfmodel.units import counted
from perfmodel.validate.crossover import GPUS, MACHINE
from perfmodel.validate.points import run_of

_COMPARED = "all_to_all"
_NVLINK, _PCIE = "h100-sxm-ib", "rtx-pro-6000-pcie"


def evidence_blocks(asked: Answer) -> Iterator[Block | Missing]:
    """The figures of a projection's evidence: curves, roofline, changes, predicted and measured."""
    for figure in registry.EVIDENCE:
        yield figure.draw(asked=asked)


def all_to_all(asked: Answer) -> Block | Missing:
    """All-to-all curves of the answer's calibration, on the largest measured number of ranks in a node."""
    return _curves(asked, "all_to_all", registry.ALL_TO_ALL.name)


def reduce_scatter(asked: Answer) -> Block | Missing:
    """Reduce-scatter curves, otherwise as ``all_to_all``."""
    return _curves(asked, "reduce_scatter", registry.REDUCE_SCATTER.name)


def _curves(asked: Answer, collective: str, name: str) -> Block | Missing:
    own = _own(asked)
    ranks = _ranks(own, collective)
    return _with_others([own], collective, max(ranks, default=GPUS), ranks, name)


def libraries() -> Block | Missing:
    """NCCL against NVSHMEM on the shipped machine that has measurements of both."""
    pair = load_machine(MACHINE)
    both = [measured(pair, Backend.NCCL, Clock.STREAM), measured(pair, Backend.NVSHMEM, Clock.DEVICE)]
    shared = set.intersection(*(set(_ranks(one, _COMPARED)) for one in both))
    return _with_others(both, _COMPARED, GPUS, sorted(shared), registry.LIBRARIES.name)


def _with_others(
    compared: Sequence[MeasuredLibrary | None], collective: str, gpus: int, ranks: Sequence[int], name: str
) -> Block | Missing:
    """Curves of a collective on ``gpus`` GPUs; the reader can choose other measured numbers of GPUs.

    compared  the libraries in the figure;  ranks  the numbers of GPUs to choose from
    """
    first = collectives(compared, collective, gpus, name=name)
    if isinstance(first, Missing):
        return first
    others = []
    for other in ranks:
        found = collectives(compared, collective, other, name=name) if other != gpus else None
        if isinstance(found, Block):
            others.append(replace(found, choice=counted(other, "GPU")))
    return replace(first, choice=counted(gpus, "GPU"), others=tuple(others))


def _own(asked: Answer) -> MeasuredLibrary | None:
    """The library that the answer uses, with its samples; NCCL if the answer takes the faster of two."""
    setting = asked.setting
    library = str(Backend.NCCL) if setting.backend == BEST else setting.backend
    return measured(setting.machine.unchanged(), library, setting.clock, setting.calibration)


def _ranks(own: MeasuredLibrary | None, collective: str) -> list[int]:
    """Numbers of ranks within one domain that have a curve, increasing."""
    curves = own.model.calibration.curves if own is not None else []
    return sorted({c.gpus for c in curves if c.collective == collective and c.domain_gpus >= c.gpus})


def links(asked: Answer) -> Block | Missing:
    """All-to-all on a machine with NVLink and on a machine with PCIe; of the answer's machine if measured."""
    machine = asked.setting.machine
    own = measured(machine.unchanged(), Backend.NCCL)
    known = own is not None and not own.model.borrowed
    wide = machine.nvlink_domain_gpus > 1
    nvlink = own if known and wide else measured(load_machine(_NVLINK), Backend.NCCL)
    pcie = own if known and not wide else measured(load_machine(_PCIE), Backend.NCCL)
    return collectives([nvlink, pcie], _COMPARED, GPUS, name=registry.LINKS.name)


def _run(asked: Answer) -> Path | None:
    """The folder of the run that holds the answer's calibration; None without one."""
    calibration = asked.setting.calibration
    return run_of(calibration) if calibration is not None else None


def kernels_roofline(asked: Answer) -> Block | Missing:
    """The roofline with the gathers that the answer's run has timed."""
    folder = _run(asked)
    return roofline(asked, read_run(folder).kernel_samples() if folder is not None else None)


def points(asked: Answer) -> Block | Missing:
    """Predicted against measured: the passes of the answer's run if it has any, else public measurements."""
    folder = _run(asked)
    if folder is not None:
        try:
            return validation(own_run_points(folder))
        except NoCalibrationError:
            pass
    across = asked.forward.domain(asked.work.gpus)[0] < asked.gpus
    return validation(held_out_points(asked.setting.machine.name, across=bool(across)))
