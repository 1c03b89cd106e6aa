"""This program's times and plans in TorchRec's planner and trainer; only this room imports TorchRec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.in_torchrec.estimator import PerfmodelEstimator
    from perfmodel.in_torchrec.modules import plan_module
    from perfmodel.in_torchrec.rating import PerfmodelRating

__all__ = ["PerfmodelEstimator", "PerfmodelRating", "plan_module"]

_FROM = {"PerfmodelEstimator": "estimator", "PerfmodelRating": "rating", "plan_module": "modules"}


def __getattr__(name: str) -> Any:
    """Imports TorchRec when a name is first used, without its log lines.

    Limits: not installed -> NoHardwareError
    """
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from calibrate.torchrec_plan import quietly

    with quietly():
        return getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
