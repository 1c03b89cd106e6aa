"""Memory for rows that do not fit the HBM of the GPUs: the values of ``--tier``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.schema.files import shown
from perfmodel.schema.ranges import LEAST_CACHED
from perfmodel.units import parse_ratio

HBM, UVM, UVM_CACHING, SSD = "hbm", "uvm", "uvm-caching", "ssd"
_SPELLED = {
    UVM: UVM,
    "fused-uvm": UVM,
    "managed": UVM,
    UVM_CACHING: UVM_CACHING,
    "fused-uvm-caching": UVM_CACHING,
    "managed-caching": UVM_CACHING,
    SSD: SSD,
    "key-value": SSD,
}
"""Accepted spellings, with - for _: our names, TorchRec's compute kernels, FBGEMM's locations."""
LRU, LFU, PREFETCH = "lru", "lfu", "prefetch"
EXAMPLE = "uvm, uvm-caching:10%,lfu, uvm-caching:10%,prefetch or ssd:5%"


@dataclass(frozen=True, order=True)
class Tier:
    """A memory tier that holds all rows of a GPU or of a table; with a cache, a share of them is also in HBM.

    kind      uvm: rows of host memory are read in place (fused_uvm); uvm-caching: through a cache in HBM
              (fused_uvm_caching); ssd: from SSDs, through such a cache (key_value); hbm: for a table, no tier
              below the HBM (fused)
    cached    share of the rows that the cache holds [-]; None: as many as fit; 0 for uvm
    policy    which row is evicted: lru, the least recently used, or lfu, the least frequently used
    prefetch  whether the next batch's rows are fetched while this batch runs
    """

    kind: str
    cached: float | None = None
    policy: str = LRU
    prefetch: bool = False

    @property
    def kernel(self) -> str:
        """TorchRec's name of the tier, an ``EmbeddingComputeKernel``."""
        return {HBM: "fused", UVM: "fused_uvm", UVM_CACHING: "fused_uvm_caching", SSD: "key_value"}[self.kind]

    @property
    def place(self) -> str:
        """Where the rows are, in words."""
        return "SSDs" if self.kind == SSD else "host memory"

    def __str__(self) -> str:
        share = "" if self.cached is None or self.kind in (HBM, UVM) else f":{100 * self.cached:.12g}%"
        words = [self.kind + share]
        words += [LFU] if self.policy == LFU else []
        words += [PREFETCH] if self.prefetch else []
        return ",".join(words)


PLACED = {HBM: "in HBM", UVM: "in host memory", UVM_CACHING: "in host memory", SSD: "on SSDs"}
"""Where the rows are, by the kind of tier."""
IN_HBM = Tier(HBM, 0.0)
"""Tier of a table that is in HBM."""


def parse_tier(text: str) -> Tier:
    """The tier that ``--tier`` means.

    Limits: an unknown tier or word, two tiers, a share without a cache, a share outside 0 to 100 %, no word,
            an option before its tier -> BadInputError
    """
    first, *words = [word.strip().lower().replace("_", "-") for word in text.split(",")]
    name, colon, share = first.partition(":")
    if not text.strip():
        raise BadInputError("no tier is given.", f"give {EXAMPLE}.")
    if name in (LRU, LFU, PREFETCH):
        raise BadInputError(
            f"tier {shown(text)}: {name} is no tier, but an option that follows one.",
            f"give the tier first: for example uvm-caching:10%,{name}.",
        )
    if name not in _SPELLED:
        raise BadInputError(f"tier {shown(text)} is not known.", f"give {EXAMPLE}.")
    kind = _SPELLED[name]
    for word in words:
        if word.partition(":")[0] in _SPELLED:
            raise BadInputError(
                f"tier {shown(text)}: {kind} and {word.partition(':')[0]} would both hold all rows.",
                "one tier below the HBM holds the rows: give one of them.",
            )
        if word not in (LRU, LFU, PREFETCH):
            raise BadInputError(f"tier {shown(text)}: {shown(word)} is not known.", f"give {EXAMPLE}.")
    if LRU in words and LFU in words:
        raise BadInputError(f"tier {shown(text)} names two policies.", "give lru or lfu.")
    if LFU in words and PREFETCH in words:
        raise BadInputError(
            f"tier {shown(text)}: FBGEMM fills no LFU cache ahead.",
            "give prefetch with the lru policy, or lfu without prefetch.",
        )
    if kind == SSD and LFU in words:
        raise BadInputError(
            f"tier {shown(text)}: FBGEMM's cache of rows on SSDs is LRU.",
            "leave out lfu, or give it with uvm-caching.",
        )
    if kind == UVM and (colon or words):
        what = share or ", ".join(words)
        raise BadInputError(
            f"tier {shown(text)}: {what} is of a cache, and uvm reads rows in place.",
            "give --tier uvm, or uvm-caching with a share.",
        )
    cached = 0.0 if kind == UVM else _share(text, share) if colon else None
    return Tier(kind, cached, LFU if LFU in words else LRU, PREFETCH in words)


def parse_tiers(texts: Iterable[str]) -> list[Tier | None]:
    """Several tiers, each once. ``hbm`` is returned as None: no tier below the HBM.

    texts  words separated by commas: ``lru``, ``lfu`` and ``prefetch`` belong to the tier before them
    Limits: as ``parse_tier``;  such a word first -> BadInputError
    """
    groups: list[str] = []
    for text in texts:
        of_last = groups and text.strip().lower() in (LRU, LFU, PREFETCH)
        groups[-1:] = [f"{groups[-1]},{text}"] if of_last else [*groups[-1:], text]
    return list(dict.fromkeys(None if text.strip().lower() == HBM else parse_tier(text) for text in groups))


def _share(text: str, share: str) -> float:
    """Share of the rows: ``10%`` or ``0.1``."""
    value = parse_ratio(share, f"--tier {text}: the share", allow_zero=True)
    if not LEAST_CACHED <= value <= 1:
        raise BadInputError(
            f"tier {shown(text)}: a cache of {100 * value:g} % of the rows.",
            f"it holds from {100 * LEAST_CACHED:.7f} to 100 % of them: for example uvm-caching:10%.",
        )
    return value
