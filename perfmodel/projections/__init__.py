"""Projection: workload x machine x number of GPUs -> time of every step, slowdown, and their evidence."""

from __future__ import annotations

from perfmodel.projections.answers import answer_on, answer_question, project_each, project_one
from perfmodel.projections.costs import Forward
from perfmodel.projections.grid import Grid, project_grid
from perfmodel.projections.inputs import Configs
from perfmodel.projections.keywords import configurations, prepare, project_row_wise
from perfmodel.projections.projection import GpuCount, Projection
from perfmodel.projections.question import Question

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
