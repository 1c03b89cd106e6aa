"""``--only``: the libraries, kernels and whole passes in a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES
from perfmodel.schema.files import unknown_name
from perfmodel.schema.runs import KERNELS

IMPLEMENTATIONS = ("exchange", "torchrec")
"""Whole passes: our own exchange, and TorchRec's."""

LOOK_UPS = ("torchrec", "exchange", "three", "fused")
"""Implementations of the paper's look-ups (calibrate.planning.pass_cells)."""

_GROUPS = {"kernels": KERNELS, "composed": IMPLEMENTATIONS, "passes": LOOK_UPS}


@dataclass(frozen=True)
class WantedParts:
    """The selection of ``--only``, as pairs (group, name). No pairs: everything.

    The group is a library, ``kernels``, ``composed`` or ``passes``; the name is one of its operations, "" for
    all.
    """

    pairs: tuple[tuple[str, str], ...]

    @property
    def backends(self) -> list[str]:
        """Libraries that were named."""
        return list(dict.fromkeys(group for group, _ in self.pairs if group not in _GROUPS))

    def wants(self, group: str, name: str) -> bool:
        """Whether this operation, kernel or implementation is selected."""
        return not self.pairs or (group, "") in self.pairs or (group, name) in self.pairs

    def wants_group(self, group: str) -> bool:
        """Whether anything of this library, ``kernels`` or ``composed`` is selected."""
        return not self.pairs or any(group == pair[0] for pair in self.pairs)


def read_selection(only: Iterable[str], backends: Sequence[str], known: Sequence[str]) -> WantedParts:
    """Selection by ``--only`` texts; each may contain several names, separated by commas.

    Limits: "" or nothing -> everything; an unknown group or name, or a colon without a name -> BadInputError
    with the known ones;
    a library that ``--backend`` excludes -> BadInputError
    """
    texts = [part.strip() for text in only for part in text.split(",") if part.strip()]
    pairs: list[tuple[str, str]] = []
    for text in texts:
        group, colon, name = (part.strip().replace("-", "_") for part in text.partition(":"))
        if group not in (*_GROUPS, *known):
            raise unknown_name("--only", group, [*_GROUPS, *known])
        names = _GROUPS.get(group, COLLECTIVES)
        if colon and not name:
            raise BadInputError(
                f"--only {group}: names nothing after the colon.",
                f"write --only {group} for all of it, or one of {', '.join(names)}.",
            )
        if name and name not in names:
            raise unknown_name(f"--only {group}:", name, names)
        if backends and group in known and group not in backends:
            raise BadInputError(
                f"--only {group} and --backend {', '.join(backends)} cannot be combined.",
                "give one of the two.",
            )
        pairs.append((group, name))
    return WantedParts(tuple(dict.fromkeys(pairs)))
