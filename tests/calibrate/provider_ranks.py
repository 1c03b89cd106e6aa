"""Ranks of test_providers.py: every operation of a library in several groups; each prints what it saw.

python provider_ranks.py RANKS PROVIDER PORT RUN DEVICE [RANK]    without RANK this process becomes all
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from forked_ranks import forked, meeting
from oracles.points import make_collective

from calibrate import providers
from calibrate.operations import Place
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock

SIZES = (1, 128, 1000, 4_004, 65_536, 300_001)
"""Payloads; 1 stands for the smallest that the collective takes. 4004 B and 300 001 B leave remainders."""


def synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def visit(provider: Any, point: Any, ranks: Sequence[int], salt: int, device: str) -> dict[str, Any]:
    """A visit as calibrate.ranks.rank makes it; then one element of the result is spoilt."""
    operation = provider.operation(point, ranks)
    operation.prepare(salt)
    provider.barrier(ranks)  # nobody writes into an output before it is poisoned
    for _ in range(20 if point.clock is Clock.STREAM else 3):
        if point.clock is Clock.EAGER:
            operation.before()
            synchronize(device)
            provider.barrier(ranks)
        operation.run()
    synchronize(device)
    wrong, checked = operation.check()
    received, spoilt = len(operation._recv), 0
    if received:
        operation._recv[-1] += 1
        spoilt = operation.check()[0]
    provider.barrier(ranks)
    cell = [point.operation, point.clock, point.payload_bytes]
    counts = {"used_bytes": operation.layout.payload_bytes, "bytes_sent": operation.bytes_sent}
    return {"cell": cell, "wrong": wrong, "checked": checked, "missed": bool(received) - spoilt, **counts}


def visit_all(provider: Any, ranks: Sequence[int], device: str) -> Iterator[dict[str, Any]]:
    """On GPUs whole multiples of 16 B a peer, eager and back to back."""
    many = len(ranks)
    sizes = [max(size, 4 * many) for size in SIZES]
    if device == "cuda":
        sizes = [16 * many, 4_096 * many, 400_000 * many]
    for operation in provider.operations:
        for salt, (size, clock) in enumerate(
            [*((size, Clock.EAGER) for size in sizes), (8_000 * many, Clock.STREAM)], 1
        ):
            more = {"backend": provider.name, "payload_bytes": size, "clock": clock}
            yield visit(provider, make_collective(operation, many, **more), ranks, salt, device)


def main() -> None:
    many, (name, port, run, device, *given) = int(sys.argv[1]), sys.argv[2:]
    rank = int(given[0]) if given else forked(many)
    provider: Any = providers.load(name)
    everyone = list(range(many))
    groups, refused = [everyone, *([[0, 2], [1, 2]] if many == 3 else [])], ""
    with meeting(rank, many, port, run) as address:
        provider.open(Place(rank, many, local_rank=rank, local_ranks=many, device=device), address)
        try:
            provider.open_group([2, 0, 1] if many == 3 else everyone)
        except BadInputError as error:
            refused = str(error)
        for group in groups:
            provider.open_group(group)
        seen = {str(group): list(visit_all(provider, group, device)) for group in groups if rank in group}
        provider.close()
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    print(json.dumps({"rank": rank, "refused": refused, "interface": interface, "seen": seen}), flush=True)


if __name__ == "__main__":
    main()
