"""Pages of the Python functions: which modules each shows; mkdocstrings fills them from the docstrings."""

from __future__ import annotations

import pkgutil
from functools import cache

_FOLDER = "reference/python"
_DOORS = {
    "in-torchrec.md": (
        "perfmodel.in_torchrec",
        "Plans and times inside TorchRec; [how to use them](../../torchrec.md).",
        {
            "perfmodel.in_torchrec.modules": ["plan_module"],
            "perfmodel.in_torchrec.estimator": ["PerfmodelEstimator"],
            "perfmodel.in_torchrec.rating": ["PerfmodelRating"],
        },
    ),
    "errors.md": (
        "perfmodel.errors",
        "Every error that is raised on purpose, with the exit code that the command line makes of it.",
        {"perfmodel.errors": []},
    ),
    "units.md": (
        "perfmodel.units",
        "Sizes, rates and times: how they are read and printed.",
        {"perfmodel.units": []},
    ),
}


_BESIDE = {
    "perfmodel.project": ["project_one", "project_each"],
    "perfmodel.project.projection": ["Projection"],
    "perfmodel.plan.in_python": ["question_of", "TablePlan", "TableScaling"],
}
"""What functions of the package return or take, and their neighbours."""


@cache
def pages() -> dict[str, str]:
    """Markdown by the name of the file."""
    from perfmodel import model

    made = {f"{_FOLDER}/perfmodel.md": _page(*_package())}
    made |= {f"{_FOLDER}/{name}": _page(*door) for name, door in _DOORS.items()}
    modules = sorted(each.name for each in pkgutil.iter_modules(model.__path__))
    parts = {f"perfmodel.model.{name}": [] for name in modules}
    about = "One equation a function, with units, limits and source. [The model](../../model.md) joins them."
    return {**made, f"{_FOLDER}/model.md": _page("perfmodel.model", about, parts)}


def _package() -> tuple[str, str, dict[str, list[str]]]:
    """The functions that the package itself offers, by the module that each is in."""
    import perfmodel

    about = "Functions of the package itself. They return `pandas` frames, or objects that hold some."
    found: dict[str, list[str]] = {}
    for name in perfmodel.__all__:
        if not name.startswith("__"):
            found.setdefault(getattr(perfmodel, name).__module__, []).append(name)
    for module, names in _BESIDE.items():
        found.setdefault(module, []).extend(names)
    return "perfmodel: project, plan, predict", about, found


def _page(title: str, about: str, modules: dict[str, list[str]]) -> str:
    lines = [f"# {title}", "", about, ""]
    for module, members in modules.items():
        if members:
            for member in members:
                lines += [f"::: {module}.{member}", "    options:", "      heading_level: 2", ""]
        else:
            lines += [f"::: {module}", "    options:", "      heading_level: 2", ""]
    return "\n".join(lines)
