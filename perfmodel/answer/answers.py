"""The row-wise answers of questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.answer.answer import Answer, answer_at
from perfmodel.answer.inputs import share_equally
from perfmodel.answer.question import Question, read_keywords
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.grid import cost_grid, project_grid
from perfmodel.engine.row_wise import Configs
from perfmodel.errors import PerfmodelError
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import TableSet, Workload

if TYPE_CHECKING:
    import pandas as pd

_COMPARED = ("gpus", "gpus_needed", "time_s", "baseline_time_s", "low_s", "high_s")


def answer_row_wise(question: Question) -> Answer:
    """The row-wise answer of a question, whatever its sharding. Limits: as ``keywords.prepare``"""
    (answer,) = answer_all([question])
    return answer


def answer_on(question: Question, gpus: int) -> Answer:
    """The row-wise answer on so many GPUs. Limits: ``total`` is not divisible by them -> BadInputError"""
    batch = question.batch if question.total is None else share_equally(question.total, gpus)
    return answer_row_wise(replace(question, gpus=gpus, batch=batch))


def answer_all(questions: Sequence[Question], name: str = "") -> list[Answer]:
    """The row-wise answers of questions that differ in one value at most, costed together.

    name  of the value that differs: table_bytes, gpus ...
    """
    several = {name: [getattr(question, name) for question in questions]} if len(questions) > 1 else {}
    basis, work = questions[0].prepare(several)
    costs = cost_grid(basis, work)
    return [answer_at(question, basis, work, costs, place) for place, question in enumerate(questions)]


def project_one(workload: Any = None, machine: str | Machine = DEFAULT_MACHINE, **options: Any) -> Answer:
    """One configuration in full, sharded row-wise, in the keywords of ``perfmodel.project``."""
    return note_idle(answer_row_wise(Question.of(workload, machine, **options)), answer_row_wise)


def project_each(
    name: str, values: Sequence[float], machine: str | Machine = DEFAULT_MACHINE, **options: Any
) -> list[Answer]:
    """``project_one`` for each value of a keyword (``table_bytes``, ``gpus`` ...), costed together.

    Limits: values that have no answer -> the error of the first
    """
    question = Question.of(None, machine, **{**options, name: values[0]})
    changes: list[dict[str, Any]] = [{name: value} for value in values]
    questions = [replace(question, **change) for change in changes]
    try:
        answers = answer_all(questions, name)
    except PerfmodelError:
        if len(values) == 1:
            raise
        answers = [answer_row_wise(question) for question in questions]
    return [note_idle(answer, answer_row_wise) for answer in answers]


def note_idle(answer: Answer, ask: Callable[[Question], Answer]) -> Answer:
    """The answer, with a note for each machine value that was given and has no effect on it.

    ask  answers a question as ``answer`` was;  so nobody relies on a value that changes nothing
    """
    question = answer.question
    idle = [] if question.setting is not None else [key for key in question.machine.what_ifs]
    notes = [f"{key} changes nothing in this answer" for key in idle if _is_idle(answer, key, ask)]
    return replace(answer, notes=(*answer.notes, *notes))


def _is_idle(answer: Answer, key: str, ask: Callable[[Question], Answer]) -> bool:
    machine = answer.question.machine
    values = {name: machine.value(name) for name in machine.overrides - {key}}
    try:
        without = ask(replace(answer.question, machine=machine.unchanged().with_overrides(values)))
    except PerfmodelError:
        return False
    return all(without.totals[name] == answer.totals[name] for name in _COMPARED)


def prepare(
    workload: Workload | TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    **options: Any,
) -> tuple[PassBasis, Configs]:
    """(the pass, its configurations), ready to be costed, in the keywords of ``perfmodel.project``."""
    question, columns = read_keywords(workload, machine, **options)
    return question.prepare(columns)


def project_row_wise(
    workload: Workload | TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    **options: Any,
) -> pd.DataFrame:
    """Each configuration sharded row-wise, all costed together. One row per configuration.

    workload, machine, values  as of ``perfmodel.project``
    options  of ``perfmodel project`` by their names: backend (nccl, nvshmem, best), clock, reserve,
             gpus_per_node, rows (hbm, host, host-cached:10%), unpooled (True: no bags),
             overrides of machine values, calibration, payload
             (precision of bags on the wire), distribution (of ids: uniform, zipf:1.05 ...), kernels (fbgemm,
             torch, perfmodel), objective (latency: the forward pass, throughput: a training step), optimizer
             (whose state is kept)

    Columns: the configuration, the columns of ``project_grid`` (s, bytes), evidence, main_evidence, clock.
    Limits: a value that cannot be used, lengths that differ -> BadInputError;  no calibration for the
            machine or the library -> NoCalibrationError
    """
    return build_frame(*prepare(workload, machine, **options))


def build_frame(basis: PassBasis, work: Configs) -> pd.DataFrame:
    """The frame of ``project_row_wise``."""
    import pandas as pd

    columns: dict[str, Any] = {
        "table_bytes": work.table_bytes,
        "batch": work.batch,
        "id_bytes": work.id_bytes,
    }
    if len(work.groups) == 1:
        only = work.groups[0]
        for name, values in (("table_count", only.count), ("pooling", only.pooling), ("dim", only.dim)):
            columns[name] = np.broadcast_to(values, work.gpus.shape)
    columns |= project_grid(basis, work)
    words = pd.Index([str(e) for e in Evidence])
    for name in ("evidence", "main_evidence"):
        columns[name] = pd.Categorical.from_codes(columns[name], words, ordered=True)
    names = "+".join(dict.fromkeys(str(c) for c in basis.setting.links.clocks))
    columns["clock"] = pd.Categorical.from_codes(np.zeros(len(work), dtype=np.int8), pd.Index([names]))
    return pd.DataFrame(columns, copy=False)
