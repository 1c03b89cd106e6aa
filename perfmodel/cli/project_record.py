"""The JSON document of ``perfmodel project``, for any sharding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.answer import Projection
from perfmodel.answer.kernel_choice import OtherKernels
from perfmodel.answer.sensitivity import NextExperiment, Sensitivity


def project_record(
    answer: Projection,
    calibration_file: str | None,
    changes: Sequence[Sensitivity],
    experiment: NextExperiment | None,
    others: Sequence[OtherKernels] = (),
) -> dict[str, Any]:
    """The JSON answer: the projection, changes (and their effects), next_experiment, kernels.

    others  the answer with other kernels
    """
    return {
        **answer.to_dict(),
        "calibration_file": calibration_file,
        "changes": [vars(each) for each in changes],
        "next_experiment": vars(experiment) if experiment else None,
        "kernels": {
            "implementation": answer.setting.kernel_library,
            "timed": answer.setting.kernels is not None,
            "others": [vars(other) for other in others],
        },
    }
