"""Answer: workload x machine x number of GPUs -> time of every step, slowdown, and their evidence."""

from __future__ import annotations

from perfmodel.answer.answer import Answer, answer_on, answer_row_wise, project_one
from perfmodel.answer.inputs import GpuCount
from perfmodel.answer.question import Question
from perfmodel.answer.sweep import prepare, project_row_wise
from perfmodel.engine.grid import Configs, project_grid

__all__ = [
    "Answer",
    "Configs",
    "GpuCount",
    "Question",
    "answer_on",
    "answer_row_wise",
    "prepare",
    "project_grid",
    "project_one",
    "project_row_wise",
]
