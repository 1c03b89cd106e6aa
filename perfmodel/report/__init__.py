"""Turns answers into text for terminals, HTML pages and figures."""
