"""Projection: workload x machine x number of GPUs -> time of every step, slowdown, and their evidence."""

from __future__ import annotations

from perfmodel.answer.answers import answer_on, answer_question, project_each, project_one
from perfmodel.answer.keywords import configurations, prepare, project_row_wise
from perfmodel.answer.projection import GpuCount, Projection
from perfmodel.answer.question import Question
from perfmodel.engine.grid import Grid, project_grid
from perfmodel.engine.row_wise import Configs, Forward

__all__ = [
    "Configs",
    "Forward",
    "GpuCount",
    "Grid",
    "Projection",
    "Question",
    "answer_on",
    "answer_question",
    "configurations",
    "prepare",
    "project_each",
    "project_grid",
    "project_one",
    "project_row_wise",
]
