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


_PACKAGE = {
    "project": [
        "perfmodel.answer.project_row_wise",
        "perfmodel.answer.project_one",
        "perfmodel.answer.project_each",
    ],
    "plan_tables": ["perfmodel.plan.in_python.question_of", "perfmodel.plan.frames.TablePlan"],
    "scale_tables": ["perfmodel.plan.frames.TableScaling"],
    "predict_collectives": [],
}
"""The functions of the package, the most asked first, each with its neighbours."""
_LAST = ["perfmodel.answer.answer.Answer"]
EXAMPLES = {
    "perfmodel.answer.sweep.project": """\
frame = perfmodel.project(table_bytes=[1e12, 10e12], batch=1024)
print(frame[["table_bytes", "gpus", "sharding", "slowdown", "low_s", "high_s"]])
""",
    "perfmodel.answer.project_one": """\
from perfmodel.answer import project_one

answer = project_one(table_bytes=10e12)
print(answer.slowdown, answer.band)
print(answer.to_frame())  # its steps
""",
    "perfmodel.answer.project_each": """\
from perfmodel.answer import project_each

for answer in project_each("table_bytes", [1e12, 10e12]):
    print(answer.gpus, answer.slowdown)
""",
    "perfmodel.plan.in_python.plan_tables": """\
plan = perfmodel.plan_tables("criteo-kaggle", gpus=8, effort="quick")
print(plan.time_s, plan.bound_s)
print(plan.tables)
""",
    "perfmodel.plan.in_python.question_of": """\
from perfmodel.plan.in_python import question_of

question = question_of("criteo-kaggle", 8, effort="quick")
print(question.answer().found.cost.time_s)
""",
    "perfmodel.plan.in_python.scale_tables": """\
scaling = perfmodel.scale_tables("criteo-kaggle", gpus=[8, 16], effort="quick")
print(scaling.knee)
print(scaling.table)
""",
    "perfmodel.collectives.estimate.predict_collectives": """\
asked = {"collective": ["all_to_all", "reduce_scatter"], "payload_bytes": [1e6, 1e6], "gpus": [16, 16]}
print(perfmodel.predict_collectives(asked)[["collective", "time_s", "low_s", "high_s"]])
""",
}
"""What a page shows below a function; each is run by a test, after ``import perfmodel``."""


@cache
def pages() -> dict[str, str]:
    """Markdown by the name of the file."""
    from perfmodel import model

    made = {f"{_FOLDER}/perfmodel.md": _package()}
    made |= {f"{_FOLDER}/{name}": _page(*door) for name, door in _DOORS.items()}
    modules = sorted(each.name for each in pkgutil.iter_modules(model.__path__))
    parts = {f"perfmodel.model.{name}": [] for name in modules}
    about = "One equation a function, with units, limits and source. [The model](../../model.md) joins them."
    return {**made, f"{_FOLDER}/model.md": _page("perfmodel.model", about, parts)}


def _package() -> str:
    """The functions that the package itself offers, each with its neighbours and an example."""
    import perfmodel

    left_out = {name for name in perfmodel.__all__ if not name.startswith("__")} ^ set(_PACKAGE)
    if left_out:
        raise ValueError(f"functions of the package and of its page differ: {sorted(left_out)}.")
    about = (
        "The functions of `import perfmodel`. They return `pandas` frames, or objects whose properties are "
        "frames. "
        "Units stand in brackets, as in `[s]` or `[bytes]`; `[-]` is a number without a unit."
    )
    lines = ["# perfmodel: project, plan, predict", "", about, ""]
    for name, neighbours in _PACKAGE.items():
        for member in (f"{getattr(perfmodel, name).__module__}.{name}", *neighbours):
            lines += [*_shown(member), *_example(member)]
    return "\n".join([*lines, *(line for member in _LAST for line in _shown(member))])


def _example(member: str) -> list[str]:
    if member not in EXAMPLES:
        return []
    code = EXAMPLES[member].rstrip()
    start = "" if code.startswith("from ") else "import perfmodel\n\n"
    return ["**Example**:", "", "```python", *(start + code).splitlines(), "```", ""]


def _shown(member: str) -> list[str]:
    return [f"::: {member}", "    options:", "      heading_level: 2", ""]


def _page(title: str, about: str, modules: dict[str, list[str]]) -> str:
    lines = [f"# {title}", "", about, ""]
    for module, members in modules.items():
        for member in [f"{module}.{each}" for each in members] or [module]:
            lines += _shown(member)
    return "\n".join(lines)
