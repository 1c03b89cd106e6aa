"""Which tiers below the HBM a plan may use, with which caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.schema.machine import Machine
from perfmodel.schema.tiers import HBM, IN_HBM, SSD, UVM, UVM_CACHING, Tier

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of a table's rows that its cache may hold, if the user gives none."""
SSD_SHARES = (0.001, 0.002, 0.005, *SHARES)
"""Shares of a table's rows that its cache may hold if the table is on SSDs, which may be far larger than
all HBM."""

NONE, IN_PLACE, CACHED, ON_SSD = 0, 1, 2, 3
"""Codes of a table's tier in arrays: HBM, host memory read in place, host memory with a cache in HBM, SSDs
with a cache in HBM."""
CODES = {HBM: NONE, UVM: IN_PLACE, UVM_CACHING: CACHED, SSD: ON_SSD}
IN_HOST = (IN_PLACE, CACHED)
WITH_CACHE = (CACHED, ON_SSD)
_USUAL = {UVM_CACHING: SHARES, SSD: SSD_SHARES}
EXAMPLE = "uvm,uvm-caching, uvm-caching:10%,lfu, or uvm-caching,ssd"
_HOST_KEYS = ("host_bytes_per_s", "host_link_bytes_per_s", "host_latency_s")
_SSD_KEYS = (
    *("ssd_bytes", "ssd_bytes_per_s", "ssd_reads_per_s", "ssd_block_bytes", "ssd_latency_s"),
    "ssd_queue_depth",
)


@dataclass(frozen=True)
class Below:
    """Memory tiers below the HBM that a plan may put tables in, and the caches that it may use.

    in_place  whether the GPU may read rows of host memory in place, without a cache
    shares    shares of a table's rows that its cache in HBM may hold [-]; empty: no caches
    policy    eviction policy of all caches, lru or lfu
    prefetch  whether caches are filled while the batch before runs
    host_reserve  share of the host memory that tables may not use [-]
    ssd_shares    as ``shares``, for tables on SSDs; empty: no tables on SSDs
    """

    in_place: bool
    shares: tuple[float, ...]
    policy: str = "lru"
    prefetch: bool = False
    host_reserve: float = 0.0
    ssd_shares: tuple[float, ...] = ()

    @staticmethod
    def of(tiers: Iterable[Tier | None]) -> Below | None:
        """The tiers that ``--tier`` names; None and hbm add no tier below the HBM.

        Limits: none below the HBM -> None;  two policies, caches with and without prefetch -> BadInputError
        """
        below = [tier for tier in tiers if tier is not None and tier.kind != HBM]
        if not below:
            return None
        caches = [tier for tier in below if tier.kind in _USUAL]
        ways = {(tier.policy, tier.prefetch) for tier in caches}
        if len(ways) > 1:
            named = " and ".join(str(tier) for tier in caches)
            raise BadInputError(
                f"the caches of {named} differ in more than their share.",
                "give all of them one policy (lru or lfu), and prefetch or not.",
            )
        policy, prefetch = ways.pop() if ways else ("lru", False)
        in_place = any(tier.kind == UVM for tier in below)
        return Below(
            in_place, _shares(caches, UVM_CACHING), policy, prefetch, ssd_shares=_shares(caches, SSD)
        )

    @property
    def way(self) -> tuple[str, bool]:
        """(policy, prefetch) of all caches."""
        return self.policy, self.prefetch

    @property
    def ssd(self) -> bool:
        """Whether tables may be on SSDs."""
        return bool(self.ssd_shares)

    @property
    def host(self) -> bool:
        """Whether tables may be in host memory."""
        return self.in_place or bool(self.shares)

    @staticmethod
    def of_plan(tiers: Iterable[Tier]) -> Below | None:
        """The tiers that the tables of a plan are in; None if all are in HBM."""
        return Below.of(dict.fromkeys(tiers))

    def tiers(self, named: Iterable[Tier] = ()) -> list[tuple[int, float]]:
        """(code, cached share of the rows) of every tier that is allowed, the HBM first.

        named  further tiers to include
        """
        usual = ((CACHED, self.shares), (ON_SSD, self.ssd_shares))
        every = {(code, share) for code, shares in usual for share in shares}
        every |= {(CODES[tier.kind], tier.cached) for tier in named if tier.cached}
        return [(NONE, 0.0), *([(IN_PLACE, 0.0)] if self.in_place else []), *sorted(every)]

    def tier(self, code: int, share: float) -> Tier:
        """The tier with this code and cached share."""
        return IN_HBM if code == NONE else tier_of(code, share, self.policy, self.prefetch)

    def __str__(self) -> str:
        kinds = [UVM] if self.in_place else []
        for kind, shares in ((UVM_CACHING, self.shares), (SSD, self.ssd_shares)):
            each = (None,) if shares == _USUAL[kind] else shares
            kinds += [str(Tier(kind, share, *self.way)) for share in each]
        return ",".join(kinds)


def _shares(caches: Iterable[Tier], kind: str) -> tuple[float, ...]:
    """Cached shares of the tiers of one kind, each once: kind is uvm-caching or ssd."""
    asked = [tier.cached for tier in caches if tier.kind == kind]
    return tuple(sorted({share for one in asked for share in ((one,) if one else _USUAL[kind])}))


def tier_of(code: int, share: float, policy: str, prefetch: bool) -> Tier:
    """The tier with a code, the share of its rows in a cache, and that cache's policy and prefetch."""
    if code == IN_PLACE:
        return Tier(UVM, 0.0)
    return Tier(SSD if code == ON_SSD else UVM_CACHING, share, policy, prefetch)


def check_machine(machine: Machine, below: Below, *, training: bool) -> None:
    """Check that the machine has the tiers. Limits: no host memory, or no SSDs where tables may be on them
    -> BadInputError that names the missing value"""
    host = ("host_bytes", *_HOST_KEYS) if below.host else _HOST_KEYS
    writes = ("ssd_write_bytes_per_s",) if training else ()
    for key in (*host, *((*_SSD_KEYS, *writes) if below.ssd else ())):
        machine.quantity(key)
