"""Tables of a plan in a tier below the HBM: which are allowed, what they cost, and how low a time can be."""

from perfmodel.plan.below_hbm.allowed_tiers import CACHED, IN_PLACE, SHARES, Below, tier_of

__all__ = ["CACHED", "IN_PLACE", "SHARES", "Below", "tier_of"]
