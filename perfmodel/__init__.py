"""How much slower does an embedding bag get when its tables are spread over many GPUs, and why."""

from __future__ import annotations

from typing import Any

__version__ = "1.0.0"

_PUBLIC = {
    "check": "perfmodel.cli.in_python",
    "collective": "perfmodel.cli.in_python",
    "plan_tables": "perfmodel.plan.frames",
    "predict_collectives": "perfmodel.collectives.estimate",
    "project": "perfmodel.plan.frames",
    "sweep": "perfmodel.cli.in_python",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Public functions are loaded on first use, so that ``import perfmodel`` stays cheap."""
    if name in _PUBLIC:
        import importlib

        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names in the package, for completion in a shell."""
    return sorted([*__all__, *globals()])
