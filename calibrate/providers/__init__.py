"""One file a library: what turns a point into calls of it."""
