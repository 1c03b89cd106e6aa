"""The question that a plan answers, as stored in the plan's file: all that affects the plan's cost."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.settings import Setting
from perfmodel.question.groups import choose_optimizer
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.fields import Exact


class MadeFor(Exact):
    """The question that a plan answers. A field that a file lacks is unknown; None is the default.

    model_file     file of the tables, if they are not shipped
    machine, machine_file  its name, and its file if it is not shipped
    overrides      machine values that the user set [SI];  batch  samples per GPU
    training       whether the pass was forward and backward;  optimizer  None: the default of the pass
    distribution   of all ids, or one per table
    backend        None: the library of the calibration or of the machine
    reserve        share of the memory that tables may not use;  max_hbm_bytes  usable bytes of each GPU
    dense          dense layers beside the plan, as typed
    The other fields are the options of ``plan`` with these names.
    """

    model_file: str | None = None
    machine: str
    machine_file: str | None = None
    overrides: dict[str, float] = {}
    batch: int = Field(ge=1)
    training: bool = False
    optimizer: str | None = None
    distribution: str | list[str] = "uniform"
    payload: str | None = None
    id_dtype: str | None = None
    backend: str | None = None
    clock: str | None = None
    kernels: str | None = None
    calibration: str | None = None
    reserve: float | None = Field(default=None, ge=0, lt=1)
    max_hbm_bytes: float | None = Field(default=None, gt=0)
    dense: str | None = None

    @staticmethod
    def of(evaluator: Evaluator, **more: Any) -> MadeFor:
        """The question behind an evaluator's costs. more  fields that the evaluator does not know"""
        setting, basis = evaluator.setting, evaluator.basis
        machine, training, optimizer = setting.machine, basis.training, basis.optimizer
        overrides = {key: machine.value(key) for key in machine.what_ifs}
        if basis.gpus_per_node is not None:
            overrides |= machine.values_of_node(basis.gpus_per_node)
        return MadeFor(
            machine=machine.name,
            overrides=overrides,
            batch=evaluator.batch,
            training=training,
            optimizer=None if optimizer == choose_optimizer(training=training) else optimizer,
            distribution=evaluator.tables.distribution,
            payload=basis.payload,
            id_dtype=evaluator.id_dtype,
            backend=_backend(setting),
            clock=None if setting.clock is None else str(setting.clock),
            kernels=setting.asked_kernels,
            calibration=None if setting.calibration is None else str(setting.calibration),
            **more,
        )


def _backend(setting: Setting) -> str | None:
    """Name of the library, if it is not the default of the calibration or of the machine."""
    own = str(setting.machine.defaults.backend)
    if setting.calibration is not None:
        own = str(load_calibration(str(setting.calibration)).backend)
    return None if setting.backend == own else str(setting.backend)
