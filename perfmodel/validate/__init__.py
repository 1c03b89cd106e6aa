"""Accuracy of the program, and validity of papers' claims: verdicts as data, nothing printed."""

from __future__ import annotations

from perfmodel.effort import each_of
from perfmodel.validate.verdicts import Outcome, Verdict, load_claims


def validate(paper: bool = False, held_out: bool = False) -> list[Verdict]:
    """Check the program's own error bands or, with ``paper``, the claims of arXiv 2512.05831 and others.

    held_out   also check bands that need a new fit without a part of the samples (15 s)
    A verdict is a ``regression`` if an own band does not hold.
    Limits: a calibration is missing -> NoCalibrationError
    """
    if paper:
        from perfmodel.validate.questions import find_answer

        return [claim.verdict(find_answer(claim.ask)) for claim in each_of(load_claims(), "claims")]
    from perfmodel.validate.accuracy import judge_left_out

    bands = [band for band in load_claims("bands") if held_out or not band.held_out]
    return [band.verdict(judge_left_out(**band.ask), own=True) for band in each_of(bands, "bands")]


__all__ = ["Outcome", "Verdict", "validate"]
