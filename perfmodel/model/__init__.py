"""The science: one equation a function, no input or output, no state."""
