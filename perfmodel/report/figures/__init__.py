"""The figures of the report, in modules by subject; each turns results into plotly figures and text."""

from perfmodel.report.figures.block import Block, Missing, Switch

__all__ = ["Block", "Missing", "Switch"]
