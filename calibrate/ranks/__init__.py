"""Processes that time what they are asked: starting them, talking to them, their clocks."""
