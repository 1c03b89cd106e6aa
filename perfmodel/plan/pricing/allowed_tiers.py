"""Which tiers below the HBM a plan may use, and with which caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.schema.machine import Machine
from perfmodel.schema.tiers import HBM, IN_HBM, SSD, UVM, UVM_CACHING, Tier

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of a table's rows that its cache may hold, where none is asked for."""

NONE, IN_PLACE, CACHED = 0, 1, 2
"""Where a table is, as arrays have it: HBM, host memory read in place, host memory with a cache in HBM."""
CODES = {HBM: NONE, UVM: IN_PLACE, UVM_CACHING: CACHED}
EXAMPLE = "uvm,uvm-caching, or uvm-caching:10%,lfu"


@dataclass(frozen=True)
class Below:
    """Tiers that tables may be in beside the HBM.

    in_place  whether rows may be read in place
    shares    of the rows of a table that its cache may hold [-]; none: no caches
    policy    of all caches;  prefetch  whether all of them are filled while the batch before runs
    host_reserve  part of the host memory that tables may not use [-]
    """

    in_place: bool
    shares: tuple[float, ...]
    policy: str = "lru"
    prefetch: bool = False
    host_reserve: float = 0.0

    @staticmethod
    def of(tiers: Iterable[Tier | None]) -> Below | None:
        """What ``--tier`` says; None and hbm: no tier below the HBM.

        Limits: none below the HBM -> None;  SSDs, two policies, caches with and without prefetch
                -> BadInputError
        """
        below = [tier for tier in tiers if tier is not None and tier.kind != HBM]
        if not below:
            return None
        if any(tier.kind == SSD for tier in below):
            raise BadInputError(
                "a plan has no tables on SSDs.",
                f"give --tier {EXAMPLE}; perfmodel project --tier ssd costs them.",
            )
        caches = [tier for tier in below if tier.kind == UVM_CACHING]
        ways = {(tier.policy, tier.prefetch) for tier in caches}
        if len(ways) > 1:
            named = " and ".join(str(tier) for tier in caches)
            raise BadInputError(
                f"the caches of {named} differ in more than their share.",
                "give all of them one policy (lru or lfu), and prefetch or not.",
            )
        shares = {share for tier in caches for share in ((tier.cached,) if tier.cached else SHARES)}
        policy, prefetch = ways.pop() if ways else ("lru", False)
        return Below(any(tier.kind == UVM for tier in below), tuple(sorted(shares)), policy, prefetch)

    @property
    def way(self) -> tuple[str, bool]:
        """Policy and prefetch of all caches."""
        return self.policy, self.prefetch

    @staticmethod
    def of_plan(tiers: Iterable[Tier]) -> Below | None:
        """Those that the tables of a plan are in; None where all are in HBM."""
        return Below.of(dict.fromkeys(tiers))

    def tiers(self, shares: Iterable[float] = ()) -> list[tuple[int, float]]:
        """(code, share of the rows in a cache) of every tier, the HBM first. shares  that are tried too"""
        every = sorted({*self.shares, *shares})
        return [(NONE, 0.0), *([(IN_PLACE, 0.0)] if self.in_place else []), *((CACHED, s) for s in every)]

    def tier(self, code: int, share: float) -> Tier:
        """The tier of a table."""
        return IN_HBM if code == NONE else tier_of(code, share, self.policy, self.prefetch)

    def __str__(self) -> str:
        kinds = [UVM] if self.in_place else []
        kinds += [str(self.tier(CACHED, share)) for share in self.shares] if self.shares != SHARES else []
        if self.shares == SHARES:
            kinds.append(str(Tier(UVM_CACHING, None, self.policy, self.prefetch)))
        return ",".join(kinds)


def tier_of(code: int, share: float, policy: str, prefetch: bool) -> Tier:
    """A tier from its code."""
    return Tier(UVM, 0.0) if code == IN_PLACE else Tier(UVM_CACHING, share, policy, prefetch)


def check_machine(machine: Machine) -> None:
    """Limits: a machine that does not say its host memory -> BadInputError that names the value"""
    for key in ("host_bytes", "host_bytes_per_s", "host_link_bytes_per_s", "host_latency_s"):
        machine.quantity(key)
