"""Where the shipped data lies: inside the installed package, or next to it in a source checkout."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from perfmodel.errors import PerfmodelError

_PACKAGE = "perfmodel"


def data_path(*parts: str) -> Path:
    """Path of a shipped data file or folder; it need not exist.

    A wheel installs the folder ``data/`` as ``perfmodel/data``; in a source checkout it lies next to
    ``perfmodel``.
    """
    return _folder("data").joinpath(*parts)


def kernels_path(*parts: str) -> Path:
    """Path of a shipped CUDA source, found as ``data_path`` finds data."""
    return _folder("kernels").joinpath(*parts)


def data_names(folder: str, suffix: str) -> list[str]:
    """Sorted file names without ``suffix`` (``.toml``) of the shipped data folder ``folder``."""
    root = data_path(folder)
    return sorted(path.name.removesuffix(suffix) for path in root.glob(f"*{suffix}")) if root.is_dir() else []


def _folder(name: str) -> Path:
    package = Path(str(resources.files(_PACKAGE)))
    installed = package / name
    if installed.is_dir():
        return installed
    checkout = package.parent / name
    if checkout.is_dir() and (package.parent / "pyproject.toml").is_file():
        return checkout
    raise PerfmodelError(
        f"the shipped folder {name!r} is missing: this installation of {_PACKAGE} is incomplete.",
        "install it again from a wheel or a source checkout.",
    )
