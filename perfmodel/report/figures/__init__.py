"""The figures of the report, a module a family: results in, plotly figures with their sentences out."""

from perfmodel.report.figures.block import Block, Missing, Switch

__all__ = ["Block", "Missing", "Switch"]
