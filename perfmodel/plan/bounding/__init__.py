"""A time that no plan beats."""
