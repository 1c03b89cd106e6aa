"""What the page of a question is about: the answer on top, and how it is asked again with other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.answer import Answer, Question, answer_on
from perfmodel.answer.answer import note_idle
from perfmodel.answer.inputs import TooFewGpusError
from perfmodel.answer.ranking import Ranking, answer_question, name_enough, name_gpus
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.grid import Configs, project_grid
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.errors import BadInputError
from perfmodel.report.figures.chart import Row
from perfmodel.report.ranking_text import rank_fitting
from perfmodel.schema.evidence import Evidence

PLANNED_WORDS = "a sharding for each table"
"""The name of a plan among shardings for all tables."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What a page is about: the answer on top, and the row-wise answer of the same question.

    base     row-wise, on the GPUs of ``answer``
    answer   of a quick plan, with the fastest sharding that TorchRec runs, or with that of the question
    lead     the ranking of the question; None: shardings are not compared
    planned  whether a plan leads in ``answer``
    """

    base: Answer
    answer: Answer
    lead: Ranking | None = None
    planned: bool = False

    @property
    def uniform(self) -> Answer | None:
        """The best answer with one sharding for all tables, as other values have it; None: none fits."""
        return self.lead.uniform if self.lead and self.planned else self.answer

    def change(self, **changes: Any) -> Question:
        """The question with other values (fields of ``Question`` by name)."""
        return replace(self.base.question, **changes)

    def ask(self, **changes: Any) -> Answer:
        """The answer to the question with other values: with its sharding, or the fastest for all tables."""
        return answer_question(self.change(planner=None, **changes))

    def fix_setting(self, **changes: Any) -> Subject:
        """The subject with other values, and its calibration loaded once for figures of many answers.

        Limits: no calibration -> NoCalibrationError
        """
        question = self.change(setting=None, **changes)
        question = replace(question, setting=question.load_setting())
        return replace(self, base=replace(self.base, question=question))

    @property
    def source(self) -> str:
        """The line below a figure of this answer: machine and calibrations."""
        names = ", ".join(dict.fromkeys(self.answer.calibrations)) or "none"
        return f"Machine {self.answer.setting.machine.name}; calibration {names}."


def find_subject(question: Question) -> Subject:
    """The subject of a question. Of a table set a quick plan leads, as in ``perfmodel project``.

    Limits: nothing fits, or the sharding of the question does not -> BadInputError
    """
    try:
        lead = rank_fitting(question) if question.sharding is None else None
        answer = note_idle(lead.answer if lead else answer_question(question), answer_question)
    except TooFewGpusError as error:
        raise name_gpus(question, error) from None
    if lead:
        return Subject(lead.base, answer, lead if lead.base.gpus > 1 else None, lead.planned is not None)
    if not answer.fits:
        held = answer.gpu_count.describe_memory()
        why = f"{answer.sharding} does not fit {answer.gpus} GPUs: {held}."
        raise BadInputError(why, name_enough(question) or "use more GPUs.")
    return Subject(answer if answer.sharding == ROW_WISE else answer_on(question, answer.gpus), answer)


def project_rows(values: Mapping[str, ArrayLike], basis: PassBasis, work: Configs) -> list[Row]:
    """Row-wise answers of many configurations: a dictionary of ``values`` and of ``project_grid`` for each.

    values  arrays or numbers by name (batch, table_count, gpus ...);  basis, work  of ``Question.prepare``
    """
    columns = {name: np.broadcast_to(column, work.gpus.size) for name, column in values.items()}
    columns |= project_grid(basis, work)
    for name in ("evidence", "main_evidence"):
        columns[name] = np.array([str(Evidence.from_rank(int(rank))) for rank in columns[name]])
    lists = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in lists]
