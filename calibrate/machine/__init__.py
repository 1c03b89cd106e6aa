"""Which machine this is, and what can be measured on it."""
