"""The figures of pages, in modules by subject; each turns answers into a plotly figure, words and data."""
