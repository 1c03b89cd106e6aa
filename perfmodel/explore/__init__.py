"""The live page: texts from a browser go through the command line's own readers, and its answers go back."""
