"""How wrong is the tool, and what of the paper holds: verdicts as data, no printing."""

from __future__ import annotations

from perfmodel.validate.verdicts import Band, Judged, Kind, Outcome, Verdict, load_bands, load_claims, outcome


def validate(paper: bool = False, held_out: bool = False) -> list[Verdict]:
    """Judge the tool's own bands, or with ``paper`` the claims of arXiv 2512.05831.

    held_out   also the bands that need fits without a part of the samples (15 s)
    A verdict is a ``regression`` when an own band does not hold, or when a claim's verdict is not the one
    that ``claims.toml`` records. Raises NoCalibrationError when a calibration is missing.
    """
    if paper:
        return [_claim(judged) for judged in judged_claims()]
    return [_band(band) for band in load_bands() if held_out or not band.held_out]


def judged_claims() -> list[Judged]:
    """Every claim of the paper with what was found for it."""
    from perfmodel.validate.paper import CHECKS

    pairs = [(claim, CHECKS[claim.check]()) for claim in load_claims().claim]
    return [Judged(claim, found, claim.judge(found.value)) for claim, found in pairs]


def _claim(judged: Judged) -> Verdict:
    claim, found, said = judged.claim, judged.found, judged.outcome
    band = "" if claim.low is None or claim.high is None else f"{claim.low:g} to {claim.high:g}"
    regression = said is not claim.recorded
    return Verdict(
        claim.id, claim.claim, claim.expected, found.words, band, said, claim.why, regression, claim.kind
    )


def _band(band: Band) -> Verdict:
    from perfmodel.validate.bands import CHECKS

    found = CHECKS[band.check]()
    said = outcome(found.value, band.low, band.high)
    at_most = f"at most {band.high:g}" if band.low == 0 else f"{band.low:g} to {band.high:g}"
    return Verdict(
        band.id, band.claim, at_most, found.words, at_most, said, band.why, said is not Outcome.HOLDS
    )


__all__ = ["Judged", "Kind", "Outcome", "Verdict", "judged_claims", "validate"]
