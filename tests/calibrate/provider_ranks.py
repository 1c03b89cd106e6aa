"""Ranks of test_providers.py: every operation of a library, and one JSON line of what was seen.

python provider_ranks.py RANKS PROVIDER PORT RUN TASK [RANK]    without RANK this process becomes all of them
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from forked_ranks import forked, meeting

from calibrate import providers
from calibrate.operations import Place
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.runs import Point, PointKind

SIZES = (1, 128, 1000, 4_004, 65_536, 300_001)
"""Payloads; 1 stands for the smallest that the collective takes. 4004 B and 300 001 B leave remainders."""


def point(name: str, operation: str, ranks: int, size: int, **more: Any) -> Point:
    return Point(
        kind=PointKind.COLLECTIVE,
        operation=operation,
        backend=name,
        payload_bytes=size,
        gpus=ranks,
        gpus_per_node=ranks,
        **{"clock": Clock.EAGER, **more},
    )


def synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def once(provider: Any, one: Point, ranks: Sequence[int], salt: int, calls: int = 3) -> dict[str, Any]:
    """A visit as calibrate.ranks.rank makes it; then one element of the result is spoilt."""
    operation = provider.operation(one, ranks)
    operation.prepare(salt)
    done = synchronize if provider.name != "gloo" else lambda: None
    for _ in range(calls):
        operation.before()
        done()
        provider.barrier(ranks)  # nobody writes into an output before it is poisoned
        operation.run()
        done()
    wrong, checked = operation.check()
    spoilt = 0
    received = len(operation._recv)
    if received:
        operation._recv[-1] += 1
        spoilt = operation.check()[0]
    provider.barrier(ranks)
    return {
        "operation": one.operation,
        "clock": one.clock,
        "payload_bytes": one.payload_bytes,
        "used_bytes": operation.layout.payload_bytes,
        "bytes_sent": operation.bytes_sent,
        "wrong": wrong,
        "checked": checked,
        "spoilt": spoilt,
        "received": received,
    }


def everything(provider: Any, ranks: Sequence[int]) -> list[dict[str, Any]]:
    name, many = provider.name, len(ranks)
    seen: list[dict[str, Any]] = []
    for operation in COLLECTIVES:
        for salt, size in enumerate(SIZES, 1):
            seen.append(once(provider, point(name, operation, many, max(size, 4 * many)), ranks, salt))
        back_to_back = point(name, operation, many, 8_000, clock=Clock.STREAM)
        made = provider.operation(back_to_back, ranks)
        made.prepare(5)
        for _ in range(20):
            made.run()
        seen.append({"operation": operation, "clock": "stream", "wrong": made.check()[0]})
    return seen


def on_gpus(provider: Any, ranks: Sequence[int]) -> list[dict[str, Any]]:
    """Every operation that the library has, on whole multiples of 16 B a peer, eager and back to back."""
    name, many = provider.name, len(ranks)
    seen: list[dict[str, Any]] = []
    for operation in provider.operations:
        for salt, size in enumerate((16 * many, 4_096 * many, 400_000 * many), 1):
            seen.append(once(provider, point(name, operation, many, size), ranks, salt))
        made = provider.operation(point(name, operation, many, 8_000 * many, clock=Clock.STREAM), ranks)
        made.prepare(5)
        provider.barrier(ranks)
        for _ in range(20):
            made.run()
        synchronize()
        seen.append({"operation": operation, "clock": "stream", "wrong": made.check()[0]})
    return seen


def refused(provider: Any, ranks: Sequence[int]) -> str:
    try:
        provider.open_group(ranks)
    except BadInputError as error:
        return str(error)
    return ""


def main() -> None:
    many, (name, port, run, task, *given) = int(sys.argv[1]), sys.argv[2:]
    rank = int(given[0]) if given else forked(many)
    provider: Any = providers.load(name)
    device = "cuda" if task == "gpus" else "cpu"
    place = Place(rank, many, local_rank=rank, local_ranks=many, device=device)
    with meeting(rank, many, port, run) as address:
        answer = visit_all(provider, place, address, task)
    print(json.dumps(answer), flush=True)


def visit_all(provider: Any, place: Place, address: Mapping[str, str], task: str) -> dict[str, Any]:
    rank, many = place.rank, place.ranks
    provider.open(place, address)
    everyone = list(range(many))
    answer: dict[str, Any] = {"rank": rank}
    if task == "groups":
        groups = [everyone, [0, 2], [1, 2]]
        answer["refused"] = refused(provider, [2, 0, 1])
        for group in groups:
            provider.open_group(group)
        answer["groups"] = {
            str(group): [
                once(provider, point(provider.name, op, len(group), 3_000), group, 2) for op in COLLECTIVES
            ]
            for group in groups
            if rank in group
        }
    elif task == "gpus":
        provider.open_group(everyone)
        answer["seen"] = on_gpus(provider, everyone)
    else:
        provider.open_group(everyone)
        answer["seen"] = everything(provider, everyone)
    provider.close()
    return answer


if __name__ == "__main__":
    main()
