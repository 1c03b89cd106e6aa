"""Accuracy of the program, and validity of the paper's claims: verdicts as data, nothing printed."""

from __future__ import annotations

from perfmodel.effort import each_of
from perfmodel.validate.verdicts import Judged, Kind, Outcome, Verdict, load_bands, load_claims


def validate(paper: bool = False, held_out: bool = False) -> list[Verdict]:
    """Check the program's own error bands or, with ``paper``, the claims of arXiv 2512.05831.

    held_out   also check bands that need a new fit without a part of the samples (15 s)
    A verdict is a ``regression`` if an own band does not hold, or if a claim's verdict differs from the
    verdict in ``claims.toml``.
    Limits: a calibration is missing -> NoCalibrationError
    """
    from perfmodel.validate import within

    if paper:
        return [judged.claim.verdict(judged.found) for judged in judged_claims()]
    asked = [band for band in load_bands() if held_out or not band.held_out]
    return [band.verdict(within.held_out(**band.ask)) for band in each_of(asked, "bands")]


def judged_claims() -> list[Judged]:
    """Every claim of the paper with the value that this program computes for it."""
    from perfmodel.validate import questions

    claims = each_of(load_claims().claim, "claims")
    return [Judged.of(claim, questions.answer(claim.ask)) for claim in claims]


def judged_steps() -> list[Verdict]:
    """A verdict for every claim of ``data/dlrm/checks.toml``, about training steps that others measured."""
    from perfmodel.validate import dlrm_inputs, questions

    claims = each_of(dlrm_inputs.load_inputs().claim, "claims")
    return [claim.verdict(questions.answer(claim.ask)) for claim in claims]


__all__ = ["Judged", "Kind", "Outcome", "Verdict", "judged_claims", "judged_steps", "validate"]
